"""Accounts: bursts pass, the mean holds, and nobody pays for another."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import quotas as module
from gateway.quotas import ANONYMOUS, BURST_S, Kind, Quotas
from hot_tier.cluster.image import ImageChange, Listener
from hot_tier.cluster.model import QuotaEntity

RATE = 1000


class Image:
    """The part of the cluster image that quotas read."""

    def __init__(self, *limits: tuple[dict[str, str | None], dict[str, float]]) -> None:
        self.listeners: list[Listener] = []
        self.quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self.set(*limits)

    def subscribe(self, listener: Listener) -> None:
        self.listeners.append(listener)

    def set(self, *limits: tuple[dict[str, str | None], dict[str, float]]) -> None:
        self.quotas = {QuotaEntity.of(parts): values for parts, values in limits}
        for listener in self.listeners:
            listener(ImageChange(quotas=True))


def quotas_for(image: Image) -> Quotas:
    return Quotas(image)  # type: ignore[arg-type]


def limited(parts: dict[str, str | None], **limits: float) -> Quotas:
    return quotas_for(Image((parts, limits)))


def test_nobody_is_limited_by_default() -> None:
    assert quotas_for(Image()).charge("app", "produce", 1 << 40, 0) == 0


def test_a_burst_passes_and_then_the_pause_evens_it_out() -> None:
    quotas = limited({"client-id": "app"}, producer_byte_rate=RATE)
    assert quotas.charge("app", "produce", RATE * BURST_S, 0) == 0
    assert quotas.charge("app", "produce", 500, 0) == 500
    assert quotas.charge("app", "produce", 0, 500) == 0
    assert quotas.charge("app", "produce", 1, 500) == 1


def test_a_long_silence_saves_up_no_more_than_a_burst() -> None:
    quotas = limited({"client-id": "app"}, producer_byte_rate=RATE)
    assert quotas.charge("app", "produce", 1, 0) == 0
    assert quotas.charge("app", "produce", RATE * (BURST_S + 1), 3_600_000) == 1000


def test_one_huge_request_is_paid_for_in_full() -> None:
    quotas = limited({"client-id": "app"}, consumer_byte_rate=RATE)
    assert quotas.charge("app", "fetch", RATE * BURST_S + 60 * RATE, 0) == 60_000


def test_no_pause_is_longer_than_a_response_can_say() -> None:
    quotas = limited({"client-id": "app"}, consumer_byte_rate=1)
    assert quotas.charge("app", "fetch", 55 << 20, 0) == 2**31 - 1
    assert quotas.charge("app", "fetch", 0, 0) == 2**31 - 1


def test_produce_and_fetch_are_counted_apart() -> None:
    quotas = limited({"client-id": "app"}, producer_byte_rate=RATE, consumer_byte_rate=RATE * 2)
    assert quotas.charge("app", "produce", RATE * 11, 0) == 1000
    assert quotas.charge("app", "fetch", RATE * 20, 0) == 0


def test_a_limit_on_one_kind_leaves_the_other_free() -> None:
    quotas = limited({"client-id": "app"}, producer_byte_rate=RATE)
    assert quotas.charge("app", "fetch", 1 << 40, 0) == 0


def test_clients_under_a_default_have_an_account_each() -> None:
    quotas = limited({"client-id": None}, producer_byte_rate=RATE)
    assert quotas.charge("a", "produce", RATE * 20, 0) == 10_000
    assert quotas.charge("b", "produce", RATE * 10, 0) == 0


def test_clients_of_one_limited_user_share_its_account() -> None:
    quotas = limited({"user": None}, producer_byte_rate=RATE)
    assert quotas.charge("a", "produce", RATE * 10, 0, user="ann") == 0
    assert quotas.charge("b", "produce", RATE, 0, user="ann") == 1000
    assert quotas.charge("a", "produce", RATE, 0, user="bob") == 0


def test_a_connection_without_login_is_the_anonymous_user() -> None:
    quotas = limited({"user": ANONYMOUS}, producer_byte_rate=RATE)
    assert quotas.charge("a", "produce", RATE * 11, 0) == 1000


def test_other_clients_are_free() -> None:
    quotas = limited({"client-id": "app"}, producer_byte_rate=RATE)
    assert quotas.charge("other", "produce", 1 << 40, 0) == 0


def test_a_changed_limit_holds_from_then_on() -> None:
    image = Image()
    quotas = quotas_for(image)
    assert quotas.charge("app", "produce", RATE * 100, 0) == 0
    image.set(({"client-id": "app"}, {"producer_byte_rate": RATE}))
    assert quotas.charge("app", "produce", RATE * 11, 0) == 1000
    image.set(({"client-id": "app"}, {"producer_byte_rate": RATE * 10}))
    assert quotas.charge("app", "produce", RATE * 100, 0) == 0
    image.set()
    assert quotas.charge("app", "produce", 1 << 40, 0) == 0


def test_a_change_for_another_does_not_wipe_debts() -> None:
    image = Image(({"client-id": "app"}, {"producer_byte_rate": RATE}))
    quotas = quotas_for(image)
    assert quotas.charge("app", "produce", RATE * 20, 0) == 10_000
    image.set(({"client-id": "app"}, {"producer_byte_rate": RATE}), ({"client-id": "x"}, {"producer_byte_rate": 1}))
    assert quotas.charge("app", "produce", 0, 0) == 10_000


def test_a_clock_that_steps_back_gives_nothing_away() -> None:
    quotas = limited({"client-id": "app"}, producer_byte_rate=RATE)
    assert quotas.charge("app", "produce", RATE * 11, 10_000) == 1000
    assert quotas.charge("app", "produce", 0, 5_000) == 1000
    assert quotas.charge("app", "produce", 0, 10_500) == 500


@pytest.mark.parametrize("limited_client", [None, "c0"])
def test_invented_client_ids_do_not_pile_up(monkeypatch: pytest.MonkeyPatch, limited_client: str | None) -> None:
    monkeypatch.setattr(module, "MAX_ACCOUNTS", 100)
    quotas = limited({"client-id": limited_client}, producer_byte_rate=RATE)
    assert quotas.charge("c0", "produce", RATE * 100, 0) == 90_000
    for n in range(1, 5000):
        quotas.charge(f"c{n}", "produce", 1, n)
    assert len(quotas._accounts) <= 101 and len(quotas._holders) <= 101
    assert quotas.charge("c0", "produce", 0, 5000) == 85_000, "who owes is not forgotten"


charges = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 5000)), min_size=1, max_size=60)


@given(charges, st.sampled_from(["produce", "fetch"]))
def test_a_client_that_pauses_as_told_keeps_to_its_rate(requests: list[tuple[int, int]], kind: Kind) -> None:
    quotas = limited({"client-id": "app"}, producer_byte_rate=RATE, consumer_byte_rate=RATE)
    now_ms = sent = 0
    for idle_ms, nbytes in requests:
        now_ms += idle_ms
        sent += nbytes
        now_ms += quotas.charge("app", kind, nbytes, now_ms)
        assert sent <= RATE * (BURST_S + now_ms / 1000) + 1

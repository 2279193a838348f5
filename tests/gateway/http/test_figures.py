"""Figures of brokers, topics and groups: what is measured, kept, and shown in pages."""

import time
from itertools import product
from random import Random

import pytest

from gateway.coordinators.coordinator import GroupListing
from gateway.coordinators.groups.states import State
from gateway.coordinators.offsets_topic.values import CommittedOffset
from gateway.http.figures.history import FINE, UNKNOWN, History, Resolution, Ring
from gateway.http.figures.lag import Measured, measure
from gateway.http.figures.sampler import wait_s
from gateway.http.figures.values import GroupFigures, TopicFigures, add_topics
from gateway.http.paging import page_of
from hot_tier.ids import PartitionId, TopicPartition
from tests.gateway.http.conftest import Served

GROUPS = "/api/v1/consumer-groups"


# History


def test_a_ring_keeps_the_newest_and_its_time() -> None:
    ring = Ring(Resolution(10, 4))
    for at in range(7):
        ring.add(at * 10, at)
    assert ring.series() == (60, 10, [3, 4, 5, 6])


def test_long_breaks_are_gaps_and_a_clock_that_goes_back_makes_none() -> None:
    ring = Ring(Resolution(30_000, 5))
    ring.add(0, 1)
    ring.add(100_000, 2)
    assert ring.series() == (90_000, 30_000, [1, UNKNOWN, UNKNOWN, 2])
    ring.add(36_000, 3)
    assert ring.series() == (90_000, 30_000, [1, UNKNOWN, UNKNOWN, 3])
    ring.add(30_000_000, 4)
    assert ring.series().values == [UNKNOWN] * 4 + [4]


def test_a_value_stands_for_the_time_since_the_one_before() -> None:
    ring = Ring(FINE)
    for at, now_s in enumerate((0, 10, 38, 98, 168)):
        ring.add(now_s * 1000, at)
    assert ring.series().values == [0, 1, 2, 2, *[3] * 6, *[UNKNOWN] * 6, 4]


def test_a_history_is_bounded() -> None:
    history = History()
    for step in range(10_000):
        history.add(step * FINE.step_ms, step)
    assert len(history.last_hour().values) == 360 and len(history.last_day().values) == 288
    assert history.last_hour().values[-1] == history.last_day().values[-1] == 9_999


@pytest.mark.parametrize("start_ms", [0, 5_000, 9_500, 9_999])
def test_waits_that_take_longer_leave_no_step_out(start_ms: int) -> None:
    ring, chance, now_ms = Ring(FINE), Random(start_ms), 1_700_000_000_000 + start_ms
    for _ in range(FINE.points):
        ring.add(now_ms, 1)
        took_s = chance.uniform(0.001, 0.3)
        now_ms += round((took_s + wait_s(now_ms, took_s) + chance.uniform(-0.001, 2)) * 1000)
    assert set(ring.series().values) == {1}


def test_a_long_sample_has_a_long_rest() -> None:
    assert wait_s(1_000, 0) == 9 and wait_s(1_000, 2) == 38 and wait_s(9_990, 0) == 1


# Lag


def tp(topic: str, number: int) -> TopicPartition:
    return TopicPartition(topic, PartitionId(number))


def committed(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", 0)


def test_lag_is_known_only_if_all_of_it_is() -> None:
    found = Measured({}, {}, {}, None)
    ends = {tp("a", 0): (0, 10), tp("a", 1): (5, 10), tp("b", 0): (0, 7)}
    measure("one", {tp("a", 0): committed(4), tp("a", 1): committed(0)}, ends, found)
    measure("two", {tp("a", 0): committed(10), tp("b", 0): None}, ends, found)
    measure("three", {tp("gone", 0): committed(1)}, ends, found)
    assert {name: each.lag for name, each in found.groups.items()} == {"one": 11, "two": None, "three": None}
    assert (found.reads["a"].groups, found.reads["a"].lag) == (2, 11), "the group that is furthest behind"
    assert (found.reads["b"].lag, found.reads["gone"].lag) == (None, None)


def test_sums_over_brokers_take_the_longest_wait() -> None:
    one, other = TopicFigures(size_bytes=1, archive_lag_ms=50), TopicFigures(size_bytes=2, archive_lag_ms=20)
    assert add_topics(one, other) == TopicFigures(size_bytes=3, archive_lag_ms=50)


# Pages


def page(items: list[tuple[str, int | None]], **values: object) -> list[str]:
    asked = {"skip": 0, "limit": None, "descending": False, **values}
    return [name for name, _ in page_of(list(items), asked, lambda item: item[0], lambda item: item[1])]


def test_pages_are_stable_and_the_unknown_come_last() -> None:
    items: list[tuple[str, int | None]] = [("d", 1), ("c", None), ("b", 2), ("a", 1), ("e", None)]
    assert page(items) == ["a", "d", "b", "c", "e"]
    assert page(items, descending=True) == ["b", "a", "d", "c", "e"]
    assert page(items, skip=1, limit=2) == ["d", "b"]
    assert page(items, skip=9, limit=2) == []


async def test_topics_in_pages(served: Served) -> None:
    for name, size in (("orders", 3), ("Old-Orders", 1), ("clicks", 2)):
        await served.make_topic(name, size)

    async def listed(query: str) -> tuple[list[str], int]:
        told = (await served.get(f"/api/v1/topics?{query}")).json
        return [each["name"] for each in told["topics"]], told["total"]

    assert await listed("search=order") == (["Old-Orders", "orders"], 2)
    assert await listed("sort=partitions&descending=true&limit=2") == (["orders", "clicks"], 3)
    assert await listed("skip=2&limit=2") == (["orders"], 3)
    for wrong in ("sort=colour", "limit=0", "limit=1001", "descending=yes", "skip=-1"):
        assert (await served.get(f"/api/v1/topics?{wrong}")).problem == "bad-parameter"


async def test_figures_of_topics_groups_and_the_broker(served: Served) -> None:
    await served.make_topic("orders", 2)
    await served.make_topic("idle")
    await served.produce("orders", b"a", b"b", b"c")
    commit = {"topic": "orders", "partition": 0, "offset": 1}
    assert (await served.post(f"{GROUPS}/billing/offsets", json=commit)).status == 200
    await served.api.sampler.sample()
    served.api.totals._until_s = 0
    [topic, _] = (await served.get("/api/v1/topics?figures=true&sort=lag&descending=true&internal=false")).json[
        "topics"
    ]
    assert (topic["name"], topic["figures"]["records"], topic["reads"]) == ("orders", 3, {"groups": 1, "lag": 2})
    assert topic["figures"]["size_bytes"] > 0
    [group] = (await served.get(f"{GROUPS}?figures=true&sort=lag")).json["groups"]
    assert (group["group"], group["figures"]) == ("billing", {"topics": 1, "lag": 2})
    assert "figures" not in (await served.get(GROUPS)).json["groups"][0]
    told = (await served.get("/api/v1/cluster/figures")).json
    assert told["silent"] == [] and [each["broker"] for each in told["brokers"]] == [0]
    [broker] = told["brokers"]
    assert broker["lag"] == 2 and broker["groups"] == 1 and broker["disk_size_bytes"] > broker["disk_free_bytes"] > 0
    history = (await served.get(f"{GROUPS}/billing/lag")).json["lag"]
    assert history["hour"]["values"][-1] == 2 and history["hour"]["step_ms"] == 10_000
    assert (await served.get(f"{GROUPS}/nobody/lag")).json["lag"] is None
    assert (await served.get("/api/v1/topics/orders/groups")).json == {
        "groups": [{"group": "billing", "state": "Empty", "members": 0, "lag": 2}],
        "total": 1,
    }
    assert (await served.get("/api/v1/topics/idle/groups")).json == {"groups": [], "total": 0}
    assert (await served.get("/api/v1/topics/nothing/groups")).problem == "unknown-topic"
    own = (await served.get("/api/v1/cluster/figures/own")).json
    assert own["topics"]["orders"]["records"] == 3 and own["groups"]["billing"]["lag"] == 2


async def test_histories_end_with_their_groups(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await served.make_topic("orders")
    monkeypatch.setattr("gateway.http.figures.lag.MOST_HISTORIES", 2)
    lag = served.api.sampler.lag
    for group in ("a", "b", "c"):
        await served.post(f"{GROUPS}/{group}/offsets", json={"topic": "orders", "partition": 0, "offset": 0})
    await served.api.sampler.sample()
    assert sum(lag.history(group) is not None for group in ("a", "b", "c")) == 2
    for group in ("a", "b"):
        await served.call("DELETE", f"{GROUPS}/{group}")
    await served.api.sampler.sample()
    assert [lag.history(group) is not None for group in ("a", "b", "c")] == [False, False, True]


async def test_a_reset_can_be_tried_without_doing_it(served: Served) -> None:
    await served.make_topic("orders", 2)
    await served.produce("orders", b"a", b"b", b"c")
    reset = f"{GROUPS}/billing/offsets/reset"
    would = (await served.post(reset, json={"topic": "orders", "to": "latest", "dry_run": True})).json
    assert [each["offset"] for each in would["offsets"]] == [3, 0] and would["lag"] == 0
    assert (await served.get(f"{GROUPS}/billing/offsets")).json["offsets"] == []
    done = (await served.post(reset, json={"topic": "orders", "to": "latest"})).json
    assert [(each["partition"], each["offset"]) for each in done["offsets"]] == [(0, 3), (1, 0)]


async def test_what_a_topic_costs(served: Served) -> None:
    await served.make_topic("orders")
    told = (await served.get("/api/v1/topics/orders/archive/cost?retention_ms=86400000&replays=2")).json
    assert told["span_ms"] == 0 and told["retention_ms"] == 86_400_000
    assert (await served.get("/api/v1/topics/nothing/archive/cost")).problem == "unknown-topic"


# Size

MANY = 10_000


@pytest.mark.timeout(300)
async def test_ten_thousand_topics_are_listed_quickly(served: Served) -> None:
    image = served.node.image
    one = (await served.make_topic("t-00000"), image.topic("t-00000"))[1]
    topics = [one] + [one.__class__(**{**fields(one), "name": f"t-{number:05}"}) for number in range(1, MANY)]
    image.topics = lambda: topics  # type: ignore[method-assign]
    figures = {topic.name: TopicFigures(size_bytes=number * 7919 % 10_007) for number, topic in enumerate(topics)}
    served.api.sampler.topics = figures
    took = []
    for query in ("sort=name", "sort=size_bytes&descending=true", "search=99&sort=lag", "skip=9900"):
        served.api.totals._until_s = 0
        began = time.process_time()
        told = (await served.get(f"/api/v1/topics?figures=true&limit=50&{query}")).json
        took.append(time.process_time() - began)
        assert len(told["topics"]) == 50 and (told["total"] == MANY or "search" in query)
    print(f"10,000 topics: {', '.join(f'{seconds * 1000:.0f} ms' for seconds in took)}")
    assert min(took) < 0.3


def fields(topic: object) -> dict[str, object]:
    return {name: getattr(topic, name) for name in topic.__dataclass_fields__}  # type: ignore[attr-defined]


@pytest.mark.timeout(300)
async def test_ten_thousand_groups_are_listed_quickly(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [GroupListing(f"g-{number:05}", "consumer", State.EMPTY, 0) for number in range(MANY)]
    monkeypatch.setattr(served.node.groups, "list_groups", lambda: groups)
    lags = {each.group_id: GroupFigures(topics=1, lag=number * 7919 % 10_007) for number, each in enumerate(groups)}
    readers = {"orders": {group: figures.lag for group, figures in lags.items()}}
    served.api.sampler.lag.measured = Measured(lags, {}, readers, 0)
    await served.make_topic("orders")
    took = []
    lists = (f"{GROUPS}?figures=true&", "/api/v1/topics/orders/groups?")
    for where, query in product(lists, ("sort=lag&descending=true", "search=99", "skip=9900")):
        served.api.totals._until_s = 0
        began = time.process_time()
        told = (await served.get(f"{where}limit=50&{query}")).json
        took.append(time.process_time() - began)
        assert len(told["groups"]) == 50 and (told["total"] == MANY or "search" in query)
    print(f"10,000 groups: {', '.join(f'{seconds * 1000:.0f} ms' for seconds in took)}")
    assert min(took[:3]) < 0.3 and min(took[3:]) < 0.3

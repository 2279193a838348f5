"""The arithmetic of a month: every line against a sum done by hand."""

from dataclasses import replace

import pytest

from cold_tier.reports import TopicFacts
from offloader.cost import GB, MONTH_MS, estimate
from offloader.prices import CostSettings

DAY = 24 * 3_600_000
MIB = 1 << 20

FACTS = TopicFacts(
    partitions=4,
    segments=1000,
    rows_bytes=100 * GB,
    index_bytes=1 * GB,
    log_bytes=400 * GB,
    span_ms=10 * DAY,
    retention_ms=30 * DAY,
    local_retention_ms=1 * DAY,
)
PRICES = CostSettings()


def test_what_is_there_now() -> None:
    found = estimate(FACTS, PRICES)
    assert found.held_log_bytes == 400 * GB
    assert found.bucket[0].cost == pytest.approx(101 * 0.023)
    assert found.without_archive == pytest.approx(400 * 3 * 0.132)
    # A day of forty gigabytes a day stays local, three times.
    assert found.local[0].cost == pytest.approx(40 * 3 * 0.132)
    assert found.with_archive == pytest.approx(sum(line.cost for line in (*found.bucket, *found.local)))


def test_a_planned_retention_scales_what_is_held_and_not_the_rate() -> None:
    now, planned = estimate(FACTS, PRICES), estimate(FACTS, PRICES, retention_ms=30 * DAY)
    assert planned.held_log_bytes == pytest.approx(1200 * GB)
    assert planned.bucket[0].cost == pytest.approx(3 * now.bucket[0].cost)
    assert planned.bucket[1].cost == pytest.approx(now.bucket[1].cost), "as many segments are archived per month"
    assert planned.without_archive == pytest.approx(1200 * 3 * 0.132)


def test_requests_by_hand() -> None:
    month = MONTH_MS / (10 * DAY)
    archived = 1000 * month
    _, puts, read_back, replay, lists = estimate(FACTS, PRICES, replays=2).bucket
    parts = -(-100_000_000 // (16 * MIB))
    assert puts.amount == pytest.approx(archived * (parts + 2 + 2 + 1) / 1000)
    assert read_back.amount == pytest.approx(archived * (100_000_000 // (8 * MIB) + 3 + 2) / 1000)
    assert replay.amount == pytest.approx(2 * (1000 + 400 * GB / (16 * MIB)) / 1000)
    assert lists.amount == pytest.approx((4 * 8 * 730 + 5 * archived) / 1000)


def test_small_segments_cost_requests() -> None:
    """The bill that nobody understands: the same bytes in a thousand times as many objects."""
    small = estimate(replace(FACTS, segments=1_000_000), PRICES)
    assert small.bucket[1].cost > 100 * estimate(FACTS, PRICES).bucket[1].cost
    assert small.bucket[1].amount == pytest.approx(1_000_000 * MONTH_MS / (10 * DAY) * 4 / 1000)


def test_local_retention_as_total_saves_nothing_locally() -> None:
    found = estimate(replace(FACTS, local_retention_ms=-2), PRICES)
    assert found.local[0].cost == found.without_archive < found.with_archive


def test_nothing_archived_costs_nothing_but_listing() -> None:
    found = estimate(TopicFacts(1, 0, 0, 0, 0, 0, 7 * DAY, -2), PRICES)
    assert found.without_archive == 0
    assert [line.cost for line in found.bucket[:4]] == [0, 0, 0, 0]
    assert found.bucket[4].amount == pytest.approx(8 * 730 / 1000)


def test_prices_are_settings() -> None:
    free = CostSettings(storage_gb_month=0, put_per_1000=0, get_per_1000=0, list_per_1000=0, nvme_gb_month=0)
    found = estimate(FACTS, free)
    assert found.with_archive == found.without_archive == 0
    assert estimate(FACTS, replace(PRICES, replication=1)).without_archive == pytest.approx(400 * 0.132)

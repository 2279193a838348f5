"""How long segments have waited to be archived, and what the bucket costs."""

import pytest

from cold_tier.objects.bucket import StoreCounters
from hot_tier.ids import Offset
from hot_tier.log.segment_info import SegmentInfo
from offloader.cost import DAY_MS, GB, MONTH_MS, requests_cost, storage_cost_per_day
from offloader.figures import Backlog
from offloader.prices import CostSettings


def segment(base: int, end: int, *, sealed: bool = True) -> SegmentInfo:
    return SegmentInfo(Offset(base), Offset(end), 10 * (end - base), 0, "", sealed, -1, True)


def test_the_wait_is_counted_for_the_segment_that_waits_longest() -> None:
    backlog = Backlog()
    first, second, active = segment(0, 10), segment(10, 20), segment(20, 25, sealed=False)
    backlog.look([first, active], Offset(0), 1_000)
    assert (backlog.bytes, backlog.lag_ms(1_000)) == (100, 0)
    backlog.look([first, second, active], Offset(0), 5_000)
    assert (backlog.bytes, backlog.lag_ms(9_000)) == (200, 8_000)
    backlog.look([second, active], Offset(10), 9_000)
    assert (backlog.bytes, backlog.lag_ms(9_000)) == (100, 4_000)
    backlog.look([active], Offset(20), 10_000)
    assert (backlog.bytes, backlog.lag_ms(99_000)) == (0, 0)


def test_a_clock_that_goes_back_makes_no_negative_wait() -> None:
    backlog = Backlog()
    backlog.look([segment(0, 10)], Offset(0), 5_000)
    assert backlog.lag_ms(1_000) == 0


def test_what_is_stored_and_what_is_asked_costs() -> None:
    prices = CostSettings(storage_gb_month=0.03, put_per_1000=5, get_per_1000=2, list_per_1000=7)
    assert storage_cost_per_day(100 * GB, prices) == pytest.approx(3 * DAY_MS / MONTH_MS)
    counted = StoreCounters(puts=1_000, gets=500, heads=500, lists=2_000, deletes=9_999)
    assert requests_cost(counted, prices) == pytest.approx(5 + 2 + 14)

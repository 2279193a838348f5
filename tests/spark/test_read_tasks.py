"""How a plan becomes tasks."""

from typing import Any

from spark.options import read_options
from spark.plan import Plan, Range
from spark.read_tasks import TASK_BYTES, tasks
from tests.cold_tier.manifest.test_manifest import LAYOUT


class Sized:
    """A segment that counts how often it is asked for its size."""

    asked = 0

    def __init__(self, size: int) -> None:
        self._size = size

    @property
    def rows_bytes(self) -> int:
        Sized.asked += 1
        return self._size


def plan_of(*sizes: int) -> Plan:
    segments: Any = tuple(map(Sized, sizes))
    return Plan((Range("orders", 3, 0, 10, 10, LAYOUT, segments),))


def test_small_segments_share_a_task_however_many_they_are() -> None:
    options = read_options({"bucket": "/nowhere", "subscribe": "orders"}, streaming=False)
    sizes = [TASK_BYTES // 1000] * 3500
    made = tasks(plan_of(*sizes), options)
    assert [len(task.pieces) for task in made] == [1000, 1000, 1000, 500]
    assert Sized.asked < 10 * len(sizes)
    [large, small] = tasks(plan_of(2 * TASK_BYTES, 1), options)
    assert (len(large.pieces), len(small.pieces)) == (1, 1)


def test_a_time_is_written_in_either_way() -> None:
    options = {"bucket": "/nowhere", "subscribe": "orders"}
    for text in (
        "1772352000000",
        "2026-03-01T08:00:00Z",
        "2026-03-01T09:00:00+01:00",
        "2026-03-01 08:00",
        "2026-03-01T08",
    ):
        read = read_options({**options, "startingTimestamp": text, "asOf": text}, streaming=False)
        assert read.from_ms == read.as_of_ms == 1772352000000, text

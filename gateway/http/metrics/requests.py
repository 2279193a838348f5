"""What this listener counts about its own requests: plain numbers, read when /metrics is asked for."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Timer:
    """Requests of one operation: how many by status, and how long they took."""

    __slots__ = ("_counts", "by_status", "total_s")

    def __init__(self) -> None:
        self.by_status: dict[int, int] = {}
        self.total_s = 0.0
        self._counts = [0] * (len(BUCKETS_S) + 1)

    def observe(self, status: int, seconds: float) -> None:
        self.by_status[status] = self.by_status.get(status, 0) + 1
        self.total_s += seconds
        self._counts[bisect_left(BUCKETS_S, seconds)] += 1

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """As Prometheus has it: each bucket counts everything up to its bound."""
        total = 0
        for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), self._counts, strict=True):
            total += count
            yield bound, total


class HttpMetrics:
    def __init__(self) -> None:
        self.timers: dict[str, Timer] = {}
        self.throttled_ms = 0
        """Time by which answers were delayed for quotas."""
        self.long_polls = 0
        """Reads that wait now."""

    def timer(self, operation: str) -> Timer:
        return self.timers.setdefault(operation, Timer())

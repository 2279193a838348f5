"""What the HTTP server counts about its own requests. The numbers are read when /metrics is requested."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Timer:
    """Counts the requests of one operation: how many by status, and how long they took."""

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
        """Yields each bucket's bound and how many requests took at most that long, as Prometheus counts."""
        total = 0
        for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), self._counts, strict=True):
            total += count
            yield bound, total


class HttpMetrics:
    def __init__(self) -> None:
        self.timers: dict[str, Timer] = {}
        self.throttled_ms = 0
        """How long answers were delayed because of quotas."""
        self.long_polls = 0
        """Reads that are waiting now."""

    def timer(self, operation: str) -> Timer:
        return self.timers.setdefault(operation, Timer())

"""Measures how late the event loop is: the time that every client waits when one request takes too long.

A timer asks to be called every few milliseconds. If it is called late, something else held the loop for that long.
/metrics shows a histogram of these delays and the longest one of the last minute or two. Delays that clients notice are
logged, at most one line in `LOG_EVERY_S`; the line says how many there were.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

import structlog

from hot_tier.clock import steady_s

EVERY_S: Final = 0.01
BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LOGGED_S: Final = 0.25
LOG_EVERY_S: Final = 10.0
WINDOW_S: Final = 60.0

_log = structlog.get_logger()


class LoopDelay:
    def __init__(self) -> None:
        self.total_s = 0.0
        self._counts = [0] * (len(BUCKETS_S) + 1)
        self._longest_s = [0.0, 0.0]
        """The longest delay of this minute and of the minute before."""
        self._window_ends_s = 0.0
        self._expected_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._unlogged: list[float] = []
        self._logged_at_s = -LOG_EVERY_S

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._window_ends_s = steady_s() + WINDOW_S
        self._schedule(steady_s())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def longest_s(self) -> float:
        return max(self._longest_s)

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Yields each bucket's bound and how many delays were at most that long, as Prometheus counts."""
        total = 0
        for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), self._counts, strict=True):
            total += count
            yield bound, total

    def observe(self, delay_s: float, now_s: float) -> None:
        self.total_s += delay_s
        self._counts[bisect_left(BUCKETS_S, delay_s)] += 1
        if now_s >= self._window_ends_s:
            self._longest_s = [0.0, self._longest_s[0]]
            self._window_ends_s = now_s + WINDOW_S
        self._longest_s[0] = max(self._longest_s[0], delay_s)
        if delay_s > LOGGED_S:
            self._unlogged.append(delay_s)
        if self._unlogged and now_s - self._logged_at_s >= LOG_EVERY_S:
            _log.warning(
                "the event loop stood still",
                longest_ms=round(max(self._unlogged) * 1000),
                times=len(self._unlogged),
                hint="no client was served meanwhile; see tierlog_loop_delay_seconds",
            )
            self._unlogged.clear()
            self._logged_at_s = now_s

    def _schedule(self, now_s: float) -> None:
        self._expected_s = now_s + EVERY_S
        self._timer = self._loop.call_later(EVERY_S, self._tick)

    def _tick(self) -> None:
        now_s = steady_s()
        self.observe(max(0.0, now_s - self._expected_s), now_s)
        self._schedule(now_s)

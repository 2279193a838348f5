"""Ends waiting when its time is over, with one timer of the loop for all who wait.

A request that waits for a commit or for records nearly always ends before its time is over. A timer of the loop for
each one costs more than all else that such a wait does; here it costs two entries in dicts. Nothing ends before its
time, and at most `GRAIN_S` after it.
"""

import asyncio
from heapq import heappop, heappush
from typing import Final, Protocol

GRAIN_S: Final = 0.01


class Waits(Protocol):
    def expire(self) -> None: ...


class Timeouts:
    def __init__(self) -> None:
        self._ticks: list[int] = []
        """A heap of the keys of `_ending`."""
        self._ending: dict[int, dict[Waits, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next = 0
        """The tick that the timer is set for."""

    def begin(self, waits: Waits, wait_s: float) -> int:
        """Calls `expire` after this time. Returns what `end` needs to know."""
        loop = asyncio.get_running_loop()
        tick = int((loop.time() + wait_s) / GRAIN_S) + 1
        ending = self._ending.get(tick)
        if ending is None:
            ending = self._ending[tick] = {}
            heappush(self._ticks, tick)
            if self._timer is None or tick < self._next:
                self._set_timer(loop)
        ending[waits] = None
        return tick

    def end(self, waits: Waits, tick: int) -> None:
        """Forgets it: it does not wait any more."""
        ending = self._ending.get(tick)
        if ending is not None:
            ending.pop(waits, None)

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = self._ticks[0]
        self._timer = loop.call_at(self._next * GRAIN_S, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now_tick = int(loop.time() / GRAIN_S)
        ticks = self._ticks
        # Those that nobody waits for any more are skipped, so the timer is set for few of all ticks.
        while ticks and (ticks[0] <= now_tick or not self._ending[ticks[0]]):
            for waits in self._ending.pop(heappop(ticks)):
                loop.call_soon(waits.expire)
        if ticks:
            self._set_timer(loop)

"""Writes damaged objects to the log: each at most once a minute, with the number of times it was met since its last
line.

A client that polls meets the same object a thousand times a minute, and the log is for the person who runs the node.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import structlog

from cold_tier.errors import CorruptObject, KeyMissing
from hot_tier.clock import steady_s

EVERY_S: Final = 60.0

_log = structlog.get_logger()


class DamageLog:
    def __init__(self, clock: Callable[[], float] = steady_s) -> None:
        self._clock = clock
        self._told_s: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def tell(self, task: asyncio.Task[Any]) -> None:
        """Logs the object if it is damaged or its key is not here, even if no caller waits for it any more."""
        error = None if task.cancelled() else task.exception()
        if not isinstance(error, CorruptObject | KeyMissing):
            return
        where, now_s = error.where, self._clock()
        times = self._untold.pop(where, 0) + 1
        if now_s - self._told_s.get(where, -EVERY_S) < EVERY_S:
            self._untold[where] = times
            return
        self._told_s[where] = now_s
        _log.error("archived object cannot be used", object=where, error=error.what, times=times)

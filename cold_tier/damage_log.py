"""Damaged objects in the log: each of them once a minute, with how often it was met since its last line.

A client that polls meets the same object a thousand times a minute, and the log is there for who looks after the node.
"""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

import structlog

from cold_tier.errors import CorruptObject

EVERY_S: Final = 60.0

_log = structlog.get_logger()


class DamageLog:
    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._told_s: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def tell(self, task: asyncio.Task[Any]) -> None:
        """Whoever asked gets the error; the log names the object, also when nobody waits any more."""
        error = None if task.cancelled() else task.exception()
        if not isinstance(error, CorruptObject):
            return
        where, now_s = error.where, self._clock()
        times = self._untold.pop(where, 0) + 1
        if now_s - self._told_s.get(where, -EVERY_S) < EVERY_S:
            self._untold[where] = times
            return
        self._told_s[where] = now_s
        _log.error("archived object cannot be used", object=where, error=error.what, times=times)

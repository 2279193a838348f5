"""How long the steps of an event loop take, in time of the processor: a machine that is busy with other things does not
make them longer."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

KEPT = 20


class Steps:
    def __init__(self) -> None:
        self.longest: list[tuple[float, str]] = []

    @property
    def longest_s(self) -> float:
        return self.longest[0][0] if self.longest else 0.0

    def note(self, took_s: float, what: Any) -> None:
        if len(self.longest) < KEPT or took_s > self.longest[-1][0]:
            self.longest = sorted([*self.longest, (took_s, _name(what))], reverse=True)[:KEPT]

    def __str__(self) -> str:
        return "\n".join(f"{took_s * 1000:.0f} ms: {what}" for took_s, what in self.longest)


def _name(handle: Any) -> str:
    callback = handle._callback
    task = getattr(callback, "__self__", None)
    return repr(task.get_coro()) if isinstance(task, asyncio.Task) else repr(callback)


@contextmanager
def steps_of(thread: threading.Thread) -> Iterator[Steps]:
    """Of the loop that runs in this thread, while the block runs."""
    steps = Steps()
    run = asyncio.events.Handle._run

    def timed(handle: Any) -> None:
        if threading.current_thread() is not thread:
            run(handle)
            return
        began = time.thread_time()
        run(handle)
        steps.note(time.thread_time() - began, handle)

    asyncio.events.Handle._run = timed  # type: ignore[method-assign]
    try:
        yield steps
    finally:
        asyncio.events.Handle._run = run  # type: ignore[method-assign]

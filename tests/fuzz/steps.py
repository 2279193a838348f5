"""How long the rounds of an event loop take, in time of the processor: a machine that is busy with other things does
not make them longer."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

KEPT = 5


class Steps:
    def __init__(self) -> None:
        self.longest: list[tuple[float, str]] = []
        self.during = ""
        """What is going on."""
        self.step: tuple[float, str] = (0.0, "")
        """The longest of this round."""

    @property
    def longest_s(self) -> float:
        return self.longest[0][0] if self.longest else 0.0

    def note_round(self, took_s: float) -> None:
        if len(self.longest) < KEPT or took_s > self.longest[-1][0]:
            step_s, step = self.step
            what = f"{self.during}; of it {step_s * 1000:.0f} ms {step}"
            self.longest = sorted([*self.longest, (took_s, what)], reverse=True)[:KEPT]
        self.step = (0.0, "")

    def note_step(self, took_s: float, handle: Any) -> None:
        if took_s > max(0.001, self.step[0]):
            self.step = (took_s, _name(handle))

    def __str__(self) -> str:
        return "\n".join(f"{took_s * 1000:.0f} ms: {what}" for took_s, what in self.longest)


def _name(handle: Any) -> str:
    callback = handle._callback
    task = getattr(callback, "__self__", None)
    return str(getattr(task.get_coro(), "__qualname__", "")) if isinstance(task, asyncio.Task) else repr(callback)


@contextmanager
def rounds_of(thread: threading.Thread) -> Iterator[Steps]:
    """Of the loop of asyncio that runs in this thread, while the block runs."""
    steps = Steps()
    run_once, run = asyncio.BaseEventLoop._run_once, asyncio.Handle._run  # type: ignore[attr-defined]

    def timed_round(loop: Any) -> None:
        if threading.current_thread() is not thread:
            run_once(loop)
            return
        began_s = time.thread_time()
        run_once(loop)
        steps.note_round(time.thread_time() - began_s)

    def timed_step(handle: Any) -> None:
        began_s = time.thread_time()
        run(handle)
        if threading.current_thread() is thread:
            steps.note_step(time.thread_time() - began_s, handle)

    asyncio.BaseEventLoop._run_once = timed_round  # type: ignore[attr-defined]
    asyncio.Handle._run = timed_step  # type: ignore[method-assign]
    try:
        yield steps
    finally:
        asyncio.BaseEventLoop._run_once = run_once  # type: ignore[attr-defined]
        asyncio.Handle._run = run  # type: ignore[method-assign]

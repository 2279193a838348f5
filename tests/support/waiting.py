"""Waiting for what must come: looked for again and again, with a deadline far beyond what it takes."""

import asyncio
import time
from collections.abc import Callable
from typing import Any


async def until(condition: Callable[[], Any], deadline_s: float = 30) -> None:
    """For what happens in this event loop, or is seen by it."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {deadline_s:.0f} s"
        await asyncio.sleep(0.005)


def wait_until(condition: Callable[[], Any], what: str, deadline_s: float = 60) -> None:
    """For what threads and other processes do."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {deadline_s:.0f} s: {what}"
        time.sleep(0.05)

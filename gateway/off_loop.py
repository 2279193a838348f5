"""Runs per-record Python work in a thread, so that it does not hold the event loop.

A few microseconds per record become many milliseconds for some thousand records, and meanwhile no other client is
served. Therefore large work goes to a thread: the interpreter then switches back to the loop every few milliseconds,
and compiled code runs in parallel. Small work stays on the loop, because a thread costs 50 µs per call.

There are few threads, because the loop takes turns with each of them. They do nothing else, so that a file read does
not wait until a hundred megabytes of another client are decompressed.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

ON_LOOP: Final = 1_000
"""Up to this number of records are handled on the loop, at 1 to 5 µs each."""
ON_LOOP_BYTES: Final = 8 << 20
"""Decompressed bytes that are checked or decoded on the loop, in 5 to 25 ms. A batch of 5 KB may expand to 100 MB."""

COMPRESS_ON_LOOP_BYTES: Final = 256 << 10
"""Bytes of records that are compressed again for their topic on the loop: 4 ms with gzip."""

P = ParamSpec("P")
T = TypeVar("T")


_threads: Final = ThreadPoolExecutor(max_workers=2, thread_name_prefix="large work")


async def off_loop(records: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns `work(…)`. With many `records` it runs in a thread, so `work` must not touch objects of the loop."""
    if records <= ON_LOOP:
        return work(*args, **kwargs)
    return await in_thread(work, *args, **kwargs)


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(_threads, partial(work, *args, **kwargs))

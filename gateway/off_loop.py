"""Work in Python per record, kept from holding up everybody else.

A few microseconds for each of some thousand records are many milliseconds in which no other client is served. Such
work goes to a thread when there is much of it: the interpreter then switches back to the loop every few
milliseconds, and the compiled parts run beside it. Little work stays, because the way to a thread costs 50 µs.

The threads are few, and for this alone: the loop waits for each of them in turn, and who reads a file need not wait
until somebody's hundred megabytes are decompressed.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

ON_LOOP: Final = 1_000
"""Records whose handling, at 1 to 5 µs each, may be done at once."""
ON_LOOP_BYTES: Final = 8 << 20
"""Of records, decompressed: they take 5 to 25 ms to check or decode. A batch of 5 KB may hold a hundred megabytes."""

COMPRESS_ON_LOOP_BYTES: Final = 256 << 10
"""Of records that are compressed anew for their topic: 4 ms with gzip."""

P = ParamSpec("P")
T = TypeVar("T")


_threads: Final = ThreadPoolExecutor(max_workers=2, thread_name_prefix="large work")


async def off_loop(records: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`work(…)`, in a thread if it handles more than a few `records`. It must not touch what belongs to the loop."""
    if records <= ON_LOOP:
        return work(*args, **kwargs)
    return await in_thread(work, *args, **kwargs)


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(_threads, partial(work, *args, **kwargs))

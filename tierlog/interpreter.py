"""Settings of the interpreter, for a process in which one thread, the loop, must never wait long for the others.

- Threads that work in Python hand over every 0.2 ms. The loop releases the interpreter in each system call, and then
  waits that long for every such thread: with 1 ms, a round of the loop took 190 ms beside two of them.
- A full garbage collection visits every object, 0.1 µs each, and nothing else runs meanwhile. Python starts one just
  when a large request has made a million objects. Here it waits until they are gone. Collections of young objects go on
  as usual.
"""

import asyncio
import gc
import sys
from typing import Final

from hot_tier.clock import steady_s

SWITCH_S: Final = 0.0002
YOUNG: Final = (700, 10)
"""Python's own thresholds, for new objects and for those that survived one collection."""
NEVER: Final = 1 << 30
LOOK_EVERY_S: Final = 1.0
DUE: Final = 10
"""The number of collections of younger objects between two full ones, as in Python."""
MORE_BLOCKS: Final = 200_000
"""If there are this many more blocks of memory than after the last full collection, most of them are there for a short
time only. Counting objects instead would take as long as a collection.
"""
MOST_S: Final = 60.0
"""A full collection waits at most this long until those objects are gone."""
SHARE: Final = 0.001
"""The share of time for full collections. A broker with many partitions has many objects that stay."""


def prepare() -> None:
    """Call this before the first request and the first thread."""
    sys.setswitchinterval(SWITCH_S)


def freeze() -> None:
    """Excludes all present objects from later collections. They live as long as the process."""
    gc.collect()
    gc.freeze()


async def collect_garbage() -> None:
    """Does the full collections instead of Python, until it is cancelled."""
    gc.set_threshold(*YOUNG, NEVER)
    took_s, kept, ended_s = 0.0, sys.getallocatedblocks(), steady_s()
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        waited_s = steady_s() - ended_s
        if gc.get_count()[2] < DUE or waited_s < took_s / SHARE:
            continue
        if waited_s < MOST_S and sys.getallocatedblocks() > kept + MORE_BLOCKS:
            continue
        began_s = steady_s()
        gc.collect()
        ended_s = steady_s()
        took_s, kept = ended_s - began_s, sys.getallocatedblocks()

"""The interpreter's settings, for a process in which one thread, the loop, must never wait long for the others.

- Threads that work in Python hand over every 0.2 ms. The loop gives the interpreter away in each system call, and waits
  that long for every such thread before it goes on: with 1 ms a round of the loop took 190 ms beside two of them.
- A full garbage collection looks at every object there is, 0.1 µs each, and nothing else runs meanwhile. Python begins
  one just when a large request has made a million of them. Here it waits until they are gone; collections of what was
  made lately go on as usual.
- pyarrow imports pandas, if it is installed, when it makes its first array: 0.3 s of work and 60 MB that nobody needs.
"""

import asyncio
import gc
import sys
from time import monotonic
from typing import Final

SWITCH_S: Final = 0.0002
YOUNG: Final = (700, 10)
"""Python's own thresholds for objects that are new, and for those that were looked at once."""
NEVER: Final = 1 << 30
LOOK_EVERY_S: Final = 1.0
DUE: Final = 10
"""Collections of the younger ones between two full ones, as Python has it."""
MORE_BLOCKS: Final = 200_000
"""Of memory than the last full collection left: so many are there for a while only. To count objects would take
as long as a collection."""
MOST_S: Final = 60.0
"""So long a full collection waits for them to go."""
SHARE: Final = 0.001
"""Of the time, for full collections: a broker with many partitions has many objects that stay."""


class _NotHere:
    """Finds no pandas, whatever is installed."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("the broker does without pandas", name=name)


def prepare() -> None:
    """Before the first request and the first thread."""
    sys.setswitchinterval(SWITCH_S)
    sys.meta_path.insert(0, _NotHere)


def freeze() -> None:
    """What was made so far lives as long as the process: no collection looks at it again."""
    gc.collect()
    gc.freeze()


async def collect_garbage() -> None:
    """Runs until it is cancelled, and does the full collections in Python's place."""
    gc.set_threshold(*YOUNG, NEVER)
    took_s, kept, ended_s = 0.0, sys.getallocatedblocks(), monotonic()
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        waited_s = monotonic() - ended_s
        if gc.get_count()[2] < DUE or waited_s < took_s / SHARE:
            continue
        if waited_s < MOST_S and sys.getallocatedblocks() > kept + MORE_BLOCKS:
            continue
        began_s = monotonic()
        gc.collect()
        ended_s = monotonic()
        took_s, kept = ended_s - began_s, sys.getallocatedblocks()

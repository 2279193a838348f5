"""The axes of the campaign and their product.

    file kinds × harms × moments × paths

A row of `ROWS` names the files of one kind, what may become of them, when, and on which path somebody uses them then.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from tests.damage.harms import HEAD_BITS

LIVE, CLEAN, KILL = MOMENTS = ("live", "clean restart", "kill")
"""When the file is harmed: under a running broker, or before the next start after a clean stop or a kill."""

DENSE, COMPACTED, TRANSACTIONAL = SHAPES = ("dense", "compacted", "transactional")
"""What is in a log. `transactional`: some of it was aborted, and readers of committed records must not see that."""

HOT, COMPACTION, ARCHIVE, REPLICATION, COLD, METADATA = PATHS = (
    *("hot read", "compaction", "archive", "replication", "cold read", "metadata"),
)
"""What is done with the harmed files. `replication`: other brokers have good copies, and this one is a follower or the
leader; all replicas are read, and compacted again where the log is. `cold read`: of the bucket; and it is restored."""

_BITS: Final = tuple(f"head bit {bit}" for bit in range(HEAD_BITS))
_LENGTHS: Final = ("cut", "cut", "cut at a batch", "emptied", "longer")
_WHOLE: Final = ("removed", "swapped", "rolled back")
SEGMENT: Final = (*_BITS, *("a bit",) * 20, *_LENGTHS, *_WHOLE, "directory removed")
SOME_OF_SEGMENT: Final = (*_BITS[::9], *("a bit",) * 3, *_LENGTHS, *_WHOLE)
SIDE: Final = (*("a bit",) * 8, "cut", "cut", *_WHOLE)
LONE: Final = (*("a bit",) * 8, "cut", "cut", "removed", "rolled back")
MARK: Final = (*("a bit",) * 8, "cut", "removed")
OBJECT: Final = (
    *("a bit of the first bytes", "a bit of the last bytes", "a bit", "some bytes"),
    *("cut", "emptied", "longer", *_WHOLE),
)


@dataclass(frozen=True)
class Row:
    files: tuple[str, ...]
    """A segment's by its number and suffix, others by name, objects by suffix."""
    harms: tuple[str, ...]
    moments: tuple[str, ...]
    path: str
    shapes: tuple[str, ...] = (DENSE, COMPACTED)


ROWS: Final = (
    # One log: its oldest, its newest sealed and its active segment, and every file beside them.
    Row(("0 .log", "1 .log", "-2 .log", "-1 .log"), SEGMENT, MOMENTS, HOT),
    Row(("0 .index", "1 .index", "0 .timeindex", "1 .timeindex", "0 .producers", "1 .producers"), SIDE, MOMENTS, HOT),
    Row(("leader-epochs", "log-start"), LONE, MOMENTS, HOT),
    Row(("recovery-points",), LONE, (KILL,), HOT),
    Row(("clean-shutdown",), MARK, (CLEAN,), HOT),
    Row(
        ("0 .log", "1 .log", "-2 .log", "-1 .log"),
        (*SOME_OF_SEGMENT, *("a bit",) * 17),
        MOMENTS,
        HOT,
        (TRANSACTIONAL,),
    ),
    Row(
        ("0 .aborted", "1 .aborted", "0 .producers", "1 .producers", "0 .index", "1 .index"),
        SIDE,
        MOMENTS,
        HOT,
        (TRANSACTIONAL,),
    ),
    Row(("leader-epochs", "log-start", "recovery-points"), LONE, (KILL,), HOT, (TRANSACTIONAL,)),
    Row(("0 .log", "1 .log", "-2 .log"), SEGMENT, MOMENTS, COMPACTION, (COMPACTED,)),
    # Neither the first nor the last of the segments that are to be archived.
    Row(("2 .log",), SEGMENT[:-1], MOMENTS, ARCHIVE, (DENSE,)),
    Row(("1 .log",), SOME_OF_SEGMENT, MOMENTS, ARCHIVE, (COMPACTED,)),
    Row(("1 .producers", "2 .producers"), SIDE, MOMENTS, ARCHIVE, (DENSE,)),
    Row(("0 .log", "1 .log", "-1 .log"), SOME_OF_SEGMENT, MOMENTS, REPLICATION),
    Row(("1 .index", "1 .producers", "leader-epochs", "log-start"), LONE, MOMENTS, REPLICATION),
    Row((".parquet", ".index", ".aside", ".manifest", ".page", ".json"), OBJECT, MOMENTS, COLD, (DENSE,)),
    Row((".proposal", "pins/*.json"), OBJECT, MOMENTS, COLD, (DENSE,)),
    Row(("metadata.db",), (*("a bit",) * 40, *OBJECT[:-2], "rolled back"), MOMENTS, METADATA, (DENSE,)),
    # They are read when a broker starts. That they are gone is seen only by who counted on them.
    Row(("data-id", "in-doubt"), (*("a bit",) * 40, "cut", "cut", "emptied"), (CLEAN,), METADATA, (DENSE,)),
)


@dataclass(frozen=True)
class Case:
    path: str
    shape: str
    moment: str
    file: str
    harm: str
    seed: int

    def __str__(self) -> str:
        return f"{self.path}, {self.shape}, {self.moment}, {self.file}: {self.harm}, seed {self.seed}"


def cases(seed: int) -> list[Case]:
    """All of them; where a harm is drawn by lot, by this seed."""
    chance = random.Random(seed)
    return [
        Case(*each, chance.randrange(1 << 30))
        for row in ROWS
        for each in product((row.path,), row.shapes, row.moments, row.files, row.harms)
    ]


def spread(of: Sequence[Case], count: int, seed: int) -> list[Case]:
    """So many of them by lot. Each next one is of a shape, moment, file and harm that came least so far, where all bits
    of a head are one harm."""
    left = random.Random(seed).sample(of, len(of))
    axes = {case: (case.shape, case.moment, case.file, case.harm.rstrip("0123456789")) for case in left}
    came: Counter[str] = Counter()
    chosen: list[Case] = []
    while len(chosen) < count:
        chosen.append(min(left, key=lambda case: sum([came[value] for value in axes[case]])))
        left.remove(chosen[-1])
        came.update(axes[chosen[-1]])
    return chosen

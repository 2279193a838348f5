"""The heads of a segment that has gaps between its batches, proven part by part.

In a dense segment each batch must start where the one before it ends, so every wrong offset shows by itself. Where
compaction left gaps it does not: there the running digest over the heads of all batches is kept at marks, about every
256 KiB, and a read covers the marks around it. The marks come from a walk whose digest was the segment's.
"""

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hot_tier.log.epochs import History
from hot_tier.log.files import read_at
from hot_tier.log.scan import POSITION, SIZE, Walk, digest_of_rows, parse_all

_MARK_BYTES: Final = 64 << 10


class Heads(NamedTuple):
    """The number of batches in the first `size` bytes, and the digest over their heads."""

    size: int
    batches: int
    digest: int


@dataclass(slots=True)
class Marks:
    """`digests[n]` covers the heads of all batches before `positions[n]`."""

    positions: "array[int]" = field(default_factory=lambda: array("q", [0]))
    digests: "array[int]" = field(default_factory=lambda: array("I", [0]))
    next_offset: int = 0
    """The lowest offset that the batch at the last mark may have."""
    batches: int = 0

    @property
    def end(self) -> int:
        return self.positions[-1]

    def around(self, position: int, end: int) -> tuple[int, int, int, int]:
        """Returns the marks around a stretch: position and digest before it, position and digest after it."""
        first = bisect_right(self.positions, position) - 1
        last = bisect_left(self.positions, end)
        return self.positions[first], self.digests[first], self.positions[last], self.digests[last]


class KnownHeads:
    """What the heads in one segment's file must be, and whether they have been checked."""

    __slots__ = ("marks", "unproven", "written")

    def __init__(self) -> None:
        self.unproven: Heads | None = None
        """What another process wrote, while nobody has looked whether it is so."""
        self.written = Heads(0, 0, 0)
        """Where there are gaps: all that is written, in one value for threads."""
        self.marks: Marks | None = None

    def wrote_before(self, heads: Heads) -> None:
        """Notes what the file held when another process left it."""
        self.written = self.unproven = heads

    def cut(self, heads: Heads) -> None:
        """Notes that the file was cut to this."""
        self.unproven = self.marks = None
        self.written = heads

    def is_unproven(self, position: int) -> bool:
        return self.unproven is not None and position < self.unproven.size


def extended(known: Marks | None, fd: int, base_offset: int, end: int, history: History) -> tuple[Marks, Walk]:
    """Returns the marks up to `end`, and the walk. The marks are true only if the walk reached `end` with the right
    digest."""
    marks = Marks(next_offset=base_offset)
    if known is not None:
        marks = Marks(known.positions[:], known.digests[:], known.next_offset, known.batches)
    walk = Walk(fd, marks.end, end, marks.next_offset, history=history, digest=marks.digests[-1])
    for _ in walk:
        if walk.position - marks.end >= _MARK_BYTES or walk.position == end:
            marks.positions.append(walk.position)
            marks.digests.append(walk.header_digest)
    marks.next_offset = walk.next_offset
    marks.batches += walk.batches
    return marks, walk


def read_marked(fd: int, marks: Marks, position: int, length: int, base_offset: int) -> memoryview | None:
    """Returns the bytes there, or None if the heads around them are not what they were when the marks were made."""
    start, before, end, after = marks.around(position, position + length)
    data = read_at(fd, start, end - start)
    rows = parse_all(data, base_offset)
    if not len(rows) or rows[-1, POSITION] + rows[-1, SIZE] != end - start:
        return None
    if digest_of_rows(data, 0, rows, before) != after:
        return None
    return data[position - start : position - start + length]

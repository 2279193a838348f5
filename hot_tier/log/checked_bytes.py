"""Which bytes of one segment's file may be served, because this process wrote them or has checked them."""

from hot_tier.log.heads import Heads, Marks


class CheckedBytes:
    __slots__ = ("_from", "_range", "marks", "unproven", "written")

    def __init__(self) -> None:
        self._range = (0, 0)
        """The CRCs of its batches have been checked."""
        self._from = 0
        """From here on this process wrote the bytes."""
        self.unproven: Heads | None = None
        """What another process wrote, while nobody has looked whether it is so."""
        self.written = Heads(0, 0, 0)
        """Where there are gaps: all that is written, in one value for threads."""
        self.marks: Marks | None = None

    def wrote_before(self, heads: Heads) -> None:
        """Another process let go of a file that held this."""
        self._from = heads.size
        self.written = self.unproven = heads

    def found(self, heads: Heads) -> None:
        """Another process wrote this, and its heads have been looked at."""
        self._from = heads.size
        self.written = heads

    def cut(self, heads: Heads) -> None:
        """The file holds no more than this now."""
        start, end = self._range
        self._range = min(start, heads.size), min(end, heads.size)
        self._from = min(self._from, heads.size)
        self.unproven = self.marks = None
        self.written = heads

    def add(self, start: int, end: int) -> None:
        """The CRC of every batch from `start` to `end` is right, and they follow each other."""
        known_start, known_end = self._range
        self._range = (known_start, max(known_end, end)) if known_start <= start <= known_end else (start, end)

    def doubt(self, size: int) -> None:
        """A reader found a wrong CRC: all `size` bytes are checked again when they are read."""
        self._range, self._from = (0, 0), size

    def covers(self, position: int, length: int) -> bool:
        start, end = self._range
        return position >= self._from or (start <= position and position + length <= end)

    def is_unproven(self, position: int) -> bool:
        return self.unproven is not None and position < self._from

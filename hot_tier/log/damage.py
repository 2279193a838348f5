"""What is known to be wrong with one segment's file.

A damaged batch is never served and never stepped over: it ends the bytes before it. Asking for it raises CorruptLog.
"""

from bisect import bisect_left, insort
from typing import Final

import structlog

from hot_tier.clock import steady_s
from hot_tier.errors import CorruptLog
from hot_tier.log.files import Signature, read_at, signature
from hot_tier.log.scan import WRONG_HEADER, crc_is_right

_log = structlog.get_logger()

_LOOK_AGAIN_SECONDS: Final = 1.0


class Damage:
    __slots__ = ("_path", "_seen", "positions", "unsound", "what")

    def __init__(self, path: str) -> None:
        self._path = path
        self.positions: list[int] = []
        """Where damaged batches start, rising."""
        self.what = ""
        """What was found first; empty for nothing."""
        self.unsound = False
        """Something in the file is wrong, and nobody can say where: nothing of it is served."""
        self._seen: tuple[float, Signature] = (0.0, ())
        """When the file was last looked at, and what it was then."""

    def mark(self, position: int, what: str) -> None:
        if position not in self.positions:
            insort(self.positions, position)
            self.report(position, what)

    def mark_unsound(self, what: str) -> None:
        self.unsound = True
        self.mark(0, what)

    def report(self, position: int, what: str) -> None:
        """Reports damage. The rest of the file is still served."""
        self.what = self.what or f"byte {position}: {what}"
        self._seen = steady_s(), signature(self._path)
        _log.error("log damaged", file=self._path, position=position, what=what)

    def blame(self, fd: int, before: int, position: int, what: str = WRONG_HEADER) -> CorruptLog:
        """Marks damage where there is no batch at `position`: this batch is damaged, or the length of the one before
        it."""
        if before >= 0 and not crc_is_right(read_at(fd, before, position - before)):
            position, what = before, "its length is wrong"
        self.mark(position, what)
        return self.error(position)

    def next_from(self, position: int, size: int) -> int:
        """Returns where the first damaged batch at or after `position` starts, or `size` if none is known."""
        at = bisect_left(self.positions, position)
        return self.positions[at] if at < len(self.positions) else size

    def cut(self, position: int) -> None:
        """Forgets damage behind `position`, where the file ends now."""
        del self.positions[bisect_left(self.positions, position) :]

    def file_changed(self) -> bool:
        """Returns whether the file has changed since the last look. Looks at most once a second."""
        looked, seen = self._seen
        if steady_s() - looked < _LOOK_AGAIN_SECONDS:
            return False
        now = signature(self._path)
        self._seen = steady_s(), now
        return now != seen

    def error(self, position: int) -> CorruptLog:
        return CorruptLog(
            f"the stored bytes from position {position} on are damaged",
            where=self._path,
            hint="restore the file from a replica or from the bucket, or read on after the damaged offsets",
        )

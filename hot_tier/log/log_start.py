"""Where a log begins, in a file of its own: what may be read, what is on the disk, and where batches may have gaps.

    <first offset that may be read>
    <base offset of the first segment>        from here on
    dense | gaps below <offset>               lines that 0.1.0 did not write

A log whose first segment starts later than this file says has lost a file. In segments that have no seal, a batch
starts where the one before it ends, unless it starts at that offset or before: compaction left gaps there. What the
file does not say in these words is not known, and neither is anything where it is missing.
"""

import re
from typing import Final, NamedTuple

from hot_tier.log import names
from hot_tier.log.scan import ANYWHERE
from hot_tier.log.sealed_text import read_sealed_text, write_sealed_text

_DENSE: Final = "dense"
_GAPS: Final = "gaps below "
_NUMBER: Final = re.compile("[0-9]{1,19}")


class LogStart(NamedTuple):
    offset: int
    """0 where it is missing or damaged: an archived log begins before its first local segment, and the manifest knows
    where; any other log begins with that segment (`PartitionLog`)."""
    local: int | None
    gaps_below: int
    """0: no batch leaves a gap."""

    @property
    def first_base(self) -> int | None:
        """Returns the latest offset at which the first segment may start without a loss for readers. None: unknown."""
        return None if self.local is None else max(self.local, self.offset)


def write_log_start(offset: int, local: int, gaps_below: int) -> bytes:
    gaps = f"{_GAPS}{gaps_below}" if gaps_below else _DENSE
    return write_sealed_text(names.LOG_START, [str(offset), str(local), gaps])


def read_log_start(content: bytes) -> LogStart:
    first, second, third, *_ = *(read_sealed_text(names.LOG_START, content) or []), "", "", ""
    offset = _number(first)
    if offset is None:
        return LogStart(0, None, ANYWHERE)
    return LogStart(offset, _number(second), _read_gaps(third))


def _read_gaps(line: str) -> int:
    if line == _DENSE:
        return 0
    below = _number(line.removeprefix(_GAPS)) if line.startswith(_GAPS) else None
    return ANYWHERE if below is None else below


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None

"""Walks the batch headers of a log file, without looking at records.

Used where no index helps: recovery, rebuilding an index, replaying producer state. The walk checks what a
header alone can show (magic, lengths, offsets that rise, leader epochs that fit the history) and, from `check_from` on,
the CRC of every batch. It stops at the first batch that fails and says why; what that means is the caller's to decide.

Headers are parsed by a compiled kernel, a window of the file at a time. Where no CRC is due, a window is small
and the next one starts at the next header, so large batches are stepped over and not read.

The head of a batch is what its CRC does not cover, and the CRC: base offset, length, leader epoch, magic, CRC. One
digest over the heads of all batches of a file therefore covers every byte of it.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hot_tier.errors import CorruptBatch
from hot_tier.log.epochs import NO_HISTORY, History
from hot_tier.log.files import read_at
from hot_tier.log.kernels import HEADER_COLUMNS, follow_headers, parse_headers
from hot_tier.record.batch import CRC_COVERED_FROM, HEADER_BYTES, check_crc, iter_headers, read_header
from hot_tier.record.crc import crc32c
from hot_tier.record.crc_tables import BEHIND_ZEROS

_SKIM_BYTES: Final = 256 << 10
_STEP_BYTES: Final = 4 << 10
_LARGE_BATCH: Final = 128 << 10
_CHECK_BYTES: Final = 2 << 20

# Columns of a row, as `kernels.parse_headers` fills them.
POSITION, SIZE, BASE_OFFSET, LAST_OFFSET, LEADER_EPOCH, ATTRIBUTES, MAX_TIMESTAMP = range(7)
PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, RECORD_COUNT, CRC = range(7, 12)

Rows = NDArray[np.int64]

HEADS_DIFFER: Final = "an offset, a length or a leader epoch in it is not what was written"
WRONG_HEADER: Final = "no batch header, or an offset or leader epoch in it that cannot be there"

ANYWHERE: Final = 2**63 - 1
_NOWHERE: Final = -1

_HEAD: Final = np.arange(CRC_COVERED_FROM)


def digest_of_heads(batch: memoryview, previous: int) -> int:
    """Returns the digest with the head of one more batch."""
    return crc32c(batch[:CRC_COVERED_FROM], previous)


def digest_of_rows(data: memoryview, start: int, rows: Rows, previous: int) -> int:
    """Returns the digest with the heads of the batches of `rows`. `data` is what the file holds from `start` on."""
    heads = np.frombuffer(data, np.uint8)[(rows[:, POSITION] - start)[:, None] + _HEAD]
    return crc32c(heads, previous)


def crc_is_right(batch: memoryview) -> bool:
    """Returns whether these bytes are one whole batch, as far as its CRC tells."""
    try:
        check_crc(batch, read_header(batch))
    except CorruptBatch:
        return False
    return True


class Walk:
    """Iterate to get arrays of rows; then `position`, `next_offset` and `fault` say where and why it ended."""

    def __init__(
        self,
        fd: int,
        start: int,
        end: int,
        next_offset: int,
        *,
        dense: bool = False,
        gaps_below: int = ANYWHERE,
        check_from: int | None = None,
        history: History = NO_HISTORY,
        may_rise: bool = False,
        digest: int = 0,
    ) -> None:
        """`dense`: there is no gap between two batches; otherwise one may be before each batch that starts at
        `gaps_below` or earlier. `may_rise`: leader epochs may follow that the history does not know yet."""
        self._fd = fd
        self._end = end
        self._gaps_below = _NOWHERE if dense else gaps_below
        self._history = history
        self._may_rise = may_rise
        self._check_from = end if check_from is None else check_from
        self.position = start
        """Where the first batch starts that was not delivered; `end` if all were."""
        self.next_offset = next_offset
        """The lowest offset that the batch there may have."""
        self.batches = 0
        """How many were delivered."""
        self.header_digest = digest
        """Over the heads of those."""
        self.last = start
        """Where the last of those starts."""
        self.fault: str | None = None
        self._skim_bytes = _SKIM_BYTES

    def __iter__(self) -> Iterator[Rows]:
        while self.position < self._end and self.fault is None:
            rows = self._window()
            if len(rows):
                yield rows

    def _window(self) -> Rows:
        start = self.position
        checked = start >= self._check_from
        data = read_at(self._fd, start, min(_CHECK_BYTES if checked else self._skim_bytes, self._end - start))
        rows, after, bad = _parse_all(
            data, start, self._end, self.next_offset, self._gaps_below, self._history, self._may_rise
        )
        if not checked:
            rows = rows[rows[:, POSITION] < self._check_from]
            bad = bad and start + after < self._check_from
        if bad:
            self.fault = WRONG_HEADER
        elif not len(rows):
            self.fault = f"{len(data)} bytes where a batch header takes {HEADER_BYTES}"
        if checked:
            rows = self._check(rows, data, start)
        if len(rows):
            self.header_digest = digest_of_rows(data, start, rows, self.header_digest)
            self.batches += len(rows)
            self.last = int(rows[-1, POSITION])
            self.position = int(rows[-1, POSITION] + rows[-1, SIZE])
            self.next_offset = int(rows[-1, LAST_OFFSET]) + 1
            large = self.position - start >= _LARGE_BATCH * len(rows)
            self._skim_bytes = _STEP_BYTES if large else _SKIM_BYTES
        return rows

    def _check(self, rows: Rows, data: memoryview, start: int) -> Rows:
        for at, row in enumerate(rows.tolist()):
            begin = row[POSITION] - start
            end = begin + row[SIZE]
            if end > len(data):
                if at:
                    # The window ends inside this batch: the next one starts with it.
                    self.fault = None
                    return rows[:at]
                data = read_at(self._fd, start, row[SIZE])
            if len(data) < end or crc32c(data[begin + CRC_COVERED_FROM : end]) != row[CRC]:
                self.fault = f"CRC of the batch at offset {row[BASE_OFFSET]} is wrong"
                return rows[:at]
        return rows


def sound_bytes(data: memoryview, base_offset: int, end_offset: int, *, dense: bool, history: History) -> int:
    """Returns how many bytes at the front of `data` are whole batches with the right CRC, offsets that follow each
    other, and leader epochs of the history. The first batch starts at `base_offset`, or after it where there may be
    gaps.

    One call computes the CRC of all of them together, and a kernel what it must be from the CRCs that the batches name.
    Only if the two differ is each batch checked by itself."""
    end, crc = follow_headers(np.frombuffer(data, np.uint8), base_offset, end_offset, not dense, *history, BEHIND_ZEROS)
    if crc32c(data[:end]) == crc:
        return int(end)
    for position, header in iter_headers(data[:end]):
        if crc32c(data[position + CRC_COVERED_FROM : position + header.size]) != header.crc:
            return position
    return int(end)


def parse_all(data: memoryview, next_offset: int, *, dense: bool = False, history: History = NO_HISTORY) -> Rows:
    """Returns a row for each whole batch at the front."""
    return _parse_all(data, 0, len(data), next_offset, _NOWHERE if dense else ANYWHERE, history, False)[0]


def _parse_all(
    data: memoryview, position: int, end: int, next_offset: int, gaps_below: int, history: History, may_rise: bool
) -> tuple[Rows, int, bool]:
    rows: Rows = np.empty((len(data) // HEADER_BYTES, HEADER_COLUMNS), np.int64)
    filled, after, bad = parse_headers(
        np.frombuffer(data, np.uint8), position, end, next_offset, gaps_below, *history, may_rise, rows
    )
    return rows[:filled], after, bool(bad)

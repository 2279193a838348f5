"""The sparse indexes of one segment: offset → position, and timestamp → offset. `docs/formats/hot-segment.md`.

About every `index.interval.bytes` of log there is an entry, always at the start of a batch, so an entry is an
exact boundary: batches of 4 KiB and more are all in it. Both indexes live in memory and are written as whole
files when the segment is sealed (and at a clean stop). They can always be rebuilt from the log.

Rules:
- offset entries: (batch's base offset, its position), both strictly rising; position 0 is implied.
- time entries: (timestamp, offset): no record before `offset` has a later timestamp than `timestamp`; both
  strictly rising. `offset` is that of an offset entry.
- A file counts only if its CRC is right and it speaks of this base offset and this many bytes of log.
- The `.index` file of a sealed segment is its seal: it is written after the log was synced, and says how long
  the log was and what the heads of all its batches were. What has a seal is never truncated by recovery.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct
from typing import Final, NamedTuple

from hot_tier.record.crc import crc32c

NO_TIMESTAMP: Final = -1
NEVER_CLEANED: Final = -1

UNKNOWN: Final = -1
"""Batches of a segment whose seal was written before seals counted them: their heads have no digest either."""

_SEALED: Final = 1
_DENSE: Final = 2
_DAMAGED: Final = 4
_ABORTS: Final = 8

_INDEX_MAGIC: Final = b"TLOX"
_INDEX_VERSION: Final = 2
_INDEX_FIELDS: Final = (
    "<"
    "4s"  # magic
    "H"  # version
    "H"  # flags: 1 sealed, 2 dense, 4 damaged, 8 has an `.aborted` file
    "q"  # base offset
    "q"  # end offset
    "q"  # bytes of log
    "q"  # greatest timestamp, -1 for none
    "q"  # base offset of the first batch that has it
    "q"  # when compaction first wrote these records, ms; -1 for never
    "I"  # entries
    "I"  # CRC-32C of the entries
)
_INDEX_HEADERS: Final = {
    1: Struct(_INDEX_FIELDS + "I"),  # CRC-32C of the header before this field, so that a seal can be read alone
    _INDEX_VERSION: Struct(
        _INDEX_FIELDS + "i"  # batches, -1 where they were not counted
        "I"  # CRC-32C of the heads of all batches
        "I"  # CRC-32C of the header before this field
    ),
}
_VERSION_AT: Final = slice(4, 6)
SEAL_BYTES: Final = _INDEX_HEADERS[_INDEX_VERSION].size
"""As much of an `.index` file as holds its seal, whatever its version."""

_TIME_VERSION: Final = 1
_TIME_MAGIC: Final = b"TLTX"
_TIME_HEADER: Final = Struct("<4sHHqqIII")  # magic, version, zero, base offset, bytes of log, entries, both CRC-32C
_CRC_BYTES: Final = 4


class Contents(NamedTuple):
    """What the log file of a segment holds, as far as it can be said without its records."""

    base_offset: int
    end_offset: int
    log_bytes: int
    dense: bool
    batches: int
    header_digest: int


class Seal(NamedTuple):
    """What the head of an `.index` file says about its segment."""

    base_offset: int
    end_offset: int
    log_bytes: int
    max_timestamp: int
    max_timestamp_offset: int
    cleaned_ms: int
    sealed: bool
    dense: bool
    """Each batch starts where the one before it ends; compaction leaves gaps."""
    batches: int = UNKNOWN
    header_digest: int = 0
    """CRC-32C of the heads of all batches (`scan.digest_of_heads`)."""
    damaged: bool = False
    """It was damaged when it was sealed."""
    aborts: bool = False
    """Markers of aborted transactions are in it; an `.aborted` file names them."""

    @property
    def contents(self) -> Contents:
        return Contents(self.base_offset, self.end_offset, self.log_bytes, self.dense, self.batches, self.header_digest)


class SparseIndex:
    """Entries are relative to the segment's base offset, four bytes each."""

    __slots__ = ("offsets", "positions", "time_offsets", "times", "unindexed_bytes")

    def __init__(self) -> None:
        self.offsets = array("I")
        self.positions = array("I")
        self.times = array("q")
        self.time_offsets = array("I")
        self.unindexed_bytes = 0

    def note(self, offset: int, position: int, size: int, earlier_max_timestamp: int, interval: int) -> None:
        """Notes a batch that was written. `earlier_max_timestamp` is the greatest timestamp of the segment before
        it."""
        if self.unindexed_bytes >= interval and position:
            # Positions first: a lookup in a thread that sees the offset also finds its position.
            self.positions.append(position)
            self.offsets.append(offset)
            if earlier_max_timestamp > (self.times[-1] if self.times else NO_TIMESTAMP):
                self.time_offsets.append(offset)
                self.times.append(earlier_max_timestamp)
            self.unindexed_bytes = 0
        self.unindexed_bytes += size

    def floor(self, offset: int) -> tuple[int, int]:
        """Returns the last entry at or before `offset`: (offset, position)."""
        at = bisect_right(self.offsets, offset) - 1
        return (self.offsets[at], self.positions[at]) if at >= 0 else (0, 0)

    def boundary(self, position: int) -> int:
        """Returns the last position at or before `position` that is known to start a batch."""
        at = bisect_right(self.positions, position) - 1
        return self.positions[at] if at >= 0 else 0

    def before_time(self, timestamp: int) -> int:
        """Returns the greatest known offset before which no record is as late as `timestamp`."""
        at = bisect_left(self.times, timestamp) - 1
        return self.time_offsets[at] if at >= 0 else 0

    def truncate(self, position: int) -> None:
        keep = bisect_left(self.positions, position)
        del self.offsets[keep:], self.positions[keep:]
        end = self.offsets[-1] + 1 if keep else 0
        keep = bisect_left(self.time_offsets, end)
        del self.times[keep:], self.time_offsets[keep:]
        self.unindexed_bytes = position - (self.positions[-1] if self.positions else 0)


def write_index(index: SparseIndex, seal: Seal) -> bytes:
    body = _little(index.offsets) + _little(index.positions)
    head = _INDEX_HEADERS[_INDEX_VERSION].pack(
        _INDEX_MAGIC,
        _INDEX_VERSION,
        _SEALED * seal.sealed | _DENSE * seal.dense | _DAMAGED * seal.damaged | _ABORTS * seal.aborts,
        seal.base_offset,
        seal.end_offset,
        seal.log_bytes,
        seal.max_timestamp,
        seal.max_timestamp_offset,
        seal.cleaned_ms,
        len(index.offsets),
        crc32c(body),
        seal.batches,
        seal.header_digest,
        0,
    )
    return _with_crc(head) + body


def write_time_index(index: SparseIndex, seal: Seal) -> bytes:
    body = _little(index.times) + _little(index.time_offsets)
    head = _TIME_HEADER.pack(
        _TIME_MAGIC, _TIME_VERSION, 0, seal.base_offset, seal.log_bytes, len(index.times), crc32c(body), 0
    )
    return _with_crc(head) + body


def read_seal(content: bytes) -> Seal | None:
    """Returns the head of an `.index` file, or None if it is not whole."""
    found = _read_index_head(content)
    return found[0] if found is not None else None


def _read_index_head(content: bytes) -> tuple[Seal, int, int, int] | None:
    """Returns the seal, the number of entries, their CRC-32C, and where they start."""
    header = _INDEX_HEADERS.get(int.from_bytes(content[_VERSION_AT], "little"))
    if header is None or len(content) < header.size or not _head_is_whole(content[: header.size]):
        return None
    magic, _, flags, base, end, log_bytes, latest, latest_offset, cleaned_ms, count, crc, *heads, _ = (
        header.unpack_from(content)
    )
    if magic != _INDEX_MAGIC:
        return None
    batches, header_digest = heads or (UNKNOWN, 0)
    seal = Seal(
        base,
        end,
        log_bytes,
        latest,
        latest_offset,
        cleaned_ms,
        bool(flags & _SEALED),
        bool(flags & _DENSE),
        batches,
        header_digest,
        bool(flags & _DAMAGED),
        bool(flags & _ABORTS),
    )
    return seal, count, crc, header.size


def read_index(content: bytes) -> tuple[Seal, SparseIndex] | None:
    """Returns the seal and the offset entries, or None if the file is not whole and undamaged."""
    found = _read_index_head(content)
    if found is None:
        return None
    seal, count, crc, start = found
    body = content[start:]
    if len(body) != 8 * count or crc32c(body) != crc:
        return None
    index = SparseIndex()
    index.offsets = _array("I", body[: 4 * count])
    index.positions = _array("I", body[4 * count :])
    index.unindexed_bytes = seal.log_bytes - (index.positions[-1] if count else 0)
    return seal, index


def read_time_index(content: bytes, seal: Seal, into: SparseIndex) -> bool:
    """Fills the time entries. Returns False if the file is damaged or belongs to another state of the segment."""
    size = _TIME_HEADER.size
    if len(content) < size or not _head_is_whole(content[:size]):
        return False
    magic, version, _, base_offset, log_bytes, count, crc, _ = _TIME_HEADER.unpack_from(content)
    body = content[size:]
    if magic != _TIME_MAGIC or version != _TIME_VERSION or len(body) != 12 * count or crc32c(body) != crc:
        return False
    if (base_offset, log_bytes) != (seal.base_offset, seal.log_bytes):
        return False
    into.times = _array("q", body[: 8 * count])
    into.time_offsets = _array("I", body[8 * count :])
    return True


def _with_crc(head: bytes) -> bytes:
    covered = head[:-_CRC_BYTES]
    return covered + crc32c(covered).to_bytes(_CRC_BYTES, "little")


def _head_is_whole(head: bytes) -> bool:
    return head == _with_crc(head)


def _array(code: str, content: bytes) -> "array[int]":
    values: array[int] = array(code, content)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _little(values: "array[int]") -> bytes:
    if sys.byteorder == "big":
        values = array(values.typecode, values)
        values.byteswap()
    return values.tobytes()

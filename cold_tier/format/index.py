"""The index of an archived segment, version 1. docs/formats/cold-index.md describes it.

    0    4   magic "TLIX"
    4    2   version 1
    6    2   zero
    8    8   base offset                       of the segment
    16   8   end offset                        exclusive
    24   8   size of the Parquet object
    32   4   number of row groups              each 64 bytes
    36   4   number of leader-epoch ranges     each 12 bytes
    40   4   size of the Parquet footer
    44   4   size of the producer state
    48   …   row groups, epoch ranges, footer, producer state
    end  4   CRC-32C of everything before

A row group: first offset, end offset, min and max timestamp (ms), start in the object, length, rows, CRC-32C of its
bytes, zero. Row groups cover the segment's offsets without a hole: a record that was left out lies in the range of the
group before it, so a reader that reaches its offset goes on behind it.

The Parquet footer is here too: a cold fetch reads the index and then rows, never the footer.
"""

import struct
from bisect import bisect_right
from dataclasses import astuple, dataclass
from typing import Final

from cold_tier.errors import CorruptObject
from cold_tier.manifest.model import EpochStart
from cold_tier.objects.store import Buffer
from hot_tier.ids import LeaderEpoch, Offset
from hot_tier.record.crc import crc32c

_HEADER: Final = struct.Struct(">4sHHqqqIIII")
_ROW_GROUP: Final = struct.Struct(">qqqqqqqII")
_EPOCH: Final = struct.Struct(">iq")
_CRC: Final = struct.Struct(">I")
_MAGIC: Final = b"TLIX"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class RowGroup:
    first_offset: Offset
    end_offset: Offset
    min_timestamp_ms: int
    max_timestamp_ms: int
    start: int
    length: int
    rows: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    base_offset: Offset
    end_offset: Offset
    rows_bytes: int
    row_groups: tuple[RowGroup, ...]
    epochs: tuple[EpochStart, ...]
    footer: bytes
    producers: bytes
    """The producer-state snapshot at `end_offset`, as the log writes it, for a restored broker."""

    def row_group_at(self, offset: Offset) -> int:
        """The row group whose range holds `offset`, which must lie inside the segment."""
        return bisect_right(self.row_groups, offset, key=lambda group: group.first_offset) - 1


def write_index(index: SegmentIndex) -> bytes:
    parts = [
        _HEADER.pack(
            _MAGIC,
            _VERSION,
            0,
            index.base_offset,
            index.end_offset,
            index.rows_bytes,
            len(index.row_groups),
            len(index.epochs),
            len(index.footer),
            len(index.producers),
        )
    ]
    parts += [_ROW_GROUP.pack(*astuple(group), 0) for group in index.row_groups]
    parts += [_EPOCH.pack(epoch.leader_epoch, epoch.start_offset) for epoch in index.epochs]
    parts += [index.footer, index.producers]
    body = b"".join(parts)
    return body + _CRC.pack(crc32c(body))


def read_index(data: Buffer, where: str) -> SegmentIndex:
    view = memoryview(data)
    if len(view) < _HEADER.size + _CRC.size or _CRC.unpack(view[-_CRC.size :])[0] != crc32c(view[: -_CRC.size]):
        raise CorruptObject(
            "the index is damaged: its checksum does not match",
            where=where,
            hint="restore this object from a copy; the rows themselves may be intact (`tierlog archive verify`)",
        )
    magic, version, _, base, end, rows_bytes, groups, epochs, footer, producers = _HEADER.unpack_from(view)
    groups_end = _HEADER.size + groups * _ROW_GROUP.size
    epochs_end = groups_end + epochs * _EPOCH.size
    footer_end = epochs_end + footer
    if magic != _MAGIC or version != _VERSION or footer_end + producers + _CRC.size != len(view):
        raise CorruptObject(f"not an index of version {_VERSION}", where=where, hint="upgrade, or restore the object")
    return SegmentIndex(
        Offset(base),
        Offset(end),
        rows_bytes,
        tuple(RowGroup(*fields[:-1]) for fields in _ROW_GROUP.iter_unpack(view[_HEADER.size : groups_end])),
        tuple(
            EpochStart(LeaderEpoch(epoch), Offset(start))
            for epoch, start in _EPOCH.iter_unpack(view[groups_end:epochs_end])
        ),
        bytes(view[epochs_end:footer_end]),
        bytes(view[footer_end : footer_end + producers]),
    )

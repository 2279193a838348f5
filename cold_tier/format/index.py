"""The index of an archived segment, version 1 or 2. docs/formats/cold-index.md describes it.

    0    4   magic "TLIX"
    4    2   version                       2 if the segment has batches aside, else 1
    6    2   zero
    8    8   base offset                       of the segment
    16   8   end offset                        exclusive
    24   8   size of the Parquet object
    32   4   number of row groups              each 64 bytes
    36   4   number of leader-epoch ranges     each 12 bytes
    40   4   size of the Parquet footer
    44   4   size of the producer state
    48   4   size of the directory of batches aside      version 2 alone
    52   4   CRC-32C of the object with batches aside    version 2 alone
    …    …   row groups, epoch ranges, footer, producer state, directory of batches aside
    end  4   CRC-32C of everything before

A row group: first offset, end offset, min and max timestamp (ms), start in the object, length, rows, CRC-32C of its
bytes, CRC-32C of its key filter in the object, or zero if it has none. Row groups cover the segment's offsets without
a hole: a record that was left out lies in the range of the group before it, so a reader that reaches its offset
continues after it. The directory is that of `cold_tier.format.aside`.

The index also holds the Parquet footer: a cold fetch reads the index and then rows, but never the footer of the object.
"""

import struct
from dataclasses import astuple, dataclass
from typing import Final

from cold_tier.errors import CorruptObject
from cold_tier.format.aside import AsideIndex, read_directory, write_directory
from cold_tier.manifest.model import EpochStart
from cold_tier.objects.store import Buffer
from hot_tier.ids import LeaderEpoch, Offset
from hot_tier.record.crc import crc32c

_HEADER: Final = struct.Struct(">4sHHqqqIIII")
_ASIDE: Final = struct.Struct(">II")
_ROW_GROUP: Final = struct.Struct(">qqqqqqqII")
_EPOCH: Final = struct.Struct(">iq")
_CRC: Final = struct.Struct(">I")
_MAGIC: Final = b"TLIX"
_VERSION: Final = 1
_VERSION_ASIDE: Final = 2


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
    key_filter_crc32c: int = 0
    """Of the Bloom filter of its keys (`cold_tier.format.key_filter`); 0: it has none."""


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    base_offset: Offset
    end_offset: Offset
    rows_bytes: int
    row_groups: tuple[RowGroup, ...]
    epochs: tuple[EpochStart, ...]
    footer: bytes
    producers: bytes
    """The producer-state snapshot at `end_offset`, as the log writes it. A restored broker needs it."""
    aside: AsideIndex | None = None
    """None if all batches of the segment are rows."""


def write_index(index: SegmentIndex) -> bytes:
    aside = index.aside
    directory = b"" if aside is None else write_directory(aside.directory)
    parts = [
        _HEADER.pack(
            _MAGIC,
            _VERSION if aside is None else _VERSION_ASIDE,
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
    if aside is not None:
        parts.append(_ASIDE.pack(len(directory), aside.crc32c))
    parts += [_ROW_GROUP.pack(*astuple(group)) for group in index.row_groups]
    parts += [_EPOCH.pack(epoch.leader_epoch, epoch.start_offset) for epoch in index.epochs]
    parts += [index.footer, index.producers, directory]
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
    head_end, directory, checksum = _HEADER.size, 0, 0
    if version == _VERSION_ASIDE and len(view) >= _HEADER.size + _ASIDE.size + _CRC.size:
        head_end += _ASIDE.size
        directory, checksum = _ASIDE.unpack_from(view, _HEADER.size)
    groups_end = head_end + groups * _ROW_GROUP.size
    epochs_end = groups_end + epochs * _EPOCH.size
    footer_end = epochs_end + footer
    producers_end = footer_end + producers
    fits = producers_end + directory + _CRC.size == len(view) and bool(directory) == (version == _VERSION_ASIDE)
    if magic != _MAGIC or version not in (_VERSION, _VERSION_ASIDE) or not fits:
        raise CorruptObject(
            f"not an index of version {_VERSION} or {_VERSION_ASIDE}",
            where=where,
            hint="upgrade, or restore the object",
        )
    aside = None
    if directory:
        aside = AsideIndex(checksum, read_directory(view[producers_end : producers_end + directory], where))
        if (aside.directory.base_offset, aside.directory.end_offset) != (base, end):
            raise CorruptObject("the directory of batches aside is of another segment", where=where)
    return SegmentIndex(
        Offset(base),
        Offset(end),
        rows_bytes,
        tuple(RowGroup(*fields) for fields in _ROW_GROUP.iter_unpack(view[head_end:groups_end])),
        tuple(
            EpochStart(LeaderEpoch(epoch), Offset(start))
            for epoch, start in _EPOCH.iter_unpack(view[groups_end:epochs_end])
        ),
        bytes(view[epochs_end:footer_end]),
        bytes(view[footer_end:producers_end]),
        aside,
    )

"""Decodes one row group of an archived segment to columns, from its bytes and the index alone.

The bytes are compared with the checksum in the index before anything else reads them: a flipped bit is an error that
names the object, never a wrong record.
"""

from __future__ import annotations

import mmap
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cold_tier.errors import CorruptObject
from cold_tier.format.aside import AsideReader
from cold_tier.format.encryption import master_key, plain_digest, said_digests, with_keys
from cold_tier.format.index import SegmentIndex
from cold_tier.format.schema import row_schema
from cold_tier.format.write import COMPLETE, footer_file
from cold_tier.keys.master import MasterKeys
from cold_tier.manifest.model import NO_TIMESTAMP
from cold_tier.objects.store import Buffer
from hot_tier.ids import Offset
from hot_tier.record.columns import RecordColumns, headers_type
from hot_tier.record.crc import crc32c

PLAIN: Final = ["offset", "timestamp", "timestampType", "leaderEpoch"]


class Piece(NamedTuple):
    """A part of a segment that a reader gets at once. The pieces of a segment cover its offsets without a hole."""

    first_offset: Offset
    end_offset: Offset
    row_group: int | None
    """Where its rows are; None if it has no rows. A piece for uncommitted readers may be a part of a row group."""
    portion: int | None
    """Where its batches aside are; None if it has none, and for readers of committed records."""
    max_timestamp_ms: int
    """No record of it is newer."""


@dataclass(frozen=True, slots=True)
class SegmentReader:
    """An index with its parsed Parquet metadata. It can decode any row group and is safe to share between threads."""

    index: SegmentIndex
    where: str
    metadata: pq.FileMetaData
    """What can be read without a key."""
    keys: MasterKeys | None = None
    aside: AsideReader | None = None
    """None if the segment has no batches aside, or if the caller does not need them."""
    _opened: list[pq.FileMetaData] = field(default_factory=list, repr=False)
    _pieces: dict[bool, tuple[Piece, ...]] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, index: SegmentIndex, where: str, keys: MasterKeys | None = None) -> SegmentReader:
        """Needs no key: without `keys`, or if they do not have the right one, `decode` raises KeyMissing."""
        try:
            metadata = pq.read_metadata(pa.BufferReader(footer_file(index.footer)))
        except (pa.ArrowException, OSError) as error:
            raise CorruptObject(f"the Parquet footer in the index cannot be read: {error}", where=where) from error
        return cls(index, where, metadata, keys)

    @property
    def master_key(self) -> str:
        """Returns the master key of an encrypted object, or an empty text."""
        return master_key(self.metadata)

    def unlock(self) -> pq.FileMetaData:
        """Returns the metadata with which rows can be decoded. An encrypted object's footer is proven by its signature.

        The first call asks for the object's data keys, so it may wait for the service that holds the master key.
        """
        if not self.master_key:
            return self.metadata
        if not self._opened:
            footer, keys = footer_file(self.index.footer), self.keys or MasterKeys()
            self._opened.append(with_keys(footer, keys, self.master_key, self.where))
        return self._opened[0]

    def pieces(self, *, committed: bool) -> tuple[Piece, ...]:
        """Returns the pieces that this kind of reader gets: row groups, or row groups with the batches aside."""
        committed = committed or self.aside is None
        if committed not in self._pieces:
            self._pieces[committed] = self._cut(committed)
        return self._pieces[committed]

    def _cut(self, committed: bool) -> tuple[Piece, ...]:
        groups = self.index.row_groups
        portions = () if committed or self.aside is None else self.aside.directory.portions
        group_firsts = [group.first_offset for group in groups]
        portion_firsts = [portion.first_offset for portion in portions]
        firsts = sorted({self.index.base_offset, *group_firsts, *portion_firsts})
        found = []
        for first, end in pairwise([*firsts, self.index.end_offset]):
            group, portion = bisect_right(group_firsts, first) - 1, bisect_right(portion_firsts, first) - 1
            has_portion = portion >= 0 and first < portions[portion].end_offset
            found.append(
                Piece(
                    first,
                    end,
                    group if group >= 0 else None,
                    portion if has_portion else None,
                    max(
                        groups[group].max_timestamp_ms if group >= 0 else NO_TIMESTAMP,
                        portions[portion].max_timestamp_ms if has_portion else NO_TIMESTAMP,
                    ),
                )
            )
        return tuple(found)

    def decode(self, number: int, data: Buffer) -> RecordColumns:
        metadata = self.unlock()
        columns = self._decode(number, data, metadata, None)
        digests = said_digests(metadata)
        if self.master_key and (number >= len(digests) or digests[number] != plain_digest(columns)):
            raise CorruptObject(
                f"the offsets or times in row group {number} are not those that were signed",
                where=self.where,
                hint="somebody changed the object; restore it from a copy",
            )
        return columns

    def decode_plain(self, number: int, data: Buffer) -> RecordColumns:
        """Decodes what can be read without a key. In an encrypted object keys, values and headers come as nulls."""
        return self._decode(number, data, self.metadata, PLAIN if self.master_key else None)

    def _decode(self, number: int, data: Buffer, metadata: pq.FileMetaData, names: list[str] | None) -> RecordColumns:
        group = self.index.row_groups[number]
        if len(data) != group.length or crc32c(data) != group.crc32c:
            raise CorruptObject(
                f"row group {number} (bytes {group.start} to {group.start + group.length}, offsets "
                f"{group.first_offset} to {group.end_offset}) is damaged: {len(data)} bytes, checksum does not match",
                where=self.where,
                hint="restore this object from a copy; `tierlog archive verify` lists everything that is damaged",
            )
        # Column positions in the metadata count from the start of the whole object, so the bytes are put at their old
        # position. The memory before them is reserved but never touched.
        sparse = mmap.mmap(-1, group.start + group.length)
        sparse[group.start :] = data
        try:
            file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(sparse)), metadata=metadata)
            columns = from_arrow(file.read_row_group(number, columns=names, use_threads=False))
        except (pa.ArrowException, OSError) as error:
            raise CorruptObject(f"row group {number} cannot be decoded: {error}", where=self.where) from error
        offsets = columns.offsets
        if (
            len(offsets) != group.rows
            or (offsets[1:] <= offsets[:-1]).any()
            or (len(offsets) and not group.first_offset <= offsets[0] <= offsets[-1] < group.end_offset)
        ):
            raise CorruptObject(
                f"row group {number} does not hold the {group.rows} rows from offset {group.first_offset} to "
                f"{group.end_offset} that the index names",
                where=self.where,
                hint="`tierlog archive verify` lists everything that is damaged",
            )
        return columns

    @property
    def complete(self) -> bool:
        """Returns whether the writer of the object has proven that all records of its offsets are in it."""
        return (self.metadata.metadata or {}).get(f"tierlog.{COMPLETE}".encode()) == b"true"


def from_arrow(table: pa.Table) -> RecordColumns:
    def column(name: str) -> Any:
        if name not in table.column_names:
            return pa.nulls(table.num_rows, row_schema().field(name).type)
        chunked = table.column(name)
        return chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()

    return RecordColumns(
        offsets=column("offset").to_numpy(),
        timestamps=column("timestamp").cast(pa.int64()).to_numpy() // 1000,
        timestamp_types=column("timestampType").to_numpy().astype(np.int32, copy=False),
        leader_epochs=column("leaderEpoch").to_numpy(),
        keys=column("key"),
        values=column("value"),
        headers=column("headers").cast(headers_type()),
    )

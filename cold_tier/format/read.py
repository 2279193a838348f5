"""One row group of an archived segment back to columns, from its bytes and the index alone.

The bytes are checked against the index before anything else looks at them: a flipped bit is an error that names the
object, never a wrong record.
"""

import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cold_tier.errors import CorruptObject
from cold_tier.format.index import SegmentIndex
from cold_tier.format.write import COMPLETE, footer_file
from cold_tier.objects.store import Buffer
from hot_tier.record.columns import HEADERS_TYPE, RecordColumns
from hot_tier.record.crc import crc32c


@dataclass(frozen=True, slots=True)
class SegmentReader:
    """An index with its Parquet metadata parsed, ready to decode any row group; safe to share between threads."""

    index: SegmentIndex
    where: str
    metadata: pq.FileMetaData

    @classmethod
    def open(cls, index: SegmentIndex, where: str) -> "SegmentReader":
        try:
            metadata = pq.read_metadata(pa.BufferReader(footer_file(index.footer)))
        except (pa.ArrowException, OSError) as error:
            raise CorruptObject(f"the Parquet footer in the index cannot be read: {error}", where=where) from error
        return cls(index, where, metadata)

    def decode(self, number: int, data: Buffer) -> RecordColumns:
        group = self.index.row_groups[number]
        if len(data) != group.length or crc32c(data) != group.crc32c:
            raise CorruptObject(
                f"row group {number} (bytes {group.start} to {group.start + group.length}, offsets "
                f"{group.first_offset} to {group.end_offset}) is damaged: {len(data)} bytes, checksum does not match",
                where=self.where,
                hint="restore this object from a copy; `tierlog archive verify` lists everything that is damaged",
            )
        # Column positions in the metadata are those of the whole object, so the bytes go where they were: into
        # memory that is reserved but, but for them, never touched.
        sparse = mmap.mmap(-1, group.start + group.length)
        sparse[group.start :] = data
        try:
            file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(sparse)), metadata=self.metadata)
            columns = from_arrow(file.read_row_group(number, use_threads=False))
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
                f"{group.end_offset} that the index says",
                where=self.where,
                hint="`tierlog archive verify` lists everything that is damaged",
            )
        return columns

    @property
    def complete(self) -> bool:
        """Whoever wrote it has proven that all records of its offsets are in it."""
        return (self.metadata.metadata or {}).get(f"tierlog.{COMPLETE}".encode()) == b"true"


def from_arrow(table: pa.Table) -> RecordColumns:
    def column(name: str) -> Any:
        chunked = table.column(name)
        return chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()

    return RecordColumns(
        offsets=column("offset").to_numpy(),
        timestamps=column("timestamp").cast(pa.int64()).to_numpy() // 1000,
        timestamp_types=column("timestampType").to_numpy().astype(np.int32, copy=False),
        leader_epochs=column("leaderEpoch").to_numpy(),
        keys=column("key"),
        values=column("value"),
        headers=column("headers").cast(HEADERS_TYPE),
    )

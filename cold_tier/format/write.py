"""Writes a sealed segment's bytes to one Parquet file and its index.

Whole batches go in, columns come out: no record passes through Python. A cold fetch gets one row group with one ranged
GET, about 16 MiB of records. The caller passes only committed records; other batches are put aside
(`cold_tier.format.aside`).

The work needs CPU and runs in the offloader's worker process.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cold_tier.format.encryption import MASTER_KEY, Writing, plain_digest, written_digests
from cold_tier.format.filter_options import filter_options
from cold_tier.format.index import RowGroup, SegmentIndex
from cold_tier.format.schema import FORMAT_VERSION, row_schema
from cold_tier.manifest.model import NO_TIMESTAMP, EpochStart
from hot_tier.ids import Offset
from hot_tier.record.columns import RecordColumns
from hot_tier.record.crc import crc32c

ROW_GROUP_BYTES: Final = 16 << 20
"""The size of the records before compression: 3 to 4 MiB in the bucket for JSON events."""

COMPLETE: Final = "complete"
"""In a file's metadata: "true" if it is proven that all records of its offsets are in it. An offset without a row then
never held a record, or was compacted away.
"""

_PAGE_BYTES: Final = 1 << 20
_MAGIC_BYTES: Final = 4
_FOOTER_TAIL_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class WrittenSegment:
    index: SegmentIndex
    rows: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    rows_crc32c: int
    master_key: str = ""


class _Rows(NamedTuple):
    """What the index stores of a row group once its records are written."""

    first_offset: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    rows: int


def write_segment(
    path: str,
    chunks: Iterable[RecordColumns],
    base_offset: Offset,
    end_offset: Offset,
    epochs: tuple[EpochStart, ...],
    producers: bytes,
    described: Mapping[str, str],
    *,
    zstd_level: int,
    encryption: Writing | None = None,
) -> WrittenSegment:
    """Writes `chunks` to the file `path`, each as one row group. `described` goes into the file's metadata.

    The file is not synced: it is only uploaded, and the stored object is then compared with the checksum.
    """
    groups: list[_Rows] = []
    digests: list[str] = []
    rest = iter(chunks)
    first = next(rest, None)
    filters = None if first is None or encryption is not None else filter_options(first)
    with _writer(path, zstd_level, encryption, filters) as writer:
        for columns in () if first is None else chain((first,), rest):
            if len(columns):
                writer.write_batch(to_arrow(columns), row_group_size=len(columns))
                stamps = columns.timestamps
                groups.append(_Rows(int(columns.offsets[0]), int(stamps.min()), int(stamps.max()), len(columns)))
                if encryption is not None:
                    digests.append(plain_digest(columns))
        if encryption is not None:
            described = {**described, **encryption.described, **written_digests(digests)}
        writer.add_key_value_metadata(
            {f"tierlog.{name}": value for name, value in {"format": str(FORMAT_VERSION), **described}.items()}
        )
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as data,
    ):
        index = _index(data, groups, base_offset, end_offset, epochs, producers, encryption)
        checksum = crc32c(data)
    return WrittenSegment(
        index,
        sum(group.rows for group in index.row_groups),
        min((group.min_timestamp_ms for group in index.row_groups), default=NO_TIMESTAMP),
        max((group.max_timestamp_ms for group in index.row_groups), default=NO_TIMESTAMP),
        checksum,
        "" if encryption is None else encryption.described[MASTER_KEY],
    )


def _writer(
    path: str, zstd_level: int, encryption: Writing | None, filters: Mapping[str, Any] | None
) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        path,
        row_schema(),
        compression="zstd",
        compression_level=zstd_level,
        use_dictionary=["timestampType", "leaderEpoch", "headers.list.element.key"],  # type: ignore[arg-type]
        column_encoding={
            "offset": "DELTA_BINARY_PACKED",
            "timestamp": "DELTA_BINARY_PACKED",
            # This encoding stores lengths apart from bytes: 1 to 2 % smaller than PLAIN, and faster to read.
            "key": "DELTA_LENGTH_BYTE_ARRAY",
            "value": "DELTA_LENGTH_BYTE_ARRAY",
        },
        write_statistics=["offset", "timestamp", "timestampType", "key", "leaderEpoch"],
        write_page_index=True,
        # For readers that do not use the index. Spark checks it if parquet.page.verify-checksum.enabled is set.
        write_page_checksum=True,
        data_page_size=_PAGE_BYTES,
        sorting_columns=[pq.SortingColumn(0)],
        store_schema=False,
        bloom_filter_options=filters,
        encryption_properties=None if encryption is None else encryption.properties,
    )


def to_arrow(columns: RecordColumns) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array(columns.offsets),
            pa.array(columns.timestamps * 1000).cast(row_schema().field("timestamp").type),
            pa.array(columns.timestamp_types.astype(np.int32, copy=False)),
            columns.keys,
            columns.values,
            columns.headers.cast(row_schema().field("headers").type),
            pa.array(columns.leader_epochs),
        ],
        schema=row_schema(),
    )


def _index(
    data: memoryview,
    groups: list[_Rows],
    base_offset: Offset,
    end_offset: Offset,
    epochs: tuple[EpochStart, ...],
    producers: bytes,
    encryption: Writing | None,
) -> SegmentIndex:
    footer_bytes = int.from_bytes(data[-_FOOTER_TAIL_BYTES:-_MAGIC_BYTES], "little")
    footer = bytes(data[len(data) - _FOOTER_TAIL_BYTES - footer_bytes :])
    file = footer_file(footer)
    # Arrow ends the process if it meets a column's encrypted metadata without the key.
    metadata = pq.read_metadata(pa.BufferReader(file)) if encryption is None else encryption.read_back(file)
    firsts = [base_offset, *(Offset(rows.first_offset) for rows in groups[1:])]
    ends = [*firsts[1:], end_offset]
    row_groups = []
    for number, (rows, first, end) in enumerate(zip(groups, firsts, ends, strict=False)):
        start, length = _span(metadata.row_group(number))
        row_groups.append(
            RowGroup(
                first,
                end,
                rows.min_timestamp_ms,
                rows.max_timestamp_ms,
                start,
                length,
                rows.rows,
                crc32c(data[start : start + length]),
                _filter_checksum(data, metadata.row_group(number)) if encryption is None else 0,
            )
        )
    return SegmentIndex(base_offset, end_offset, len(data), tuple(row_groups), epochs, footer, producers)


def _filter_checksum(data: memoryview, group: pq.RowGroupMetaData) -> int:
    column: Any
    for column in map(group.column, range(group.num_columns)):
        if column.path_in_schema == "key" and column.bloom_filter_offset is not None:
            start = column.bloom_filter_offset
            return crc32c(data[start : start + column.bloom_filter_length])
    return 0


def footer_file(footer: bytes) -> bytes:
    """Returns the smallest file that gives Parquet readers the metadata in `footer` (with its length and magic)."""
    return b"PAR1" + footer


def _span(group: pq.RowGroupMetaData) -> tuple[int, int]:
    """Returns where a row group's column chunks lie. They follow one another without a gap."""
    columns = [group.column(number) for number in range(group.num_columns)]
    starts = [column.dictionary_page_offset or column.data_page_offset for column in columns]
    end = max(start + column.total_compressed_size for start, column in zip(starts, columns, strict=True))
    return min(starts), end - min(starts)

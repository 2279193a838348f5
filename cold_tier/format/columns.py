"""Reads some columns of a row group: fewer bytes than the whole of it, as a table in the form of the archive.

Where most of a row group is wanted, all of it is read and compared with the checksum in the index. Else only the column
chunks are read, and the checksums that the writer put into their pages are compared.
"""

from __future__ import annotations

import mmap
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cold_tier.errors import CorruptObject, KeyMissing, KeyShredded
from cold_tier.format.read import PLAIN, SegmentReader
from cold_tier.format.schema import row_schema
from cold_tier.format.write import to_arrow
from cold_tier.objects.store import Buffer
from hot_tier.record.crc import crc32c

_GAP_BYTES: Final = 64 << 10
"""Column chunks that are so near are read with one request."""
_MOST: Final = 0.75
"""With a larger part of the row group than this, all of it is read."""


class Span(NamedTuple):
    start: int
    length: int


def spans(reader: SegmentReader, number: int, names: Collection[str]) -> list[Span]:
    """Returns the parts of the object to read for these columns of a row group."""
    group = reader.index.row_groups[number]
    whole = [Span(group.start, group.length)]
    if reader.master_key:
        return whole  # Arrow ends the process if it is asked where an encrypted column lies.
    metadata = reader.metadata.row_group(number)
    found: list[Span] = []
    for position in range(metadata.num_columns):
        column = metadata.column(position)
        if column.path_in_schema.split(".")[0] not in names:
            continue
        start = column.data_page_offset
        if column.dictionary_page_offset is not None:
            start = min(start, column.dictionary_page_offset)
        end = start + column.total_compressed_size
        if found and start - (found[-1].start + found[-1].length) <= _GAP_BYTES:
            found[-1] = Span(found[-1].start, end - found[-1].start)
        else:
            found.append(Span(start, end - start))
    inside = all(group.start <= each.start and each.start + each.length <= group.start + group.length for each in found)
    if not inside or sum(each.length for each in found) > _MOST * group.length:
        return whole
    return found


def decode_columns(
    reader: SegmentReader, number: int, names: Sequence[str], parts: Sequence[tuple[Span, Buffer]]
) -> pa.Table:
    """Returns these columns, in the order of the schema, from what `spans` says. Raises CorruptObject."""
    if reader.master_key:
        return _decode_encrypted(reader, number, names, parts[0][1])
    group = reader.index.row_groups[number]
    whole = len(parts) == 1 and parts[0][0] == Span(group.start, group.length)
    if any(len(data) != span.length for span, data in parts) or (whole and crc32c(parts[0][1]) != group.crc32c):
        raise _damaged(reader, number, "its bytes are not those that the index names")
    # Positions in the metadata count from the start of the object. The memory between the parts is never touched.
    sparse = mmap.mmap(-1, group.start + group.length)
    for span, data in parts:
        sparse[span.start : span.start + span.length] = data
    try:
        file = pq.ParquetFile(
            pa.BufferReader(pa.py_buffer(sparse)), metadata=reader.metadata, page_checksum_verification=not whole
        )
        table = file.read_row_group(number, columns=list(names), use_threads=False)
        table = table.select(list(names)).cast(pa.schema([row_schema().field(name) for name in names]))
    except (pa.ArrowException, OSError, KeyError) as error:
        raise _damaged(reader, number, f"it cannot be decoded: {error}") from error
    if table.num_rows != group.rows:
        raise _damaged(reader, number, f"it has {table.num_rows} rows, and the index names {group.rows}")
    if "offset" in names and group.rows:
        offsets = table.column("offset").to_numpy()
        if (np.diff(offsets) <= 0).any() or not group.first_offset <= offsets[0] <= offsets[-1] < group.end_offset:
            raise _damaged(reader, number, "its offsets are not those that the index names")
    return table


def _decode_encrypted(reader: SegmentReader, number: int, names: Sequence[str], data: Buffer) -> pa.Table:
    try:
        columns = reader.decode(number, data)
    except (KeyMissing, KeyShredded):
        if not set(names) <= set(PLAIN):
            raise
        columns = reader.decode_plain(number, data)
    return pa.Table.from_batches([to_arrow(columns)]).select(list(names))


def _damaged(reader: SegmentReader, number: int, why: str) -> CorruptObject:
    group = reader.index.row_groups[number]
    return CorruptObject(
        f"row group {number} (offsets {group.first_offset} to {group.end_offset}) is damaged: {why}",
        where=reader.where,
        hint="restore this object from a copy; `tierlog archive verify` lists everything that is damaged",
    )

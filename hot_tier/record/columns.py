"""Many records as Arrow columns, both ways.

Columns are what the archive, the Arrow answers of the HTTP interface and compaction work on. A kernel fills
Arrow's own buffers, so no Python object is made for a record. Types are always `binary` and `string` with
32-bit offsets, which Parquet and Spark take as they are: one `RecordColumns` holds at most 2 GiB, and
`iter_columns` splits whatever is larger. Nothing is ever `large_binary`.

Stored bytes are foreign bytes: every function here checks the CRC, and damage raises CorruptBatch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from hot_tier.record.batch import HEADER_BYTES, BatchHeader, ReadBuffer
from hot_tier.record.column_decoder import Chunk, Int32s, Int64s, headers_type, pooled
from hot_tier.record.column_encoder import Encoder, breaks
from hot_tier.record.compression import Codec
from hot_tier.record.records import (
    MAX_DECOMPRESSED_BYTES,
    NewRecord,
    Record,
    RecordLike,
    decode_records,
    encode_records,
    sound_batches,
)

__all__ = [
    "NewRecord",
    "Record",
    "RecordColumns",
    "RecordLike",
    "columns_of",
    "decode_batches",
    "decode_records",
    "encode_batch",
    "encode_batches",
    "encode_records",
    "headers_type",
    "iter_columns",
]

MAX_COLUMNS_BYTES: Final = 2**31 - 1
CHUNK_BYTES: Final = 64 << 20
BATCH_BYTES: Final = 256 << 10


@dataclass(frozen=True, slots=True, eq=False)
class RecordColumns:
    """Records of one partition in offset order, a column for each field."""

    offsets: Int64s
    timestamps: Int64s
    """Milliseconds."""
    timestamp_types: Int32s
    """0 the producer's time, 1 the broker's."""
    leader_epochs: Int32s
    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.ListArray[Any]
    """Null where a record has none."""

    def __len__(self) -> int:
        return len(self.offsets)

    def slice(self, first_row: int, end_row: int) -> RecordColumns:
        """Returns the rows from `first_row` up to `end_row`, without copying."""
        length = end_row - first_row
        return RecordColumns(
            self.offsets[first_row:end_row],
            self.timestamps[first_row:end_row],
            self.timestamp_types[first_row:end_row],
            self.leader_epochs[first_row:end_row],
            self.keys.slice(first_row, length),
            self.values.slice(first_row, length),
            self.headers.slice(first_row, length),
        )


def decode_batches(
    buffer: ReadBuffer,
    *,
    from_offset: int = 0,
    end_offset: int | None = None,
    max_decompressed_bytes: int = MAX_COLUMNS_BYTES,
    skip_control: bool = True,
) -> RecordColumns:
    """Returns all records in `buffer` with `from_offset` <= offset < `end_offset`. A partial last batch is ignored.

    Raises BatchTooLarge if the records take more than `max_decompressed_bytes` together. That limit is at most 2 GiB;
    `iter_columns` has no such limit.
    """
    room = min(max_decompressed_bytes, MAX_COLUMNS_BYTES)
    chunk = Chunk()
    for position, header in sound_batches(buffer, from_offset, end_offset, skip_control):
        chunk.add(buffer, position, header, room - chunk.bytes)
    return RecordColumns(*chunk.decode(from_offset, end_offset))


def iter_columns(
    buffer: ReadBuffer,
    *,
    from_offset: int = 0,
    end_offset: int | None = None,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    skip_control: bool = True,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[RecordColumns]:
    """Yields the same records in columns of about `chunk_bytes` each, so that any number of batches can be read.

    Raises BatchTooLarge if the records of one batch take more than `max_decompressed_bytes`.
    """
    found = sound_batches(buffer, from_offset, end_offset, skip_control)
    for chunk in _chunks(((buffer, *each) for each in found), max_decompressed_bytes, chunk_bytes):
        yield RecordColumns(*chunk.decode(from_offset, end_offset))


def columns_of(
    batches: Iterable[tuple[ReadBuffer, int, BatchHeader]], *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[RecordColumns]:
    """Returns all records of these batches. A batch is given as its buffer, its position there and its header. Control
    batches hold no records. The caller has checked the batches."""
    with_records = (each for each in batches if each[2].record_count and not each[2].is_control)
    for chunk in _chunks(with_records, MAX_DECOMPRESSED_BYTES, chunk_bytes):
        yield RecordColumns(*chunk.decode(0, None))


def _chunks(
    batches: Iterable[tuple[ReadBuffer, int, BatchHeader]], max_decompressed_bytes: int, chunk_bytes: int
) -> Iterator[Chunk]:
    assert chunk_bytes < MAX_COLUMNS_BYTES
    chunk = Chunk()
    most_bytes = min(max_decompressed_bytes, MAX_COLUMNS_BYTES - chunk_bytes)
    for buffer, position, header in batches:
        chunk.add(buffer, position, header, most_bytes)
        if chunk.bytes >= chunk_bytes:
            yield chunk
            chunk = Chunk()
    if chunk.rows:
        yield chunk


def encode_batch(
    columns: RecordColumns,
    *,
    codec: int = 0,
    base_offset: int | None = None,
    leader_epoch: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """Returns all rows as one batch. Base offset and leader epoch are those of the first row unless given.

    A batch has one leader epoch, one kind of timestamp, and one time if the broker set it. For rows that differ in
    these use `encode_batches`.
    """
    if len(columns) == 0 or len(breaks(columns)):
        raise ValueError("these rows are not one batch: encode_batches splits them")
    return Encoder(columns).batch(
        0,
        len(columns),
        codec=codec,
        base_offset=int(columns.offsets[0]) if base_offset is None else base_offset,
        leader_epoch=int(columns.leader_epochs[0]) if leader_epoch is None else leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )


def encode_batches(
    columns: RecordColumns, *, codec: int = 0, batch_bytes: int = BATCH_BYTES, cut_at: Sequence[int] = ()
) -> ReadBuffer:
    """Returns all rows as batches of up to about `batch_bytes` before compression, one after the other.

    Offsets, leader epochs and timestamps stay as they are in the rows. A new batch begins where one batch cannot hold
    both, and no batch goes on over an offset in `cut_at`. Gaps between offsets stay gaps.
    """
    encoder = Encoder(columns)
    ends = np.append(breaks(columns), len(columns))
    if len(cut_at):
        ends = np.union1d(ends, np.searchsorted(columns.offsets, cut_at))
    spans: list[tuple[int, int]] = []
    first_row = 0
    while first_row < len(columns):
        hard_end = int(ends[np.searchsorted(ends, first_row, "right")])
        end_row = min(hard_end, encoder.fit(first_row, batch_bytes))
        spans.append((first_row, end_row))
        first_row = end_row
    if codec != Codec.NONE:
        return b"".join([encoder.batch(first_row, end_row, codec=codec) for first_row, end_row in spans])
    out = pooled(encoder.most_bytes(0, len(columns)) + len(spans) * HEADER_BYTES, np.uint8)
    position = 0
    for first_row, end_row in spans:
        position = encoder.write(out, position, first_row, end_row)
    return out.data[:position]

"""Many records as Arrow columns, both ways.

Columns are what the archive, the Arrow answers of the HTTP interface and compaction work on. A kernel fills
Arrow's own buffers, so no Python object is made for a record. Types are always `binary` and `string` with
32-bit offsets, which Parquet and Spark take as they are: one `RecordColumns` holds at most 2 GiB, and
`iter_columns` splits whatever is larger. Nothing is ever `large_binary`.

Stored bytes are foreign bytes: the CRC is checked, and damage raises CorruptBatch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hot_tier.errors import BatchTooLarge, CorruptBatch
from hot_tier.record import kernels
from hot_tier.record.batch import (
    HEADER_BYTES,
    BatchHeader,
    ReadBuffer,
    assign,
    check_crc,
    iter_headers,
    write_batch,
)
from hot_tier.record.compression import Codec, compress, decompress
from hot_tier.record.records import (
    APPEND_TIME,
    CREATE_TIME,
    MAX_DECOMPRESSED_BYTES,
    NewRecord,
    Record,
    RecordLike,
    decode_records,
    encode_records,
)

__all__ = [
    "HEADERS_TYPE",
    "NewRecord",
    "Record",
    "RecordColumns",
    "RecordLike",
    "decode_batches",
    "decode_records",
    "encode_batch",
    "encode_batches",
    "encode_records",
    "iter_columns",
]

_Number = TypeVar("_Number", bound=np.number[Any])

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Uint8s = npt.NDArray[np.uint8]

HEADERS_TYPE: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
MAX_COLUMNS_BYTES: Final = 2**31 - 1
CHUNK_BYTES: Final = 64 << 20
BATCH_BYTES: Final = 256 << 10
MAX_OFFSET_DELTA: Final = 2**31 - 1
LAST_OFFSET: Final = 2**63 - 1

_NO_BITS: Final = np.zeros(0, np.uint8)


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
    headers: "pa.ListArray[Any]"
    """Null where a record has none."""

    def __len__(self) -> int:
        return len(self.offsets)

    def slice(self, first_row: int, end_row: int) -> "RecordColumns":
        """The rows from `first_row` up to `end_row`, without copying."""
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
    """All records in `buffer` with `from_offset` <= offset < `end_offset`; a partial last batch is ignored.

    BatchTooLarge if they take more than `max_decompressed_bytes` together. That cannot be above 2 GiB;
    `iter_columns` knows no such limit.
    """
    room = min(max_decompressed_bytes, MAX_COLUMNS_BYTES)
    chunk = _Chunk()
    for position, header in _wanted(buffer, from_offset, end_offset, skip_control):
        chunk.add(buffer, position, header, room - chunk.bytes)
    return chunk.decode(from_offset, end_offset)


def iter_columns(
    buffer: ReadBuffer,
    *,
    from_offset: int = 0,
    end_offset: int | None = None,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    skip_control: bool = True,
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[RecordColumns]:
    """The same records in columns of about `chunk_bytes` each, so that any number of batches can be read.

    BatchTooLarge if the records of one batch take more than `max_decompressed_bytes`.
    """
    chunk = _Chunk()
    for position, header in _wanted(buffer, from_offset, end_offset, skip_control):
        chunk.add(buffer, position, header, min(max_decompressed_bytes, MAX_COLUMNS_BYTES - chunk_bytes))
        if chunk.bytes >= chunk_bytes:
            yield chunk.decode(from_offset, end_offset)
            chunk = _Chunk()
    if chunk.rows:
        yield chunk.decode(from_offset, end_offset)


def _wanted(
    buffer: ReadBuffer, from_offset: int, end_offset: int | None, skip_control: bool
) -> Iterator[tuple[int, BatchHeader]]:
    for position, header in iter_headers(buffer):
        if header.end_offset <= from_offset or header.record_count == 0 or (skip_control and header.is_control):
            continue
        if end_offset is not None and header.base_offset >= end_offset:
            return
        check_crc(buffer, header, position)
        yield position, header


class _Chunk:
    """Batches gathered for one run of the kernel: their bytes, decompressed, and what their headers say."""

    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0
        self._sources: list[tuple[ReadBuffer, list[tuple[int, ...]]]] = []

    def add(self, buffer: ReadBuffer, position: int, header: BatchHeader, room: int) -> None:
        data, start, end = buffer, position + HEADER_BYTES, position + header.size
        if header.codec != Codec.NONE:
            data = decompress(header.codec, memoryview(buffer)[start:end], room)
            start, end = 0, len(data)
        elif end - start > room:
            raise BatchTooLarge(f"records of more than {room} bytes", hint="read them in smaller portions")
        if not 0 <= header.record_count <= (end - start) // kernels.MIN_RECORD_BYTES:
            raise CorruptBatch(
                f"{header.record_count} records in {end - start} bytes",
                where=f"batch at offset {header.base_offset}",
            )
        if not self._sources or self._sources[-1][0] is not data:
            self._sources.append((data, []))
        append_time = header.log_append_time
        self._sources[-1][1].append(
            (
                start,
                end,
                header.record_count,
                header.base_offset,
                header.last_offset_delta,
                APPEND_TIME if append_time else CREATE_TIME,
                header.max_timestamp if append_time else header.base_timestamp,
                header.leader_epoch,
            )
        )
        self.rows += header.record_count
        self.bytes += end - start

    def decode(self, from_offset: int, end_offset: int | None) -> RecordColumns:
        most = self.rows
        offsets, timestamps, headers_at = (_pooled(most, np.int64) for _ in range(3))
        timestamp_types, leader_epochs = (_pooled(most, np.int32) for _ in range(2))
        keys, values = _Binary(most, self.bytes), _Binary(most, self.bytes)
        header_ends, header_bits = _ends(most), _all_valid(most)
        totals = np.zeros(kernels.TOTALS, np.int64)
        rows_after: list[int] = []
        arrays = [np.frombuffer(data, np.uint8) for data, _ in self._sources]
        for array, (_, sections) in zip(arrays, self._sources, strict=True):
            status, section, record = kernels.decode_records(
                *(array, np.array(sections, np.int64), from_offset),
                LAST_OFFSET if end_offset is None else end_offset,
                *(offsets, timestamps, timestamp_types, leader_epochs),
                *(keys.ends, keys.data, keys.bits),
                *(values.ends, values.data, values.bits),
                *(header_ends, header_bits, headers_at, totals),
            )
            if status:
                base_offset = sections[section][kernels.SECTION_BASE_OFFSET]
                raise CorruptBatch(kernels.FAULTS[status], where=f"batch at offset {base_offset}, record {record}")
            rows_after.append(int(totals[kernels.ROWS]))
        rows = int(totals[kernels.ROWS])
        return RecordColumns(
            offsets[:rows],
            timestamps[:rows],
            timestamp_types[:rows],
            leader_epochs[:rows],
            keys.array(pa.binary(), rows, totals[kernels.NULL_KEYS]),
            values.array(pa.binary(), rows, totals[kernels.NULL_VALUES]),
            _decode_headers(arrays, rows_after, header_ends, header_bits, headers_at, totals),
        )


class _Binary:
    """The buffers of an Arrow binary array, for a kernel to fill. Room that stays unused is never touched."""

    def __init__(self, rows: int, data_bytes: int) -> None:
        self.ends = _ends(rows)
        self.data = _pooled(data_bytes, np.uint8)
        self.bits = _all_valid(rows)

    def array(self, kind: pa.DataType, rows: int, nulls: int) -> Any:
        buffers = [
            pa.py_buffer(self.bits.data) if nulls else None,
            pa.py_buffer(self.ends.data),
            pa.py_buffer(self.data[: self.ends[rows]].data),
        ]
        return pa.Array.from_buffers(kind, rows, buffers, null_count=int(nulls))


def _pooled(length: int, kind: type[_Number]) -> npt.NDArray[_Number]:
    """An array in Arrow's memory pool, which hands out pages it has had before: with fresh ones from the
    kernel of the operating system, decoding takes twice as long."""
    buffer: Any = pa.allocate_buffer(length * np.dtype(kind).itemsize)
    return np.frombuffer(buffer, kind)


def _ends(rows: int) -> Int32s:
    ends = _pooled(rows + 1, np.int32)
    ends[0] = 0
    return ends


def _all_valid(rows: int) -> Uint8s:
    bits = _pooled((rows + 7) // 8, np.uint8)
    bits.fill(0xFF)
    return bits


def _decode_headers(
    arrays: list[Uint8s],
    rows_after: list[int],
    header_ends: Int32s,
    header_bits: Uint8s,
    headers_at: Int64s,
    totals: Int64s,
) -> Any:
    rows, headers = int(totals[kernels.ROWS]), int(totals[kernels.HEADERS])
    if headers == 0:
        return pa.nulls(rows, HEADERS_TYPE)
    keys = _Binary(headers, int(totals[kernels.HEADER_KEY_BYTES]))
    values = _Binary(headers, int(totals[kernels.HEADER_VALUE_BYTES]))
    first_row = 0
    for array, end_row in zip(arrays, rows_after, strict=True):
        kernels.decode_headers(
            *(array, first_row, end_row, header_ends, headers_at),
            *(keys.ends, keys.data, keys.bits),
            *(values.ends, values.data, values.bits),
            totals,
        )
        first_row = end_row
    key_kind = pa.binary() if totals[kernels.HEADER_KEYS_NOT_UTF8] else pa.string()
    key_array = keys.array(key_kind, headers, totals[kernels.NULL_HEADER_KEYS])
    if totals[kernels.HEADER_KEYS_NOT_UTF8]:
        texts = [None if key is None else key.decode("utf-8", "replace") for key in key_array.to_pylist()]
        key_array = pa.array(texts, pa.string())
    value_array = values.array(pa.binary(), headers, totals[kernels.NULL_HEADER_VALUES])
    bare = int(totals[kernels.ROWS_WITHOUT_HEADERS])
    return pa.Array.from_buffers(
        HEADERS_TYPE,
        rows,
        [pa.py_buffer(header_bits.data) if bare else None, pa.py_buffer(header_ends.data)],
        null_count=bare,
        children=[pa.StructArray.from_arrays([key_array, value_array], fields=list(HEADERS_TYPE.value_type))],
    )


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
    """All rows as one batch; base offset and leader epoch are those of the first row unless given.

    One batch can say only one leader epoch, one kind of timestamp, and one time if that is the broker's:
    rows that differ in these take `encode_batches`.
    """
    if len(columns) == 0 or len(_breaks(columns)):
        raise ValueError("these rows are not one batch: encode_batches splits them")
    batch = _Encoder(columns).batch(
        0,
        len(columns),
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )
    if base_offset is not None or leader_epoch is not None:
        assign(
            batch,
            int(columns.offsets[0]) if base_offset is None else base_offset,
            int(columns.leader_epochs[0]) if leader_epoch is None else leader_epoch,
        )
    return batch


def encode_batches(columns: RecordColumns, *, codec: int = 0, batch_bytes: int = BATCH_BYTES) -> bytearray:
    """All rows as batches of up to about `batch_bytes` before compression, one after the other.

    Offsets, leader epochs and timestamps are the rows' own; a new batch begins wherever one batch could not
    tell them apart. Gaps between offsets stay gaps.
    """
    encoder = _Encoder(columns)
    out = bytearray()
    rows = len(columns)
    ends = np.append(_breaks(columns), rows)
    first_row = 0
    while first_row < rows:
        end_row = min(int(ends[np.searchsorted(ends, first_row, "right")]), encoder.fit(first_row, batch_bytes))
        out += encoder.batch(first_row, end_row, codec=codec)
        first_row = end_row
    return out


def _breaks(columns: RecordColumns) -> npt.NDArray[np.intp]:
    """The rows that cannot be in one batch with the row before them."""
    kinds, times, epochs = columns.timestamp_types, columns.timestamps, columns.leader_epochs
    return 1 + np.flatnonzero(
        (epochs[1:] != epochs[:-1])
        | (kinds[1:] != kinds[:-1])
        | ((kinds[1:] == APPEND_TIME) & (times[1:] != times[:-1]))
        | (np.diff(columns.offsets) <= 0)
    )


class _Encoder:
    """Columns as the kernel takes them, laid out once for all batches made of them."""

    def __init__(self, columns: RecordColumns) -> None:
        entries: Any = columns.headers.values
        self._columns = columns
        fields = [
            _field(columns.keys, pa.binary()),
            _field(columns.values, pa.binary()),
            _field(entries.field(0), pa.string()),
            _field(entries.field(1), pa.binary()),
        ]
        self._key_ends, self._value_ends, self._name_ends, self._content_ends = (field[0] for field in fields)
        self._header_ends, header_bits, header_bit = _layout(columns.headers, HEADERS_TYPE)
        keys, values, names, contents = fields
        self._arguments = (
            *(np.ascontiguousarray(columns.offsets), np.ascontiguousarray(columns.timestamps)),
            *(*keys, *values, self._header_ends, header_bits, header_bit, *names, *contents),
        )
        row_bytes = np.diff(self._key_ends) + np.diff(self._value_ends) + np.int64(kernels.MOST_RECORD_OVERHEAD)
        self._bytes_after = np.cumsum(row_bytes)

    def fit(self, first_row: int, batch_bytes: int) -> int:
        """Where a batch that begins with `first_row` ends, so that it stays near `batch_bytes`."""
        before = self._bytes_after[first_row - 1] if first_row else 0
        by_bytes = np.searchsorted(self._bytes_after, before + batch_bytes, "right")
        offsets = self._columns.offsets
        by_delta = np.searchsorted(offsets, offsets[first_row] + MAX_OFFSET_DELTA, "right")
        return max(first_row + 1, int(min(by_bytes, by_delta)))

    def batch(
        self,
        first_row: int,
        end_row: int,
        *,
        codec: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> bytearray:
        columns = self._columns
        headers = int(self._header_ends[first_row]), int(self._header_ends[end_row])
        most_bytes = (
            (end_row - first_row) * kernels.MOST_RECORD_OVERHEAD
            + (headers[1] - headers[0]) * kernels.MOST_HEADER_OVERHEAD
            + sum(int(ends[end_row]) - int(ends[first_row]) for ends in (self._key_ends, self._value_ends))
            + sum(int(ends[headers[1]]) - int(ends[headers[0]]) for ends in (self._name_ends, self._content_ends))
        )
        out = np.empty(most_bytes, np.uint8)
        size = kernels.encode_records(out, first_row, end_row, *self._arguments)
        base_offset, last_offset = int(columns.offsets[first_row]), int(columns.offsets[end_row - 1])
        return write_batch(
            compress(codec, out[:size].data),
            codec=codec,
            record_count=end_row - first_row,
            last_offset_delta=last_offset - base_offset,
            base_timestamp=int(columns.timestamps[first_row]),
            max_timestamp=int(columns.timestamps[first_row:end_row].max()),
            base_offset=base_offset,
            leader_epoch=int(columns.leader_epochs[first_row]),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            log_append_time=columns.timestamp_types[first_row] == APPEND_TIME,
            transactional=transactional,
        )


def _layout(array: Any, kind: pa.DataType) -> tuple[Int32s, Uint8s, int]:
    """Offsets, validity bitmap (empty: nothing is null) and the bit of the first row."""
    if array.type != kind:
        raise TypeError(f"a column of {array.type}, not {kind}")
    validity, offsets, *_ = array.buffers()
    ends = np.zeros(1, np.int32)
    if offsets is not None and offsets.size:
        ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    if validity is None or array.null_count == 0:
        return ends, _NO_BITS, 0
    return ends, np.frombuffer(validity, np.uint8), array.offset


def _field(array: Any, kind: pa.DataType) -> tuple[Int32s, Uint8s, Uint8s, int]:
    """Like `_layout`, with the data second."""
    ends, bits, bit = _layout(array, kind)
    data = array.buffers()[2]
    return ends, _NO_BITS if data is None else np.frombuffer(data, np.uint8), bits, bit

"""Makes Arrow columns from batches: the buffers that the decoding kernel fills, and its input.

A `Chunk` gathers decompressed batches. One run of the kernel over a chunk makes the columns that
`columns.RecordColumns` names. `columns` decides which batches go into a chunk.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hot_tier.errors import BatchTooLarge, CorruptBatch
from hot_tier.record import kernels
from hot_tier.record.batch import HEADER_BYTES, BatchHeader, ReadBuffer
from hot_tier.record.compression import Codec, decompress
from hot_tier.record.records import APPEND_TIME, CREATE_TIME, LAST_OFFSET

_Number = TypeVar("_Number", bound=np.number[Any])

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Uint8s = npt.NDArray[np.uint8]


@cache
def headers_type() -> pa.ListType[pa.StructType]:
    return pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


class Decoded(NamedTuple):
    """The columns in the order of `RecordColumns`."""

    offsets: Int64s
    timestamps: Int64s
    timestamp_types: Int32s
    leader_epochs: Int32s
    keys: Any
    values: Any
    headers: Any


class Chunk:
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

    def decode(self, from_offset: int, end_offset: int | None) -> Decoded:
        most = self.rows
        offsets, timestamps, headers_at = (pooled(most, np.int64) for _ in range(3))
        timestamp_types, leader_epochs = (pooled(most, np.int32) for _ in range(2))
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
        return Decoded(
            offsets[:rows],
            timestamps[:rows],
            timestamp_types[:rows],
            leader_epochs[:rows],
            keys.array(pa.binary(), rows, totals[kernels.NULL_KEYS]),
            values.array(pa.binary(), rows, totals[kernels.NULL_VALUES]),
            _decode_headers(arrays, rows_after, header_ends, header_bits, headers_at, totals),
        )


def pooled(length: int, kind: type[_Number]) -> npt.NDArray[_Number]:
    """Returns an array in Arrow's memory pool. The pool reuses pages; with fresh pages from the operating system
    decoding takes twice as long."""
    buffer: Any = pa.allocate_buffer(length * np.dtype(kind).itemsize)
    return np.frombuffer(buffer, kind)


def _ends(rows: int) -> Int32s:
    ends = pooled(rows + 1, np.int32)
    ends[0] = 0
    return ends


def _all_valid(rows: int) -> Uint8s:
    bits = pooled((rows + 7) // 8, np.uint8)
    bits.fill(0xFF)
    return bits


class _Binary:
    """The buffers of an Arrow binary array, for a kernel to fill. Room that stays unused is never touched."""

    def __init__(self, rows: int, data_bytes: int) -> None:
        self.ends = _ends(rows)
        self.data = pooled(data_bytes, np.uint8)
        self.bits = _all_valid(rows)

    def array(self, kind: pa.DataType, rows: int, nulls: int) -> Any:
        buffers = [
            pa.py_buffer(self.bits.data) if nulls else None,
            pa.py_buffer(self.ends.data),
            pa.py_buffer(self.data[: self.ends[rows]].data),
        ]
        return pa.Array.from_buffers(kind, rows, buffers, null_count=int(nulls))


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
        return pa.nulls(rows, headers_type())
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
        headers_type(),
        rows,
        [pa.py_buffer(header_bits.data) if bare else None, pa.py_buffer(header_ends.data)],
        null_count=bare,
        children=[pa.StructArray.from_arrays([key_array, value_array], fields=list(headers_type().value_type))],
    )

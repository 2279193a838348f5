"""Makes record batches from Arrow columns: lays out columns for the encoding kernel, and cuts batches from them.

`first_row` and `end_row` say which rows make a batch. `breaks` says where a batch must end, and `Encoder.fit` where it
should end. `columns` uses both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from hot_tier.record import kernels
from hot_tier.record.batch import HEADER_BYTES, HeaderFields, write_batch, write_header
from hot_tier.record.column_decoder import Int32s, Uint8s, headers_type, pooled
from hot_tier.record.compression import compress
from hot_tier.record.records import APPEND_TIME, LAST_OFFSET

if TYPE_CHECKING:
    from hot_tier.record.columns import RecordColumns

MAX_OFFSET_DELTA: Final = 2**31 - 1

_NO_BYTES: Final = np.zeros(0, np.uint8)


def breaks(columns: RecordColumns) -> npt.NDArray[np.intp]:
    """Returns the rows that cannot be in the same batch as the row before them."""
    kinds, times, epochs = columns.timestamp_types, columns.timestamps, columns.leader_epochs
    return 1 + np.flatnonzero(
        (epochs[1:] != epochs[:-1])
        | (kinds[1:] != kinds[:-1])
        | ((kinds[1:] == APPEND_TIME) & (times[1:] != times[:-1]))
        | (np.diff(columns.offsets) <= 0)
    )


class Encoder:
    """Columns in the layout of the kernel. They are laid out once for all batches."""

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
        self._header_ends, header_bits, header_bit = _layout(columns.headers, headers_type())
        keys, values, names, contents = fields
        self._arguments = (
            *(np.ascontiguousarray(columns.offsets), np.ascontiguousarray(columns.timestamps)),
            *(*keys, *values, self._header_ends, header_bits, header_bit, *names, *contents),
        )
        ends = self._key_ends.astype(np.int64) + self._value_ends
        if len(entries):
            ends += self._name_ends[self._header_ends] + self._content_ends[self._header_ends]
        self._bytes_before = ends - ends[0] + np.arange(len(ends)) * kernels.MOST_RECORD_OVERHEAD

    def fit(self, first_row: int, batch_bytes: int) -> int:
        """Returns the end row of a batch that begins with `first_row` and stays near `batch_bytes`."""
        bytes_before, offsets = self._bytes_before, self._columns.offsets
        by_bytes = np.searchsorted(bytes_before, bytes_before[first_row] + batch_bytes, "right") - 1
        last_offset = min(int(offsets[first_row]) + MAX_OFFSET_DELTA, LAST_OFFSET)
        by_delta = np.searchsorted(offsets, last_offset, "right")
        return max(first_row + 1, int(min(by_bytes, by_delta)))

    def most_bytes(self, first_row: int, end_row: int) -> int:
        """Returns the most bytes that the records of these rows can take, uncompressed."""
        first_header, end_header = int(self._header_ends[first_row]), int(self._header_ends[end_row])
        return (
            (end_row - first_row) * kernels.MOST_RECORD_OVERHEAD
            + (end_header - first_header) * kernels.MOST_HEADER_OVERHEAD
            + sum(int(ends[end_row]) - int(ends[first_row]) for ends in (self._key_ends, self._value_ends))
            + sum(int(ends[end_header]) - int(ends[first_header]) for ends in (self._name_ends, self._content_ends))
        )

    def batch(self, first_row: int, end_row: int, **fields: Unpack[HeaderFields]) -> bytearray:
        """Returns these rows as one batch. `fields` are the codec and the other fields of the header."""
        out = pooled(self.most_bytes(first_row, end_row), np.uint8)
        size = kernels.encode_records(out, first_row, end_row, *self._arguments)
        records = compress(fields.get("codec", 0), out[:size].data)
        merged: HeaderFields = {**self._header_fields(first_row, end_row), **fields}
        return write_batch(records, **merged)

    def write(self, out: Uint8s, position: int, first_row: int, end_row: int) -> int:
        """Writes these rows as one uncompressed batch at `position` of `out`; returns where it ends."""
        records = out[position + HEADER_BYTES :]
        size: int = HEADER_BYTES + kernels.encode_records(records, first_row, end_row, *self._arguments)
        write_header(out.data, size, position, **self._header_fields(first_row, end_row))
        return position + size

    def _header_fields(self, first_row: int, end_row: int) -> HeaderFields:
        columns = self._columns
        base_offset, last_offset = int(columns.offsets[first_row]), int(columns.offsets[end_row - 1])
        return {
            "record_count": end_row - first_row,
            "base_offset": base_offset,
            "last_offset_delta": last_offset - base_offset,
            "base_timestamp": int(columns.timestamps[first_row]),
            "max_timestamp": int(columns.timestamps[first_row:end_row].max()),
            "leader_epoch": int(columns.leader_epochs[first_row]),
            "log_append_time": bool(columns.timestamp_types[first_row] == APPEND_TIME),
        }


def _layout(array: Any, kind: pa.DataType) -> tuple[Int32s, Uint8s, int]:
    """Returns the offsets, the validity bitmap, and the bit of the first row in it (-1 if nothing is null)."""
    if array.type != kind:
        raise TypeError(f"a column of {array.type}, not {kind}")
    validity, offsets, *_ = array.buffers()
    ends = np.zeros(1, np.int32)
    if offsets is not None and offsets.size:
        ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    if validity is None or array.null_count == 0:
        return ends, _NO_BYTES, -1
    return ends, np.frombuffer(validity, np.uint8), array.offset


def _field(array: Any, kind: pa.DataType) -> tuple[Int32s, Uint8s, Uint8s, int]:
    """Returns what `_layout` returns, with the data in second place."""
    ends, bits, bit = _layout(array, kind)
    data = array.buffers()[2]
    return ends, _NO_BYTES if data is None else np.frombuffer(data, np.uint8), bits, bit

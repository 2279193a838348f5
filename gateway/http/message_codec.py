"""Records as the API shows them: JSON objects, NDJSON lines, values alone, Arrow batches.

Keys and header values are text if they are UTF-8; otherwise they are base64, and a member says so. Values are always
base64, so that a reader never has to guess, unless it asks for text. An object has exactly the members of
`schemas.Message`.
"""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from functools import cache
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from gateway.off_loop import off_loop
from gateway.record_stream import records_of
from hot_tier.record.columns import RecordColumns, headers_type
from hot_tier.record.records import NewRecord, Record

SLICE_VALUES: Final = 500
"""Counts records and their headers."""
SLICE_BYTES: Final = 256 * 1024
ARROW_BYTES: Final = 1024 * 1024


@cache
def arrow_schema() -> pa.Schema:
    """Returns the same columns as in the archive."""
    columns: list[pa.Field[Any]] = [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", headers_type()),
        pa.field("leaderEpoch", pa.int32(), nullable=False),
    ]
    return pa.schema(columns)


def message(record: Record, *, as_text: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {"offset": record.offset}
    _show(shown, "key", record.key)
    value = record.value
    if as_text:
        _show(shown, "value", value)
    else:
        shown["value"] = None if value is None else b64encode(value).decode()
    shown["timestamp"] = record.timestamp
    shown["headers"] = [_header(name, content) for name, content in record.headers]
    return shown


def new_message(partition: int, record: NewRecord) -> dict[str, Any]:
    """Returns the record in the form of `schemas.NewMessage`, for another broker."""
    shown: dict[str, Any] = {"partition": partition, "timestamp": record.timestamp}
    _show(shown, "key", record.key)
    _show(shown, "value", record.value)
    if record.headers:
        shown["headers"] = [_header(name or "", content) for name, content in record.headers]
    return shown


def _header(name: str | None, content: bytes | None) -> dict[str, Any]:
    shown: dict[str, Any] = {"key": name}
    _show(shown, "value", content)
    return shown


def _show(shown: dict[str, Any], member: str, content: bytes | None) -> None:
    if content is None:
        shown[member] = None
        return
    try:
        shown[member] = content.decode()
    except UnicodeDecodeError:
        shown[member] = b64encode(content).decode()
        shown[member + "_encoding"] = "base64"


Line = Callable[[Record], bytes]


def json_line(record: Record, *, as_text: bool) -> bytes:
    return orjson.dumps(message(record, as_text=as_text), option=orjson.OPT_APPEND_NEWLINE)


def value_line(record: Record) -> bytes:
    """Returns the value unchanged; an empty line if there is no value."""
    return (record.value or b"") + b"\n"


class LineWriter:
    def __init__(self, line: Line) -> None:
        self._line = line

    async def write(
        self, columns: RecordColumns, limit: int, skip: Collection[int]
    ) -> AsyncIterator[tuple[int, bytes]]:
        """Yields the first `limit` messages without those to skip, slice by slice: their number and their bytes."""
        for part in _slices(columns):
            weight = len(part) + _header_count(part)
            count, lines = await off_loop(weight, _lines, part, limit, skip, self._line)
            limit -= count
            yield count, lines
            if limit <= 0:
                return

    def close(self) -> bytes:
        return b""


def content_bytes(columns: RecordColumns) -> int:
    return columns.keys.nbytes + columns.values.nbytes + columns.headers.nbytes


def _slices(columns: RecordColumns) -> Iterator[RecordColumns]:
    """Yields a few records, or one large record, at a time: as objects they take much memory, and time on the loop."""
    count = len(columns)
    size, values = content_bytes(columns), count + _header_count(columns)
    step = max(1, int(count * min(SLICE_BYTES / max(size, 1), SLICE_VALUES / max(values, 1))))
    return (columns.slice(start, min(start + step, count)) for start in range(0, count, step))


def _header_count(columns: RecordColumns) -> int:
    return len(columns.headers.flatten())


def _lines(columns: RecordColumns, limit: int, skip: Collection[int], line: Line) -> tuple[int, bytes]:
    records = [record for record in records_of(columns) if record.offset not in skip][:limit]
    return len(records), b"".join(map(line, records))


class ArrowWriter:
    """Writes the Arrow IPC stream format, one record batch or more per chunk."""

    def __init__(self) -> None:
        self._sink = _Pieces()
        self._writer = pa.ipc.new_stream(self._sink, arrow_schema())

    async def write(
        self, columns: RecordColumns, limit: int, skip: Collection[int]
    ) -> AsyncIterator[tuple[int, bytes]]:
        batch = _arrow_batch(columns)
        if skip:
            batch = batch.filter(pc.invert(pc.is_in(batch.column(0), pa.array(list(skip), pa.int64()))))
        batch = batch.slice(0, limit)
        step = max(1, batch.num_rows * ARROW_BYTES // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, step):
            part = batch.slice(start, step)
            self._writer.write_batch(part)
            yield part.num_rows, self._sink.take()

    def close(self) -> bytes:
        self._writer.close()
        return self._sink.take()


def _arrow_batch(columns: RecordColumns) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array(columns.offsets, pa.int64()),
            pa.array(columns.timestamps * 1000, arrow_schema().field("timestamp").type),
            pa.array(columns.timestamp_types, pa.int32()),
            columns.keys,
            columns.values,
            columns.headers,
            pa.array(columns.leader_epochs, pa.int32()),
        ],
        schema=arrow_schema(),
    )


class _Pieces(io.RawIOBase):
    """A file that Arrow writes to. It is emptied after each batch."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._pieces.append(piece)
        return len(piece)

    def take(self) -> bytes:
        taken = b"".join(self._pieces)
        self._pieces.clear()
        return taken

    def writable(self) -> bool:
        return True

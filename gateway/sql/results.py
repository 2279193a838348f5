"""The result of a query, within its limits, in the form that was asked for."""

import csv
import io
import math
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from gateway.sql.frames import PIECE_BYTES
from gateway.sql.jobs import Form

LINE_ROWS: Final = 1_000
INT64: Final = 1 << 63


class Result(NamedTuple):
    table: pa.Table
    types: list[str]
    """DuckDB's."""
    truncated: Literal["rows", "bytes"] | None

    @property
    def columns(self) -> list[dict[str, str]]:
        return [{"name": name, "type": kind} for name, kind in zip(self.table.column_names, self.types, strict=True)]


def collect(batches: pa.RecordBatchReader, types: list[str], max_rows: int, max_bytes: int) -> Result:
    """Returns the first rows of a result: as many as may be."""
    kept: list[pa.RecordBatch] = []
    rows = size = 0
    truncated: Literal["rows", "bytes"] | None = None
    for batch in batches:
        if rows + batch.num_rows > max_rows:
            batch, truncated = batch.slice(0, max_rows - rows), "rows"
        room = max_bytes - size
        if batch.nbytes > room:
            batch, truncated = batch.slice(0, _fitting(batch, room)), "bytes"
        kept.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if truncated:
            break
    return Result(pa.Table.from_batches(kept, schema=batches.schema), types, truncated)


def _fitting(batch: pa.RecordBatch, room: int) -> int:
    low, high = 0, batch.num_rows
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if batch.slice(0, middle).nbytes <= room else (low, middle - 1)
    return low


def render(result: Result, form: Form) -> Iterator[bytes]:
    """Yields the rows as they are sent, in pieces. As JSON they are a list; the rest of the document is not here."""
    if form == "arrow":
        return _pieces(_arrow(result.table))
    if form == "parquet":
        return _pieces(_parquet(result.table))
    if form == "csv":
        return _csv(result.table)
    return _lines(result.table) if form == "ndjson" else _json(result.table)


def rows_of(table: pa.Table) -> Iterator[list[Any]]:
    for batch in table.to_batches(max_chunksize=LINE_ROWS):
        columns = [[cell(value) for value in column.to_pylist()] for column in batch.columns]
        yield from (list(row) for row in zip(*columns, strict=True))


def cell(value: Any) -> Any:
    """Returns a value as JSON shows it: no value is rounded, and none becomes null."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return value if -INT64 <= value < INT64 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(value).decode()}
    if isinstance(value, list | tuple):
        return [cell(each) for each in value]
    if isinstance(value, dict):
        return {str(name): cell(each) for name, each in value.items()}
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _json(table: pa.Table) -> Iterator[bytes]:
    piece, first = bytearray(b"["), True
    for row in rows_of(table):
        piece += (b"" if first else b",") + orjson.dumps(row)
        first = False
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece + b"]")


def _lines(table: pa.Table) -> Iterator[bytes]:
    rows: list[list[Any]] = []
    for row in rows_of(table):
        rows.append(row)
        if len(rows) == LINE_ROWS:
            yield orjson.dumps({"type": "rows", "rows": rows}, option=orjson.OPT_APPEND_NEWLINE)
            rows = []
    if rows:
        yield orjson.dumps({"type": "rows", "rows": rows}, option=orjson.OPT_APPEND_NEWLINE)


def _csv(table: pa.Table) -> Iterator[bytes]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(table.column_names)
    for row in rows_of(table):
        writer.writerow(orjson.dumps(each).decode() if isinstance(each, list | dict) else each for each in row)
        if text.tell() >= PIECE_BYTES:
            yield text.getvalue().encode()
            text.seek(0)
            text.truncate()
    yield text.getvalue().encode()


def _arrow(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def _parquet(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return memoryview(sink.getvalue())


def _pieces(data: memoryview) -> Iterator[bytes]:
    return (bytes(data[start : start + PIECE_BYTES]) for start in range(0, len(data), PIECE_BYTES))

"""Parts of the worker process of queries."""

import pyarrow as pa
import pytest

pytest.importorskip("duckdb")

from gateway.sql.worker import arrow_stream


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 1 << 20])
def test_an_arrow_stream_comes_in_pieces_of_any_size(size: int) -> None:
    table = pa.table({"value": [b"x" * (number % 300) for number in range(2000)]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    data = sink.getvalue().to_pybytes()
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    assert arrow_stream(pieces).read_all() == table

"""The benchmark of queries, with few files: it runs, and what both sides answer is compared."""

from pathlib import Path

import pytest

from benchmarks import sql

FILES = 12
RECORDS = 200


@pytest.mark.process
@pytest.mark.timeout(300)
def test_a_short_run(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    node = sql.Node(tmp_path)
    node.broker.start()
    try:
        count = node.fill(FILES, RECORDS)
        assert count == FILES * RECORDS
        files = len(list(node.bucket.glob("topic=orders/partition=0/*.parquet")))
        assert files > 1
        lines = [*sql.find(node, count, files), *sql.beside_others(node, count), *sql.filter_cost(node)]
    finally:
        node.broker.stop()
    asked = ("count(*)", "a slice of time, 500 records", "a key")
    assert [line.what for line in lines] == [
        "find a key",
        "find a key that is not there",
        *(f"{what}{how}" for what in asked for how in ("", ", CPU time", ", beside a consumer")),
        "filters of keys, share of the bucket",
    ]
    assert all(line.ratio > 0 for line in lines)

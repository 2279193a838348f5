"""`tierlog sql` and `tierlog find`, as a user runs them."""

import json

import pyarrow.parquet as pq
import pytest

from tests.support.command import tierlog
from tests.support.service import services

pytest.importorskip("duckdb")


def test_questions_on_the_command_line(tmp_path):
    with services(tmp_path) as serve:
        url = serve().url

        def run(*arguments: str, **options):
            return tierlog(*arguments, "--server", url, **options)

        run("topic", "create", "orders", "--partitions", "1")
        run("produce", "orders", "--key-separator", ":", stdin='ada:{"total": 3}\nbob:{"total": 4}\nada:{"total": 5}\n')
        shown = run("sql", "SELECT key, sum((value->>'total')::INT) AS total FROM orders GROUP BY key ORDER BY key")
        assert [line.split() for line in shown.out.splitlines()] == [["key", "total"], ["ada", "8"], ["bob", "4"]]
        told = json.loads(run("sql", "SELECT offset FROM orders", "--max-rows", "2", "--json").out)
        assert (told["rows"], told["truncated"]) == ([[0], [1]], "rows")
        file = tmp_path / "result.parquet"
        cut = run("sql", "SELECT * FROM orders", "--format", "parquet", "--output", str(file), "--max-rows", "2")
        assert pq.read_table(file).num_rows == 2 and "truncated" in cut.err
        assert run("sql", "SELECT key FROM orders LIMIT 1", "--format", "csv").out == "key\r\nada\r\n"
        assert "hot offsets" in run("sql", "SELECT 1 FROM orders", "--estimate").out
        found = run("find", "orders", "--key", "ada")
        assert '{"total": 5}' in found.out and "older" in found.err
        history = json.loads(run("find", "orders", "--key", "YWRh", "--base64", "--limit", "5", "--json").out)
        assert [each["offset"] for each in history["messages"]] == [2, 0] and history["complete"]
        wrong = run("sql", "DROP TABLE orders", code=2)
        assert "SELECT" in wrong.err

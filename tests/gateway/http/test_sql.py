"""SQL over HTTP: what a query gives, in which forms, what it may not, and that it ends."""

import asyncio
import csv
import io
import os

import orjson
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cold_tier.objects.open import StoreSettings
from gateway.sql.jobs import Start
from gateway.sql.settings import SqlSettings
from gateway.sql.worker_process import WorkerProcess
from hot_tier.ids import Offset
from hot_tier.record.control import MarkerKind
from tests.gateway.http.test_archive import OLD, make_archived
from tests.support.transactions import end, write
from tests.support.waiting import until

pytest.importorskip("duckdb")

SLOW = "SELECT count(*) FROM range(100000000000) a, range(1000) b"


async def sql(node, query: str, accept: str = "application/json", **also):
    return await node.post("/api/v1/sql", json={"query": query, **also}, headers={"Accept": accept})


async def rows(node, query: str, **also):
    answer = await sql(node, query, **also)
    assert answer.status == 200, answer
    return answer.json["rows"]


async def test_a_query_over_hot_records(serve):
    node = await serve()
    await node.make_topic("my.orders-1", partitions=2)
    await node.produce("my.orders-1", b'{"total": 3}', b'{"total": 4}', partition=0)
    await node.produce("my.orders-1", b'{"total": 5}', partition=1)
    answer = await sql(node, "SELECT partition, offset, value->>'$.total' AS total FROM \"my.orders-1\" ORDER BY 1, 2")
    assert answer.status == 200, answer
    told = answer.json
    assert told["rows"] == [[0, 0, "3"], [0, 1, "4"], [1, 0, "5"]]
    assert [each["name"] for each in told["columns"]] == ["partition", "offset", "total"]
    assert told["row_count"] == 3 and told["truncated"] is None and told["scanned"]["hot_rows"] == 3
    assert await rows(node, "SELECT sum((value->>'total')::INT) FROM \"my.orders-1\" WHERE partition = 0") == [["7"]]


async def test_what_is_not_committed_is_no_row(serve):
    node = await serve()
    await node.make_topic("orders")
    partition, now_ms = node.node.partitions.get("orders", 0), node.node.clock()
    write(partition, 1, b"rolled back", now_ms=now_ms)
    write(partition, 2, b"committed", now_ms=now_ms)
    end(partition, 1, MarkerKind.ABORT, now_ms=now_ms)
    end(partition, 2, MarkerKind.COMMIT, now_ms=now_ms)
    write(partition, 1, b"open", now_ms=now_ms)
    await until(lambda: partition.high_watermark == 5)
    assert await rows(node, "SELECT offset, value FROM orders") == [[1, "committed"]]
    assert await rows(node, "SELECT count(*) FROM orders") == [[1]]


async def test_both_tiers_are_one_table(serve):
    node = await serve()
    archived = await make_archived(node)
    border = archived["archived"]["end_offset"]
    assert 0 < border < 60
    assert await rows(node, "SELECT count(*), min(offset), max(offset), count(DISTINCT offset) FROM orders") == [
        [60, 0, 59, 60]
    ]
    told = (await sql(node, "SELECT key, timestamp, timestampType, value, headers, leaderEpoch FROM orders")).json
    consumed = (await node.messages("orders", limit=60, value_encoding="text"))["messages"]
    assert [row[0] for row in told["rows"]] == [each["key"] for each in consumed]
    assert [row[3] for row in told["rows"]] == [each["value"] for each in consumed]
    assert told["scanned"]["hot_rows"] == 60 - border and told["scanned"]["archived_rows"] == border
    # The count alone reads no file.
    counted = (await sql(node, "SELECT count(*) FROM orders")).json
    assert counted["rows"] == [[60]] and counted["scanned"]["requests"] == 0


FILTERS = (
    ("offset = 7", ["k7"], 1),
    ("offset >= 58", ["k58", "k59"], 2),
    ("offset BETWEEN 4 AND 5 AND partition = 0", ["k4", "k5"], 2),
    (f"timestamp = make_timestamptz({(OLD + 9) * 1000})", ["k9"], 1),
    (f"timestamp < make_timestamptz({(OLD + 2) * 1000})", ["k0", "k1"], 1),
    ("partition = 1", [], 0),
    ("key = 'k11'", ["k11"], 1),
    ("key IN ('k3', 'nobody')", ["k3"], 60),
    ("key = 'nobody'", [], 0),
    ("key = 'k11' OR offset = 20", ["k11", "k20"], 60),
    ("key LIKE 'k1_' AND offset < 12", ["k10", "k11"], 60),
)


async def test_what_a_filter_excludes_is_not_read(serve):
    node = await serve()
    await make_archived(node)
    for where, keys, most_files in FILTERS:
        told = (await sql(node, f"SELECT key FROM orders WHERE {where} ORDER BY offset")).json
        assert [row[0] for row in told["rows"]] == keys, where
        assert told["scanned"]["files"] <= most_files, (where, told["scanned"])


async def test_the_table_of_bytes_has_what_is_not_text(serve):
    node = await serve()
    await node.make_topic("raw")
    await node.produce("raw", b"\xff\xfe", b"text")
    answer = (await sql(node, "SELECT value FROM raw")).json
    assert answer["rows"] == [[None], ["text"]] and answer["scanned"]["not_text"] == 1
    assert await rows(node, 'SELECT value, key IS NULL FROM "raw$raw"') == [[{"base64": "//4="}, True], ["text", True]]


async def test_every_form_has_the_same_rows(serve):
    node = await serve()
    await make_archived(node, count=20)
    query = "SELECT offset, key, timestamp FROM orders ORDER BY offset"
    arrow = await sql(node, query, "application/vnd.apache.arrow.stream")
    table = pa.ipc.open_stream(arrow.body).read_all()
    parquet = pq.read_table(io.BytesIO((await sql(node, query, "application/vnd.apache.parquet")).body))
    text = await sql(node, query, "text/csv")
    read = list(csv.reader(io.StringIO(text.body.decode())))
    lines = [orjson.loads(line) for line in (await sql(node, query, "application/x-ndjson")).body.splitlines()]
    whole = (await sql(node, query)).json
    keys = [f"k{number}" for number in range(20)]
    assert table.column("key").to_pylist() == parquet.column("key").to_pylist() == keys
    assert read[0] == ["offset", "key", "timestamp"] and [row[1] for row in read[1:]] == keys
    assert [row[1] for row in whole["rows"]] == keys
    assert [each["type"] for each in lines if each["type"] != "progress"] == ["columns", "rows", "summary"]
    assert [row for line in lines if line["type"] == "rows" for row in line["rows"]] == whole["rows"]
    for answer in (arrow, text):
        assert (answer.headers["X-Tierlog-Rows"], answer.headers["X-Tierlog-Truncated"]) == ("20", "no")
    assert (await sql(node, query, "image/png")).problem == "not-acceptable"


async def test_a_long_result_says_that_it_is_cut_off(serve):
    node = await serve(sql=SqlSettings(max_rows=500, max_result_bytes=100_000))
    for accept in ("text/csv", "application/vnd.apache.arrow.stream"):
        answer = await sql(node, "SELECT * FROM range(100)", accept, max_rows=10)
        assert (answer.headers["X-Tierlog-Rows"], answer.headers["X-Tierlog-Truncated"]) == ("10", "rows")
    told = (await sql(node, "SELECT * FROM range(100000)", max_rows=1_000_000)).json
    assert (told["row_count"], told["truncated"]) == (500, "rows")
    told = (await sql(node, "SELECT repeat('x', 1000) FROM range(400)", max_rows=400)).json
    assert told["truncated"] == "bytes" and 50 < told["row_count"] < 110
    told = (await sql(node, "SELECT * FROM range(10)", max_rows=10)).json
    assert (told["row_count"], told["truncated"]) == (10, None)


async def test_values_are_shown_exactly(serve):
    node = await serve()
    assert await rows(
        node,
        "SELECT 9223372036854775807, 170141183460469231731687303715884105727::HUGEINT, 1.10::DECIMAL(9,2),"
        " 'NaN'::DOUBLE, NULL, true, [1, 2], {'a': 'b'}, TIMESTAMPTZ '2024-01-01 00:00:00Z', DATE '2024-01-02'",
    ) == [
        [
            2**63 - 1,
            "170141183460469231731687303715884105727",
            "1.10",
            "nan",
            None,
            True,
            [1, 2],
            {"a": "b"},
            "2024-01-01T00:00:00+00:00",
            "2024-01-02",
        ]
    ]


FORBIDDEN = (
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM read_parquet('s3://bucket/x.parquet')",
    "SELECT * FROM read_json('http://127.0.0.1/x')",
    "SELECT * FROM glob('/etc/*')",
    "SELECT * FROM sniff_csv('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    'SELECT * FROM "/etc/passwd"',
    "SELECT * FROM 'x.parquet'",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query_table('orders')",
    "SELECT * FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
    "SELECT * FROM (SELECT * FROM read_text('/etc/passwd'))",
    "SELECT (SELECT content FROM read_text('/etc/passwd'))",
    "WITH x AS (SELECT * FROM read_text('/etc/passwd')) SELECT * FROM x",
    "SELECT * FROM enable_logging(storage := 'file', storage_path := '/tmp/x')",
    "SELECT * FROM duckdb_secrets()",
    "COPY (SELECT 1) TO '/tmp/tierlog-sql-wrote'",
    "EXPORT DATABASE '/tmp/tierlog-sql-wrote'",
    "ATTACH '/tmp/tierlog-sql-wrote' AS x",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "PRAGMA threads = 8",
    "CREATE TABLE x (a INT)",
    "CREATE VIEW x AS SELECT 1",
    "INSERT INTO orders VALUES (1)",
    "DELETE FROM orders",
    "DROP TABLE orders",
    "WITH x AS (INSERT INTO orders VALUES (1) RETURNING *) SELECT * FROM x",
    "CALL pragma_version()",
    "VACUUM",
    "SELECT 1; SELECT 2",
    "SELECT getenv('HOME')",
    "SELECT * FROM main.orders",
    "SELECT * FROM memory.main.orders",
    "SELECT * FROM pg_catalog.pg_settings",
    "SELECT * FROM information_schema.tables",
    "SHOW TABLES",
    "SHOW DATABASES",
    "SHOW TABLES FROM memory",
    "SHOW FUNCTIONS",
    "SELECT * FROM duckdb_settings",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM pandas_scan(1)",
    "EXPLAIN ANALYZE SELECT count(*) FROM orders",
    "SELECT * FROM call",
    "",
    " ",
    "\x00",
    "SELEC 1",
    "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
    "SELECT " + "CASE WHEN true THEN " * 500 + "1" + " END" * 500,
)


async def test_a_query_can_only_read_topics(serve):
    node = await serve()
    await node.make_topic("orders")
    for query in FORBIDDEN:
        refused = await sql(node, query)
        assert refused.status in (400, 404, 409), (query, refused)
        assert refused.problem in ("bad-query", "bad-document", "unknown-topic"), (query, refused)
        assert b"root:" not in refused.body
    assert not os.path.exists("/tmp/tierlog-sql-wrote")
    assert await rows(node, "SELECT count(*) FROM orders") == [[0]]


ENDLESS = (
    SLOW,
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t",
    "SELECT levenshtein(repeat('a', 200000), repeat('b', 200000))",  # DuckDB does not look whether it is to stop
    "SELECT pg_sleep(60)",
)


@pytest.mark.parametrize("query", ENDLESS)
async def test_a_query_ends_in_its_time_and_the_next_one_runs(serve, query):
    node = await serve()
    answer = await sql(node, query, timeout_ms=1500)
    assert (answer.status, answer.problem) == (409, "query-too-slow")
    assert await rows(node, "SELECT regexp_matches(repeat('a', 100000) || '!', '^(a+)+$')") == [[False]]


async def test_a_query_that_is_cancelled_ends(serve):
    node = await serve()
    running = asyncio.create_task(sql(node, SLOW, id="mine"))
    await until(lambda: "mine" in node.api.queries._running)
    assert (await sql(node, "SELECT 1", id="mine")).problem == "query-id-taken"
    assert (await node.call("DELETE", "/api/v1/sql/queries/mine")).status == 204
    assert (await running).problem == "query-cancelled"
    assert (await node.call("DELETE", "/api/v1/sql/queries/mine")).problem == "unknown-query"


async def test_a_query_whose_client_is_gone_ends(serve):
    node = await serve()
    running = asyncio.create_task(sql(node, SLOW, id="mine"))
    await until(lambda: "mine" in node.api.queries._running)
    running.cancel()
    await until(lambda: not node.api.queries._running)


async def test_a_query_cannot_have_more_memory(serve):
    node = await serve(sql=SqlSettings(memory_bytes=64 << 20))
    for query in (
        "SELECT list(range) FROM range(100000000)",
        "SELECT count(*) FROM (SELECT DISTINCT range, repeat('x', 100) FROM range(100000000))",
        "SELECT repeat('x', 2000000000)",
    ):
        answer = await sql(node, query, timeout_ms=60_000)
        assert (answer.status, answer.problem) == (409, "query-too-large"), answer
    assert await rows(node, "SELECT 1") == [[1]]


async def test_too_many_queries_are_refused_and_those_that_wait_run(serve):
    node = await serve(sql=SqlSettings(queries=1, queue=1))
    first = asyncio.create_task(sql(node, SLOW, id="first"))
    await until(lambda: "first" in node.api.queries._running)
    second = asyncio.create_task(sql(node, "SELECT 2", id="second"))
    await until(lambda: node.api.queries._queries._waiting == 1)
    refused = await sql(node, "SELECT 3")
    assert (refused.status, refused.problem) == (503, "too-many-queries")
    assert (await node.call("DELETE", "/api/v1/sql/queries/first")).status == 204
    assert (await second).json["rows"] == [[2]]
    assert (await first).problem == "query-cancelled"


async def test_a_worker_has_the_lowest_priority_and_ends_with_the_broker(serve):
    node = await serve(sql=SqlSettings(idle_ms=200))
    await rows(node, "SELECT 1")
    [worker] = node.api.queries._queries._all
    process = psutil.Process(worker._process.pid)
    assert process.nice() == 19
    await until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
    await rows(node, "SELECT 1")
    [worker] = node.api.queries._queries._all
    process = psutil.Process(worker._process.pid)
    await node.end()
    await until(lambda: not process.is_running())


async def test_a_worker_imports_at_the_lowest_priority(monkeypatch):
    monkeypatch.setattr(asyncio, "create_subprocess_exec", sleeps := Sleeps())
    await WorkerProcess.start(Start(StoreSettings("file:///nowhere"), 1 << 28, 2))
    assert psutil.Process(sleeps.process.pid).nice() == 19, "before it runs a line of ours"
    sleeps.process.kill()
    await sleeps.process.wait()


class Sleeps:
    """Starts a process that does nothing in the worker's place."""

    def __init__(self) -> None:
        self.start = asyncio.subprocess.create_subprocess_exec

    async def __call__(self, *_: object, **pipes: object) -> asyncio.subprocess.Process:
        self.process = await self.start("sleep", "60", **pipes)
        return self.process


async def test_a_worker_that_is_killed_costs_its_query_alone(serve):
    node = await serve()
    running = asyncio.create_task(sql(node, SLOW, id="mine"))
    await until(lambda: "mine" in node.api.queries._running and node.api.queries._queries._all)
    [worker] = node.api.queries._queries._all
    worker._process.kill()
    assert (await running).problem == "query-too-large"
    assert await rows(node, "SELECT 1") == [[1]]


async def test_names_are_those_of_topics(serve):
    node = await serve()
    for name in ("Orders", "t"):
        await node.make_topic(name)
    await node.produce("Orders", b"x")
    assert await rows(node, "SELECT count(*) FROM Orders") == [[1]]
    assert (await sql(node, "SELECT count(*) FROM orders")).problem == "unknown-topic"
    assert await rows(node, "WITH t AS (SELECT 5 AS five) SELECT five FROM t") == [[5]]
    assert await rows(node, "WITH x AS (SELECT value FROM Orders) SELECT * FROM x") == [["x"]]
    assert await rows(node, "SELECT a.value FROM Orders a JOIN Orders b USING (offset)") == [["x"]]
    described = await rows(node, "DESCRIBE t")
    assert [row[0] for row in described][:3] == ["partition", "offset", "timestamp"]


async def test_the_word_offset_needs_no_quotes(serve):
    node = await serve()
    await node.make_topic("t")
    await node.produce("t", b"a", b"b", b"c")
    query = "SELECT offset, max(offset) FROM t WHERE offset > 0 GROUP BY offset ORDER BY offset DESC LIMIT 5 OFFSET 1"
    assert await rows(node, query) == [[1, 1]]
    assert await rows(node, "SELECT 'offset', value FROM t ORDER BY offset LIMIT 1 -- offset") == [["offset", "a"]]


async def test_errors_say_what_is_wrong(serve):
    node = await serve()
    await node.make_topic("t")
    await node.produce("t", b"no json")
    unknown = await sql(node, "SELECT nothing FROM t")
    assert unknown.problem == "bad-query" and "nothing" in unknown.json["detail"]
    for query, hint in (("EXPLAIN SELECT * FROM t", "--estimate"), ("SHOW TABLES", "tierlog topic list")):
        refused = await sql(node, query)
        assert refused.problem == "bad-query" and hint in refused.json["hint"], refused
    failed = await sql(node, "SELECT value::INT FROM t")
    assert failed.problem == "query-failed" and "no json" in failed.json["detail"]


async def test_damage_is_an_error_and_never_fewer_rows(serve, tmp_path):
    node = await serve()
    partition = await make_archived(node)
    victim = tmp_path / "bucket" / partition["segments"][1]["rows_object"]
    data = victim.read_bytes()
    query = "SELECT value, key FROM orders"
    whole, refused = await rows(node, query), 0
    for place in range(10, len(data) // 2, 31):
        victim.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        answer = await sql(node, query)
        refused += answer.status != 200
        assert answer.json["rows"] == whole if answer.status == 200 else answer.problem == "corrupt-archive", place
    assert refused > 3
    victim.unlink()
    assert (await sql(node, "SELECT value FROM orders")).problem == "corrupt-archive"


async def test_an_estimate_reads_nothing(serve):
    node = await serve()
    partition = await make_archived(node)
    whole = (await node.post("/api/v1/sql/estimate", json={"query": "SELECT value FROM orders"})).json
    files = partition["archived"]["segments"]
    assert whole["files"] == files and whole["bytes"] >= partition["archived"]["rows_bytes"]
    assert whole["hot_offsets"] == 60 - partition["archived"]["end_offset"]
    assert whole["cost"] == pytest.approx(whole["requests"] * 0.0004 / 1000) and whole["requests"] >= 2 * files
    slice_ = (await node.post("/api/v1/sql/estimate", json={"query": "SELECT * FROM orders WHERE offset < 3"})).json
    assert (slice_["files"], slice_["hot_offsets"]) == (1, 0)
    assert slice_["topics"][0]["files_skipped"] == files - 1
    joined = {"query": "SELECT count(*) FROM orders a JOIN orders b ON a.offset = b.offset WHERE b.key = 'k1'"}
    assert (await node.post("/api/v1/sql/estimate", json=joined)).json["files"] >= files


async def test_rows_below_the_log_start_are_gone(serve):
    node = await serve()
    await make_archived(node)
    partition = node.node.partitions.get("orders", 0)
    assert await rows(node, "SELECT count(*) FROM orders") == [[60]]

    partition.delete_records_before(Offset(7))
    assert await rows(node, "SELECT count(*), min(offset) FROM orders") == [[53, 7]]


async def test_a_key_is_found_in_both_tiers(serve):
    node = await serve()
    await make_archived(node)
    found = (await node.get("/api/v1/topics/orders/keys/k3?value_encoding=text")).json
    assert [each["offset"] for each in found["messages"]] == [3] and found["complete"]
    assert found["messages"][0]["value"].startswith("value 3") and found["messages"][0]["partition"] == 0
    assert found["searched"]["files"] <= 2 and found["searched"]["files_without_filter"] == 0
    await node.post("/api/v1/topics/orders/messages?partition=0", data=b"new", headers={"X-Partition-Key": "k3"})
    newest = (await node.get("/api/v1/topics/orders/keys/k3")).json
    assert newest["messages"][0]["offset"] > 59 and not newest["complete"], newest
    both = (await node.get("/api/v1/topics/orders/keys/k3?limit=5")).json
    assert [each["offset"] for each in both["messages"]] == [newest["messages"][0]["offset"], 3] and both["complete"]
    nothing = (await node.get("/api/v1/topics/orders/keys/nobody")).json
    assert (nothing["messages"], nothing["complete"]) == ([], True)
    old = (await node.get(f"/api/v1/topics/orders/keys/k3?to={OLD + 100}&limit=5")).json
    assert [each["offset"] for each in old["messages"]] == [3]
    coded = (await node.get("/api/v1/topics/orders/keys/azM=?key_encoding=base64&limit=9")).json
    assert len(coded["messages"]) == 2
    assert (await node.get("/api/v1/topics/orders/keys/a?key_encoding=base64")).problem == "not-base64"
    assert (await node.get("/api/v1/topics/ghost/keys/a")).problem == "unknown-topic"

"""`python -m benchmarks.sql`: queries and the search by key over many archived files, on this machine.

- `count(*)`, a time slice and the look-up of a key, beside plain DuckDB on the same Parquet files, both at the lowest
  priority and with two threads; DuckDB keeps its connection, and tierlog is asked over HTTP
- `tierlog find` over all files, for a key that is in one of them and for one that is in none
- a producer's latency while a query reads everything again and again, compared with the latency without it

Prints a table, writes benchmarks/results/sql.json.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from hashlib import sha512
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from benchmarks.client import load
from benchmarks.process import wait_for
from benchmarks.service import TierlogServer
from benchmarks.tiers import CACHE, RESULTS, Line

RECORD = '{"order": %d, "customer": "c%d", "total": %d, "id": "%s"}'
STEP_MS = 1_000
FIRST_MS = 1_700_000_000_000
REPEATS = 7
PLAIN = """
import json, os, sys, time, duckdb
os.nice(19)
connection = duckdb.connect(config={"threads": 2})
for line in sys.stdin:
    began = time.perf_counter()
    rows = connection.execute(json.loads(line)).fetchall()
    print(json.dumps([time.perf_counter() - began, len(rows), str(rows[0]) if rows else ""]), flush=True)
"""


class Node:
    def __init__(self, directory: Path) -> None:
        self.bucket = directory / "bucket"
        (directory / "broker").mkdir()
        quick = ("archive.check_ms=200", "log.retention_check_ms=200", "log.free_check_ms=200")
        settings = [part for each in quick for part in ("--set", each)]
        self.broker = TierlogServer(directory / "broker", arguments=[*settings, "--bucket", f"file://{self.bucket}"])

    @property
    def url(self) -> str:
        return f"http://{self.broker.host}:{self.broker.http_port}"

    def fill(self, files: int, records_per_file: int) -> int:
        """Writes as many segments. Returns the number of records once all but the last segment are archived."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": "0"})
        size = records_per_file * (200)
        config = {"flush": "os", "retention.ms": "-1", "segment.bytes": str(size), "local.retention.ms": "1"}
        topic = NewTopic("orders", 1, 1, config={**config, "remote.storage.enable": "true"})
        admin.create_topics([topic])["orders"].result(30)
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 5, "batch.size": 16 << 10})
        count = files * records_per_file
        for number in range(count):
            value = RECORD % (number, number % 5_000, number % 97, sha512(b"%d" % number).hexdigest())
            while True:
                try:
                    producer.produce("orders", value, f"k{number}", timestamp=FIRST_MS + number * STEP_MS)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        producer.flush()
        local = self.broker.data_dir / "logs"
        wait_for(lambda: len(list(local.glob("orders.*/0/*.log"))) == 1, "the archive to catch up", 900, interval_s=1)
        return count

    def ask(self, path: str, document: dict[str, Any] | None = None) -> Any:
        data = None if document is None else json.dumps(document).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def query(self, text: str) -> list[Any]:
        rows: list[Any] = self.ask("/api/v1/sql", {"query": text, "timeout_ms": 300_000})["rows"]
        return rows


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def beside_duckdb(node: Node, count: int) -> Iterator[Line]:
    plain = subprocess.Popen([sys.executable, "-c", PLAIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert plain.stdin is not None and plain.stdout is not None
    files = f"read_parquet('{node.bucket}/topic=orders/partition=0/*.parquet')"
    [[archived]] = node.query("SELECT count(*) FROM orders")
    assert archived == count
    [held] = node.ask("/api/v1/topics/orders/archive?limit=0")["partitions"]
    end = held["archived"]["end_offset"]
    middle = end // 2
    low = (FIRST_MS + middle * STEP_MS) * 1000
    slice_ = (
        'SELECT count(*), sum("offset"), max(octet_length(key)) FROM {} WHERE '
        f'"timestamp" >= make_timestamptz({low}) AND "timestamp" < make_timestamptz({low + 500 * STEP_MS * 1000})'
    )
    questions = (
        ("count(*)", "SELECT count(*) FROM {}", "SELECT count(*) FROM {}"),
        ("a slice of time, 500 records", slice_, slice_),
        ("a key", f"SELECT \"offset\", value FROM {{}} WHERE key = 'k{middle}'", None),
    )
    try:
        for what, ours, theirs in questions:
            mine, others = [], []
            for _ in range(REPEATS):
                took, rows = timed(partial(node.query, ours.format('"orders$raw"')))
                mine.append(took)
                key = (theirs or ours).replace(f"'k{middle}'", f"'k{middle}'::BLOB")
                plain.stdin.write(json.dumps(key.format(files)) + "\n")
                plain.stdin.flush()
                other_took, other_rows, other_first = json.loads(plain.stdout.readline())
                others.append(other_took)
                assert len(rows) == other_rows == 1, (what, rows, other_rows)
                # The newest segment is not in the bucket, and only tierlog counts it.
                assert what == "count(*)" or str(rows[0][0]) in other_first, (what, rows, other_first)
            a, b = statistics.median(mine), statistics.median(others)
            shown = f"{a * 1000:.0f} ms (first {mine[0] * 1000:.0f}), DuckDB {b * 1000:.0f} ms"
            yield Line(what, shown, b / a, "≥ 0.95 × DuckDB", b / a >= 0.95)
    finally:
        plain.stdin.close()
        plain.wait()


def find(node: Node, count: int, files: int) -> Iterator[Line]:
    for what, key in (("find a key", f"k{count // 3}"), ("find a key that is not there", "nobody")):
        took = [timed(lambda key=key: node.ask(f"/api/v1/topics/orders/keys/{key}")) for _ in range(REPEATS)]
        middle = statistics.median(each for each, _ in took)
        answer = took[0][1]
        assert len(answer["messages"]) == (key != "nobody")
        shown = f"{middle * 1000:.0f} ms (first {took[0][0] * 1000:.0f}), {files} files"
        yield Line(what, shown, middle, "< 1 s", middle < 1)


def filter_cost(node: Node) -> Iterator[Line]:
    import pyarrow.parquet as pq

    filters = whole = 0
    for path in node.bucket.glob("topic=orders/partition=0/*.parquet"):
        metadata = pq.read_metadata(path)
        whole += path.stat().st_size
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            for column in (group.column(each) for each in range(group.num_columns)):
                filters += column.bloom_filter_length or 0  # type: ignore[attr-defined]
    share = filters / whole
    yield Line("filters of keys, share of the bucket", f"{share:.2%}, every key another", share, "≤ 5 %", share <= 0.05)


def producer_latency(node: Node, directory: Path) -> Iterator[Line]:
    records = directory / "records"
    records.write_bytes(os.urandom(1 << 20))
    admin = AdminClient({"bootstrap.servers": node.broker.bootstrap, "log_level": "0"})
    admin.create_topics([NewTopic("quiet", 4, 1, config={"flush": "os"})])["quiet"].result(30)
    settings = {"producer:acks": "all", "producer:linger.ms": "0"}

    def p99() -> float:
        return load.latency(node.broker.bootstrap, "quiet", 4, 1000, 2000, 5, settings).p99_ms

    heavy = (
        "SELECT value->>'customer' AS c, sum((value->>'total')::INT), max(md5(value)) FROM orders GROUP BY c LIMIT 5"
    )
    stopping = threading.Event()

    def query_again_and_again() -> None:
        while not stopping.is_set():
            node.query(heavy)

    p99()
    without, during = [], []
    for _ in range(3):
        without.append(p99())
        stopping.clear()
        querying = threading.Thread(target=query_again_and_again)
        querying.start()
        time.sleep(1)
        during.append(p99())
        stopping.set()
        querying.join()
    a, b = statistics.median(during), statistics.median(without)
    shown = f"{a:.2f} ms, {b:.2f} ms without ({during} / {without})"
    yield Line("producer p99 during heavy queries", shown, a / b, "≤ 1.2 ×", a <= 1.2 * b)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sql", description=__doc__)
    parser.add_argument("--files", type=int, default=1_000, help="how many archived files")
    parser.add_argument("--records", type=int, default=500, help="records in each file")
    choice = parser.parse_args()
    CACHE.mkdir(exist_ok=True)
    lines = []
    with tempfile.TemporaryDirectory(prefix="sql-", dir=CACHE) as name:
        node = Node(Path(name))
        node.broker.start()
        try:
            count = node.fill(choice.files, choice.records)
            files = len(list(node.bucket.glob("topic=orders/partition=0/*.parquet")))
            lines += [*find(node, count, files), *beside_duckdb(node, count), *filter_cost(node)]
            lines += producer_latency(node, Path(name))
        finally:
            node.broker.stop()
    table = Table(title="SQL and the search by key", title_justify="left")
    for heading in ("", "measured", "ratio", "target", ""):
        table.add_column(heading)
    for line in lines:
        verdict = "[green]met[/]" if line.met else "[yellow]falls short[/]"
        table.add_row(line.what, line.figure, f"{line.ratio:.2f}", line.target, verdict)
    Console(width=140).print(table)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "sql.json").write_text(json.dumps([asdict(line) for line in lines], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m benchmarks.sql`: queries and the search by key over many archived files, on this machine.

- `count(*)`, a time slice and the look-up of a key: beside plain DuckDB on the same Parquet files (both at the lowest
  priority and with two threads; DuckDB keeps its connection, tierlog is asked over HTTP), and beside a Kafka consumer
  that reads the topic, or the slice of it
- `tierlog find` over all files, for a key that is in one of them and for one that is in none
- a producer's latency while a query reads everything again and again, compared with the latency without it

The two sides take turns. The CPU time of both is told too: on a machine that others use, it is the fairer comparison.
Prints a table, writes benchmarks/results/sql.json. Takes about five minutes, `--quick` one.
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
from functools import partial
from hashlib import sha512
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.client import load
from benchmarks.peer.jars import CACHE
from benchmarks.process import wait_for
from benchmarks.report import Line, console_of_width, tell_lines
from benchmarks.run import OthersCpu
from benchmarks.service import TierlogServer

RECORD = '{"order": %d, "customer": "c%d", "total": %d, "id": "%s"}'
STEP_MS = 1_000
FIRST_MS = 1_700_000_000_000
REPEATS = 9
SLICE = 500
RECORDS = 500
PAGE = Path(__file__).resolve().parents[1] / "docs" / "SQL.md"
PLAIN = """
import json, os, sys, time, duckdb
os.nice(19)
connection = duckdb.connect(config={"threads": 2})
for line in sys.stdin:
    began, cpu = time.perf_counter(), time.process_time()
    rows = connection.execute(json.loads(line)).fetchall()
    took = [time.perf_counter() - began, time.process_time() - cpu]
    print(json.dumps([*took, len(rows), str(rows[0]) if rows else ""]), flush=True)
"""


class WithWorkers(TierlogServer):
    def cpu_seconds(self) -> float:
        """Of the broker and its worker processes, also those that have ended."""
        broker = psutil.Process(self.pid)
        found = [each.cpu_times() for each in (broker, *broker.children(recursive=True))]
        return sum(each.user + each.system + each.children_user + each.children_system for each in found)


class Node:
    def __init__(self, directory: Path) -> None:
        self.bucket = directory / "bucket"
        (directory / "broker").mkdir()
        quick = ("archive.check_ms=200", "log.retention_check_ms=200", "log.free_check_ms=200")
        settings = [part for each in quick for part in ("--set", each)]
        self.broker = WithWorkers(directory / "broker", arguments=[*settings, "--bucket", f"file://{self.bucket}"])

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


class Duck:
    """Plain DuckDB in a process of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PLAIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def query(self, text: str) -> tuple[float, float, int, str]:
        """Returns seconds, seconds of CPU, the number of rows, and the first of them."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(text) + "\n")
        self._process.stdin.flush()
        took, cpu, rows, first = json.loads(self._process.stdout.readline())
        return took, cpu, rows, first

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Question(NamedTuple):
    what: str
    text: str
    """With {} for the table."""
    start_ms: int
    count: int
    """The records that a consumer has to read for it, from the first one at that time on."""


def questions(end: int, count: int) -> tuple[Question, ...]:
    """`end` is where the archive ends; `count` has the local part too."""
    middle = end // 2
    low = (FIRST_MS + middle * STEP_MS) * 1000
    slice_ = (
        'SELECT count(*), sum("offset"), max(octet_length(key)) FROM {} WHERE '
        f'"timestamp" >= make_timestamptz({low}) AND "timestamp" < make_timestamptz({low + SLICE * STEP_MS * 1000})'
    )
    key = f"SELECT \"offset\", value FROM {{}} WHERE key = 'k{middle}'::BLOB"
    return (
        Question("count(*)", "SELECT count(*) FROM {}", FIRST_MS, count),
        Question(f"a slice of time, {SLICE} records", slice_, FIRST_MS + middle * STEP_MS, SLICE),
        Question("a key", key, FIRST_MS, count),
    )


def beside_others(node: Node, count: int) -> Iterator[Line]:
    duck = Duck()
    files = f"read_parquet('{node.bucket}/topic=orders/partition=0/*.parquet')"
    [[archived]] = node.query("SELECT count(*) FROM orders")
    assert archived == count
    [held] = node.ask("/api/v1/topics/orders/archive?limit=0")["partitions"]
    try:
        for question in questions(held["archived"]["end_offset"], count):
            yield from beside_duckdb(node, duck, files, question)
            mine = statistics.median(timed(partial(node.query, asked(question)))[0] for _ in range(3))
            read = statistics.median(consume(node, question) for _ in range(2))
            shown = f"{mine * 1000:.0f} ms, a consumer reads {question.count:,} records in {read * 1000:.0f} ms"
            yield Line(f"{question.what}, beside a consumer", shown, read / mine, "≥ 1 ×", read >= mine)
    finally:
        duck.close()


def asked(question: Question) -> str:
    return question.text.format('"orders$raw"')


def beside_duckdb(node: Node, duck: Duck, files: str, question: Question) -> Iterator[Line]:
    mine, others, mine_cpu, others_cpu = [], [], [], []
    for turn in range(REPEATS + 1):
        cpu = node.broker.cpu_seconds()
        took, rows = timed(partial(node.query, asked(question)))
        cpu = node.broker.cpu_seconds() - cpu
        other_took, other_cpu, other_rows, other_first = duck.query(question.text.format(files))
        assert len(rows) == other_rows == 1, (question.what, rows, other_rows)
        # The newest segment is not in the bucket, and only tierlog counts it.
        assert question.what == "count(*)" or str(rows[0][0]) in other_first, (question.what, rows, other_first)
        if turn:  # The first turn warms up.
            mine.append(took)
            mine_cpu.append(cpu)
            others.append(other_took)
            others_cpu.append(other_cpu)
    a, b = statistics.median(mine), statistics.median(others)
    shown = f"{a * 1000:.0f} ms, DuckDB {b * 1000:.0f} ms"
    yield Line(question.what, shown, b / a, "≥ 0.95 × DuckDB", b / a >= 0.95)
    a, b = statistics.fmean(mine_cpu), statistics.fmean(others_cpu)
    shown = f"{a * 1000:.0f} ms, DuckDB {b * 1000:.0f} ms"
    yield Line(f"{question.what}, CPU time", shown, b / a, "≥ 0.95 × DuckDB", b / a >= 0.95)


def consume(node: Node, question: Question) -> float:
    """Returns how long a consumer takes to look at the records that have the answer, from its start to the last one."""
    consumer = Consumer(
        {"bootstrap.servers": node.broker.bootstrap, "group.id": "none", "enable.auto.commit": False, "log_level": 0}
    )
    began = time.perf_counter()
    [place] = consumer.offsets_for_times([TopicPartition("orders", 0, question.start_ms)], timeout=30)
    consumer.assign([place])
    left = question.count
    while left > 0:
        found = consumer.consume(min(left, 10_000), timeout=10)
        assert found and all(each.error() is None for each in found)
        left -= len(found)
    took = time.perf_counter() - began
    consumer.close()
    return took


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


def producer_latency(node: Node, turns: int, seconds: float) -> Iterator[Line]:
    admin = AdminClient({"bootstrap.servers": node.broker.bootstrap, "log_level": "0"})
    admin.create_topics([NewTopic("quiet", 4, 1, config={"flush": "os"})])["quiet"].result(30)
    settings = {"producer:acks": "all", "producer:linger.ms": "0"}

    def p99() -> float:
        return load.latency(node.broker.bootstrap, "quiet", 4, 1000, 2000, seconds, settings).p99_ms

    heavy = (
        "SELECT value->>'customer' AS c, sum((value->>'total')::INT), max(md5(value)) FROM orders GROUP BY c LIMIT 5"
    )
    stopping = threading.Event()

    def query_again_and_again() -> None:
        while not stopping.is_set():
            node.query(heavy)

    p99()
    without, during = [], []
    for _ in range(turns):
        without.append(p99())
        stopping.clear()
        querying = threading.Thread(target=query_again_and_again)
        querying.start()
        time.sleep(1)
        during.append(p99())
        stopping.set()
        querying.join()
    a, b = statistics.median(during), statistics.median(without)
    shown = f"{a:.2f} ms, {b:.2f} ms without"
    yield Line("producer p99 during heavy queries", shown, a / b, "≤ 1.2 ×", a <= 1.2 * b)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sql", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a tenth of the files: a query's fixed price weighs more",
    )
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/SQL.md")
    choice = parser.parse_args()
    if choice.quick and choice.write_docs:
        parser.error("a quick run is too noisy for the docs: leave out --quick")
    files, turns, seconds = (100, 2, 3.0) if choice.quick else (1_000, 5, 5.0)
    console = console_of_width(140)
    load.build()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE.parent) as name:
        node = Node(Path(name))
        node.broker.start()
        try:
            console.print(f"[cyan]▸[/] writing and archiving {files:,} segments")
            count = node.fill(files + 10, RECORDS)
            there = len(list(node.bucket.glob("topic=orders/partition=0/*.parquet")))
            assert there >= files
            noise = OthersCpu([node.broker])
            console.print(f"[cyan]▸[/] a key, a slice and a count over {there:,} files")
            lines = [*find(node, count, there), *beside_others(node, count), *filter_cost(node)]
            console.print("[cyan]▸[/] a producer beside heavy queries")
            lines += producer_latency(node, turns, seconds)
            busy = noise.share()
        finally:
            node.broker.stop()
    facts = (
        f"{count:,} records in {there:,} files of one partition, {os.cpu_count()} cores; a run of "
        f"{(time.monotonic() - began) / 60:.0f} minutes; other processes used {busy:.0%} of the CPU."
    )
    tell_lines("sql", "SQL and the search by key", facts, lines, console, PAGE if choice.write_docs else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())

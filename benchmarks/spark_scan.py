"""`python -m benchmarks.spark_scan`: compares Spark over the archive with Spark's own Kafka source, on the same
records.

Four readers read one topic: Spark's Kafka source from Apache Kafka and from tierlog, `tierlog_read`, and plain
`spark.read.parquet` over the same files. There are three questions: how many records, how many in a quarter of the
time, how many bytes of values. Figures are records of the topic per second, so a reader gains by reading less. Compare
the ratios: to the faster of the two Kafka sources, and to plain Parquet. For each question any reader needs about half
a second to start, so ratios mean something only with millions of records.

Then the same topic is compacted into large files, through its leader, and read again. Planning over 100,000 archived
segments is measured on manifests alone. Ends with 1 if a figure is below what docs/PERFORMANCE.md promises.
"""

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid4

import pyspark
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.peer.jars import CACHE, PeerUnavailable, fetch_connector, jars_dir, java
from benchmarks.peer.kafka import KafkaServer
from benchmarks.process import wait_for
from benchmarks.report import DOCS, replace_block
from benchmarks.results import describe_machine, describe_versions
from cold_tier.layout import PartitionLayout, SegmentName
from cold_tier.manifest.model import EpochStart, SegmentEntry
from cold_tier.manifest.writer import ManifestWriter
from cold_tier.objects.open import StoreSettings, open_store
from hot_tier.ids import LeaderEpoch, Offset, PartitionId
from spark.jobs.compact import compact
from spark.options import read_options
from spark.plan import plan_read
from spark.session import session
from spark.source import tierlog_read
from tierlog.client import Client, path
from tierlog.process import ServeProcess

TOPIC = "events"
PARTITIONS = 2
START_MS = 1_700_000_000_000
SEGMENT_BYTES = 16 << 20
REPEATS = 9
KAFKA_REPEATS = 2
"""A scan through the Kafka source takes ten times as long, and a few per cent do not matter there."""
KAFKA, KAFKA_OURS = "Kafka source, Apache Kafka", "Kafka source, tierlog"
LEAST_TO_KAFKA = 5.0
LEAST_TO_PARQUET = 0.95
LEAST_COMPACTED = 100e6
MOST_PLANNING_S = 2.0
SEGMENTS = 100_000

FIGURES = "<!-- figures: written by python -m benchmarks.spark_scan --write-docs -->"

Question = Callable[[DataFrame], object]


@dataclass
class Report:
    """What is printed, and which part of it goes into the docs."""

    console: Console
    lines: list[str] = field(default_factory=list)
    short: list[str] = field(default_factory=list)

    def begins(self, what: str) -> None:
        self.console.print(f"[cyan]▸[/] {what}")

    def say(self, line: str) -> None:
        self.console.print(line)
        self.lines.append(f"- {line}")

    def expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.short.append(otherwise)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_scan", description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--write-docs", action="store_true", help="put the figures into docs/PERFORMANCE.md")
    choice = parser.parse_args()
    report = Report(Console() if sys.stdout.isatty() else Console(width=120))
    try:
        java()
        jars_dir()
        jars = fetch_connector()
    except PeerUnavailable as error:
        report.console.print(f"[bold red]Spark cannot be measured:[/] {error}")
        return 1
    with tempfile.TemporaryDirectory(prefix="bench-spark-", dir=CACHE.parent) as directory:
        machine, versions = describe_machine(Path(directory)), describe_versions()
        measure_spark(Path(directory), choice.records, jars, report)
        measure_planning(Path(directory), report)
    for each in report.short:
        report.console.print(f"[bold red]short of the promise:[/] {each}")
    if choice.write_docs:
        facts = (
            f"{machine['cores']} cores of {machine['cpu']}, {machine['memory_gb']} GB, {machine['file_system']}; "
            f"tierlog {versions['tierlog']}, PySpark {pyspark.__version__}, Apache Kafka {versions['kafka']}."
        )
        replace_block(DOCS, FIGURES, "\n".join([facts, "", *report.lines]))
        report.console.print(f"figures in {DOCS}")
    return 1 if report.short else 0


def measure_spark(directory: Path, count: int, jars: Sequence[Path], report: Report) -> None:
    bucket = f"file://{directory}/bucket"
    (directory / "kafka").mkdir()
    flags = ("--bucket", bucket, "--set", "archive.check_ms=200", "--set", "topic.flush=os")
    with KafkaServer(directory / "kafka") as kafka, ServeProcess(directory / "tierlog", flags) as service:
        report.begins(f"{count:,} records of 370 B into Apache Kafka and into tierlog")
        tiered = {"remote.storage.enable": "true", "segment.bytes": str(SEGMENT_BYTES)}
        fill(kafka.bootstrap, count, {})
        fill(service.kafka, count, tiered)
        wait_for(lambda: archived(service)[1] == 0, "everything sealed is archived", 300)
        rows = archived(service)[0]
        config = {
            "spark.master": "local[2]",
            "spark.driver.memory": "2g",
            "spark.driver.host": "127.0.0.1",
            "spark.jars": ",".join(map(str, jars)),
            "spark.log.level": "ERROR",
            "spark.ui.showConsoleProgress": "false",
        }
        spark = session("benchmark", config=config)
        try:
            readers = {
                KAFKA: (lambda **times: kafka_frame(spark, kafka.bootstrap, times), count),
                KAFKA_OURS: (lambda **times: kafka_frame(spark, service.kafka, times), count),
                "tierlog_read": (lambda **times: tierlog_read(spark, bucket, TOPIC, **times), rows),
                "spark.read.parquet": (lambda **times: parquet_frame(spark, bucket, times), rows),
            }
            report.lines += [f"{count:,} records of 370 B in {PARTITIONS} partitions; records per second:", ""]
            show_scans(ask_all(readers, count, report), report)
            measure_compaction(spark, bucket, service, report)
        finally:
            spark.stop()


def ask_all(
    readers: Mapping[str, tuple[Callable[..., DataFrame], int]], count: int, report: Report
) -> dict[str, dict[str, float]]:
    times = {"startingTimestamp": START_MS + count // 2, "endingTimestamp": START_MS + count * 3 // 4}
    questions: dict[str, tuple[dict[str, int], Question]] = {
        "count": ({}, lambda frame: frame.count()),
        "count of 1/4 of the time": (times, lambda frame: frame.count()),
        "bytes of values": ({}, lambda frame: frame.selectExpr("sum(length(value))").collect()),
    }
    figures: dict[str, dict[str, float]] = {}
    for question, (window, ask) in questions.items():
        report.begins(question)
        samples: dict[str, list[float]] = {name: [] for name in readers}
        for turn in range(REPEATS + 1):
            # The order alternates, A B and B A, because the JVM still becomes faster.
            for name in sorted(readers, reverse=bool(turn % 2)):
                if turn > KAFKA_REPEATS and name in (KAFKA, KAFKA_OURS):
                    continue
                read, rows = readers[name]
                began = time.monotonic()
                ask(read(**window))
                if turn:  # The first turn warms up.
                    samples[name].append(rows / (time.monotonic() - began))
        figures[question] = {name: statistics.median(values) for name, values in samples.items()}
    return figures


def fill(bootstrap: str, count: int, config: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config={"retention.ms": "-1", **config})])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4"})
    words = [f'"city":"{name}","state":"paid"' for name in ("Lisbon", "Osaka", "Nairobi", "Quito", "Perth")]
    draw = random.Random(7)
    noise = [f"{draw.getrandbits(1200):x}" for _ in range(1000)]
    for number in range(count):
        some = f'{words[number % 5]},"id":"{noise[number * 31 % 1000]}"'
        value = f'{{"order":{number},"total":{number * 7919 % 100_003},{some}}}'
        while True:
            try:
                producer.produce(
                    TOPIC, value, key=f"k{number % 5000}", partition=number % PARTITIONS, timestamp=START_MS + number
                )
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def archived(service: ServeProcess) -> tuple[int, int]:
    """Returns the number of rows in the bucket, and the bytes that still wait."""
    with Client(service.url) as client:
        found = client.get(path("topics", TOPIC, "archive"), limit=0)["partitions"]
    rows = sum(each["archived"]["end_offset"] if each["archived"] else 0 for each in found)
    return rows, sum(each["backlog_bytes"] for each in found) if rows else 1


def kafka_frame(spark: SparkSession, bootstrap: str, times: Mapping[str, int]) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", TOPIC)
    return reader.options(**{name: str(value) for name, value in times.items()}).load()


def parquet_frame(spark: SparkSession, bucket: str, times: Mapping[str, int]) -> DataFrame:
    frame = spark.read.parquet(f"{bucket}/topic={TOPIC}")
    if times:
        frame = frame.where(
            f"timestamp >= timestamp_millis({times['startingTimestamp']}) "
            f"and timestamp < timestamp_millis({times['endingTimestamp']})"
        )
    return frame


def show_scans(figures: Mapping[str, Mapping[str, float]], report: Report) -> None:
    table = Table("records per second", box=None, header_style="bold")
    readers = list(next(iter(figures.values())))
    columns = (*readers, "÷ Kafka source", "÷ plain Parquet")
    for name in columns:
        table.add_column(name, justify="right")
    report.lines += [f"| | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    for question, found in figures.items():
        ours = found["tierlog_read"]
        theirs = max(found[KAFKA], found[KAFKA_OURS])
        to_kafka, to_parquet = ours / theirs, ours / found["spark.read.parquet"]
        cells = (question, *(f"{found[name]:,.0f}" for name in readers), f"{to_kafka:.1f}×", f"{to_parquet:.2f}×")
        table.add_row(*cells)
        report.lines.append(f"| {' | '.join(cells)} |")
        report.expect(
            to_kafka >= LEAST_TO_KAFKA, f"{question}: {to_kafka:.1f}× Spark's Kafka source, not {LEAST_TO_KAFKA:g}×"
        )
        report.expect(
            to_parquet >= LEAST_TO_PARQUET, f"{question}: {to_parquet:.2f}× plain Parquet, not {LEAST_TO_PARQUET:g}×"
        )
    report.console.print(table)
    report.lines.append("")


def measure_compaction(spark: SparkSession, bucket: str, service: ServeProcess, report: Report) -> None:
    report.begins("compaction of the topic")
    before = spark_seconds(spark, bucket)
    done = compact(spark, bucket, [TOPIC], gateway=service.url)
    after = spark_seconds(spark, bucket)
    parts = done.partitions
    files = sum(each.segments_before for each in parts), sum(each.segments_after for each in parts)
    speed = done.bytes_per_core_second
    report.say(
        f"compaction: {done.log_bytes / 1e6:,.0f} MB of records, {files[0]} files into {files[1]}, in "
        f"{done.seconds:.1f} s, {speed / 1e6:,.0f} MB/s per core; "
        f"bytes of values then in {after:.2f} s, before in {before:.2f} s"
    )
    outcomes = [(each.outcome, each.reason) for each in parts]
    report.expect(all(outcome == "published" for outcome, _ in outcomes), f"compaction: {outcomes}")
    report.expect(
        speed >= LEAST_COMPACTED, f"compaction: {speed / 1e6:,.0f} MB/s per core, not {LEAST_COMPACTED / 1e6:,.0f}"
    )


def spark_seconds(spark: SparkSession, bucket: str) -> float:
    """Returns the seconds of a full scan of values."""
    began = time.monotonic()
    tierlog_read(spark, bucket, TOPIC).selectExpr("sum(length(value))").collect()
    return time.monotonic() - began


def measure_planning(directory: Path, report: Report) -> None:
    bucket = f"file://{directory}/manifests"
    asyncio.run(write_manifests(bucket))
    last = START_MS + SEGMENTS * 1000
    for name, window in {
        "all": {},
        "an hour": {"startingTimestamp": str(last - 3_600_000), "endingTimestamp": str(last)},
    }.items():
        began = time.monotonic()
        plan = plan_read(read_options({"bucket": bucket, "subscribe": TOPIC, **window}, streaming=False))
        seconds = time.monotonic() - began
        report.say(f"planning {name} of {SEGMENTS:,} segments: {seconds:.2f} s, {len(plan.files):,} files")
        report.expect(seconds <= MOST_PLANNING_S, f"planning {name}: {seconds:.2f} s, not {MOST_PLANNING_S:g}")


async def write_manifests(bucket: str) -> None:
    """Writes manifests of segments that do not exist."""
    store = open_store(StoreSettings(bucket=bucket), create=True)
    layout = PartitionLayout(TOPIC, UUID(int=1), PartitionId(0))
    writer = await ManifestWriter.open(store, layout, LeaderEpoch(0), Offset(0), START_MS)
    for first in range(0, SEGMENTS, 1000):
        segments = [
            SegmentEntry(
                SegmentName(Offset(number * 1000), LeaderEpoch(0), uuid4().hex),
                Offset(number * 1000 + 1000),
                1000,
                START_MS + number * 1000,
                START_MS + number * 1000 + 999,
                1 << 20,
                number,
                1 << 12,
                number,
                1 << 22,
                START_MS,
                (EpochStart(LeaderEpoch(0), Offset(0)),),
            )
            for number in range(first, first + 1000)
        ]
        await writer.append(segments, START_MS)


if __name__ == "__main__":
    sys.exit(main())

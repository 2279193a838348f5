"""`python -m benchmarks.spark_scan`: Spark over the archive beside Spark's own Kafka source, on the same records.

Four readers of one topic: Spark's Kafka source against Apache Kafka and against tierlog, `tierlog_read`, and plain
`spark.read.parquet` over the same files. Three questions: how many records, how many of a quarter of the time, how
many bytes of values. Figures are records of the topic per second, so a reader gains by not reading. Ratios are what to
look at: to the faster of the two Kafka sources, and to plain Parquet. Each question costs any reader half a second or
so to start with, so there have to be millions of records for ratios to mean something.

Then the same topic is compacted into large files, through its leader, and read once more. Planning among 100,000
archived segments is measured on manifests alone. Ends with 1 if a figure is below what docs/PERFORMANCE.md promises.
"""

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from uuid import UUID, uuid4

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.peer.jars import CACHE, PeerUnavailable, jars_dir, java
from benchmarks.peer.kafka import KafkaServer
from benchmarks.process import wait_for
from cold_tier.layout import PartitionLayout, SegmentName
from cold_tier.manifest.model import EpochStart, Segment
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
REPEATS = 3
LEAST_TO_KAFKA = 5.0
LEAST_TO_PARQUET = 0.95
LEAST_COMPACTED = 100e6
MOST_PLANNING_S = 2.0
SEGMENTS = 100_000

MAVEN = "https://repo1.maven.org/maven2"
JARS = (
    "org/apache/spark/spark-sql-kafka-0-10_2.13/4.2.0/spark-sql-kafka-0-10_2.13-4.2.0.jar",
    # Only asks for delegation tokens, of which there are none here; newer ones are not on Maven Central.
    "org/apache/spark/spark-token-provider-kafka-0-10_2.13/4.0.0/spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    "org/apache/kafka/kafka-clients/3.9.2/kafka-clients-3.9.2.jar",
    "org/apache/commons/commons-pool2/2.12.1/commons-pool2-2.12.1.jar",
)

Question = Callable[[DataFrame], object]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_scan", description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    count = parser.parse_args().records
    console = Console() if sys.stdout.isatty() else Console(width=120)
    try:
        java()
        jars_dir()
        jars = fetch_jars()
    except (PeerUnavailable, OSError) as error:
        console.print(f"[bold red]Spark cannot be measured:[/] {error}")
        return 1
    with tempfile.TemporaryDirectory(prefix="bench-spark-", dir=CACHE.parent) as directory:
        short = measure_spark(Path(directory), count, jars, console)
        short += measure_planning(Path(directory), console)
    for each in short:
        console.print(f"[bold red]short of the promise:[/] {each}")
    return 1 if short else 0


def fetch_jars() -> list[Path]:
    folder = CACHE.parent / "spark-kafka"
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for jar in JARS:
        target = folder / jar.rpartition("/")[2]
        if not target.exists():
            partial = target.with_suffix(".partial")
            urllib.request.urlretrieve(f"{MAVEN}/{jar}", partial)
            partial.rename(target)
        found.append(target)
    return found


def measure_spark(directory: Path, count: int, jars: Sequence[Path], console: Console) -> list[str]:
    """Scans, then compaction; what falls short."""
    bucket = f"file://{directory}/bucket"
    (directory / "kafka").mkdir()
    flags = ("--bucket", bucket, "--set", "archive.check_ms=200", "--set", "topic.flush=os")
    with KafkaServer(directory / "kafka") as kafka, ServeProcess(directory / "tierlog", flags) as service:
        console.print(f"[cyan]▸[/] {count:,} records of 370 B into Apache Kafka and into tierlog")
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
                "Kafka source, Apache Kafka": (lambda **times: kafka_frame(spark, kafka.bootstrap, times), count),
                "Kafka source, tierlog": (lambda **times: kafka_frame(spark, service.kafka, times), count),
                "tierlog_read": (lambda **times: tierlog_read(spark, bucket, TOPIC, **times), rows),
                "spark.read.parquet": (lambda **times: parquet_frame(spark, bucket, times), rows),
            }
            short = print_scans(ask_all(readers, count, console), console)
            return short + measure_compaction(spark, bucket, service, console)
        finally:
            spark.stop()


def ask_all(
    readers: Mapping[str, tuple[Callable[..., DataFrame], int]], count: int, console: Console
) -> dict[str, dict[str, float]]:
    times = {"startingTimestamp": START_MS + count // 2, "endingTimestamp": START_MS + count * 3 // 4}
    questions: dict[str, tuple[dict[str, int], Question]] = {
        "count": ({}, lambda frame: frame.count()),
        "count of 1/4 of the time": (times, lambda frame: frame.count()),
        "bytes of values": ({}, lambda frame: frame.selectExpr("sum(length(value))").collect()),
    }
    figures: dict[str, dict[str, float]] = {}
    for question, (window, ask) in questions.items():
        console.print(f"[cyan]▸[/] {question}")
        samples: dict[str, list[float]] = {name: [] for name in readers}
        for turn in range(REPEATS + 1):
            for name, (read, rows) in readers.items():
                began = time.monotonic()
                ask(read(**window))
                if turn:  # The first warms up.
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
    """Rows in the bucket, and bytes that still wait."""
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


def print_scans(figures: Mapping[str, Mapping[str, float]], console: Console) -> list[str]:
    table = Table("records per second", box=None, header_style="bold")
    readers = list(next(iter(figures.values())))
    short = []
    for name in (*readers, "÷ Kafka source", "÷ plain Parquet"):
        table.add_column(name, justify="right")
    for question, found in figures.items():
        ours = found["tierlog_read"]
        theirs = max(found["Kafka source, Apache Kafka"], found["Kafka source, tierlog"])
        to_kafka, to_parquet = ours / theirs, ours / found["spark.read.parquet"]
        table.add_row(question, *(f"{found[name]:,.0f}" for name in readers), f"{to_kafka:.1f}×", f"{to_parquet:.2f}×")
        if to_kafka < LEAST_TO_KAFKA:
            short.append(f"{question}: {to_kafka:.1f}× Spark's Kafka source, not {LEAST_TO_KAFKA:g}×")
        if to_parquet < LEAST_TO_PARQUET:
            short.append(f"{question}: {to_parquet:.2f}× plain Parquet, not {LEAST_TO_PARQUET:g}×")
    console.print(table)
    return short


def measure_compaction(spark: SparkSession, bucket: str, service: ServeProcess, console: Console) -> list[str]:
    console.print("[cyan]▸[/] compaction of the topic")
    before = spark_seconds(spark, bucket)
    report = compact(spark, bucket, [TOPIC], gateway=service.url)
    after = spark_seconds(spark, bucket)
    files = (sum(each.segments_before for each in report.partitions), sum(e.segments_after for e in report.partitions))
    console.print(
        f"compaction: {report.log_bytes / 1e6:,.0f} MB of records, {files[0]} files into {files[1]}, in "
        f"{report.seconds:.1f} s, {report.bytes_per_core_second / 1e6:,.0f} MB/s per core; "
        f"bytes of values then in {after:.2f} s, before in {before:.2f} s"
    )
    if any(each.outcome != "published" for each in report.partitions):
        return [f"compaction: {[(each.outcome, each.reason) for each in report.partitions]}"]
    if report.bytes_per_core_second < LEAST_COMPACTED:
        return [
            f"compaction: {report.bytes_per_core_second / 1e6:,.0f} MB/s per core, not {LEAST_COMPACTED / 1e6:,.0f}"
        ]
    return []


def spark_seconds(spark: SparkSession, bucket: str) -> float:
    """Of a full scan of values."""
    began = time.monotonic()
    tierlog_read(spark, bucket, TOPIC).selectExpr("sum(length(value))").collect()
    return time.monotonic() - began


def measure_planning(directory: Path, console: Console) -> list[str]:
    bucket = f"file://{directory}/manifests"
    asyncio.run(write_manifests(bucket))
    last = START_MS + SEGMENTS * 1000
    short = []
    for name, window in {
        "all": {},
        "an hour": {"startingTimestamp": str(last - 3_600_000), "endingTimestamp": str(last)},
    }.items():
        began = time.monotonic()
        plan = plan_read(read_options({"bucket": bucket, "subscribe": TOPIC, **window}, streaming=False))
        seconds = time.monotonic() - began
        console.print(f"planning {name} of {SEGMENTS:,} segments: {seconds:.2f} s, {len(plan.files):,} files")
        if seconds > MOST_PLANNING_S:
            short.append(f"planning {name}: {seconds:.2f} s, not {MOST_PLANNING_S:g}")
    return short


async def write_manifests(bucket: str) -> None:
    """Manifests of segments that nobody archived."""
    store = open_store(StoreSettings(bucket=bucket))
    layout = PartitionLayout(TOPIC, UUID(int=1), PartitionId(0))
    writer = await ManifestWriter.open(store, layout, LeaderEpoch(0), Offset(0), START_MS)
    for first in range(0, SEGMENTS, 1000):
        segments = [
            Segment(
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

"""`python -m benchmarks.tiers`: measures what the cold tier costs and gives, as ratios on this machine.

- archive: bytes of log converted per second of one core's CPU time, and bucket bytes compared with lz4 batches
- cold consume compared with hot consume, with the same records and the same client
- a producer's latency while segments are archived, compared with the latency without that
- both once more with a real S3 server that is 20 ms away and gives 100 MB/s per connection (`benchmarks.far_store`)
- requests to the store before the first byte of a cold read, and per row group after it

Prints a table, writes benchmarks/results/tiers.json. `--write-docs` puts the table into docs/PERFORMANCE.md.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from benchmarks.client import load
from benchmarks.events import event_batches
from benchmarks.far_store import BYTES_PER_S, LATENCY_S, far_store
from benchmarks.process import wait_for
from benchmarks.report import DOCS, Line, tell_lines
from benchmarks.service import TierlogServer
from cold_tier.cache import ColdReadSettings
from cold_tier.format.write import ROW_GROUP_BYTES, write_segment
from cold_tier.layout import PartitionLayout, SegmentName
from cold_tier.manifest.reader import Manifest, PageCache
from cold_tier.manifest.writer import ManifestWriter
from cold_tier.objects.bucket import Bucket
from cold_tier.objects.memory import MemoryStore
from cold_tier.reader import ColdReader
from hot_tier.log.index import UNKNOWN, Contents
from hot_tier.record.columns import iter_columns
from hot_tier.record.compression import Codec
from offloader.archive import ArchiveJob, archive_segment
from tests.support.s3 import credentials, weed

CACHE = Path(__file__).resolve().parents[1] / ".cache"
PARTITIONS = 4


def archive_speed(directory: Path, log_mb: int) -> Iterator[Line]:
    """Measures the conversion alone, in this process, so CPU seconds are those of one core."""
    raw, end = event_batches(log_mb << 20, Codec.NONE)
    lz4, _ = event_batches(log_mb << 20, Codec.LZ4)
    path = str(directory / "segment.parquet")

    def convert(log: bytes) -> int:
        chunks = iter_columns(log, chunk_bytes=ROW_GROUP_BYTES)
        return write_segment(path, chunks, 0, end, (), b"", {}, zstd_level=3).index.rows_bytes

    convert(raw)
    speeds, size = [], 0
    for _ in range(5):
        began = time.process_time()
        size = convert(raw)
        speeds.append(len(raw) / 1e6 / (time.process_time() - began))
    speed = statistics.median(speeds)
    yield Line("archive, log bytes per core", f"{speed:.0f} MB/s", speed / 200, "≥ 200 MB/s", speed >= 200)
    share = size / len(lz4)
    yield Line("bucket bytes / lz4 batches", f"{share:.1%}", share, "≤ 50 %", share <= 0.5)


async def cold_requests(directory: Path) -> list[Line]:
    """Counts requests, without times: one partition of two archived segments in memory, read from its middle."""
    store = Bucket(MemoryStore())
    layout = PartitionLayout("events", uuid4(), 0)  # type: ignore[arg-type]
    writer = await ManifestWriter.open(store, layout, 0, 0, 0)  # type: ignore[arg-type]
    log, end = event_batches(100 << 20, Codec.NONE)
    path = directory / "source.log"
    path.write_bytes(log)
    contents = Contents(0, end, len(log), dense=True, batches=UNKNOWN, header_digest=0)
    job = ArchiveJob(layout, SegmentName(0, 0, uuid4().hex), str(path), contents, 0, (), b"", 0, 0, 3)  # type: ignore[arg-type]
    await writer.append([await archive_segment(store, job, str(directory))], 0)
    reader = ColdReader(store, ColdReadSettings(read_ahead=0))
    manifest = Manifest(writer.current, PageCache(store))
    before = store.counters.gets
    await reader.read(manifest, end // 2, 1 << 20)  # type: ignore[arg-type]
    first = store.counters.gets - before
    segment = writer.current.tail[0]
    groups = (await reader.open_segment(layout, segment)).index.row_groups
    before = store.counters.gets
    for group in groups:
        await reader.read(manifest, group.first_offset, 1 << 20)
    each = (store.counters.gets - before) / (len(groups) - 1)
    await reader.close()
    return [
        Line("requests before the first cold byte", f"{first}", first / 3, "≤ 3", first <= 3),
        Line("requests per row group after it", f"{each:g}", each, "1", each <= 1),
    ]


@dataclass(frozen=True, slots=True)
class Place:
    """A bucket, as a broker is told of it."""

    said: str
    """What is added to the lines of the table."""
    arguments: Sequence[str]
    environment: Mapping[str, str]


@contextmanager
def on_this_disk(directory: Path) -> Iterator[Place]:
    yield Place("", ["--bucket", f"file://{directory}/bucket"], {})


@contextmanager
def far_away(directory: Path) -> Iterator[Place]:
    with weed(directory / "s3") as server, far_store(server.endpoint) as endpoint:
        arguments = ["--bucket", f"s3://{server.new_bucket()}", "--s3-endpoint", endpoint]
        said = f", S3 {LATENCY_S * 1000:.0f} ms away with {BYTES_PER_S / 1e6:.0f} MB/s per connection"
        yield Place(said, arguments, credentials())


def consume_both(directory: Path, place: Place, log_mb: int) -> Iterator[Line]:
    records, record_bytes = directory / "records", 1000
    records.write_bytes(event_file(record_bytes))
    settings = [
        "--set",
        "archive.check_ms=200",
        "--set",
        "log.retention_check_ms=200",
        "--set",
        "log.free_check_ms=200",
    ]
    (directory / "broker").mkdir()
    broker = TierlogServer(directory / "broker", arguments=[*settings, *place.arguments], settings=place.environment)
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": "0"})
        config = {"flush": "os", "retention.ms": "-1", "segment.bytes": str(64 << 20), "local.retention.ms": "-1"}
        count = (log_mb << 20) // record_bytes

        def make(name: str, archived: bool) -> None:
            chosen = {**config, "remote.storage.enable": str(archived).lower()}
            admin.create_topics([NewTopic(name, PARTITIONS, 1, config=chosen)])[name].result(30)

        def fill(name: str) -> None:
            client = {"acks": "1", "compression.type": "none", "batch.size": str(256 << 10), "linger.ms": "5"}
            client["batch.num.messages"] = "1000000"
            load.produce(broker.bootstrap, name, PARTITIONS, records, record_bytes, client, count=count)

        make("hot", archived=False)
        fill("hot")
        make("cold", archived=True)
        fill("cold")
        logs = broker.data_dir / "logs"
        sealed = lambda: len(list(logs.glob("cold.*/*/*.index")))  # noqa: E731
        assert sealed() > 0, "too little log for this benchmark"
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

        entry = ConfigEntry("local.retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "cold", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)
        wait_for(lambda: sealed() == 0, "local segments to be archived and to go", 300, interval_s=0.5)

        def speed(name: str) -> float:
            return load.consume(broker.bootstrap, name, PARTITIONS, count, {}).mb_per_s

        hot, cold = [], []
        for _ in range(3):
            hot.append(speed("hot"))
            cold.append(speed("cold"))
        first, again = cold[0], statistics.median(cold[1:])
        middle = statistics.median(hot)
        yield Line(f"hot consume{place.said}", f"{middle:.0f} MB/s", 1.0, "–", True)
        for what, reached in (("first time", first), ("again", again)):
            share = reached / middle
            yield Line(f"cold consume, {what}{place.said}", f"{reached:.0f} MB/s", share, "≥ 0.9 × hot", share >= 0.9)
        yield from latency_while_archiving(broker, place, make, fill)
    finally:
        broker.stop()


def latency_while_archiving(
    broker: TierlogServer, place: Place, make: Callable[[str, bool], None], fill: Callable[[str], None]
) -> Iterator[Line]:
    settings = {"producer:acks": "all", "producer:linger.ms": "0"}
    make("quiet", False)

    def p99() -> float:
        return load.latency(broker.bootstrap, "quiet", PARTITIONS, 1000, 2000, 5, settings).p99_ms

    p99()
    without, during = [], []
    # The same bytes are written before each sample, so that the disk has as much to write back in both cases.
    for number in range(3):
        for kind, archived, samples in (("plain", False, without), ("busy", True, during)):
            make(f"{kind}{number}", archived)
            fill(f"{kind}{number}")
            samples.append(p99())
    alone = statistics.median(without)
    middle = statistics.median(during)
    shown = f"{middle:.2f} ms, {alone:.2f} ms without"
    what = f"producer p99 while archiving{place.said}"
    yield Line(what, shown, middle / alone, "≤ 1.5 ×", middle <= 1.5 * alone)


def event_file(record_bytes: int) -> bytes:
    """Writes records of one length, cut from realistic events, for the load generator."""
    log, _ = event_batches(8 << 20, Codec.NONE)
    return log[61 : 61 + (len(log) - 61) // record_bytes * record_bytes]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tiers", description=__doc__)
    parser.add_argument("--mb", type=int, default=1000, help="how much log to consume from each tier")
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/PERFORMANCE.md")
    choice = parser.parse_args()
    console = Console()
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tiers-", dir=CACHE) as name:
        directory = Path(name)
        lines = [*archive_speed(directory, 128), *asyncio.run(cold_requests(directory))]
        for distance in (on_this_disk, far_away):
            (own := directory / distance.__name__).mkdir()
            with distance(own) as place:
                lines += consume_both(own, place, choice.mb)
    facts = f"{choice.mb} MB of log, {os.cpu_count()} cores."
    tell_lines("tiers", "The cold tier", facts, lines, console, DOCS if choice.write_docs else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m benchmarks.transactions`: compares transactions of tierlog with those of Apache Kafka, as ratios.

One broker each, the same client (librdkafka, one producer, one transaction after the other) and the same topics: how
many records a second, and how long a commit takes. Then a produce without transactions on the same two brokers. Both
leave syncing to the kernel, then both sync before they answer, then each does as it does by default: of its own
records, and of the decisions of its coordinator in `__transaction_state`. Prints a table, writes
benchmarks/results/transactions.json. Takes about five minutes, `--quick` one.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from rich.console import Console

from benchmarks import limits
from benchmarks.client import load
from benchmarks.peer.jars import CACHE, jars_dir, java
from benchmarks.peer.kafka import KafkaServer
from benchmarks.process import BrokerProcess
from benchmarks.records import write_records
from benchmarks.report import RESULTS, compared
from benchmarks.results import Results, describe_machine, describe_versions
from benchmarks.run import KAFKA_SETTINGS, OthersCpu
from benchmarks.service import TierlogServer
from benchmarks.workloads import FLUSH, Flush, Produce, Target

RECORD_BYTES = 100
GROUPS: dict[Flush, str] = {
    "os": "transactions",
    "commit": "transactions, synced",
    "default": "transactions, tierlog synced and Kafka not",
}
DECISIONS = "__transaction_state"


class Job(NamedTuple):
    per_transaction: int
    flush: Flush

    def __str__(self) -> str:
        return f"{self.per_transaction:,} records of {RECORD_BYTES} B"


JOBS = (
    Job(1, "os"),
    Job(100, "os"),
    Job(10_000, "os"),
    Job(100, "commit"),
    Job(10_000, "commit"),
    Job(100, "default"),
)
WITHOUT = Produce(RECORD_BYTES, "all", "none", 64 << 10)


def measure(quick: bool, console: Console) -> Results:
    java()
    jars_dir()
    load.build()
    RESULTS.mkdir(exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE.parent) as name:
        directory = Path(name)
        results = Results(describe_machine(directory), describe_versions(), limits.measure(directory), quick)
        records = {RECORD_BYTES: write_records(directory / "records", RECORD_BYTES)}
        homes = [directory / name for name in ("tierlog", "kafka")]
        for home in homes:
            home.mkdir()
        brokers: list[BrokerProcess] = [TierlogServer(homes[0]), KafkaServer(homes[1], KAFKA_SETTINGS)]
        try:
            console.print("[cyan]▸[/] starting tierlog and Apache Kafka, warming both up")
            for broker in brokers:
                broker.start()
            noise = OthersCpu(brokers)
            targets = [Target(broker, records) for broker in brokers]
            seconds, repeats = (2.0, 2) if quick else (6.0, 3)
            for target in targets:
                make_decisions(target)
                target.warm_up(1.0 if quick else 10.0)
                for job in JOBS:
                    transactions(target, job, 1.0 if quick else 4.0)
            for job in JOBS:
                console.print(f"[cyan]▸[/] {GROUPS[job.flush]}: {job}")
                for turn in range(repeats):
                    for target in targets if turn % 2 == 0 else reversed(targets):
                        for unit, value in transactions(target, job, seconds).items():
                            row = results.row(GROUPS[job.flush], str(job), unit)
                            getattr(row, target.name).append(value)
                results.write(RESULTS / "transactions.json")
            console.print("[cyan]▸[/] without transactions")
            for turn in range(repeats):
                for target in targets if turn % 2 == 0 else reversed(targets):
                    for unit, value in target.measure_produce(WITHOUT, seconds / 2).items():
                        row = results.row("without transactions", f"records of {RECORD_BYTES} B", unit)
                        getattr(row, target.name).append(value)
            results.others_cpu_share = noise.share()
        finally:
            for broker in brokers:
                broker.kill()
    results.minutes = (time.monotonic() - began) / 60
    results.write(RESULTS / "transactions.json")
    return results


def make_decisions(target: Target) -> None:
    """Begins a producer, so that the coordinator makes its topic."""
    Producer({"bootstrap.servers": target.broker.bootstrap, "transactional.id": "first"}).init_transactions(30)


def sync_decisions(target: Target, flush: Flush) -> None:
    """Makes the coordinator sync its decisions as the topic's records are synced."""
    chosen = FLUSH[target.name][flush]
    entries = [
        ConfigEntry(
            name,
            chosen.get(name),
            incremental_operation=AlterConfigOpType.SET if name in chosen else AlterConfigOpType.DELETE,
        )
        for name in {name for each in FLUSH[target.name].values() for name in each}
    ]
    resource = ConfigResource(ResourceType.TOPIC, DECISIONS, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": target.broker.bootstrap, "log_level": "0"})
    admin.incremental_alter_configs([resource])[resource].result(30)


def transactions(target: Target, job: Job, seconds: float) -> dict[str, float]:
    sync_decisions(target, job.flush)
    topic = target.make_topic(job.flush)
    settings = {"transactional.id": f"bench-{topic}", "batch.size": str(64 << 10), "linger.ms": "0"}
    cpu = target.broker.cpu_seconds()
    done, commits = load.transactions(
        target.broker.bootstrap, topic, target.partitions, RECORD_BYTES, job.per_transaction, seconds, settings
    )
    cpu = target.broker.cpu_seconds() - cpu
    target.remove_topic(topic)
    count = done.records / job.per_transaction
    return {
        "transactions/s": count / done.seconds,
        "commit p50 ms": commits.p50_ms,
        "commit p99 ms": commits.p99_ms,
        "broker CPU ms": 1000 * cpu / count,
    }


if __name__ == "__main__":
    sys.exit(compared("transactions", __doc__ or "", "shorter, and a JVM that is hardly warm", measure))

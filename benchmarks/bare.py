"""Jobs in which the broker is the limit: their client (`benchmarks/client/raw.c`) costs next to no CPU.

- One record in each request, on many connections.
- One reader, and many readers of one topic, each of which reads all of it.
- Reading what is on the disk and not in memory. Latency is measured meanwhile too: producers must not feel it.
- Latency at shares of the highest rate. That is the number of requests per second which the slower of the two brokers
  can answer, so that both get the same load.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.client import load
from benchmarks.records import write_batch
from benchmarks.workloads import Figures, Flush, Produce, Target, throughput_figures

RECORD_BYTES = 1000
FILLING = Produce(RECORD_BYTES, "all", "none", 64 << 10)
FIRST_RECORDS = 5000
"""So many, sent by a client that tries again, reach every partition: after that all of them have leaders."""
RATE_CONNECTIONS = 16
BESIDE_RATE = 500


@dataclass(frozen=True, slots=True)
class BarePlan:
    connections: int
    """For the job with one record in each request."""
    readers: int
    fan_out_records: int
    disk_records: int
    """For the topic that one reader reads, from memory and from the disk."""
    rate_shares: tuple[float, ...]
    flushes: tuple[Flush, ...]
    """The latency is measured with each."""
    seconds: float
    repeats: int


def measure(plan: BarePlan, targets: list[Target], directory: Path, sample: Callable[..., None]) -> None:
    """`sample(group, job, function of a target, repeats)` notes figures of both brokers in turns."""
    batch = write_batch(directory / "batch-100", 100)
    job = f"100 B, acks=1, {plan.connections:,} connections"
    sample(
        "one record per request", job, lambda t: _small_records(t, batch, plan.connections, plan.seconds), plan.repeats
    )
    with filled(targets, plan.fan_out_records) as topics:
        name = f"{RECORD_BYTES} B, none, {plan.readers} readers"
        sample("fan-out", name, lambda t: _fetch(t, topics[t], plan.readers, plan.fan_out_records), plan.repeats)
    with filled(targets, plan.disk_records) as topics:
        name = f"{RECORD_BYTES} B, none"
        sample("consume, bare client", name, lambda t: _fetch(t, topics[t], 1, plan.disk_records), plan.repeats)
        sample("consume from disk", name, lambda t: _fetch_cold(t, topics[t], plan.disk_records), plan.repeats)
        sample("latency beside reads from disk", name, lambda t: _beside_reads(t, topics[t], plan), plan.repeats)
    _latencies(plan, targets, directory, sample)


def _latencies(plan: BarePlan, targets: list[Target], directory: Path, sample: Callable[..., None]) -> None:
    batch = write_batch(directory / "batch-1000", RECORD_BYTES)
    for flush in plan.flushes:
        highest = min(_highest_rate(target, batch, flush, plan.seconds) for target in targets)
        for share in plan.rate_shares:
            rate = int(highest * share)
            sample(
                "latency by load" if flush == "os" else "latency by load, synced",
                f"{RECORD_BYTES} B, acks=all, {rate}/s, {share:.0%} of the highest rate",
                lambda t, rate=rate, flush=flush: t.measure_latency(flush, rate, plan.seconds),
                plan.repeats,
            )


@contextmanager
def filled(targets: list[Target], records: int) -> Iterator[dict[Target, str]]:
    topics = {target: target.make_topic("os") for target in targets}
    for target, topic in topics.items():
        target.produce(topic, FILLING, count=records)
    try:
        yield topics
    finally:
        for target, topic in topics.items():
            target.remove_topic(topic)


def _small_records(target: Target, batch: Path, connections: int, seconds: float) -> Figures:
    with filled([target], FIRST_RECORDS) as topics:
        cpu = target.broker.cpu_seconds()
        done = load.raw_produce(target.broker.bootstrap, topics[target], target.partitions, connections, batch, seconds)
        cpu = target.broker.cpu_seconds() - cpu
    return {
        "k requests/s": done.requests / done.seconds / 1000,
        "broker CPU of a request, µs": cpu / done.requests * 1e6,
        "p99 ms": done.latency.p99_ms,
    }


def _highest_rate(target: Target, batch: Path, flush: Flush, seconds: float) -> float:
    topic = target.make_topic(flush)
    target.produce(topic, FILLING, count=FIRST_RECORDS)
    done = load.raw_produce(target.broker.bootstrap, topic, target.partitions, RATE_CONNECTIONS, batch, seconds)
    target.remove_topic(topic)
    return done.requests / done.seconds


def _fetch(target: Target, topic: str, readers: int, records: int) -> Figures:
    cpu = target.broker.cpu_seconds()
    done = load.raw_fetch(target.broker.bootstrap, topic, target.partitions, readers, records * RECORD_BYTES)
    return throughput_figures(done, target.broker.cpu_seconds() - cpu)


def _fetch_cold(target: Target, topic: str, records: int) -> Figures:
    drop_cached(target.broker.directory, topic)
    return _fetch(target, topic, 1, records)


def _beside_reads(target: Target, topic: str, plan: BarePlan) -> Figures:
    """Returns the latency of another topic while this one is read from the disk again and again."""
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            _fetch_cold(target, topic, plan.disk_records)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        return target.measure_latency("os", BESIDE_RATE, plan.seconds)
    finally:
        over.set()
        reader.join()


def drop_cached(directory: Path, topic: str) -> None:
    """Takes the topic's files out of the page cache."""
    os.sync()
    for folder, _, names in os.walk(directory):
        if topic in folder:
            for name in names:
                fd = os.open(os.path.join(folder, name), os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)

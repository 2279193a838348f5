"""`python -m benchmarks.small`: what a small batch and a small fetch cost a broker, tierlog beside Apache Kafka.

Thousands of clients that each send and receive little: a batch of two records of 1 KB in a request of its own, and a
consumer of each partition that waits for records and gets that batch. Each broker works at its own default: tierlog
syncs before the answer, Kafka does not. CPU is counted with and without consumers; the difference is what fetches cost.
Prints a table, writes benchmarks/results/small.json. Takes about five minutes.
"""

import argparse
import asyncio
import itertools
import random
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from benchmarks import limits
from benchmarks.peer.jars import CACHE, PeerUnavailable, jars_dir, java
from benchmarks.peer.kafka import KafkaServer
from benchmarks.process import BrokerFailed, BrokerProcess
from benchmarks.report import DOCS, RESULTS, print_table, write_docs
from benchmarks.results import Results, describe_machine, describe_versions
from benchmarks.run import KAFKA_SETTINGS, OthersCpu
from benchmarks.service import TierlogServer
from benchmarks.workloads import Target
from gateway.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gateway.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from hot_tier.record.columns import NewRecord, encode_records
from tests.gateway.kafka.wire import Wire

FIGURES = "<!-- figures: written by python -m benchmarks.small --write-docs -->"
PRODUCE, FETCH = "small batches", "small fetches"
JOB = "2 records of 1000 B"
PARTITIONS = 100
PRODUCERS = 50
RATE = 1000
"""Batches per second over all partitions."""
SECONDS, WARM_UP_S, REPEATS = 5.0, 15.0, 5
PRODUCE_VERSION, FETCH_VERSION = 7, 11
WAIT_MS = 500
NOT_LED_YET = (3, 6)
"""UNKNOWN_TOPIC_OR_PARTITION and NOT_LEADER_OR_FOLLOWER: a topic that was just made."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small", description=__doc__)
    parser.add_argument("--write-docs", action="store_true", help="put the figures into docs/PERFORMANCE.md")
    parser.add_argument("--from", dest="given", type=Path, help="show the results of an earlier run instead")
    choice = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=120)
    try:
        results = Results.read(choice.given) if choice.given else measure(console)
    except (PeerUnavailable, BrokerFailed, TimeoutError) as error:
        console.print(f"[bold red]The benchmark cannot go on:[/] {escape(str(error))}")
        return 1
    print_table(results, console)
    if choice.write_docs:
        write_docs(results, DOCS, FIGURES)
        console.print(f"figures in {DOCS}")
    return 0


def measure(console: Console) -> Results:
    java()
    jars_dir()
    RESULTS.mkdir(exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE.parent) as name:
        directory = Path(name)
        results = Results(describe_machine(directory), describe_versions(), limits.measure(directory), quick=False)
        brokers: list[BrokerProcess] = [
            TierlogServer(_made(directory / "tierlog")),
            KafkaServer(_made(directory / "kafka"), KAFKA_SETTINGS),
        ]
        try:
            for broker in brokers:
                broker.start()
            noise = OthersCpu(brokers)
            targets = [Target(broker, {}) for broker in brokers]
            for target in targets:
                target.partitions = PARTITIONS
                console.print(f"[cyan]▸[/] warming up {target.name}")
                costs(target, WARM_UP_S)
            for turn in range(REPEATS):
                console.print(f"[cyan]▸[/] turn {turn + 1} of {REPEATS}")
                for target in targets if turn % 2 == 0 else reversed(targets):
                    for group, seconds in costs(target, SECONDS).items():
                        getattr(results.row(group, JOB, "broker CPU µs"), target.name).append(1e6 * seconds)
            results.others_cpu_share = noise.share()
        finally:
            for broker in brokers:
                broker.kill()
    results.minutes = (time.monotonic() - began) / 60
    results.write(RESULTS / "small.json")
    return results


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def costs(target: Target, seconds: float) -> dict[str, float]:
    """Returns CPU seconds of a batch, and of a fetch that brings it. Batches alone are measured before and after."""
    topic = target.make_topic("default")
    loads = [Load(target.broker, topic) for _ in range(3)]
    both = loads[1]
    used = [
        asyncio.run(load.run(seconds, consumers=PARTITIONS if load is both else 0)) / load.batches for load in loads
    ]
    target.remove_topic(topic)
    batch_s = (used[0] + used[2]) / 2
    return {PRODUCE: batch_s, FETCH: (used[1] - batch_s) * both.batches / both.fetches}


class Load:
    """Producers that send at random times to partitions of their own, and a consumer at the end of each partition."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self._broker, self._topic = broker, topic
        self._records = encode_records([NewRecord(time.time_ns() // 1_000_000, None, bytes(1000)) for _ in range(2)])
        self.batches = self.fetches = 0

    async def run(self, seconds: float, *, consumers: int) -> float:
        """Returns CPU seconds of the broker, from the time when all are connected."""
        self._end = asyncio.Event()
        ready = asyncio.Barrier(PRODUCERS + consumers + 1)
        async with asyncio.TaskGroup() as group:
            for number in range(PRODUCERS):
                group.create_task(self._produce(range(number, PARTITIONS, PRODUCERS), ready))
            for partition in range(consumers):
                group.create_task(self._consume(partition, ready))
            await ready.wait()
            before = self._broker.cpu_seconds()
            await asyncio.sleep(seconds)
            used = self._broker.cpu_seconds() - before
            self._end.set()
        return used

    async def _produce(self, partitions: range, ready: asyncio.Barrier) -> None:
        async with Wire(self._broker.host, self._broker.port) as wire:
            for partition in partitions:
                await self._produced(wire, partition)
            await ready.wait()
            due, gaps = time.monotonic(), random.Random(partitions.start)
            for partition in itertools.cycle(partitions):
                due += gaps.expovariate(RATE / PRODUCERS)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await self._produced(wire, partition)
                if self._end.is_set():
                    return
                self.batches += 1

    async def _produced(self, wire: Wire, partition: int) -> None:
        data = TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(partition, self._records)])
        while True:
            answer = await wire.ask(ProduceRequest(None, -1, 10_000, [data]), PRODUCE_VERSION)
            (response,) = answer.responses[0].partition_responses
            if response.error_code == 0:
                return
            assert response.error_code in NOT_LED_YET, response
            await asyncio.sleep(0.1)

    async def _consume(self, partition: int, ready: asyncio.Barrier) -> None:
        async with Wire(self._broker.host, self._broker.port) as wire:
            offset = await self._fetched_until(wire, partition, 0)
            await ready.wait()
            while not self._end.is_set():
                reached = await self._fetched_until(wire, partition, offset)
                self.fetches += reached > offset
                offset = reached

    async def _fetched_until(self, wire: Wire, partition: int, offset: int) -> int:
        """Returns the offset after the last record. One answer holds all that is there."""
        asked = FetchTopic(
            topic=self._topic, partitions=[FetchPartition(partition, fetch_offset=offset, partition_max_bytes=64 << 20)]
        )
        request = FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=64 << 20, topics=[asked])
        answer = await wire.ask(request, FETCH_VERSION)
        (found,) = answer.responses[0].partitions
        assert found.error_code == 0, found
        return int(found.high_watermark) if found.records else offset


if __name__ == "__main__":
    sys.exit(main())

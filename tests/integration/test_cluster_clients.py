"""A rolling restart under load: clients with their default settings see no error, lose nothing and get nothing twice.

Each broker in turn is stopped (SIGTERM) and started again, and leadership goes back to where it was: every partition
moves several times. The producers are idempotent, the consumers commit as members of a group.
"""

import asyncio
import json
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import confluent_kafka as ck
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.clusters import TierlogCluster
from benchmarks.peer.jars import PeerUnavailable, jars_dir, java
from benchmarks.peer.tools import QUICK_START, QUIET
from benchmarks.process import wait_for

pytestmark = [
    pytest.mark.skipif(shutil.which("etcd") is None, reason="no etcd on PATH"),
    pytest.mark.timeout(240),
]

PARTITIONS = 6
REPLICAS = 3
QUICK = ("groups.initial_rebalance_delay_ms=0", "groups.offsets_topic_partitions=4")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TierlogCluster]:
    made = TierlogCluster(tmp_path / "cluster", settings=QUICK)
    try:
        yield made.start()
    finally:
        made.kill()


class Pair:
    """A producer and a consumer of one topic. `errors` is what their user would have been told."""

    def __init__(self, bootstrap: str, topic: str, login: Mapping[str, str] | None = None) -> None:
        """`login` are settings of librdkafka."""
        self.bootstrap, self.topic, self.login = bootstrap, topic, login or {}
        self.sent: list[str] = []
        self.read: list[str] = []
        self.errors: list[str] = []
        self.stopping = threading.Event()
        self._threads = [threading.Thread(target=self._guarded, args=(work,)) for work in (self.produce, self.consume)]

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.errors.append(f"{work.__name__}: {error!r}")

    def produce(self) -> None:
        raise NotImplementedError

    def consume(self) -> None:
        """Until it was told to stop and has read all that was sent."""
        raise NotImplementedError

    def start(self) -> None:
        for thread in self._threads:
            thread.start()
        wait_for(lambda: len(self.read) > 50 or bool(self.errors), "records to flow", 60)

    def finish(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), f"hangs after {len(self.sent)} sent, {len(self.read)} read, {self.errors}"
        assert self.errors == []
        assert len(self.sent) > 100
        assert set(self.sent) - set(self.read) == set()
        # Read again after a rebalance is what a group may do; in the log itself each is once.
        counts = Counter(whole_log(self.bootstrap, self.topic, self.login))
        assert not [value for value, count in counts.items() if count > 1]

    def done(self) -> bool:
        return self.stopping.is_set() and not self._threads[0].is_alive() and set(self.sent) <= set(self.read)


class Confluent(Pair):
    def produce(self) -> None:
        producer = ck.Producer(
            {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0, **self.login}
        )

        def report(error: ck.KafkaError | None, message: ck.Message) -> None:
            if error is not None:
                self.errors.append(f"delivery: {error}")
            else:
                self.sent.append(message.value().decode())

        number = 0
        while not self.stopping.is_set():
            producer.produce(self.topic, f"c{number}", partition=number % PARTITIONS, on_delivery=report)
            producer.poll(0.005)
            number += 1
        assert producer.flush(30) == 0

    def consume(self) -> None:
        settings = {"group.id": "confluent", "auto.offset.reset": "earliest", "log_level": 0}
        consumer = ck.Consumer({"bootstrap.servers": self.bootstrap, **settings, **self.login})
        consumer.subscribe([self.topic])
        committed = time.monotonic()
        while not self.done():
            for message in consumer.consume(100, 0.1):
                if message.error() is not None:
                    self.errors.append(f"consume: {message.error()}")
                else:
                    self.read.append(message.value().decode())
            if self.read and time.monotonic() - committed > 0.5:
                try:
                    consumer.commit(asynchronous=False)
                except ck.KafkaException as error:
                    # Nothing was read since the last commit.
                    if error.args[0].code() != ck.KafkaError._NO_OFFSET:
                        raise
                committed = time.monotonic()
        consumer.close()


class Aiokafka(Pair):
    def produce(self) -> None:
        async def work() -> None:
            async with AIOKafkaProducer(bootstrap_servers=self.bootstrap, enable_idempotence=True) as producer:
                number = 0
                while not self.stopping.is_set():
                    value = f"a{number}"
                    await producer.send_and_wait(self.topic, value.encode(), partition=number % PARTITIONS)
                    self.sent.append(value)
                    await asyncio.sleep(0.005)
                    number += 1

        asyncio.run(work())

    def consume(self) -> None:
        async def work() -> None:
            settings = {"group_id": "aiokafka", "auto_offset_reset": "earliest", "enable_auto_commit": False}
            async with AIOKafkaConsumer(self.topic, bootstrap_servers=self.bootstrap, **settings) as consumer:
                committed = time.monotonic()
                while not self.done():
                    for messages in (await consumer.getmany(timeout_ms=100)).values():
                        self.read += [message.value.decode() for message in messages]
                    if self.read and time.monotonic() - committed > 0.5:
                        await consumer.commit()
                        committed = time.monotonic()

        asyncio.run(work())


class Java(Pair):
    """Kafka's own verifiable producer and consumer, which print a line of JSON for everything that happens to them."""

    def _lines(self, until: Callable[[], bool], name: str, *arguments: str) -> Iterator[dict]:
        """What the tool tells, until it is told to end because `until` holds."""
        command = [java(), *QUICK_START, QUIET, "-cp", f"{jars_dir()}/*", f"org.apache.kafka.tools.{name}"]
        options = ("--bootstrap-server", self.bootstrap, "--topic", self.topic)
        with (
            subprocess.Popen([*command, *options, *arguments], stdout=subprocess.PIPE, text=True) as process,
            ThreadPoolExecutor(1) as pool,
        ):

            def end() -> None:
                while process.poll() is None and not until():
                    time.sleep(0.05)
                process.terminate()

            pool.submit(end)
            assert process.stdout is not None
            yield from (json.loads(line) for line in process.stdout if line.startswith("{"))

    def produce(self) -> None:
        # The tool turns retries off; a Java producer has them on.
        with tempfile.NamedTemporaryFile("w", suffix=".properties") as properties:
            properties.write("retries=2147483647\n")
            properties.flush()
            limits = ("--throughput", "200", "--acks", "-1", "--command-config", properties.name)
            for event in self._lines(self.stopping.is_set, "VerifiableProducer", *limits):
                if event["name"] == "producer_send_success":
                    self.sent.append(event["value"])
                elif event["name"] == "producer_send_error":
                    self.errors.append(f"delivery: {event}")

    def consume(self) -> None:
        group = ("--group-id", "java", "--reset-policy", "earliest", "--verbose")
        for event in self._lines(self.done, "VerifiableConsumer", *group):
            if event["name"] == "record_data":
                self.read.append(event["value"])
            elif event.get("success") is False:
                self.errors.append(f"commit: {event}")


def whole_log(bootstrap: str, topic: str, login: Mapping[str, str]) -> list[str]:
    settings = {"group.id": "whole", "enable.partition.eof": True, "auto.offset.reset": "error", "log_level": 0}
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, **settings, **login})
    consumer.assign([ck.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[str] = []
    ended: set[int] = set()
    deadline = time.monotonic() + 60
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"only partitions {ended} could be read to the end"
        for message in consumer.consume(500, 0.5):
            if message.error() is None:
                found.append(message.value().decode())
            elif message.error().code() == ck.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return found


def make_topic(admin: AdminClient, name: str) -> None:
    config = {"min.insync.replicas": "2"}
    admin.create_topics([NewTopic(name, PARTITIONS, REPLICAS, config=config)])[name].result(30)
    wait_until_whole(admin)


def wait_until_whole(admin: AdminClient) -> None:
    """Every replica of every partition in sync: only then may the next broker be stopped."""

    def whole() -> bool:
        try:
            topics = admin.list_topics(timeout=5).topics.values()
        except ck.KafkaException:
            return False
        partitions = [partition for topic in topics for partition in topic.partitions.values()]
        return bool(partitions) and all(len(p.isrs) == len(p.replicas) and p.leader in p.isrs for p in partitions)

    wait_for(whole, "every replica to be in sync", 60, interval_s=0.1)


def restart_one_after_the_other(cluster: TierlogCluster, admin: AdminClient) -> None:
    for broker in cluster.brokers.values():
        broker.stop()
        broker.start()
        wait_until_whole(admin)
    topics = admin.list_topics(timeout=10).topics
    everything = [ck.TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
    admin.elect_leaders(ck.ElectionType.PREFERRED, everything).result(30)


def roll(cluster: TierlogCluster, *kinds: type[Pair]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    pairs = []
    for kind in kinds:
        make_topic(admin, kind.__name__)
        pairs.append(kind(cluster.bootstrap, kind.__name__))
    try:
        for pair in pairs:
            pair.start()
        restart_one_after_the_other(cluster, admin)
    finally:
        for pair in pairs:
            pair.stopping.set()
    for pair in pairs:
        pair.finish()


def test_confluent_kafka_and_aiokafka_see_no_error(cluster):
    roll(cluster, Confluent, Aiokafka)


@pytest.mark.java
def test_the_java_client_sees_no_error(cluster):
    try:
        jars_dir()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    roll(cluster, Java)

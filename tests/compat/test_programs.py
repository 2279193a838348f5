"""Programs that people run beside Kafka, unmodified: Kafka Streams, Connect, MirrorMaker 2 and Flink."""

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from benchmarks.peer.jars import PeerUnavailable, jars_dir, java, programs_dir
from benchmarks.peer.kafka import KafkaServer
from benchmarks.peer.tools import QUICK_START, QUIET
from benchmarks.process import BrokerProcess, free_port, wait_for
from benchmarks.service import TierlogServer

from .conftest import TARGET

pytestmark = [pytest.mark.java, pytest.mark.timeout(180)]

PATIENCE_S = 90
"""A JVM on a busy machine takes its time."""
FLINK = Path(__file__).resolve().parents[2] / ".cache" / "flink"
"""A virtual environment of its own, as its pins do not fit ours."""

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Start]:
    """Starts a Java class with files of properties as its arguments; what it printed is shown if the test fails."""
    try:
        command = [java(), *QUICK_START, QUIET, "-cp", f"{jars_dir()}/*:{programs_dir()}/*"]
    except PeerUnavailable as error:
        pytest.skip(str(error))
    started: list[subprocess.Popen[bytes]] = []
    output = tmp_path / "output.txt"

    def start(main: str, *files: Mapping[str, str]) -> subprocess.Popen[bytes]:
        names = []
        for number, properties in enumerate(files):
            path = tmp_path / f"{number}.properties"
            path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
            names.append(str(path))
        with output.open("ab") as out:
            started.append(subprocess.Popen([*command, main, *names], stdout=out, stderr=out, cwd=tmp_path))
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        print(output.read_text()[-5000:] if output.exists() else "")


@contextmanager
def admin_of(bootstrap: str, *topics: NewTopic) -> Iterator[AdminClient]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics(list(topics)).values() if topics else ():
        made.result(30)
    yield admin


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """One that the test may kill."""
    directory = tmp_path / "broker"
    directory.mkdir()
    broker = KafkaServer(directory, heap="256M") if TARGET == "kafka" else TierlogServer(directory)
    broker.start()
    yield broker
    broker.kill()


def send(bootstrap: str, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, key=value)
    assert producer.flush(30) == 0


def read(bootstrap: str, topic: str, enough: Callable[[dict[bytes, bytes]], bool]) -> dict[bytes, bytes]:
    """The latest value of each key, as soon as it is enough."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"reads-{topic}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: dict[bytes, bytes] = {}

    def more() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found[message.key()] = message.value()
        return enough(found)

    try:
        wait_for(more, f"records in {topic}", PATIENCE_S, interval_s=0)
    finally:
        consumer.close()
    return found


def test_kafka_streams_counts_words(bootstrap: str, program: Start, tmp_path: Path):
    """Its state is in a changelog that it makes itself, and the words travel through a topic between two steps."""
    given, counted = "streams-plaintext-input", "streams-wordcount-output"
    with admin_of(bootstrap, NewTopic(given, 2), NewTopic(counted, 1, config={"cleanup.policy": "compact"})) as admin:
        send(bootstrap, given, ["a log is a log", "a record of the log"])
        program(
            "org.apache.kafka.streams.examples.wordcount.WordCountDemo",
            {"bootstrap.servers": bootstrap, "state.dir": str(tmp_path / "state"), "commit.interval.ms": "200"},
        )
        counts = read(bootstrap, counted, lambda found: sum(int.from_bytes(each) for each in found.values()) == 10)
        assert {word.decode(): int.from_bytes(count) for word, count in counts.items()} == {
            "a": 3,
            "log": 3,
            "is": 1,
            "record": 1,
            "of": 1,
            "the": 1,
        }
        made = [name for name in admin.list_topics(timeout=10).topics if name.startswith("streams-wordcount-")]
        assert len([name for name in made if name.endswith(("-changelog", "-repartition"))]) == 2


def committed_values(bootstrap: str, topic: str, enough: Callable[[list[tuple[bytes, bytes]]], bool]) -> list:
    """Keys and values in order, as soon as they are enough, and what comes in the second after that."""
    reading = {"group.id": "reads-all", "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 0, **reading})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[bytes, bytes]] = []

    def more(timeout_s: float = 1) -> bool:
        messages = consumer.consume(500, timeout_s)
        found.extend((message.key(), message.value()) for message in messages if message.error() is None)
        return enough(found)

    try:
        wait_for(more, f"records in {topic}", PATIENCE_S, interval_s=0)
        more(1.0)
    finally:
        consumer.close()
    return found


def test_kafka_streams_counts_exactly_once_while_the_broker_is_killed(
    own_broker: BrokerProcess, program: Start, tmp_path: Path
):
    """Each count goes up by what was sent, never by what was sent and read again."""
    given, counted, rounds = "streams-plaintext-input", "streams-wordcount-output", 4
    bootstrap = own_broker.bootstrap
    with admin_of(bootstrap, NewTopic(given, 2), NewTopic(counted, 1)):
        program(
            "org.apache.kafka.streams.examples.wordcount.WordCountDemo",
            {
                "bootstrap.servers": bootstrap,
                "state.dir": str(tmp_path / "state"),
                "commit.interval.ms": "100",
                "processing.guarantee": "exactly_once_v2",
            },
        )
        words = [f"word{number}" for number in range(10)]
        for turn in range(1, rounds + 1):
            send(bootstrap, given, [f"{word} {word}" for word in words for _ in range(20)])
            committed_values(bootstrap, counted, lambda found, turn=turn: len(found) >= turn)
            if turn < rounds:
                own_broker.kill()
                own_broker.start()
        wanted = {word.encode(): 40 * rounds for word in words}

        def all_there(found: list[tuple[bytes, bytes]]) -> bool:
            latest = {word: int.from_bytes(count) for word, count in found}
            return all(latest.get(word, 0) >= count for word, count in wanted.items())

        found = committed_values(bootstrap, counted, all_there)
    assert {word: int.from_bytes(count) for word, count in found} == wanted
    for word in wanted:
        counts = [int.from_bytes(count) for each, count in found if each == word]
        assert counts == sorted(set(counts)), f"{word!r} was counted {counts}"


def test_connect_brings_lines_exactly_once_while_all_is_killed(
    own_broker: BrokerProcess, program: Start, tmp_path: Path
):
    source, topic, port = tmp_path / "source.txt", "exact-lines", free_port()
    bootstrap = own_broker.bootstrap
    converter = "org.apache.kafka.connect.storage.StringConverter"
    internal = {
        f"{what}.storage.{key}": value
        for what in ("offset", "config", "status")
        for key, value in {"topic": f"connect-{what}", "replication.factor": "1"}.items()
    }
    worker = {
        "bootstrap.servers": bootstrap,
        "group.id": "connect-exact",
        "key.converter": converter,
        "value.converter": converter,
        "exactly.once.source.support": "enabled",
        "scheduled.rebalance.max.delay.ms": "0",
        "offset.flush.interval.ms": "200",
        "plugin.discovery": "service_load",
        "listeners": f"HTTP://127.0.0.1:{port}",
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        **internal,
    }
    connector = {
        "connector.class": "FileStreamSource",
        "tasks.max": "1",
        "file": str(source),
        "topic": topic,
        "exactly.once.support": "required",
    }
    main = "org.apache.kafka.connect.cli.ConnectDistributed"

    def accepted() -> bool:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/connectors/lines/config",
            json.dumps(connector).encode(),
            {"Content-Type": "application/json"},
            method="PUT",
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status in (200, 201)
        except OSError:
            return False

    lines = [f"line {number}" for number in range(300)]
    source.write_text("".join(f"{line}\n" for line in lines[:100]))
    with admin_of(bootstrap, NewTopic(topic, 1)):
        connect = program(main, worker)
        wait_for(accepted, "Connect to take the connector", PATIENCE_S, interval_s=0.5)
        committed_values(bootstrap, topic, lambda found: len(found) > 0)
        own_broker.kill()
        own_broker.start()
        with source.open("a") as more:
            more.writelines(f"{line}\n" for line in lines[100:200])
        connect.kill()
        connect.wait()
        program(main, worker)
        with source.open("a") as more:
            more.writelines(f"{line}\n" for line in lines[200:])
        found = committed_values(bootstrap, topic, lambda found: len(found) >= len(lines))
    assert [value.decode() for _, value in found] == lines


def test_connect_copies_a_file_through_a_topic(bootstrap: str, program: Start, tmp_path: Path):
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    lines = [f"line {number}" for number in range(100)]
    source.write_text("".join(f"{line}\n" for line in lines))
    program(
        "org.apache.kafka.connect.cli.ConnectStandalone",
        {
            "bootstrap.servers": bootstrap,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.storage.file.filename": str(tmp_path / "offsets"),
            "offset.flush.interval.ms": "500",
            "plugin.discovery": "service_load",
            "listeners": "HTTP://127.0.0.1:0",
        },
        {
            "name": "source",
            "connector.class": "FileStreamSource",
            "tasks.max": "1",
            "file": str(source),
            "topic": "connect-lines",
        },
        {
            "name": "sink",
            "connector.class": "FileStreamSink",
            "tasks.max": "1",
            "file": str(sink),
            "topics": "connect-lines",
        },
    )
    wait_for(lambda: sink.exists() and sink.read_text().splitlines() == lines, "the lines in the sink", PATIENCE_S)


class Flink:
    """A job that can be killed with all its processes, and goes on from its last checkpoint."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        jars = list(FLINK.glob("jars/*.jar"))
        if not jars:
            pytest.skip("Flink is not installed: make flink")
        self._directory = directory
        self._checkpoints = directory / "checkpoints"
        self._arguments = [bootstrap, "flink-given", "flink-made", str(jars[0]), str(self._checkpoints)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def _last_checkpoint(self) -> str:
        complete = self._checkpoints.glob("*/chk-*/_metadata")
        return max((str(path.parent) for path in complete), key=os.path.getmtime, default="")

    def start(self) -> None:
        command = [str(FLINK / "bin" / "python"), str(Path(__file__).with_name("flink_job.py"))]
        with (self._directory / "flink.txt").open("ab") as out:
            self._process = subprocess.Popen(
                [*command, *self._arguments, self._last_checkpoint],
                stdout=out,
                stderr=out,
                cwd=self._directory,
                env=os.environ | {"FLINK_LOG_DIR": str(self._directory)},
                start_new_session=True,
            )

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_flink_writes_exactly_once_while_all_is_killed(own_broker: BrokerProcess, tmp_path: Path):
    """Its sink prepares a transaction with each checkpoint; a new process commits what the killed one has prepared."""
    bootstrap = own_broker.bootstrap
    flink = Flink(tmp_path, bootstrap)
    sent: list[str] = []
    with admin_of(bootstrap, NewTopic("flink-given", 2), NewTopic("flink-made", 1)):
        flink.start()
        try:
            for turn in range(4):
                words = [f"word {turn} {number}" for number in range(500)]
                sent += words
                send(bootstrap, "flink-given", words)
                first = f"WORD {turn} ".encode()
                committed_values(
                    bootstrap, "flink-made", lambda found, first=first: any(v.startswith(first) for _, v in found)
                )
                send(bootstrap, "flink-given", more := [f"more {turn} {number}" for number in range(500)])
                sent += more
                if turn != 2:
                    own_broker.kill()
                if turn != 0:
                    flink.kill()
                if turn != 2:
                    own_broker.start()
                if turn != 0:
                    flink.start()
            found = committed_values(bootstrap, "flink-made", lambda found: len(found) >= len(sent))
        finally:
            flink.kill()
    assert sorted(value.decode() for _, value in found) == sorted(word.upper() for word in sent)


@pytest.mark.slow
def test_mirror_maker_copies_records_and_settings(bootstrap: str, program: Start, tmp_path: Path):
    """From Apache Kafka, with every topic setting that can be told from its default."""
    settings = {
        "retention.ms": "86400000",
        "segment.bytes": "2097152",
        "compression.type": "gzip",
        "compression.gzip.level": "5",
        "preallocate": "true",
    }
    directory = tmp_path / "kafka"
    directory.mkdir()
    with KafkaServer(directory, heap="256M") as kafka:
        with admin_of(kafka.bootstrap, NewTopic("orders", 2, config=settings)):
            send(kafka.bootstrap, "orders", [f"order-{number}" for number in range(50)])
        program(
            "org.apache.kafka.connect.mirror.MirrorMaker",
            {
                "clusters": "kafka, here",
                "kafka.bootstrap.servers": kafka.bootstrap,
                "here.bootstrap.servers": bootstrap,
                "kafka->here.enabled": "true",
                "kafka->here.topics": "orders",
                "here->kafka.enabled": "false",
                "replication.factor": "1",
                "offset-syncs.topic.replication.factor": "1",
                "checkpoints.topic.replication.factor": "1",
                "heartbeats.topic.replication.factor": "1",
                "offset.storage.replication.factor": "1",
                "status.storage.replication.factor": "1",
                "config.storage.replication.factor": "1",
                "offset.storage.partitions": "1",
                "status.storage.partitions": "1",
                "emit.heartbeats.enabled": "false",
                "sync.topic.configs.interval.seconds": "1",
                "refresh.topics.interval.seconds": "1",
                "scheduled.rebalance.max.delay.ms": "0",
                "plugin.discovery": "service_load",
            },
        )
        found = read(bootstrap, "kafka.orders", lambda found: len(found) == 50)
        assert all(key == value for key, value in found.items())
        with admin_of(bootstrap) as admin:
            asked = ConfigResource(ResourceType.TOPIC, "kafka.orders")

            def copied() -> bool:
                shown = admin.describe_configs([asked])[asked].result(10)
                return {name: shown[name].value for name in settings} == settings

            wait_for(copied, "the settings of the copy", PATIENCE_S, interval_s=0.5)

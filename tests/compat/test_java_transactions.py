"""Transactions of the Java client, which bumps its epoch with each, by Kafka's own programs and tools."""

import re
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from benchmarks.peer.jars import PeerUnavailable, jars_dir, java
from benchmarks.peer.tools import run_tool
from benchmarks.process import wait_for

from .clients.confluent import ConfluentClient
from .clients.face import Message, Partition

pytestmark = [pytest.mark.java, pytest.mark.timeout(180)]

Run = Callable[..., str]


@pytest.fixture
def run(bootstrap: str) -> Run:
    """Runs a tool against the broker; returns what it printed. It must succeed."""
    try:
        java()
        jars_dir()
    except PeerUnavailable as error:
        pytest.skip(str(error))

    def call(name: str, *arguments: str, server: str = "--bootstrap-server") -> str:
        result = run_tool(name, server, bootstrap, *arguments)
        assert result.code == 0, f"{name} {arguments} → {result.code}\n{result.out}\n{result.err}"
        return result.out

    return call


@pytest.fixture
def client(bootstrap: str) -> Iterator[ConfluentClient]:
    made = ConfluentClient(bootstrap)
    yield made
    made.close()


@pytest.fixture
def name(client: ConfluentClient) -> str:
    """Of a topic with one partition."""
    made = f"java-txn-{uuid4().hex[:12]}"
    client.create_topic(made, 1)
    wait_for(lambda: client.topics().get(made) == 1, f"{made} in the metadata", 15)
    return made


def test_a_copy_with_random_aborts_is_exact(run: Run, client: ConfluentClient, name: str):
    """It reads, writes and commits its offsets in transactions of ten records, and aborts some of them on the way."""
    given, made = Partition(name, 0), Partition(f"{name}-copy", 0)
    client.create_topic(made.topic, 1)
    wanted = [b"%d" % number for number in range(400)]
    client.produce(given, [Message(value) for value in wanted])
    told = run(
        "transactional-message-copier",
        *("--input-topic", given.topic, "--input-partition", "0", "--output-topic", made.topic),
        *("--transactional-id", name, "--consumer-group", name, "--max-messages", str(len(wanted))),
        *("--transaction-size", "10", "--enable-random-aborts", "--use-group-metadata"),
        server="--broker-list",
    )
    assert '"stage":"ShutdownComplete"' in told
    records = client.read(made, 0, len(wanted), isolation="read_committed")
    assert [record.value for record in records] == wanted
    assert client.group_offsets(name) == {given: len(wanted)}
    _, end = client.bounds(made)
    assert end > len(wanted) + 40, "each of 40 transactions leaves a marker"


def test_the_console_consumer_reads_what_is_committed(run: Run, client: ConfluentClient, name: str):
    partition = Partition(name, 0)
    producer = client.transactional(name)
    for number, end in enumerate((producer.abort, producer.commit, producer.abort)):
        producer.begin()
        producer.send(partition, [b"value %d" % number])
        producer.flush()
        end()
    reading = ("--topic", name, "--from-beginning", "--timeout-ms", "8000")
    committed = run("kafka-console-consumer", *reading, "--max-messages", "1", "--isolation-level", "read_committed")
    assert committed.split("\n")[0] == "value 1"
    everything = run("kafka-console-consumer", *reading, "--max-messages", "3")
    assert everything.split("\n")[:3] == ["value 0", "value 1", "value 2"]


def test_the_performance_tool_with_transactions(run: Run, client: ConfluentClient, name: str):
    out = run(
        "kafka-producer-perf-test",
        *("--topic", name, "--num-records", "20000", "--record-size", "200", "--throughput", "-1"),
        *("--transactional-id", name, "--transaction-duration-ms", "100"),
    )
    assert re.search(r"^20000 records sent, .*99\.9th\.$", out, re.MULTILINE), out
    assert client.read(Partition(name, 0), 0, 1, isolation="read_committed")


def test_the_transactions_tool_lists_describes_and_aborts(run: Run, client: ConfluentClient, bootstrap: str, name: str):
    partition = Partition(name, 0)
    producer = client.transactional(name)
    producer.begin()
    producer.send(partition, [b"one", b"two"])
    producer.flush()
    listed = run("kafka-transactions", "list")
    (row,) = [line.split() for line in listed.splitlines() if line.startswith(name)]
    assert row[-1] == "Ongoing"
    described = run("kafka-transactions", "describe", "--transactional-id", name).splitlines()
    assert f"{name}-0" in described[1] and "Ongoing" in described[1]
    producers = run("kafka-transactions", "describe-producers", "--topic", name, "--partition", "0").splitlines()
    assert producers[1].split()[-1] == "0", "the transaction begins at offset 0"
    producer.commit()
    assert [record.value for record in client.read(partition, 0, 2, isolation="read_committed")] == [b"one", b"two"]


def test_a_hanging_transaction_is_found_and_aborted(run: Run, client: ConfluentClient, bootstrap: str, name: str):
    """One that the coordinator would still give time: the tool writes the marker by itself."""
    partition = Partition(name, 0)
    producer = client.transactional(name)
    producer.begin()
    producer.send(partition, [b"hangs"])
    producer.flush()
    plain = Producer({"bootstrap.servers": bootstrap})
    plain.produce(name, b"behind", partition=0)
    assert plain.flush(20) == 0
    run("kafka-transactions", "abort", "--topic", name, "--partition", "0", "--start-offset", "0")
    (record,) = client.read(partition, 0, 1, isolation="read_committed")
    assert record.value == b"behind"
    assert name not in run("kafka-transactions", "find-hanging", "--topic", name)

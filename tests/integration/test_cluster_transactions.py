"""Transactions while brokers die: what was committed is there once and whole, what was not is not there at all."""

import threading
import time
from collections import Counter

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from gateway.coordinators.journal.partitioning import partition_of
from gateway.coordinators.transactions.topic import TRANSACTIONS_TOPIC
from tests.support.brokers import Brokers, cluster, make_topic, partitions

TOPIC, PARTITIONS, TRANSACTIONS, NAME = "ledger", 6, 60, "accounts"


@pytest.fixture
def brokers(tmp_path):
    with cluster(tmp_path) as found:
        make_topic(found, TOPIC, partitions=PARTITIONS, replication_factor=3, config={"min.insync.replicas": "2"})
        yield found


def producer(brokers: Brokers, name: str = NAME) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 30_000,
            "linger.ms": 0,
        }
    )
    made.init_transactions(30)
    return made


def retried(call, *args) -> None:
    """Through the errors that say that the same may succeed later."""
    deadline = time.monotonic() + 40
    while True:
        try:
            call(*args)
            return
        except KafkaException as failure:
            error = failure.args[0]
            if not error.retriable() or time.monotonic() > deadline:
                raise


def coordinator(brokers: Brokers, name: str = NAME) -> int:
    up = next(node for node, process in brokers.by_node.items() if process.process is not None)
    states = partitions(brokers, TRANSACTIONS_TOPIC, through=up)
    return states[partition_of(name, len(states))]["leader"]


def committed(brokers: Brokers) -> list[str]:
    """All that a reader sees of committed transactions, to the stable end of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "group.id": f"check-{time.monotonic_ns()}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([TOPIC])
    values: list[str] = []
    ended: set[int] = set()
    deadline = time.monotonic() + 60
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"{len(values)} records, the end of {ended}"
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error():
            ended.add(message.partition())
        else:
            ended.discard(message.partition())
            values.append(message.value().decode())
    consumer.close()
    return values


def check(values: list[str], wanted: set[int]) -> None:
    seen = Counter(values)
    assert max(seen.values()) == 1, "a record is there twice"
    whole = {int(value.split("/")[0]) for value in values}
    assert len(values) == len(whole) * PARTITIONS, "a transaction is torn"
    assert whole == wanted


@pytest.mark.parametrize("victim", ["coordinator", "leader"])
def test_transactions_go_on_when_a_broker_is_killed(brokers: Brokers, victim: str) -> None:
    writing = producer(brokers)
    wanted: set[int] = set()
    node = coordinator(brokers) if victim == "coordinator" else partitions(brokers, TOPIC)[0]["leader"]
    killer = threading.Timer(0, lambda: None)
    for number in range(TRANSACTIONS):
        if number == TRANSACTIONS // 3:
            killer = threading.Timer(0.01, brokers[node].kill)
            killer.start()
        writing.begin_transaction()
        for partition in range(PARTITIONS):
            writing.produce(TOPIC, f"{number}/{partition}", partition=partition)
        if number % 4 == 3:
            retried(writing.abort_transaction, 30)
            continue
        retried(writing.commit_transaction, 30)
        wanted.add(number)
    killer.join()
    assert brokers[node].process is None
    check(committed(brokers), wanted)


def test_a_new_instance_takes_over_what_a_dead_one_left_open(brokers: Brokers) -> None:
    first = producer(brokers)
    first.begin_transaction()
    for partition in range(PARTITIONS):
        first.produce(TOPIC, f"0/{partition}", partition=partition)
    assert first.flush(30) == 0
    brokers[coordinator(brokers)].kill()
    second = producer(brokers)
    second.begin_transaction()
    for partition in range(PARTITIONS):
        second.produce(TOPIC, f"1/{partition}", partition=partition)
    retried(second.commit_transaction, 30)
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(30)
    assert fenced.value.args[0].fatal()
    check(committed(brokers), {1})


def test_time_outs_are_aborted_by_the_next_coordinator(tmp_path) -> None:
    with cluster(tmp_path, "--transactions.abort_interval_ms", "200") as brokers:
        make_topic(brokers, TOPIC, partitions=PARTITIONS, replication_factor=3)
        late = Producer(
            {"bootstrap.servers": brokers.bootstrap, "transactional.id": NAME, "transaction.timeout.ms": 1_000}
        )
        late.init_transactions(30)
        late.begin_transaction()
        late.produce(TOPIC, "0/0", partition=0)
        assert late.flush(30) == 0
        brokers[coordinator(brokers)].kill()
        other = producer(brokers, "other")
        other.begin_transaction()
        for partition in range(PARTITIONS):
            other.produce(TOPIC, f"1/{partition}", partition=partition)
        retried(other.commit_transaction, 30)
        deadline = time.monotonic() + 30
        while len(seen := committed(brokers)) < PARTITIONS:
            assert time.monotonic() < deadline, seen
        check(seen, {1})

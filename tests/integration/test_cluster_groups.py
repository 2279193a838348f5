"""Consumer groups while brokers come and go: the next broker coordinates from what the last one committed."""

import json
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from gateway.coordinators.journal.partitioning import partition_of
from gateway.coordinators.offsets_topic.topic import OFFSETS_TOPIC
from tests.support.brokers import Brokers, cluster

RECORDS = 600
PARTITIONS = 4


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory):
    with cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture
def brokers(started: Brokers) -> Brokers:
    """All of them up, and what they keep of groups in sync."""
    down = [process for process in started.by_node.values() if process.process is None]
    for process in down:
        process.start()
    if down:
        insist(check_in_sync, started[1].url)
    return started


def ask(url: str, document: Any = None) -> Any:
    data = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"} if data else {})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)


def insist(what: Callable[..., Any], *args: Any) -> Any:
    """Through the refusals of an election, which say that the same may succeed later."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return what(*args)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def coordinator(brokers: Brokers, group: str) -> int:
    """By the partition of the offsets topic that keeps the group."""
    url = next(process.url for process in brokers.by_node.values() if process.process is not None)
    states = ask(f"{url}/api/v1/topics/{OFFSETS_TOPIC}")["partitions"]
    return states[partition_of(group, len(states))]["leader"]


def write(brokers: Brokers, topic: str) -> None:
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "acks": "all", "enable.idempotence": True})
    refused = []
    for number in range(RECORDS):
        producer.produce(
            topic,
            str(number).encode(),
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: error and refused.append(error),
        )
    assert producer.flush(30) == 0 and not refused, refused


def make(brokers: Brokers, topic: str) -> None:
    document = {
        "name": topic,
        "partitions": PARTITIONS,
        "replication_factor": 3,
        "config": {"min.insync.replicas": "2"},
    }
    ask(f"{brokers[1].url}/api/v1/topics", document)


def consumer(brokers: Brokers, group: str, errors: list[KafkaError]) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 300,
            "error_cb": lambda error: errors.append(error) if error.fatal() else None,
        }
    )


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_group_goes_on_when_its_coordinator_ends(brokers: Brokers, end: str) -> None:
    topic, group = f"orders-{end}", f"billing-{end}"
    make(brokers, topic)
    write(brokers, topic)
    fatal: list[KafkaError] = []
    reading = consumer(brokers, group, fatal)
    reading.subscribe([topic])
    seen: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    committed: dict[int, int] = {}
    ended = 0
    deadline = time.monotonic() + 60
    while sum(map(len, seen.values())) < RECORDS:
        assert time.monotonic() < deadline and not fatal, (fatal, {number: len(each) for number, each in seen.items()})
        message = reading.poll(0.2)
        if message is None or message.error():
            continue
        seen[message.partition()].append(message.offset())
        if message.offset() % 10 == 9:
            commit(reading, TopicPartition(topic, message.partition(), message.offset() + 1))
            committed[message.partition()] = message.offset() + 1
        if not ended and sum(map(len, seen.values())) >= RECORDS // 3:
            ended = coordinator(brokers, group)
            getattr(brokers[ended], end)()
    for number, offsets in seen.items():
        assert offsets == list(range(RECORDS // PARTITIONS)), f"partition {number}: skipped, repeated or gone back"
    held = reading.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], timeout=20)
    assert {each.partition: each.offset for each in held} == committed
    reading.close()
    left = next(process for process in brokers.by_node.values() if process.process is not None)
    shown = insist(ask, f"{left.url}/api/v1/consumer-groups/{group}/offsets")
    assert {each["partition"]: each["offset"] for each in shown["offsets"]} == committed
    assert coordinator(brokers, group) != ended


def commit(reading: Consumer, place: TopicPartition) -> None:
    """What is retriable is tried again, as an application would; an offset that was committed stays committed."""
    deadline = time.monotonic() + 30
    while True:
        try:
            reading.commit(offsets=[place], asynchronous=False)
            return
        except Exception as failure:
            assert time.monotonic() < deadline, failure


def test_http_commits_survive_every_broker_in_turn(brokers: Brokers) -> None:
    make(brokers, "orders")
    write(brokers, "orders")
    path = "/api/v1/consumer-groups/reports/offsets"
    for turn in range(1, 4):
        wanted = {"topic": "orders", "partition": 0, "offset": turn * 10}
        insist(ask, f"{brokers[turn % 3 + 1].url}{path}", wanted)
        ended = coordinator(brokers, "reports")
        brokers[ended].kill()
        left = next(process for process in brokers.by_node.values() if process.process is not None)
        shown = insist(ask, f"{left.url}{path}")
        assert [each["offset"] for each in shown["offsets"]] == [turn * 10]
        brokers[ended].start()
        insist(check_in_sync, brokers[ended].url)


def check_in_sync(url: str) -> None:
    """All replicas of the offsets are in sync again, so that the next kill leaves somebody who has them."""
    states = ask(f"{url}/api/v1/topics/__consumer_offsets")["partitions"]
    if any(len(each["isr"]) < 3 for each in states):
        raise OSError(f"not yet: {[each['isr'] for each in states]}")

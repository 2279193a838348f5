"""Groups of real clients through restarts and kills, clients of different makes together, and Kafka's own tools."""

import asyncio
import json
import threading
import time
import uuid
from pathlib import Path

import pytest

from benchmarks.peer.jars import PeerUnavailable, jars_dir, java
from benchmarks.peer.tools import run_tool
from tests.support.service import services
from tests.support.waiting import until

DEADLINE_S = 40


def fresh(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def service(tmp_path: Path):
    with services(tmp_path) as make:
        yield make()


class Member:
    """A confluent consumer that remembers what it was given and what was taken away."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings) -> None:
        from confluent_kafka import Consumer

        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 30000,
                "heartbeat.interval.ms": 200,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                "topic.metadata.refresh.interval.ms": 1000,
                **settings,
            }
        )
        self.revoked = 0
        self.read: list[bytes] = []
        self.consumer.subscribe([topic], on_revoke=self._on_revoke, on_lost=self._on_revoke)

    def _on_revoke(self, consumer, partitions) -> None:
        self.revoked += 1

    def poll(self, timeout_s: float = 0.05) -> None:
        message = self.consumer.poll(timeout_s)
        if message is not None and message.error() is None:
            self.read.append(message.value())

    def held(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}


def poll_until(members, condition, what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        for member in members:
            member.poll()


def admin_of(bootstrap: str):
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap})


def make_topic(bootstrap: str, partitions: int) -> str:
    from confluent_kafka.admin import NewTopic

    topic, admin = fresh("topic"), admin_of(bootstrap)
    for made in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        made.result(20)
    return topic


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 2)
    assert producer.flush(30) == 0


def members_of(bootstrap: str, group: str) -> set[str]:
    admin = admin_of(bootstrap)
    (described,) = admin.describe_consumer_groups([group]).values()
    return {member.member_id for member in described.result(20).members}


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_members_go_on_through_a_restart_of_the_broker(service, how):
    group, topic = fresh("group"), make_topic(service.kafka, 2)
    members = [Member(service.kafka, group, topic) for _ in range(2)]
    try:
        poll_until(members, lambda: [len(m.held()) for m in members] == [1, 1], "two members sharing")
        produce(service.kafka, topic, [b"before-%d" % n for n in range(10)])
        poll_until(members, lambda: sum(len(m.read) for m in members) >= 10, "the first records")
        for member in members:
            member.consumer.commit(asynchronous=False)
        ids, revoked = members_of(service.kafka, group), [m.revoked for m in members]
        assert len(ids) == 2

        getattr(service, how)()
        service.start()
        produce(service.kafka, topic, [b"after-%d" % n for n in range(10)])
        poll_until(members, lambda: sum(len(m.read) for m in members) >= 20, "the records after the restart")
        assert members_of(service.kafka, group) == ids, "the same members"
        assert [m.revoked for m in members] == revoked, "nobody had to give anything up"
        for member in members:
            member.consumer.commit(asynchronous=False)
        read = [value for m in members for value in m.read]
        assert sorted(read) == sorted(b"%s-%d" % (when, n) for when in (b"before", b"after") for n in range(10))
    finally:
        for member in members:
            member.consumer.close()


def test_a_static_member_restarted_with_the_broker_keeps_its_place(service):
    group, topic = fresh("group"), make_topic(service.kafka, 2)
    names = ["one", "two"]
    members = [Member(service.kafka, group, topic, **{"group.instance.id": name}) for name in names]
    poll_until(members, lambda: [len(m.held()) for m in members] == [1, 1], "two members sharing")
    held, revoked = members[1].held(), members[0].revoked
    members[1].consumer.close()
    service.kill()
    service.start()
    members[1] = Member(service.kafka, group, topic, **{"group.instance.id": "two"})
    poll_until(members, lambda: members[1].held() == held, "its old partition coming back")
    assert members[0].revoked == revoked
    for member in members:
        member.consumer.close()


async def test_clients_of_three_makes_in_one_group(node):
    """Each has its own list of assignors; the group takes one that all know."""
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    await node.node.admin.create_topic("shared", 6)
    timing = {"session_timeout_ms": 20000, "heartbeat_interval_ms": 200}
    native = Member(node.bootstrap, "mixed", "shared", **{"partition.assignment.strategy": "roundrobin,range"})
    aio = AIOKafkaConsumer(
        "shared",
        bootstrap_servers=node.bootstrap,
        group_id="mixed",
        partition_assignment_strategy=[AioRoundRobin, AioRange],
        **timing,
    )
    await aio.start()
    python = await asyncio.to_thread(
        lambda: KafkaConsumer(
            "shared",
            bootstrap_servers=node.bootstrap,
            group_id="mixed",
            partition_assignment_strategy=[RangePartitionAssignor],
            **timing,
        )
    )

    done = threading.Event()

    held: dict[str, set[int]] = {}

    def poll_native() -> None:
        while not done.is_set():
            native.poll()
            held["native"] = native.held()

    def poll_python() -> None:
        while not done.is_set():
            python.poll(200)
            held["python"] = {each.partition for each in python.assignment()}

    async def poll_aio() -> None:
        while not done.is_set():
            await aio.getmany(timeout_ms=50)
            held["aio"] = {each.partition for each in aio.assignment()}

    # Each at its own pace: one that waits inside of a rebalance must not keep the others from joining it.
    polling = asyncio.gather(asyncio.to_thread(poll_native), asyncio.to_thread(poll_python), poll_aio())

    def shared_out() -> bool:
        return [len(each) for each in held.values()] == [2, 2, 2] and set().union(*held.values()) == set(range(6))

    try:
        await until(shared_out, DEADLINE_S)
        described = node.node.groups.describe("mixed")
        assert (described.state.value, described.protocol_name) == ("Stable", "range")
        assert len(described.members) == 3
    finally:
        done.set()
        await polling
        await asyncio.to_thread(native.consumer.close)
        await asyncio.to_thread(python.close)
        await aio.stop()


@pytest.mark.java
@pytest.mark.timeout(180)
def test_kafkas_own_tools_read_the_offsets_topic(service):
    try:
        java()
        jars_dir()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    from confluent_kafka import TopicPartition

    group, topic = fresh("group"), make_topic(service.kafka, 2)
    member = Member(service.kafka, group, topic, **{"group.instance.id": "host-1", "client.id": "app"})
    poll_until([member], lambda: len(member.held()) == 2, "the member holding all")
    member.consumer.commit(offsets=[TopicPartition(topic, 1, 7, "half way")], asynchronous=False)

    def records(formatter: str) -> list[dict]:
        result = run_tool(
            "kafka-console-consumer",
            *("--bootstrap-server", service.kafka, "--topic", "__consumer_offsets", "--from-beginning"),
            *("--timeout-ms", "8000", "--formatter", f"org.apache.kafka.tools.consumer.{formatter}"),
        )
        found, text, decoder = [], result.out, json.JSONDecoder()
        while (at := text.find("{")) >= 0:
            record, end = decoder.raw_decode(text, at)
            found.append(record)
            text = text[end:]
        return [each for each in found if each["key"]["data"]["group"] == group]

    (offset,) = records("OffsetsMessageFormatter")
    assert offset["key"] == {"type": 1, "data": {"group": group, "topic": topic, "partition": 1}}
    assert offset["value"]["version"] == 3
    assert offset["value"]["data"]["offset"] == 7
    assert offset["value"]["data"]["metadata"].rstrip("\0") == "half way"  # librdkafka's binding sends a final NUL
    stored = records("GroupMetadataMessageFormatter")[-1]["value"]["data"]
    assert (stored["protocolType"], stored["generation"]) == ("consumer", 1)
    (found,) = stored["members"]
    assert stored["leader"] == found["memberId"] == next(iter(members_of(service.kafka, group)))
    assert (found["groupInstanceId"], found["clientId"], found["sessionTimeout"]) == ("host-1", "app", 30000)
    member.consumer.close()

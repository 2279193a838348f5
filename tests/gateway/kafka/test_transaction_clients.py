"""Transactions of real clients on one broker, and Kafka's own tools over them."""

import asyncio
import json
import uuid

import pytest

from benchmarks.peer.jars import PeerUnavailable, jars_dir, java
from benchmarks.peer.tools import run_tool
from tests.support.service import services
from tests.support.waiting import until


def fresh(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with services(tmp_path_factory.mktemp("service")) as make:
        yield make()


def make_topic(bootstrap: str, partitions: int = 3) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    name = fresh("topic")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    return name


def native(bootstrap: str, name: str, **more):
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0, **more})
    producer.init_transactions(30)
    return producer


def read_native(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """All that there is to read until the end of every partition."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": fresh("group"),
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "session.timeout.ms": 10_000,
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    ended: set[int] = set()
    while len(ended) < 3:
        message = consumer.poll(20)
        assert message is not None, f"no end of every partition: {ended}"
        if message.error():
            ended.add(message.partition())
        else:
            found.append(message.value())
    consumer.close()
    return found


def test_a_native_client_commits_and_aborts(service):
    topic = make_topic(service.kafka)
    producer = native(service.kafka, fresh("tx"))
    for number in range(6):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(topic, f"{number}".encode(), partition=partition)
        assert producer.flush(30) == 0
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    assert sorted(read_native(service.kafka, topic)) == sorted([b"0", b"2", b"4"] * 3)
    assert len(read_native(service.kafka, topic, "read_uncommitted")) == 18


def test_a_native_client_is_fenced_by_the_next(service):
    from confluent_kafka import KafkaException

    topic, name = make_topic(service.kafka), fresh("tx")
    first = native(service.kafka, name)
    first.begin_transaction()
    first.produce(topic, b"lost", partition=0)
    assert first.flush(30) == 0
    second = native(service.kafka, name)
    second.begin_transaction()
    second.produce(topic, b"kept", partition=0)
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(30)
    assert fenced.value.args[0].fatal()
    second.commit_transaction(30)
    assert read_native(service.kafka, topic) == [b"kept"]


async def test_aiokafka_commits_aborts_and_is_fenced(service):
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import ProducerFenced

    topic, name = await asyncio.to_thread(make_topic, service.kafka), fresh("tx")
    first = AIOKafkaProducer(bootstrap_servers=service.kafka, transactional_id=name)
    await first.start()
    async with first.transaction():
        await asyncio.gather(*[await first.send(topic, b"kept", partition=each) for each in range(3)])
    with pytest.raises(ZeroDivisionError):
        async with first.transaction():
            await first.send_and_wait(topic, b"aborted", partition=0)
            raise ZeroDivisionError
    second = AIOKafkaProducer(bootstrap_servers=service.kafka, transactional_id=name)
    await second.start()
    with pytest.raises(ProducerFenced):
        async with first.transaction():
            await first.send_and_wait(topic, b"fenced", partition=1)
    async with second.transaction():
        await second.send_and_wait(topic, b"second", partition=1)
    await second.stop()
    await first.stop()
    assert sorted(await asyncio.to_thread(read_native, service.kafka, topic)) == [b"kept"] * 3 + [b"second"]


@pytest.fixture
def kafka_tools():
    try:
        java()
        jars_dir()
    except PeerUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.java
@pytest.mark.timeout(240)
def test_kafkas_own_tools_see_the_transactions(service, kafka_tools):
    topic, name = make_topic(service.kafka), fresh("tx")
    producer = native(service.kafka, name)
    producer.begin_transaction()
    producer.produce(topic, b"v", partition=2)
    assert producer.flush(30) == 0

    def tool(*arguments: str) -> list[dict[str, str]]:
        result = run_tool("kafka-transactions", "--bootstrap-server", service.kafka, *arguments)
        assert result.code == 0, result
        head, *rows = [line.split() for line in result.out.splitlines() if line.strip()]
        return [dict(zip(head, row, strict=False)) for row in rows]

    assert name in [row["TransactionalId"] for row in tool("list")]
    (described,) = tool("describe", "--transactional-id", name)
    assert (described["TransactionState"], described["TopicPartitions"]) == ("Ongoing", f"{topic}-2")
    (writing,) = tool("describe-producers", "--topic", topic, "--partition", "2")
    assert (writing["ProducerId"], writing["CurrentTransactionStartOffset"]) == (described["ProducerId"], "0")
    producer.commit_transaction(30)
    until_sync(lambda: tool("describe", "--transactional-id", name)[0]["TransactionState"] == "CompleteCommit")
    result = run_tool(
        "kafka-console-consumer",
        *("--bootstrap-server", service.kafka, "--topic", "__transaction_state", "--from-beginning"),
        *("--timeout-ms", "8000", "--formatter", "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"),
    )
    found, text, decoder = [], result.out, json.JSONDecoder()
    while (at := text.find("{")) >= 0:
        record, end = decoder.raw_decode(text, at)
        found.append(record)
        text = text[end:]
    mine = [each["value"] for each in found if each["key"]["data"]["transactionalId"] == name]
    assert [each["data"]["transactionStatus"] for each in mine] == [0, 1, 2, 4]
    assert {each["version"] for each in mine} == {1}
    (partitions,) = mine[1]["data"]["transactionPartitions"]
    assert (partitions["topic"], partitions["partitionIds"]) == (topic, [2])


def until_sync(condition) -> None:
    async def wait() -> None:
        await until(condition)

    asyncio.run(wait())

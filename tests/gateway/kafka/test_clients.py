"""Real clients, unmodified, against a node in this process: what they produce they consume."""

import asyncio
import time
import uuid

import pytest

COMPRESSION = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 500


def fresh(name):
    return f"{name}-{uuid.uuid4().hex[:8]}"


def expected():
    return [(b"key-%d" % number, b"value-%d" % number * (number % 20)) for number in range(COUNT)]


@pytest.mark.parametrize("compression", COMPRESSION)
def test_confluent(served, compression):
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

    topic = fresh("confluent")
    failures, offsets = [], []

    def delivered(error, message):
        if error is not None:
            failures.append(error)
        else:
            offsets.append(message.offset())

    producer = Producer(
        {
            "bootstrap.servers": served.bootstrap,
            "compression.type": compression,
            "enable.idempotence": False,
            "linger.ms": 5,
            "acks": "all",
        }
    )
    for key, value in expected():
        producer.produce(topic, value, key, headers={"h": b"1"}, on_delivery=delivered)
    assert producer.flush(20) == 0
    assert not failures
    assert sorted(offsets) == list(range(COUNT))

    consumer = Consumer(
        {"bootstrap.servers": served.bootstrap, "group.id": "g", "enable.auto.commit": False, "check.crcs": True}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found, deadline = [], time.monotonic() + 20
    while len(found) < COUNT and time.monotonic() < deadline:
        for message in consumer.consume(200, timeout=1):
            assert message.error() is None
            assert message.headers() == [("h", b"1")]
            found.append((message.key(), message.value()))
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=5)
    consumer.close()
    assert found == expected()
    assert (low, high) == (0, COUNT)


@pytest.mark.parametrize("compression", COMPRESSION)
def test_kafka_python(served, compression):
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    topic = fresh("python")
    producer = KafkaProducer(
        bootstrap_servers=served.bootstrap,
        compression_type=None if compression == "none" else compression,
        enable_idempotence=False,
        linger_ms=5,
    )
    futures = [producer.send(topic, value, key, partition=0) for key, value in expected()]
    producer.flush(20)
    assert [future.get(10).offset for future in futures] == list(range(COUNT))
    producer.close()

    consumer = KafkaConsumer(
        bootstrap_servers=served.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False, group_id=None
    )
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    found, deadline = [], time.monotonic() + 20
    while len(found) < COUNT and time.monotonic() < deadline:
        for messages in consumer.poll(1000).values():
            found += [(message.key, message.value) for message in messages]
    assert found == expected()
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: COUNT}
    consumer.close()


@pytest.mark.parametrize("compression", COMPRESSION)
async def test_aiokafka(served, compression):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    topic = fresh("aio")
    producer = AIOKafkaProducer(
        bootstrap_servers=served.bootstrap,
        compression_type=None if compression == "none" else compression,
        linger_ms=5,
        acks="all",
    )
    await producer.start()
    sent = [await producer.send(topic, value, key, partition=0) for key, value in expected()]
    assert [(await future).offset for future in sent] == list(range(COUNT))
    await producer.stop()

    consumer = AIOKafkaConsumer(bootstrap_servers=served.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    found = []
    async with asyncio.timeout(20):
        while len(found) < COUNT:
            message = await consumer.getone()
            found.append((message.key, message.value))
    assert found == expected()
    moment = int(time.time() * 1000) - 3_600_000
    assert (await consumer.offsets_for_times({partition: moment}))[partition].offset == 0
    await consumer.stop()

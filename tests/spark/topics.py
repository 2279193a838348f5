"""Archived topics for Spark to read, and the truth about them: what a Kafka consumer reads from offset 0."""

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame

from tests.integration.tiers import TIERED
from tests.support.waiting import wait_until
from tierlog.client import Client, path
from tierlog.process import ServeProcess

START_MS = 1_700_000_000_000
STEP_MS = 1000

Row = tuple[Any, ...]
"""(topic, partition, offset, timestamp ms, timestamp type, key, value, headers)"""


def create(service: ServeProcess, topic: str, partitions: int = 1, **config: str) -> None:
    named = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": service.kafka})
    admin.create_topics([NewTopic(topic, partitions, 1, config={**TIERED, **named})])[topic].result(30)


def send(service: ServeProcess, topic: str, numbers: Iterable[int], partitions: int = 1) -> None:
    """Records of every kind: without key, without value, without headers, with two headers of one name, all bytes."""
    small = {"batch.num.messages": 50, "linger.ms": 2}  # Segments end between batches.
    producer = Producer({"bootstrap.servers": service.kafka, "enable.idempotence": True, **small})
    for number in numbers:
        producer.produce(
            topic,
            None if number % 10 == 3 else bytes(range(256)) + b"%08d" % number,
            key=None if number % 7 == 2 else b"key-%d" % (number % 50),
            headers=[("n", b"%d" % number), ("n", None), ("ü", b"\xff")] if number % 3 == 0 else None,
            timestamp=START_MS + number * STEP_MS,
            partition=number % partitions,
        )
        producer.poll(0)
    assert producer.flush(60) == 0


def consume(service: ServeProcess, topic: str, partitions: int = 1) -> list[Row]:
    """Every record of the topic as librdkafka reads it, in the order of partitions and offsets."""
    consumer = Consumer({"bootstrap.servers": service.kafka, "group.id": f"truth-{time.monotonic_ns()}"})
    assigned = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
    ends = {each.partition: consumer.get_watermark_offsets(each, timeout=30)[1] for each in assigned}
    starts = {each.partition: consumer.get_watermark_offsets(each, timeout=30)[0] for each in assigned}
    consumer.assign([TopicPartition(topic, each, starts[each]) for each in starts])
    rows: list[Row] = []
    deadline = time.monotonic() + 60
    while len(rows) < sum(ends.values()) - sum(starts.values()):
        assert time.monotonic() < deadline
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None
            headers = message.headers()
            rows.append(
                (
                    topic,
                    message.partition(),
                    message.offset(),
                    message.timestamp()[1],
                    0,
                    message.key(),
                    message.value(),
                    tuple(headers) if headers else None,
                )
            )
    consumer.close()
    return sorted(rows, key=lambda row: row[1:3])


def archived_ends(service: ServeProcess, topic: str) -> dict[int, int]:
    with Client(service.url) as client:
        found = client.get(path("topics", topic, "archive"), limit=0)["partitions"]
    return {each["partition"]: each["archived"]["end_offset"] if each["archived"] else 0 for each in found}


def settle(service: ServeProcess, topic: str) -> dict[int, int]:
    """Waits until every sealed segment is archived; how far each partition then is."""

    def idle() -> bool:
        with Client(service.url) as client:
            found = client.get(path("topics", topic, "archive"), limit=0)["partitions"]
        done = [each["backlog_bytes"] == 0 and each["archived"] for each in found]
        return all(done) and all(each["archived"]["end_offset"] > 0 for each in found)

    wait_until(idle, "every sealed segment is archived")
    return archived_ends(service, topic)


def rows_of(frame: DataFrame) -> list[Row]:
    """A DataFrame in the shape of `consume`; it is sorted, but nothing is left out or made one."""
    found = []
    for row in frame.collect():
        headers = row["headers"]
        found.append(
            (
                row["topic"],
                row["partition"],
                row["offset"],
                round(row["timestamp"].timestamp() * 1000),
                row["timestampType"],
                None if row["key"] is None else bytes(row["key"]),
                None if row["value"] is None else bytes(row["value"]),
                None if headers is None else tuple((h["key"], _bytes(h["value"])) for h in headers),
            )
        )
    return sorted(found, key=lambda row: row[:3])


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)

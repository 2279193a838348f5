"""A small load that touches everything a broker stores, and what of it is seen from outside.

`make_release` runs the load against a released version and stores what that leaves behind; `test_releases` opens copies
with the present code and compares what is seen.
"""

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from gateway.kafka.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from gateway.kafka.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from gateway.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from gateway.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from hot_tier.record.records import Record, encode_records
from tests.gateway.kafka.wire import Wire
from tierlog.client import Client, path

HERE = Path(__file__).parent
TIME_MS = 1_700_000_000_000
DEADLINE_S = 60
SHORT = 60
"""Bytes that are kept as they are; of longer ones the digest is."""
NEVER_EXPIRES = ("groups.offsets_retention_minutes=1000000000", "log.producer_id_expiration_ms=9000000000000000")
"""The files are older than any default would keep offsets and producers."""

TOPICS: dict[str, dict[str, str]] = {
    "mixed": {},
    "once": {"flush": "os"},
    "table": {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0.01"},
    "history": {"remote.storage.enable": "true", "segment.bytes": "2048", "local.retention.bytes": "3000"},
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SHAPES: tuple[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]], ...] = (
    (b"key", b"value", [("twice", b"1"), ("twice", b"2"), ("null", None)]),
    (None, b"no key", []),
    (b"", b"", [("", b"")]),
    (b"key", None, []),
    (b"\xff\xfe", b"\x00" * 40, [("trace", b"\xff")]),
)
GROUP = "billing"

Seen = dict[str, Any]


def load(kafka: str, http: str, replicas: int = 1) -> None:
    with Client(f"http://{http}") as client:
        for topic, config in TOPICS.items():
            settings = {"retention.ms": "-1", "file.delete.delay.ms": "0", **config}
            document = {"name": topic, "partitions": 2, "replication_factor": replicas, "config": settings}
            client.post(path("topics"), document)
        _produce_shapes(kafka)
        for number in range(4):
            _produce(kafka, "table", [(b"k%d" % (each % 5), b"%d " % number * 40) for each in range(10)])
        _wait(lambda: len(records(kafka, "table")) < 40, "compaction")
        client.patch(path("topics", "table"), {"config": {"min.cleanable.dirty.ratio": "1.0"}})
        _produce(kafka, "table", [(b"k1", b"after the compaction"), (b"k2", None)])
        for number in range(6):
            _produce(kafka, "history", [(b"%d" % each, b"%d %d " % (number, each) * 50) for each in range(10)])
        _wait(lambda: _is_archived(client), "local segments of the archived topic to go")
        _commit(kafka, client)
        failed = {"topic": "mixed", "partition": 0, "offset": 2, "reason": "cannot parse"}
        client.post(path("consumer-groups", GROUP, "failures"), {**failed, "offset": 9})
        client.post(path("consumer-groups", GROUP, "dead-letters"), failed)
        client.post(path("topics"), {"name": "gone", "partitions": 1})
        client.delete(path("topics", "gone"))
    asyncio.run(_set_quotas(kafka))


def look(kafka: str, http: str) -> Seen:
    """All that a client can see and that must not change when the broker is replaced."""
    with Client(f"http://{http}") as client:
        described = {
            each["name"]: client.get(path("topics", each["name"])) for each in client.get(path("topics"))["topics"]
        }
        _wait(lambda: _archive(client)["archived"] is not None, "the manifest to be loaded")
        archive = _archive(client)
        dead_letters = client.get(path("consumer-groups", GROUP, "dead-letters"))
    visible = sorted(name for name in described if not name.startswith("__"))
    return {
        "topics": {
            name: {
                "id": described[name]["id"],
                "config": {
                    setting: shown["value"]
                    for setting, shown in described[name]["config"].items()
                    if shown["source"] == "topic"
                },
                "partitions": len(described[name]["partitions"]),
            }
            for name in visible
        },
        "records": {name: records(kafka, name) for name in visible},
        "committed": _committed(kafka),
        "quotas": asyncio.run(_quotas(kafka)),
        "dead_letters": dead_letters,
        "archived": archive["archived"]["end_offset"],
        "local": archive["local"]["start_offset"],
    }


def records(kafka: str, topic: str) -> list[list[Any]]:
    """[partition, offset, timestamp, key, value, headers] of every record, bytes as base64, or as a digest."""
    found: list[list[Any]] = []
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "look", "enable.partition.eof": True})
    partitions = consumer.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    at_end: set[int] = set()
    deadline = time.monotonic() + DEADLINE_S
    while len(at_end) < len(partitions):
        message = consumer.poll(1)
        assert time.monotonic() < deadline, f"{topic} cannot be read to its end: {found[-3:]}"
        if message is None:
            continue
        if message.error():
            assert message.error().name() == "_PARTITION_EOF", message.error()
            at_end.add(message.partition())
            continue
        headers = [[name, _text(value)] for name, value in message.headers() or []]
        key, value = _text(message.key()), _text(message.value())
        found.append([message.partition(), message.offset(), message.timestamp()[1], key, value, headers])
    consumer.close()
    return sorted(found, key=lambda record: record[:2])


def idempotent_batch(producer_id: int, epoch: int) -> bytes:
    sent = [Record(0, TIME_MS, 0, b"once", b"value %d" % number, ()) for number in range(3)]
    return bytes(encode_records(sent, producer_id=producer_id, producer_epoch=epoch, base_sequence=0))


def send_batch(kafka: str, batch: bytes) -> int:
    """The base offset that the leader answers: the same again when the batch was sent before."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        part = asyncio.run(_send_batch(leader_of(kafka, "once"), batch))
        if part.error_code == 0:
            return int(part.base_offset)
        assert time.monotonic() < deadline, part
        time.sleep(0.1)


async def _send_batch(leader: str, batch: bytes) -> Any:
    async with _wire(leader) as wire:
        data = [TopicProduceData(name="once", partition_data=[PartitionProduceData(0, batch)])]
        answer = await wire.ask(ProduceRequest(None, -1, 5000, data), 9)
        return answer.responses[0].partition_responses[0]


def leader_of(kafka: str, topic: str) -> str:
    """The address of the broker that leads partition 0."""
    found = Consumer({"bootstrap.servers": kafka, "group.id": "look"}).list_topics(topic, timeout=DEADLINE_S)
    broker = found.brokers[found.topics[topic].partitions[0].leader]
    return f"{broker.host}:{broker.port}"


async def new_producer(kafka: str) -> tuple[int, int]:
    async with _wire(kafka) as wire:
        made = await wire.ask(InitProducerIdRequest(None, 60_000), 4)
        return made.producer_id, made.producer_epoch


def _wire(kafka: str) -> Wire:
    host, _, port = kafka.partition(",")[0].rpartition(":")
    return Wire(host, int(port))


def _text(data: bytes | None) -> str | None:
    if data is not None and len(data) > SHORT:
        return "sha256 " + hashlib.sha256(data).hexdigest()
    return None if data is None else base64.b64encode(data).decode()


def _produce_shapes(kafka: str) -> None:
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": kafka, "compression.type": codec, "enable.idempotence": codec == "zstd"}
        )
        for number, (key, value, headers) in enumerate(SHAPES):
            producer.produce("mixed", key=key, value=value, headers=headers, partition=0, timestamp=TIME_MS + number)
        assert producer.flush(DEADLINE_S) == 0


def _produce(kafka: str, topic: str, pairs: list[tuple[bytes, bytes | None]]) -> None:
    """One batch."""
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 100, "batch.num.messages": len(pairs)})
    for number, (key, value) in enumerate(pairs):
        producer.produce(topic, key=key, value=value, partition=0, timestamp=TIME_MS + number)
    assert producer.flush(DEADLINE_S) == 0


def _commit(kafka: str, client: Client) -> None:
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": GROUP, "enable.auto.commit": False})
    consumer.subscribe(["mixed"])
    _wait(lambda: consumer.poll(0.2) is not None or bool(consumer.assignment()), "an assignment")
    consumer.commit(offsets=[TopicPartition("mixed", 0, 7, metadata="half-way")], asynchronous=False)
    consumer.close()
    commit = {"topic": "history", "partition": 0, "offset": 11}
    client.post(path("consumer-groups", "over-http", "offsets"), commit)


def _committed(kafka: str) -> list[list[Any]]:
    found = []
    for group, topic in ((GROUP, "mixed"), ("over-http", "history")):
        consumer = Consumer({"bootstrap.servers": kafka, "group.id": group})
        (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=DEADLINE_S)
        found.append([group, topic, committed.offset, committed.metadata or ""])
        consumer.close()
    return found


async def _set_quotas(kafka: str) -> None:
    entities: tuple[dict[str, str | None], ...] = ({"client-id": "a & b"}, {"client-id": None})
    entries = [
        RequestEntryData(
            [RequestEntityData(kind, name) for kind, name in entity.items()],
            [OpData("producer_byte_rate", 1e9, False), OpData("consumer_byte_rate", 2e9, False)],
        )
        for entity in entities
    ]
    async with _wire(kafka) as wire:
        answer = await wire.ask(AlterClientQuotasRequest(entries, False), 1)
        assert [entry.error_code for entry in answer.entries] == [0, 0], answer


async def _quotas(kafka: str) -> list[Any]:
    async with _wire(kafka) as wire:
        answer = await wire.ask(DescribeClientQuotasRequest([], False), 1)
        return sorted(
            [
                [[part.entity_type, part.entity_name or ""] for part in entry.entity],
                sorted([value.key, value.value] for value in entry.values),
            ]
            for entry in answer.entries
        )


def _archive(client: Client) -> Any:
    return client.get(path("topics", "history", "archive"), limit=0)["partitions"][0]


def _is_archived(client: Client) -> bool:
    shown = _archive(client)
    archived = shown["archived"]
    return archived is not None and archived["segments"] > 2 and shown["local"]["start_offset"] > 0


def _wait(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.1)


def plain(seen: Seen) -> Seen:
    """As JSON gives it back."""
    found: Seen = json.loads(json.dumps(seen))
    return found

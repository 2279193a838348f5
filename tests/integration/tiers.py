"""A topic that lives in both tiers, driven from outside: records that say what they are, and every way to read them."""

import asyncio
import base64
import json
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tierlog.process import ServeProcess

TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": "100000",
    "local.retention.ms": "1",
    "retention.ms": "-1",
}
SOON = (
    *("--set", "archive.check_ms=100"),
    *("--set", "log.retention_check_ms=100"),
    *("--set", "log.free_check_ms=100"),
    *("--set", "store.deadline_ms=2000"),
    *("--set", "store.attempt_ms=1000"),
)


def create_topic(service: ServeProcess, topic: str, **config: str) -> None:
    named = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": service.kafka})
    admin.create_topics([NewTopic(topic, 1, 1, config={**TIERED, **named})])[topic].result(30)


def value_of(number: int) -> bytes:
    body = b"%08d " % number + b"event %d " % (number * 7919) * 12
    return body + b"%08x" % zlib.crc32(body)


def check_value(value: bytes) -> int:
    assert b"%08x" % zlib.crc32(value[:-8]) == value[-8:]
    return int(value[:8])


class Sender:
    """Idempotent, acks=all; remembers what was acknowledged at which offset."""

    def __init__(self, service: ServeProcess, topic: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": service.kafka,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 50,
                "message.timeout.ms": 60_000,
                "log_level": 0,
            }
        )
        self._topic = topic
        self.sent = 0
        self.acked: dict[int, int] = {}
        """Number by offset."""

    def send(self, count: int) -> None:
        for _ in range(count):
            number = self.sent
            self._producer.produce(
                self._topic,
                value_of(number),
                key=b"key-%d" % (number % 97),
                headers=[("n", b"%d" % number), ("n", None)],
                timestamp=1_700_000_000_000 + number,
                on_delivery=lambda error, message, number=number: self._delivered(error, message, number),
            )
            self.sent += 1
            self._producer.poll(0)

    def flush(self, timeout_s: float = 60) -> None:
        assert self._producer.flush(timeout_s) == 0

    def poll(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def _delivered(self, error: object, message: Any, number: int) -> None:
        if error is None:
            assert self.acked.setdefault(message.offset(), number) == number


def read_all(service: ServeProcess, topic: str, count: int, start: int = 0, deadline_s: float = 90) -> list[int]:
    """Every record from `start` on through librdkafka, checked byte for byte; offsets follow one another."""
    consumer = Consumer(
        {"bootstrap.servers": service.kafka, "group.id": f"reader-{time.monotonic_ns()}", "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, 0, start)])
    numbers: list[int] = []
    deadline = time.monotonic() + deadline_s
    try:
        while len(numbers) < count:
            assert time.monotonic() < deadline, f"{len(numbers)} of {count} records\n{service.output()}"
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                assert message.offset() == start + len(numbers)
                number = check_value(message.value())
                assert message.key() == b"key-%d" % (number % 97)
                assert message.headers() == [("n", b"%d" % number), ("n", None)]
                assert message.timestamp()[1] == 1_700_000_000_000 + number
                numbers.append(number)
    finally:
        consumer.close()
    return numbers[:count]


async def read_with_aiokafka(service: ServeProcess, topic: str, count: int) -> list[int]:
    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as Assigned

    consumer = AIOKafkaConsumer(bootstrap_servers=service.kafka, auto_offset_reset="earliest")
    await consumer.start()
    try:
        assigned = Assigned(topic, 0)
        consumer.assign([assigned])
        consumer.seek(assigned, 0)
        numbers: list[int] = []
        async with asyncio.timeout(90):
            while len(numbers) < count:
                found = await consumer.getmany(assigned, timeout_ms=500)
                for message in found.get(assigned, []):
                    assert message.offset == len(numbers)
                    numbers.append(check_value(message.value))
        return numbers
    finally:
        await consumer.stop()


def read_with_kafka_python(service: ServeProcess, topic: str, count: int) -> list[int]:
    from kafka import KafkaConsumer
    from kafka import TopicPartition as Assigned

    consumer = KafkaConsumer(bootstrap_servers=service.kafka, auto_offset_reset="earliest", group_id=None)
    try:
        consumer.assign([Assigned(topic, 0)])
        consumer.seek(Assigned(topic, 0), 0)
        numbers: list[int] = []
        deadline = time.monotonic() + 90
        while len(numbers) < count:
            assert time.monotonic() < deadline, f"{len(numbers)} of {count} records"
            for message in (m for found in consumer.poll(500).values() for m in found):
                assert message.offset == len(numbers)
                numbers.append(check_value(message.value))
        return numbers
    finally:
        consumer.close()


def read_with_http(service: ServeProcess, topic: str, count: int) -> list[int]:
    """As a client does: what is answered with 503 is asked again."""
    numbers: list[int] = []
    deadline = time.monotonic() + 30
    while len(numbers) < count:
        url = f"{service.url}/api/v1/topics/{topic}/partitions/0/messages?offset={len(numbers)}&limit=1000"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                page = json.load(answer)
        except urllib.error.HTTPError as error:
            problem = error.read().decode()
            assert error.code == 503 and time.monotonic() < deadline, problem
            time.sleep(0.2)
            continue
        for message in page["messages"]:
            assert message["offset"] == len(numbers)
            numbers.append(check_value(base64.b64decode(message["value"])))
    return numbers[:count]


def local_start(service: ServeProcess, topic: str) -> int:
    """The first offset on local disk: the name of the oldest segment."""
    return min((int(path.stem) for path in service.data_dir.glob(f"logs/{topic}.*/0/*.log")), default=0)


def archived_rows(bucket: str, topic: str) -> list[tuple[int, int]]:
    """(offset, number) of every row that the newest manifest names, read with pyarrow alone."""
    import pyarrow.parquet as pq

    from cold_tier.inventory import find_topics
    from cold_tier.manifest.reader import Manifest, PageCache, load_newest
    from cold_tier.objects.open import StoreSettings, open_store

    async def files() -> list[str]:
        store = open_store(StoreSettings(bucket=bucket))
        [found] = await find_topics(store, topic)
        snapshot = await load_newest(store, found.layouts[0])
        assert snapshot is not None
        manifest = Manifest(snapshot, PageCache(store))
        segments = [s async for s in manifest.segments(snapshot.start_offset, snapshot.end_offset)]
        return [found.layouts[0].rows(segment.name) for segment in segments]

    def rows() -> Iterator[tuple[int, int]]:
        for key in asyncio.run(files()):
            path = f"{bucket.removeprefix('file://')}/{key}"
            table = pq.read_table(path, columns=["offset", "value"], partitioning=None)
            for offset, value in zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True):
                yield offset, check_value(value)

    for _ in range(20):
        try:
            return list(rows())
        except FileNotFoundError:
            continue  # Expired since the manifest was read, and without a grace period gone.
    raise AssertionError("objects of the newest manifest are missing")

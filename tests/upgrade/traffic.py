"""Real clients that go on while brokers are replaced, with their own books: an idempotent producer and a group."""

import threading
import time
from collections import Counter
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

TIMEOUT_S = 60
INTERVAL_S = 0.005


class Traffic:
    """Numbers 0, 1, 2, … as values to every partition of a topic in turns, with acks=all, until the block ends."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.acked: dict[tuple[int, int], int] = {}
        """Number by partition and offset."""
        self.failed: Counter[str] = Counter()
        self.consumed: Counter[int] = Counter()
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._produce, self._consume)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(2 * TIMEOUT_S)

    def goes_on(self, records: int = 50) -> None:
        """Returns when so many more are acknowledged and consumed."""
        acked, consumed = len(self.acked) + records, self.consumed.total() + records
        deadline = time.monotonic() + TIMEOUT_S
        while len(self.acked) < acked or self.consumed.total() < consumed:
            assert time.monotonic() < deadline, (
                f"{len(self.acked)} acknowledged, {self.consumed.total()} consumed, no more"
            )
            time.sleep(0.02)

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "log_level": 0})
        number = 0

        def done(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failed[error.name()] += 1
            else:
                self.acked[message.partition(), message.offset()] = int(message.value().split()[0])

        while not self._stopped.is_set():
            value = b"%d " % number + b"x" * 500
            producer.produce(self._topic, value, partition=number % self._partitions, on_delivery=done)
            number += 1
            producer.poll(INTERVAL_S)
        assert producer.flush(TIMEOUT_S) == 0, "records without an answer"

    def _consume(self) -> None:
        settings = {"group.id": "upgrade", "auto.offset.reset": "earliest", "log_level": 0}
        settings |= {"auto.commit.interval.ms": 200, "session.timeout.ms": 6000}
        consumer = Consumer({"bootstrap.servers": self._bootstrap, **settings})
        consumer.subscribe([self._topic])
        while not self._stopped.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.consumed[int(message.value().split()[0])] += 1
        consumer.close()


def check_all(bootstrap: str, topic: str, partitions: int, traffic: Traffic) -> None:
    """Each acknowledged record is where it was acknowledged, and no record is there twice."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "auto.offset.reset": "error"})
    found: dict[tuple[int, int], int] = {}
    ends: dict[int, int] = {}
    for number in range(partitions):
        ends[number] = consumer.get_watermark_offsets(TopicPartition(topic, number), TIMEOUT_S)[1]
    consumer.assign([TopicPartition(topic, number, 0) for number in ends])
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < sum(ends.values()):
        assert time.monotonic() < deadline, f"{len(found)} of {sum(ends.values())} records can be read"
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None, message.error()
            found[message.partition(), message.offset()] = int(message.value().split()[0])
    consumer.close()
    lost = {place: number for place, number in traffic.acked.items() if found.get(place) != number}
    assert not lost, (
        f"{len(lost)} of {len(traffic.acked)} acknowledged records are not there: {sorted(lost.items())[:5]}"
    )
    doubled = [number for number, times in Counter(found.values()).items() if times > 1]
    assert not doubled, f"{len(doubled)} records are there twice: {doubled[:5]}"

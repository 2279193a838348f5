"""The load: producers at a steady rate, a group whose members come and go, readers of old records, brief topics.

Each kind is a thread with a client of its own. What was acknowledged is written down in `Acked`; what went wrong is
counted, by its message.
"""

import struct
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.soak.pace import KEYS, PARTITIONS, RECORD_BYTES, Pace
from benchmarks.soak.samples import Stopwatch

ARCHIVED, COMPACTED = "archived", "compacted"
HEAD = struct.Struct(">qd")
"""A record begins with its number and when it was sent, by the clock that only goes forward."""
FILLING = (b"event of the soak, as compressible as text is; " * 30)[: RECORD_BYTES - HEAD.size]
TICK_S = 0.02


@dataclass(slots=True)
class Acked:
    """What the broker acknowledged: numbers by offset for each partition, the newest number for each key."""

    numbers: list[array] = field(default_factory=lambda: [array("q") for _ in range(PARTITIONS)])
    sent_ms: list[array] = field(default_factory=lambda: [array("q") for _ in range(PARTITIONS)])
    by_key: dict[bytes, int] = field(default_factory=dict)

    def append(self, message: Message, number: int, sent_ms: int) -> None:
        numbers, times = self.numbers[message.partition()], self.sent_ms[message.partition()]
        missing = message.offset() - len(numbers)
        assert missing == 0, (
            f"offset {message.offset()} of partition {message.partition()} follows on {len(numbers) - 1}"
        )
        numbers.append(number)
        times.append(sent_ms)


class Clients:
    def __init__(self, bootstrap: str, pace: Pace) -> None:
        self.bootstrap, self.pace = bootstrap, pace
        self.acked = Acked()
        self.produce_ms, self.consume_ms = Stopwatch(), Stopwatch()
        self.rebalances, self.errors = 0, Counter[str]()
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._admin = AdminClient(self._base())

    def _base(self, **more: object) -> dict[str, object]:
        return {"bootstrap.servers": self.bootstrap, "log_level": 0, **more}

    def make_topic(self, name: str, partitions: int, config: dict[str, str]) -> None:
        self._admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(60)

    def start(self) -> None:
        self.make_topic(ARCHIVED, PARTITIONS, self.pace.archived_topic())
        self.make_topic(COMPACTED, 1, self.pace.compacted_topic())
        for work in (self._produce, self._update, self._rebalance, self._come_and_go):
            thread = threading.Thread(target=self._guarded, args=(work,), name=work.__name__)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(120)
            assert not thread.is_alive(), f"{thread.name} does not end"

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.errors[f"{work.__name__} ended: {type(error).__name__}: {error}"] += 1
            raise

    # Writing

    def _at_rate(self, rate: float, send: Callable[[int], None], poll: Callable[[float], object]) -> None:
        """Calls `send` with 0, 1, 2, …, as many each second as `rate` says; what is late is made up for."""
        began, sent = time.monotonic(), 0
        while not self._stopped.is_set():
            due = int((time.monotonic() - began) * rate)
            for number in range(sent, due):
                send(number)
            sent = due
            poll(TICK_S)

    def _produce(self) -> None:
        producer = Producer(self._base(**{"enable.idempotence": True, "linger.ms": 5, "compression.type": "lz4"}))

        def send(number: int) -> None:
            began, sent_ms = time.monotonic(), time.time_ns() // 1_000_000

            def done(error: KafkaError | None, message: Message) -> None:
                if error is not None:
                    self.errors[f"produce: {error.name()}"] += 1
                    return
                self.produce_ms.add(1000 * (time.monotonic() - began))
                self.acked.append(message, number, sent_ms)

            value = HEAD.pack(number, began) + FILLING
            producer.produce(ARCHIVED, value, partition=number % PARTITIONS, timestamp=sent_ms, on_delivery=done)

        self._at_rate(self.pace.rate, send, producer.poll)
        assert producer.flush(60) == 0, "records without an answer"

    def _update(self) -> None:
        producer = Producer(self._base(**{"enable.idempotence": True, "linger.ms": 5}))

        def send(number: int) -> None:
            key = b"key-%d" % (number * 7919 % KEYS)

            def done(error: KafkaError | None, _: Message) -> None:
                if error is not None:
                    self.errors[f"update: {error.name()}"] += 1
                    return
                self.acked.by_key[key] = number

            producer.produce(COMPACTED, HEAD.pack(number, 0) + FILLING, key=key, partition=0, on_delivery=done)

        self._at_rate(self.pace.rate / 4, send, producer.poll)
        assert producer.flush(60) == 0, "records without an answer"

    # Reading

    def _consumer(self, group: str, begin: str) -> Consumer:
        timeouts = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
        return Consumer(
            self._base(
                **{"group.id": group, "auto.offset.reset": begin, "topic.metadata.refresh.interval.ms": 5000},
                **timeouts,
            )
        )

    def _read(self, consumer: Consumer, wait_s: float) -> int:
        messages = consumer.consume(500, wait_s)
        for message in messages:
            if (error := message.error()) is not None:
                self.errors[f"consume: {error.name()}"] += 1
        return len(messages)

    def _rebalance(self) -> None:
        """A group of three: in each period the oldest member leaves and a new one joins.

        What a member reads again after a rebalance does not count as late: only the first time does."""
        members: list[tuple[threading.Thread, threading.Event]] = []
        read_through = dict.fromkeys(range(PARTITIONS), -1)

        def member(leave: threading.Event) -> None:
            consumer = self._consumer("tail", "latest")
            consumer.subscribe([ARCHIVED], on_assign=self._count_rebalance)
            while not leave.is_set():
                if (message := consumer.poll(0.1)) is not None:
                    if (error := message.error()) is not None:
                        self.errors[f"consume: {error.name()}"] += 1
                    elif message.offset() > read_through[message.partition()]:
                        read_through[message.partition()] = message.offset()
                        self.consume_ms.add(1000 * (time.monotonic() - HEAD.unpack_from(message.value())[1]))
            consumer.close()

        def join() -> None:
            leave = threading.Event()
            thread = threading.Thread(target=self._guarded, args=(lambda: member(leave),))
            thread.start()
            members.append((thread, leave))

        for _ in range(3):
            join()
        while not self._stopped.wait(max(2.0, self.pace.period_s)):
            oldest, leave = members.pop(0)
            leave.set()
            oldest.join(60)
            join()
        for _, leave in members:
            leave.set()
        for thread, _ in members:
            thread.join(60)

    def _count_rebalance(self, *_: object) -> None:
        self.rebalances += 1

    def _come_and_go(self) -> None:
        """In each period a group of its own reads the oldest records, and a topic is made, written and deleted."""
        number = 0
        while not self._stopped.wait(max(1.0, self.pace.period_s / 2)):
            number += 1
            try:
                self._read_the_oldest(f"once-{number}")
                self._brief_topic(f"brief-{number}")
            except KafkaException as error:
                self.errors[f"come and go: {error}"] += 1

    def _read_the_oldest(self, group: str) -> None:
        consumer = self._consumer(group, "earliest")
        consumer.subscribe([ARCHIVED])
        seen, deadline = 0, time.monotonic() + 30
        while seen < 2000 and time.monotonic() < deadline and not self._stopped.is_set():
            seen += self._read(consumer, 0.2)
        if seen:
            consumer.commit(asynchronous=False)
        consumer.close()

    def _brief_topic(self, name: str) -> None:
        self.make_topic(name, 2, {})
        producer = Producer(self._base(**{"enable.idempotence": True}))
        for number in range(10):
            producer.produce(name, b"%d" % number)
        assert producer.flush(60) == 0, f"records to {name} without an answer"
        self._admin.delete_topics([name])[name].result(60)

"""Load that goes on through faults: idempotent producers, a consumer group, a watcher of the log's ends.

Each worker is a thread around librdkafka and writes down what it did and what it was told. None gives up while the
broker is away; `finish` says how each ended. `client` says where the brokers are and, if they want a login, who comes.
"""

import random
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from uuid import uuid4

import confluent_kafka as ck

from .history import Commit, CommittedOffset, History, Outcome, Read, Send, Watermark
from .values import Identity, make_value, read_value

RECONNECT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "socket.timeout.ms": 10_000, "log_level": 0}
ANSWER_S = 45.0
READER = "reader"
CODECS = ("none", "lz4", "zstd", "snappy", "gzip")

NOT_YET = {
    ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    ck.KafkaError.COORDINATOR_NOT_AVAILABLE,
    ck.KafkaError.NOT_COORDINATOR,
    ck.KafkaError._TIMED_OUT,
    ck.KafkaError._TRANSPORT,
}

# Errors which say for certain that the broker has not taken the record.
DEFINITE = {ck.KafkaError.MSG_SIZE_TOO_LARGE, ck.KafkaError.INVALID_RECORD, ck.KafkaError.POLICY_VIOLATION}


class Worker(threading.Thread):
    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._stopping = threading.Event()

    def ask_to_stop(self) -> None:
        self._stopping.set()

    def finish(self) -> None:
        self.ask_to_stop()
        self.join(ANSWER_S + 30)
        where = sys._current_frames().get(self.ident or 0)
        assert not self.is_alive(), f"{self.name} hangs:\n{''.join(traceback.format_stack(where)[-3:])}"


class ProducerWorker(Worker):
    """Sends to random partitions, five requests in flight, as fast as `rate` allows."""

    MAX_WAITING = 400

    def __init__(
        self,
        name: str,
        client: Mapping[str, str],
        topic: str,
        partitions: int,
        history: History,
        source: random.Random,
        rate: int,
        acks: str = "all",
    ) -> None:
        super().__init__(name)
        self._topic, self._partitions, self._history, self._source = topic, partitions, history, source
        self._pause_s = 1 / rate
        self._waiting = 0
        self.last_ack_ns = 0
        self._producer = ck.Producer(
            {
                **client,
                "enable.idempotence": acks == "all",
                "acks": acks,
                "max.in.flight.requests.per.connection": 5,
                "linger.ms": 2,
                "batch.num.messages": 40,
                "compression.type": source.choice(CODECS),
                "message.timeout.ms": 0,
                "error_cb": self._on_error,
                **RECONNECT,
            }
        )

    def _on_error(self, error: ck.KafkaError) -> None:
        if error.fatal():
            self._history.complaints.append(f"{self.name} was told a fatal error: {error.str()}")
            self._stopping.set()

    def _delivered(self, send: Send):
        def report(error: ck.KafkaError | None, message: ck.Message) -> None:
            self._waiting -= 1
            send.ended_ns = time.monotonic_ns()
            if error is None:
                send.offset, send.outcome = message.offset(), Outcome.OK
                self.last_ack_ns = send.ended_ns
            else:
                send.outcome = Outcome.FAILED if error.code() in DEFINITE else Outcome.UNKNOWN

        return report

    def run(self) -> None:
        try:
            self._send_on()
            self._producer.flush(2 if self._history.complaints else ANSWER_S)
        except (ck.KafkaException, SystemError) as error:
            # The binding may call back while it raises a fatal error, and Python then makes a SystemError of it.
            self._history.complaints.append(f"{self.name} could not go on: {error.__cause__ or error}")
        del self._producer  # or it goes on looking for the broker after the test

    def _send_on(self) -> None:
        sequence = 0
        while not self._stopping.is_set():
            self._producer.poll(0)
            if self._waiting >= self.MAX_WAITING:
                self._producer.poll(0.05)
                continue
            identity = Identity(self.name, sequence, uuid4().hex[:12])
            value = make_value(identity, self._source)
            send = Send(identity, self._source.randrange(self._partitions))
            self._history.sends.append(send)
            self._waiting += 1
            self._producer.produce(self._topic, value, partition=send.partition, on_delivery=self._delivered(send))
            sequence += 1
            time.sleep(self._pause_s)


class ConsumerWorker(Worker):
    """A member of a group: reads, checks values, commits what it has read."""

    def __init__(self, name: str, client: Mapping[str, str], topic: str, group: str, history: History) -> None:
        super().__init__(name)
        self._topic, self._group, self._history = topic, group, history
        self._sessions: dict[int, str] = {}
        self._next: dict[int, int] = {}
        self._consumer = ck.Consumer(
            {
                **client,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "partition.assignment.strategy": "range",
                "error_cb": lambda error: None,
                **RECONNECT,
            }
        )

    def _assigned(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self._next.clear()
        self._sessions = {tp.partition: f"{self.name}-{uuid4().hex[:6]}" for tp in partitions}

    def _commit(self) -> None:
        chosen, self._next = self._next, {}
        commits = [Commit(self._group, partition, offset) for partition, offset in chosen.items()]
        if not commits:
            return
        self._history.commits.extend(commits)
        wanted = [ck.TopicPartition(self._topic, commit.partition, commit.offset) for commit in commits]
        try:
            answers = self._consumer.commit(offsets=wanted, asynchronous=False) or []
            failed = any(tp.error for tp in answers)
        except ck.KafkaException:
            failed = True
        for commit in commits:
            commit.ended_ns = time.monotonic_ns()
            commit.outcome = Outcome.UNKNOWN if failed else Outcome.OK

    def run(self) -> None:
        self._consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._assigned_none, on_lost=self._assigned_none
        )
        last_commit = time.monotonic()
        while not self._stopping.is_set():
            for message in self._consumer.consume(200, 0.1):
                if message.error() is None and message.partition() in self._sessions:
                    self._read(message)
                elif message.error() and message.error().code() == ck.KafkaError.OFFSET_OUT_OF_RANGE:
                    self._history.complaints.append(f"{self.name} was told: {message.error().str()}")
            if time.monotonic() - last_commit > 0.2:
                self._commit()
                last_commit = time.monotonic()
        self._commit()
        self._consumer.close()

    def _assigned_none(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self._sessions, self._next = {}, {}

    def _read(self, message: ck.Message) -> None:
        partition, offset = message.partition(), message.offset()
        identity = read_value(message.value())
        self._history.reads.append(Read(self._sessions[partition], self._group, partition, offset, identity))
        self._next[partition] = offset + 1


class WatermarkWorker(Worker):
    """Asks for the ends of every partition over and over."""

    def __init__(self, client: Mapping[str, str], topic: str, partitions: int, history: History) -> None:
        super().__init__("watcher")
        self._partitions = [ck.TopicPartition(topic, number) for number in range(partitions)]
        self._history = history
        self._consumer = ck.Consumer({**client, "group.id": "watcher", **RECONNECT})

    def run(self) -> None:
        while not self._stopping.wait(0.05):
            for tp in self._partitions:
                invoked_ns = time.monotonic_ns()
                try:
                    low, high = self._consumer.get_watermark_offsets(tp, timeout=1)
                except ck.KafkaException:
                    continue
                mark = Watermark(tp.partition, low, high, invoked_ns, time.monotonic_ns())
                self._history.watermarks.append(mark)
        self._consumer.close()


def read_log(client: Mapping[str, str], topic: str, partitions: int, history: History) -> None:
    """Every partition into the history."""
    for number in range(partitions):
        found = read_partition(client, topic, number)
        history.log[number] = [(offset, read_value(value)) for offset, value in found]


def read_partition(client: Mapping[str, str], topic: str, number: int) -> list[tuple[int, bytes]]:
    """The whole of it, from the beginning to the end that the broker names."""
    config = {**client, "group.id": READER, "auto.offset.reset": "error", **RECONNECT}
    consumer = ck.Consumer(config | {"enable.partition.eof": True, "enable.auto.commit": False})
    entries: list[tuple[int, bytes]] = []
    try:
        low, _ = consumer.get_watermark_offsets(ck.TopicPartition(topic, number), timeout=ANSWER_S)
        consumer.assign([ck.TopicPartition(topic, number, low)])
        deadline = time.monotonic() + ANSWER_S
        while True:
            assert time.monotonic() < deadline, f"partition {number} cannot be read beyond {len(entries)} records"
            for message in consumer.consume(500, 0.5):
                if message.error() is None:
                    entries.append((message.offset(), message.value()))
                elif message.error().code() == ck.KafkaError._PARTITION_EOF:
                    return entries
                else:
                    raise ck.KafkaException(message.error())
    finally:
        consumer.close()


def read_committed_offsets(
    client: Mapping[str, str], topic: str, partitions: int, group: str, history: History
) -> None:
    """What the broker says now; a coordinator that is still loading is asked again."""
    invoked_ns = time.monotonic_ns()
    wanted = [ck.TopicPartition(topic, number) for number in range(partitions)]
    consumer = ck.Consumer({**client, "group.id": group, **RECONNECT})
    deadline = time.monotonic() + ANSWER_S
    try:
        while True:
            try:
                found = consumer.committed(wanted, timeout=5)
                break
            except ck.KafkaException as error:
                if error.args[0].code() not in NOT_YET or time.monotonic() > deadline:
                    raise
        for tp in found:
            assert tp.error is None, tp.error
            history.committed.append(CommittedOffset(group, tp.partition, max(tp.offset, 0), invoked_ns))
    finally:
        consumer.close()

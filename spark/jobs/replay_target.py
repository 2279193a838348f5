"""The topic that a replay writes to, and the progress of the replay in it.

Every record that is sent carries a header `tierlog.replay` with `<job>/<source partition>/<source offset>`. One writer
sends a source partition, in order, to one partition of the target. So the last such header there says how far it came,
and the next run sends what follows.

The target's cluster also keeps where to begin looking: before its first record a job commits, as the consumer group
`tierlog.replay.<job>`, the end of each partition of the target, and the number of partitions.

There is no protection against a writer that Spark believes dead but that still runs. A writer that follows another one
reads the target's end until nothing of the other has come for a while. This outlasts requests in flight of a writer
that is dead. Spark's speculation, which runs two writers at once, is refused.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from hot_tier.clock import steady_s
from hot_tier.errors import TierlogError, UnknownTopic

HEADER: Final = "tierlog.replay"
_TIMEOUT_S: Final = 15.0
_QUIET_S: Final = 1.5
_SILENT_S: Final = 60.0
_POLL_ROWS: Final = 1000


class TargetUnavailable(TierlogError):
    """The target's brokers do not answer, or did not accept a record."""

    retriable = True


@dataclass(frozen=True, slots=True)
class Progress:
    partitions: int
    """The number of partitions of the target when the job began. It decides the target partition of each record."""
    sent: Mapping[int, int] = field(default_factory=dict)
    """By source partition: the last source offset that is in the target."""
    looked: Mapping[int, int] = field(default_factory=dict)
    """By target partition: the offset up to which it was searched."""


@dataclass(frozen=True, slots=True)
class TargetTopic:
    kafka: Mapping[str, str] = field(repr=False)
    """librdkafka's settings, with `bootstrap.servers` at least."""
    topic: str
    job: str

    @property
    def where(self) -> str:
        return f"{self.topic} at {self.kafka.get('bootstrap.servers', '?')}"

    def marker(self, partition: int, offset: int) -> bytes:
        return f"{self.job}/{partition}/{offset}".encode()

    def parse(self, headers: Any) -> tuple[int, int] | None:
        """Returns the source partition and offset of a record that this job sent, or None for other records."""
        for name, value in headers or ():
            if name == HEADER and isinstance(value, bytes):
                job, _, place = value.decode(errors="replace").partition("/")
                partition, _, offset = place.partition("/")
                if job == self.job and partition.isdecimal() and offset.isdecimal():
                    return int(partition), int(offset)
        return None

    def progress(self) -> Progress:
        """Returns the progress of the job. If it has not begun, commits the present ends to the target's cluster."""
        consumer = self._consumer()
        try:
            count = self._partitions(consumer)
            committed = consumer.committed([TopicPartition(self.topic, n) for n in range(count)], _TIMEOUT_S)
            if committed[0].offset == OFFSET_INVALID:
                ends = [consumer.get_watermark_offsets(each, _TIMEOUT_S)[1] for each in committed]
                begin = [TopicPartition(self.topic, n, end, metadata=str(count)) for n, end in enumerate(ends)]
                consumer.commit(offsets=begin, asynchronous=False)
                return Progress(count, {}, dict(enumerate(ends)))
            began_with = int(committed[0].metadata or count)
            since = {each.partition: max(0, each.offset) for each in committed[:began_with]}
            return self._look(consumer, Progress(began_with, {}, since), None, _QUIET_S)
        except KafkaException as error:
            raise self._refused(error.args[0]) from error
        finally:
            consumer.close()

    def retention_ms(self) -> int:
        """Returns how long the target keeps records by their own times. Below 0 means for ever."""
        topic = ConfigResource(ConfigResource.Type.TOPIC, self.topic)
        admin = self._admin()
        try:
            [answer] = admin.describe_configs([topic], request_timeout=_TIMEOUT_S).values()
            config = {name: entry.value for name, entry in answer.result().items()}
        except KafkaException as error:
            raise self._refused(error.args[0]) from error
        by_time = "delete" in config["cleanup.policy"] and config["message.timestamp.type"] == "CreateTime"
        return int(config["retention.ms"]) if by_time else -1

    def keep(self) -> None:
        """Makes the target keep records for ever from now on."""
        entry = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
        topic = ConfigResource(ConfigResource.Type.TOPIC, self.topic, incremental_configs=[entry])
        admin = self._admin()
        try:
            [answer] = admin.incremental_alter_configs([topic], request_timeout=_TIMEOUT_S).values()
            answer.result()
        except KafkaException as error:
            raise self._refused(error.args[0]) from error

    def look_again(self, known: Progress, source: int, *, after_another: bool) -> Progress:
        """Returns the progress of one source partition, for a task that may follow a failed one."""
        number = source % known.partitions
        consumer = self._consumer()
        try:
            here = Progress(known.partitions, known.sent, {number: known.looked[number]})
            return self._look(consumer, here, source, _QUIET_S if after_another else 0)
        except KafkaException as error:
            raise self._refused(error.args[0]) from error
        finally:
            consumer.close()

    def _look(self, consumer: Consumer, known: Progress, source: int | None, quiet_s: float) -> Progress:
        """Reads to the end, and until nothing of `source` (None: of the job) has come for `quiet_s`."""
        sent, looked = dict(known.sent), dict(known.looked)
        consumer.assign([TopicPartition(self.topic, number, since) for number, since in looked.items()])
        at_end: set[int] = set()
        quiet_since = steady_s()
        deadline = quiet_since + _SILENT_S
        while len(at_end) < len(looked) or steady_s() - quiet_since < quiet_s:
            if steady_s() > deadline:
                raise TargetUnavailable("cannot be read: no answer", where=self.where, hint="run the job again")
            messages: list[Any] = consumer.consume(_POLL_ROWS, 0.1)
            for message in messages:
                deadline = steady_s() + _SILENT_S
                error = message.error()
                if error is not None:
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    at_end.add(message.partition())
                    continue
                looked[message.partition()] = message.offset() + 1
                place = self.parse(message.headers())
                if place is not None and source in (None, place[0]):
                    sent[place[0]] = max(sent.get(place[0], -1), place[1])
                    quiet_since = steady_s()
        return Progress(known.partitions, sent, looked)

    def _partitions(self, consumer: Consumer) -> int:
        described = consumer.list_topics(self.topic, timeout=_TIMEOUT_S).topics[self.topic]
        if described.error is not None:
            raise self._refused(described.error)
        return len(described.partitions)

    def _admin(self) -> AdminClient:
        return AdminClient({"log_level": 0, **self.kafka})

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "log_level": 0,
                **self.kafka,
                "group.id": f"tierlog.replay.{self.job}",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_uncommitted",
            }
        )

    def _refused(self, error: KafkaError) -> TierlogError:
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return UnknownTopic(
                f"there is no topic {self.topic!r} to replay into", where=self.where, hint="create it first"
            )
        return TargetUnavailable(
            f"cannot be used: {error.str()}", where=self.where, hint="check --kafka, then run the job again"
        )


class TopicWriter:
    """Sends the rows of source partitions in order, on an executor. Raises an error at the first record that is
    refused: with librdkafka's gapless guarantee nothing after it is sent."""

    def __init__(self, target: TargetTopic, progress: Progress) -> None:
        self._target = target
        self._progress = progress
        self._failure: KafkaError | None = None

    def send(self, rows: Iterable[Any]) -> int:
        """Rows are (partition, offset, timestamp_ms, key, value, headers). Returns the number of rows sent."""
        producer = Producer(
            {
                "log_level": 0,
                "linger.ms": 20,
                "compression.type": "lz4",
                **self._target.kafka,
                "enable.idempotence": True,
                "enable.gapless.guarantee": True,
            }
        )
        sent = 0
        try:
            for partition, offset, timestamp_ms, key, value, headers in rows:
                if offset > self._progress.sent.get(partition, -1):
                    self._send(producer, partition, offset, timestamp_ms, key, value, headers)
                    sent += 1
            while len(producer) and self._failure is None:
                producer.flush(0.5)
        except KafkaException as error:
            self._failure = self._failure or error.args[0]
        if self._failure is not None:
            producer.purge()
            raise TargetUnavailable(
                f"a record was not accepted: {self._failure.str()}",
                where=self._target.where,
                hint="run the job again: it continues where it stopped",
            )
        return sent

    def _send(
        self,
        producer: Producer,
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Any,
    ) -> None:
        marked: list[tuple[str, str | bytes | None]] = [
            (header["key"], _bytes(header["value"])) for header in headers or ()
        ]
        marked.append((HEADER, self._target.marker(partition, offset)))
        while self._failure is None:
            try:
                producer.produce(
                    self._target.topic,
                    _bytes(value),
                    _bytes(key),
                    partition=partition % self._progress.partitions,
                    timestamp=max(0, timestamp_ms),
                    headers=marked,
                    on_delivery=self._delivered,
                )
            except BufferError:
                producer.poll(0.5)
                continue
            producer.poll(0)
            return
        raise KafkaException(self._failure)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and self._failure is None:
            self._failure = error


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)

"""confluent-kafka, that is librdkafka."""

import time
from collections.abc import Callable, Mapping, Sequence

import confluent_kafka as ck
from confluent_kafka import admin as cka

from .face import (
    DEFAULT_MEMBER,
    DEFAULT_PRODUCER,
    TIMEOUT_S,
    Fenced,
    Group,
    Isolation,
    MemberOptions,
    Message,
    Partition,
    ProducerOptions,
    Record,
    ServerError,
    Start,
)


def server_error(error: ck.KafkaException | ck.KafkaError) -> Exception:
    """Negative codes are librdkafka's own: those stay as they are, but for the one that wraps the broker's."""
    inner = error.args[0] if isinstance(error, ck.KafkaException) else error
    if inner.code() == ck.KafkaError._AUTO_OFFSET_RESET and "out of range" in inner.str():
        return ServerError(ck.KafkaError.OFFSET_OUT_OF_RANGE, inner.str())
    return ServerError(inner.code(), inner.str()) if inner.code() > 0 else ck.KafkaException(inner)


def as_record(message: ck.Message) -> Record:
    if message.error():
        raise server_error(message.error())
    headers = tuple(message.headers() or ())
    stamp = message.timestamp()[1]
    return Record(message.partition(), message.offset(), stamp, message.key(), message.value(), headers)


class ConfluentMember:
    def __init__(self, bootstrap: str, group: str, topics: Sequence[str], options: MemberOptions) -> None:
        config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": options.strategy,
            "session.timeout.ms": options.session_ms,
            "heartbeat.interval.ms": 300,
            "enable.auto.commit": options.auto_commit_ms is not None,
            "auto.commit.interval.ms": options.auto_commit_ms or 5000,
        }
        if options.instance_id:
            config["group.instance.id"] = options.instance_id
        self._consumer = ck.Consumer(config)
        self._consumer.subscribe(list(topics))
        self._closed = False

    def poll(self, timeout_s: float = 0.2) -> list[Record]:
        return [as_record(message) for message in self._consumer.consume(500, timeout_s)]

    def assignment(self) -> frozenset[Partition]:
        return frozenset(Partition(tp.topic, tp.partition) for tp in self._consumer.assignment())

    def commit(self, offsets: Mapping[Partition, int] | None = None, metadata: str = "") -> None:
        chosen = offsets and [ck.TopicPartition(*tp, offset, metadata=metadata) for tp, offset in offsets.items()]
        try:
            done = self._consumer.commit(asynchronous=False, **({"offsets": chosen} if chosen else {}))
        except ck.KafkaException as error:
            raise server_error(error) from None
        for tp in done or ():
            if tp.error:
                raise server_error(tp.error)

    def committed(self, partition: Partition) -> int | None:
        (found,) = self._consumer.committed([ck.TopicPartition(*partition)], timeout=TIMEOUT_S)
        return found.offset if found.offset >= 0 else None

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._consumer.close()


class ConfluentTransactional:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._bootstrap = bootstrap
        config = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}
        self._producer = ck.Producer({**config, "transaction.timeout.ms": timeout_ms})
        self._ask(self._producer.init_transactions, TIMEOUT_S)

    def _ask(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            call(*arguments)
        except ck.KafkaException as error:
            if error.args[0].fatal():
                raise Fenced(error.args[0].str()) from None
            raise server_error(error) from None

    def begin(self) -> None:
        self._ask(self._producer.begin_transaction)

    def send(self, partition: Partition, values: Sequence[bytes]) -> None:
        for value in values:
            self._ask(self._producer.produce, partition.topic, value, None, partition.partition)

    def flush(self) -> None:
        self._ask(self._producer.flush, TIMEOUT_S)

    def commit_offsets(self, group: str, partition: Partition, offset: int) -> None:
        consumer = ck.Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        try:
            member = consumer.consumer_group_metadata()
        finally:
            consumer.close()
        wanted = [ck.TopicPartition(*partition, offset)]
        self._ask(self._producer.send_offsets_to_transaction, wanted, member, TIMEOUT_S)

    def commit(self) -> None:
        self._ask(self._producer.commit_transaction, TIMEOUT_S)

    def abort(self) -> None:
        self._ask(self._producer.abort_transaction, TIMEOUT_S)

    def close(self) -> None:
        del self._producer


class ConfluentClient:
    name = "confluent-kafka"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = cka.AdminClient({"bootstrap.servers": bootstrap})
        self._members: list[ConfluentMember] = []
        self._senders: list[ConfluentTransactional] = []

    # Records

    def produce(
        self, partition: Partition, messages: Sequence[Message], options: ProducerOptions = DEFAULT_PRODUCER
    ) -> list[int]:
        producer = ck.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": options.acks,
                "compression.type": options.codec,
                "enable.idempotence": options.idempotent,
                "message.max.bytes": options.max_request_bytes,
                "linger.ms": 5,
                "message.timeout.ms": int(TIMEOUT_S * 1000),
            }
        )
        offsets: dict[int, int] = {}
        errors: list[ck.KafkaError] = []

        def report(index: int):
            def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
                if error:
                    errors.append(error)
                else:
                    offset = message.offset()
                    offsets[index] = offset if offset is not None and offset >= 0 else -1

            return delivered

        for index, message in enumerate(messages):
            extra = {} if message.timestamp is None else {"timestamp": message.timestamp}
            producer.produce(
                partition.topic,
                message.value,
                message.key,
                partition.partition,
                headers=list(message.headers),
                on_delivery=report(index),
                **extra,
            )
        assert producer.flush(TIMEOUT_S + 5) == 0, "messages neither delivered nor failed"
        if errors:
            raise server_error(errors[0])
        return [offsets[index] for index in range(len(messages))]

    def _reader(self, **more: object) -> ck.Consumer:
        config = {"bootstrap.servers": self._bootstrap, "group.id": "unused", "enable.auto.commit": False}
        return ck.Consumer({**config, "auto.offset.reset": "error", **more})

    def transactional(self, transactional_id: str, *, timeout_ms: int = 60_000) -> ConfluentTransactional:
        self._senders.append(ConfluentTransactional(self._bootstrap, transactional_id, timeout_ms))
        return self._senders[-1]

    def read(
        self,
        partition: Partition,
        start: Start,
        count: int,
        *,
        max_partition_bytes: int = 1 << 20,
        isolation: Isolation = "read_uncommitted",
    ) -> list[Record]:
        named = {"beginning": ck.OFFSET_BEGINNING, "end": ck.OFFSET_END}
        offset = start if isinstance(start, int) else named[start]
        consumer = self._reader(**{"max.partition.fetch.bytes": max_partition_bytes, "isolation.level": isolation})
        records: list[Record] = []
        try:
            consumer.assign([ck.TopicPartition(*partition, offset)])
            deadline = time.monotonic() + TIMEOUT_S
            while len(records) < count and time.monotonic() < deadline:
                records += [as_record(message) for message in consumer.consume(count - len(records), 0.2)]
        finally:
            consumer.close()
        return records

    def offset_for_time(self, partition: Partition, timestamp: int) -> int | None:
        consumer = self._reader()
        try:
            (found,) = consumer.offsets_for_times([ck.TopicPartition(*partition, timestamp)], timeout=TIMEOUT_S)
        finally:
            consumer.close()
        if found.error:
            raise server_error(found.error)
        return found.offset if found.offset >= 0 else None

    def bounds(self, partition: Partition) -> tuple[int, int]:
        tp = ck.TopicPartition(*partition)
        earliest, latest = (
            self._done(self._admin.list_offsets({tp: spec}), tp).offset
            for spec in (cka.OffsetSpec.earliest(), cka.OffsetSpec.latest())
        )
        return earliest, latest

    def member(self, group: str, topics: Sequence[str], options: MemberOptions = DEFAULT_MEMBER) -> ConfluentMember:
        self._members.append(ConfluentMember(self._bootstrap, group, topics, options))
        return self._members[-1]

    # Administration

    @staticmethod
    def _done(futures, key):
        try:
            return futures[key].result(TIMEOUT_S)
        except ck.KafkaException as error:
            raise server_error(error) from None

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        topic = cka.NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        self._done(self._admin.create_topics([topic]), name)

    def delete_topic(self, name: str) -> None:
        self._done(self._admin.delete_topics([name]), name)

    def topics(self) -> dict[str, int]:
        listed = self._admin.list_topics(timeout=TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in listed.items()}

    def add_partitions(self, name: str, total: int) -> None:
        self._done(self._admin.create_partitions([cka.NewPartitions(name, total)]), name)

    def topic_config(self, name: str) -> dict[str, str | None]:
        resource = cka.ConfigResource(cka.ResourceType.TOPIC, name)
        entries = self._done(self._admin.describe_configs([resource]), resource)
        return {key: entry.value for key, entry in entries.items()}

    def alter_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        changes = [
            cka.ConfigEntry(key, value, incremental_operation=cka.AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        resource = cka.ConfigResource(cka.ResourceType.TOPIC, name, incremental_configs=changes)
        self._done(self._admin.incremental_alter_configs([resource]), resource)

    def cluster(self) -> dict[int, tuple[str, int]]:
        described = self._admin.describe_cluster().result(TIMEOUT_S)
        assert described.cluster_id
        assert described.controller.id in {node.id for node in described.nodes}
        return {node.id: (node.host, node.port) for node in described.nodes}

    def groups(self) -> set[str]:
        listed = self._admin.list_consumer_groups().result(TIMEOUT_S)
        assert not listed.errors
        return {group.group_id for group in listed.valid}

    def group(self, name: str) -> Group:
        found = self._done(self._admin.describe_consumer_groups([name]), name)
        members = {
            member.member_id: frozenset(Partition(tp.topic, tp.partition) for tp in member.assignment.topic_partitions)
            for member in found.members
        }
        return Group(found.state.name.title().replace("_", ""), members)

    def group_offsets(self, name: str) -> dict[Partition, int]:
        found = self._done(self._admin.list_consumer_group_offsets([ck.ConsumerGroupTopicPartitions(name)]), name)
        return {Partition(tp.topic, tp.partition): tp.offset for tp in found.topic_partitions}

    def delete_group(self, name: str) -> None:
        self._done(self._admin.delete_consumer_groups([name]), name)

    def delete_records(self, partition: Partition, before: int) -> int:
        tp = ck.TopicPartition(*partition, before)
        return self._done(self._admin.delete_records([tp]), tp).low_watermark

    def close(self) -> None:
        for held in (*self._members, *self._senders):
            held.close()

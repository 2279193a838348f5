"""kafka-python."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from typing import Any, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.errors import BrokerResponseError
from kafka.structs import OffsetAndMetadata

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
    Unsupported,
)

T = TypeVar("T")
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


@contextmanager
def server_errors() -> Iterator[None]:
    try:
        yield
    except BrokerResponseError as error:
        raise ServerError(error.errno, str(error)) from error


def as_record(message) -> Record:
    headers = tuple(tuple(header) for header in message.headers or ())
    return Record(message.partition, message.offset, message.timestamp, message.key, message.value, headers)


class KafkaPythonMember:
    """Polls in a thread of its own, and long: a join that a short poll cuts off starts from the beginning, and two
    members polled in turns can go on cutting each other off."""

    POLL_MS = 500

    def __init__(self, bootstrap: str, group: str, topics: Sequence[str], options: MemberOptions) -> None:
        self._consumer = KafkaConsumer(
            *topics,
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=options.instance_id,
            auto_offset_reset="earliest",
            partition_assignment_strategy=[ASSIGNORS[options.strategy]],
            session_timeout_ms=options.session_ms,
            heartbeat_interval_ms=300,
            enable_auto_commit=options.auto_commit_ms is not None,
            auto_commit_interval_ms=options.auto_commit_ms or 5000,
        )
        self._records: queue.SimpleQueue[Record] = queue.SimpleQueue()
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            while not self._calls.empty():
                call, answer = self._calls.get()
                try:
                    answer.set_result(call())
                except Exception as error:
                    answer.set_exception(error)
            for messages in self._consumer.poll(timeout_ms=self.POLL_MS).values():
                for message in messages:
                    self._records.put(as_record(message))
        self._consumer.close(timeout_ms=TIMEOUT_S * 1000)

    def _call(self, function: Callable[[], T]) -> T:
        answer: Future[T] = Future()
        self._calls.put((function, answer))
        with server_errors():
            return answer.result(TIMEOUT_S)

    def poll(self, timeout_s: float = 0.2) -> list[Record]:
        records: list[Record] = []
        try:
            records.append(self._records.get(timeout=timeout_s))
            while True:
                records.append(self._records.get_nowait())
        except queue.Empty:
            return records

    def assignment(self) -> frozenset[Partition]:
        return frozenset(Partition(tp.topic, tp.partition) for tp in self._consumer.assignment())

    def commit(self, offsets: Mapping[Partition, int] | None = None, metadata: str = "") -> None:
        chosen = offsets and {
            TopicPartition(*tp): OffsetAndMetadata(offset, metadata, -1) for tp, offset in offsets.items()
        }
        self._call(lambda: self._consumer.commit(chosen, timeout_ms=TIMEOUT_S * 1000))

    def committed(self, partition: Partition) -> int | None:
        return self._call(lambda: self._consumer.committed(TopicPartition(*partition), timeout_ms=TIMEOUT_S * 1000))

    def close(self) -> None:
        self._closed = True
        self._thread.join(TIMEOUT_S)


class KafkaPythonTransactional:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            request_timeout_ms=10_000,
            delivery_timeout_ms=int(TIMEOUT_S * 1000),
        )
        self._closed = False
        self._ask(self._producer.init_transactions)

    def _ask(self, call: Callable[..., object], *arguments: object, **named: object) -> None:
        try:
            with server_errors():
                call(*arguments, **named)
        except ServerError as error:
            if isinstance(error.__cause__, errors.ProducerFencedError | errors.InvalidProducerEpochError):
                raise Fenced(str(error)) from None
            raise
        except errors.KafkaError as error:
            if "in an error state" in str(error):  # of what it was told before
                raise Fenced(str(error)) from None
            raise

    def begin(self) -> None:
        self._ask(self._producer.begin_transaction)

    def send(self, partition: Partition, values: Sequence[bytes]) -> None:
        for value in values:
            self._ask(self._producer.send, partition.topic, value, partition=partition.partition)

    def flush(self) -> None:
        self._ask(self._producer.flush, TIMEOUT_S)

    def commit_offsets(self, group: str, partition: Partition, offset: int) -> None:
        wanted = {TopicPartition(*partition): OffsetAndMetadata(offset, "", -1)}
        self._ask(self._producer.send_offsets_to_transaction, wanted, group)

    def commit(self) -> None:
        self._ask(self._producer.commit_transaction)

    def abort(self) -> None:
        self._ask(self._producer.abort_transaction)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._producer.close(timeout=1)


class KafkaPythonClient:
    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=int(TIMEOUT_S * 1000))
        self._members: list[KafkaPythonMember] = []
        self._senders: list[KafkaPythonTransactional] = []

    # Records

    def produce(
        self, partition: Partition, messages: Sequence[Message], options: ProducerOptions = DEFAULT_PRODUCER
    ) -> list[int]:
        if any(value is None for message in messages for _, value in message.headers):
            raise Unsupported("kafka-python refuses header values of None")
        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks=options.acks,
            compression_type=None if options.codec == "none" else options.codec,
            enable_idempotence=options.idempotent,
            max_request_size=options.max_request_bytes,
            linger_ms=5,
            delivery_timeout_ms=int(TIMEOUT_S * 1000),
            request_timeout_ms=10_000,
        )
        with closing(producer), server_errors():
            futures = [
                producer.send(
                    partition.topic,
                    value=message.value,
                    key=message.key,
                    headers=list(message.headers),
                    partition=partition.partition,
                    timestamp_ms=message.timestamp,
                )
                for message in messages
            ]
            producer.flush(TIMEOUT_S)
            offsets = [future.get(TIMEOUT_S).offset for future in futures]
        return [-1] * len(offsets) if options.acks == 0 else offsets  # it makes offsets up

    @contextmanager
    def _reader(self, **more: object) -> Iterator[KafkaConsumer]:
        consumer = KafkaConsumer(bootstrap_servers=self._bootstrap, auto_offset_reset="none", **more)
        with closing(consumer), server_errors():
            yield consumer

    def transactional(self, transactional_id: str, *, timeout_ms: int = 60_000) -> KafkaPythonTransactional:
        self._senders.append(KafkaPythonTransactional(self._bootstrap, transactional_id, timeout_ms))
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
        tp = TopicPartition(*partition)
        records: list[Record] = []
        with self._reader(max_partition_fetch_bytes=max_partition_bytes, isolation_level=isolation) as consumer:
            consumer.assign([tp])
            if start == "beginning":
                consumer.seek_to_beginning(tp)
            elif start == "end":
                consumer.seek_to_end(tp)
            else:
                consumer.seek(tp, start)
            deadline = time.monotonic() + TIMEOUT_S
            while len(records) < count and time.monotonic() < deadline:
                polled = consumer.poll(timeout_ms=200, max_records=count - len(records))
                records += [as_record(message) for message in polled.get(tp, ())]
        return records

    def offset_for_time(self, partition: Partition, timestamp: int) -> int | None:
        tp = TopicPartition(*partition)
        with self._reader() as consumer:
            found = consumer.offsets_for_times({tp: timestamp}, timeout_ms=TIMEOUT_S * 1000)[tp]
        return None if found is None else found.offset

    def bounds(self, partition: Partition) -> tuple[int, int]:
        tp = TopicPartition(*partition)
        with self._reader() as consumer:
            return consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp]

    def member(self, group: str, topics: Sequence[str], options: MemberOptions = DEFAULT_MEMBER) -> KafkaPythonMember:
        self._members.append(KafkaPythonMember(self._bootstrap, group, topics, options))
        return self._members[-1]

    # Administration

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(config or {})}
        with server_errors():
            self._admin.create_topics({name: wanted})

    def delete_topic(self, name: str) -> None:
        with server_errors():
            self._admin.delete_topics([name])

    def topics(self) -> dict[str, int]:
        return {topic["name"]: len(topic["partitions"]) for topic in self._admin.describe_topics()}

    def add_partitions(self, name: str, total: int) -> None:
        with server_errors():
            self._admin.create_partitions({name: total})

    def topic_config(self, name: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        described = self._admin.describe_configs([resource], config_filter="all")["topic"][name]
        return {key: entry["value"] for key, entry in described.items()}

    def alter_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, name, configs=dict(config))
        with server_errors():
            (result,) = self._admin.alter_configs([resource])["topic"].values()
        if result != "OK":  # "[Error 40] …"
            raise ServerError(int(result.split("]")[0].split()[-1]), result)

    def cluster(self) -> dict[int, tuple[str, int]]:
        described = self._admin.describe_cluster()
        assert described["cluster_id"]
        brokers = {node["broker_id"]: (node["host"], node["port"]) for node in described["brokers"]}
        assert described["controller_id"] in brokers
        return brokers

    def groups(self) -> set[str]:
        return {group["group_id"] for group in self._admin.list_groups()}

    def group(self, name: str) -> Group:
        described = self._admin.describe_groups([name])[name]
        members = {
            member["member_id"]: frozenset(
                Partition(assigned["topic"], partition)
                for assigned in (member["member_assignment"] or {}).get("assigned_partitions", ())
                for partition in assigned["partitions"]
            )
            for member in described["members"]
        }
        return Group(described["group_state"], members)

    def group_offsets(self, name: str) -> dict[Partition, int]:
        with server_errors():
            found = self._admin.list_group_offsets(name)[name]
        return {Partition(tp.topic, tp.partition): offset.offset for tp, offset in found.items()}

    def delete_group(self, name: str) -> None:
        result = self._admin.delete_groups([name])[name]
        if result != "OK":
            raise ServerError(getattr(errors, result).errno, result)

    def delete_records(self, partition: Partition, before: int) -> int:
        tp = TopicPartition(*partition)
        with server_errors():
            return self._admin.delete_records({tp: before})[tp]["low_watermark"]

    def close(self) -> None:
        for held in (*self._members, *self._senders):
            held.close()
        self._admin.close()

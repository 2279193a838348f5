"""aiokafka, on an event loop of its own in a thread, so that it is called like the others."""

import asyncio
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import BrokerResponseError, ProducerFenced, for_code
from aiokafka.protocol.group import MemberAssignment
from aiokafka.structs import OffsetAndMetadata

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
ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


def as_record(message) -> Record:
    headers = tuple(tuple(header) for header in message.headers or ())
    return Record(message.partition, message.offset, message.timestamp, message.key, message.value, headers)


def check(code: int, text: str | None) -> None:
    if code:
        raise ServerError(code, text or for_code(code).__name__)


class LoopThread:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, job: Coroutine[Any, Any, T], timeout_s: float = TIMEOUT_S + 10) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(job, self._loop).result(timeout_s)
        except BrokerResponseError as error:
            raise ServerError(error.errno, str(error)) from error

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()


class AioMember:
    def __init__(
        self, thread: LoopThread, bootstrap: str, group: str, topics: Sequence[str], options: MemberOptions
    ) -> None:
        if options.strategy not in ASSIGNORS:
            raise Unsupported(f"aiokafka has no {options.strategy} assignor")
        self._thread = thread
        self._closed = False

        async def join() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(
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
            await consumer.start()
            return consumer

        self._consumer = thread.run(join())

    def poll(self, timeout_s: float = 0.2) -> list[Record]:
        polled = self._thread.run(self._consumer.getmany(timeout_ms=int(timeout_s * 1000)))
        return [as_record(message) for messages in polled.values() for message in messages]

    def assignment(self) -> frozenset[Partition]:
        return frozenset(Partition(tp.topic, tp.partition) for tp in self._consumer.assignment())

    def commit(self, offsets: Mapping[Partition, int] | None = None, metadata: str = "") -> None:
        chosen = offsets and {
            TopicPartition(*tp): OffsetAndMetadata(offset, metadata) for tp, offset in offsets.items()
        }
        self._thread.run(self._consumer.commit(chosen))

    def committed(self, partition: Partition) -> int | None:
        return self._thread.run(self._consumer.committed(TopicPartition(*partition)))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._thread.run(self._consumer.stop())


class AioTransactional:
    def __init__(self, thread: LoopThread, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._thread = thread
        self._sent: list[asyncio.Future[Any]] = []
        self._closed = False

        async def start() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
            )
            await producer.start()
            return producer

        self._producer = self._ask(start())

    def _ask(self, job: Coroutine[Any, Any, T]) -> T:
        try:
            return self._thread.run(job)
        except ProducerFenced as error:
            raise Fenced(str(error)) from error

    def begin(self) -> None:
        self._ask(self._producer.begin_transaction())

    def send(self, partition: Partition, values: Sequence[bytes]) -> None:
        async def send() -> None:
            for value in values:
                self._sent.append(await self._producer.send(*partition[:1], value, partition=partition.partition))

        self._ask(send())

    def flush(self) -> None:
        async def flush() -> None:
            await asyncio.gather(*self._sent)
            self._sent.clear()

        self._ask(flush())

    def commit_offsets(self, group: str, partition: Partition, offset: int) -> None:
        self._ask(self._producer.send_offsets_to_transaction({TopicPartition(*partition): offset}, group))

    def commit(self) -> None:
        self._sent.clear()
        self._ask(self._producer.commit_transaction())

    def abort(self) -> None:
        self._sent.clear()
        self._ask(self._producer.abort_transaction())

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            with suppress(ServerError, ProducerFenced):
                self._thread.run(self._producer.stop())
            self._thread.run(self._producer.client.close())


class AioClient:
    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._thread = LoopThread()
        self._members: list[AioMember] = []
        self._senders: list[AioTransactional] = []

        async def connect() -> AIOKafkaAdminClient:
            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            return admin

        self._admin = self._run(connect())

    def _run(self, job: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(job)

    # Records

    def produce(
        self, partition: Partition, messages: Sequence[Message], options: ProducerOptions = DEFAULT_PRODUCER
    ) -> list[int]:
        async def send() -> list[int]:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                acks=options.acks,
                compression_type=None if options.codec == "none" else options.codec,
                enable_idempotence=options.idempotent,
                max_request_size=options.max_request_bytes,
                linger_ms=5,
                request_timeout_ms=int(TIMEOUT_S * 1000),
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        partition.topic,
                        value=message.value,
                        key=message.key,
                        headers=list(message.headers),
                        partition=partition.partition,
                        timestamp_ms=message.timestamp,
                    )
                    for message in messages
                ]
                reports = await asyncio.gather(*futures)
            finally:
                await producer.stop()
            return [-1 if report is None else report.offset for report in reports]

        return self._run(send())

    async def _reader(self, **more: Any) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, auto_offset_reset="none", enable_auto_commit=False, **more
        )
        await consumer.start()
        return consumer

    def transactional(self, transactional_id: str, *, timeout_ms: int = 60_000) -> AioTransactional:
        self._senders.append(AioTransactional(self._thread, self._bootstrap, transactional_id, timeout_ms))
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
        async def fetch() -> list[Record]:
            tp = TopicPartition(*partition)
            records: list[Record] = []
            consumer = await self._reader(max_partition_fetch_bytes=max_partition_bytes, isolation_level=isolation)
            try:
                consumer.assign([tp])
                if start == "beginning":
                    await consumer.seek_to_beginning(tp)
                elif start == "end":
                    await consumer.seek_to_end(tp)
                else:
                    consumer.seek(tp, start)
                deadline = time.monotonic() + TIMEOUT_S
                while len(records) < count and time.monotonic() < deadline:
                    polled = await consumer.getmany(tp, timeout_ms=200, max_records=count - len(records))
                    records += [as_record(message) for message in polled.get(tp, ())]
            finally:
                await consumer.stop()
            return records

        return self._run(fetch())

    def offset_for_time(self, partition: Partition, timestamp: int) -> int | None:
        async def look() -> int | None:
            tp = TopicPartition(*partition)
            consumer = await self._reader()
            try:
                found = (await consumer.offsets_for_times({tp: timestamp}))[tp]
            finally:
                await consumer.stop()
            return None if found is None else found.offset

        return self._run(look())

    def bounds(self, partition: Partition) -> tuple[int, int]:
        async def look() -> tuple[int, int]:
            tp = TopicPartition(*partition)
            consumer = await self._reader()
            try:
                return (await consumer.beginning_offsets([tp]))[tp], (await consumer.end_offsets([tp]))[tp]
            finally:
                await consumer.stop()

        return self._run(look())

    def member(self, group: str, topics: Sequence[str], options: MemberOptions = DEFAULT_MEMBER) -> AioMember:
        self._members.append(AioMember(self._thread, self._bootstrap, group, topics, options))
        return self._members[-1]

    # Administration

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        topic = NewTopic(name, partitions, 1, topic_configs=dict(config or {}))
        for _, code, *text in self._run(self._admin.create_topics([topic])).topic_errors:
            check(code, text[0] if text else None)

    def delete_topic(self, name: str) -> None:
        for _, code, *_rest in self._run(self._admin.delete_topics([name])).topic_error_codes:
            check(code, None)

    def topics(self) -> dict[str, int]:
        return {topic["topic"]: len(topic["partitions"]) for topic in self._run(self._admin.describe_topics())}

    def add_partitions(self, name: str, total: int) -> None:
        self._run(self._admin.create_partitions({name: NewPartitions(total)}))

    def topic_config(self, name: str) -> dict[str, str | None]:
        (answer,) = self._run(self._admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)]))
        ((code, text, _type, _name, entries),) = answer.resources
        check(code, text)
        return {entry[0]: entry[1] for entry in entries}

    def alter_topic_config(self, name: str, config: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, name, configs=dict(config))
        (answer,) = self._run(self._admin.alter_configs([resource]))
        for code, text, *_rest in answer.resources:
            check(code, text)

    def cluster(self) -> dict[int, tuple[str, int]]:
        described = self._run(self._admin.describe_cluster())
        brokers = {node["node_id"]: (node["host"], node["port"]) for node in described["brokers"]}
        assert described["controller_id"] in brokers
        return brokers

    def groups(self) -> set[str]:
        return {group[0] for group in self._run(self._admin.list_consumer_groups())}

    def group(self, name: str) -> Group:
        (answer,) = self._run(self._admin.describe_consumer_groups([name]))
        ((code, _name, state, _type, _protocol, members, *_rest),) = answer.groups
        check(code, None)
        found = {}
        for member_id, *_between, assignment in (member[:6] for member in members):
            decoded = MemberAssignment.decode(bytes(assignment)).assignment if assignment else ()
            found[member_id] = frozenset(Partition(topic, number) for topic, some in decoded for number in some)
        return Group(state, found)

    def group_offsets(self, name: str) -> dict[Partition, int]:
        found = self._run(self._admin.list_consumer_group_offsets(name))
        return {Partition(tp.topic, tp.partition): offset.offset for tp, offset in found.items()}

    def delete_group(self, name: str) -> None:
        raise Unsupported("aiokafka has no call for deleting a group")

    def delete_records(self, partition: Partition, before: int) -> int:
        tp = TopicPartition(*partition)
        return self._run(self._admin.delete_records({tp: RecordsToDelete(before)}))[tp]

    def close(self) -> None:
        for held in (*self._members, *self._senders):
            held.close()
        self._run(self._admin.close())
        self._thread.close()

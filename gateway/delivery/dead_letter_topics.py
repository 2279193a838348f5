"""The dead-letter topics `<topic>.<group>.dlq`: makes them, copies records into them, and knows what they contain.

Only the dead-letter topic says what was dead-lettered. Its partition p holds the copies of records of the topic's
partition p; the headers of a copy name its origin. A dead-letter partition is read when it is first needed; from then
on its content is known in memory. So one write makes both the copy and the knowledge of it, and a crash cannot separate
them.

The broker that leads the origin makes the copies. If another broker leads the dead-letter partition, copies are read
and written through that broker.

- There is at most one copy of a record per group, if callers hold one lock per group and partition. Copies that an
  earlier leader of the origin made are read first. A deposed leader that does not know it yet may make a second copy.
- A copy names the id of its origin's topic: a topic that was deleted and made again starts without dead letters. It
  names its group, because `a` + `b.c` and `a.b` + `c` share one dead-letter topic.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from gateway.node import Node
from gateway.record_stream import RecordStream
from hot_tier.cluster.admin import NAME_LIMIT, check_topic_name
from hot_tier.cluster.model import Topic
from hot_tier.errors import InvalidTopicName, TopicExists
from hot_tier.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from hot_tier.log.config import TopicConfig
from hot_tier.record.batch import read_header
from hot_tier.record.records import NewRecord, Record, encode_records
from hot_tier.replication.led_partition import LedPartition

SUFFIX: Final = ".dlq"
HEADER: Final = "tierlog.dlq."
NOTES_BYTES: Final = 64 * 1024
"""How many bytes the headers of a copy may add to its origin."""
INT32_MAX: Final = 2**31 - 1


class Origin(NamedTuple):
    group: str
    topic_id: str
    offset: int


@dataclass(slots=True)
class Copies:
    """The copies from one partition for one group: origin offset → offset in the dead-letter topic."""

    dlq_id: TopicId
    source_id: TopicId
    source_epoch: LeaderEpoch
    """The epoch in which this node leads the origin. In earlier epochs other brokers may have made copies."""
    offsets: dict[int, int]


class DeadLetterPartition(Protocol):
    """A partition that holds copies, on this broker or on another one."""

    @property
    def tp(self) -> TopicPartition: ...

    def records(self) -> AsyncIterator[Sequence[Record]]:
        """Returns all copies, once they are committed."""
        ...

    async def append(self, record: NewRecord) -> Offset:
        """Returns the offset of the copy, once it is committed."""
        ...


class OtherBrokers(Protocol):
    def led_elsewhere(self, topic: str, partition: int) -> DeadLetterPartition | None:
        """Returns None if this node leads the partition."""
        ...


class LedHere:
    """A dead-letter partition that this node leads."""

    def __init__(self, node: Node, partition: LedPartition) -> None:
        self._node = node
        self._partition = partition
        self.tp = partition.tp

    async def records(self) -> AsyncIterator[Sequence[Record]]:
        partition = self._partition
        committed = partition.when_committed(partition.log_end_offset)
        if committed is not None:
            await committed
        stream = RecordStream(self._node, partition, partition.log_start_offset, partition.high_watermark)
        while (chunk := await stream.next()) is not None:
            yield await chunk.records()

    async def append(self, record: NewRecord) -> Offset:
        batch = encode_records([record])
        appended = self._partition.append(batch, read_header(batch), self._node.clock())
        committed = self._partition.when_committed(appended.end_offset)
        if committed is not None:
            await committed
        return appended.base_offset


class DeadLetterTopics:
    def __init__(self, node: Node, others: OtherBrokers) -> None:
        self._node = node
        self._others = others
        self._known: dict[tuple[str, TopicPartition], Copies] = {}
        self.copied = 0

    def of_group(self, group: str) -> list[tuple[str, Topic]]:
        """Returns the origin's name and the dead-letter topic, for each dead-letter topic of this group."""
        ending = f".{group}{SUFFIX}"
        return [
            (topic.name.removesuffix(ending), topic)
            for topic in sorted(self._node.image.topics(), key=lambda each: each.name)
            if topic.name.endswith(ending) and len(topic.name) > len(ending)
        ]

    async def copies(self, group: str, partition: LedPartition) -> Copies | None:
        """Returns the copies from this partition; None if there is no dead-letter topic for it."""
        dlq = self._node.image.find_topic(f"{partition.tp.topic}.{group}{SUFFIX}")
        if dlq is None or partition.tp.partition >= dlq.partitions:
            return None
        key = (group, partition.tp)
        identity = (dlq.id, partition.topic.id, partition.leader_epoch)
        known = self._known.get(key)
        if known is not None and (known.dlq_id, known.source_id, known.source_epoch) == identity:
            return known
        offsets = await self._read(group, partition, self._place(dlq.name, partition.tp.partition))
        # Another task may have finished reading first and made copies since then.
        known = self._known.get(key)
        if known is None or (known.dlq_id, known.source_id, known.source_epoch) != identity:
            known = self._known[key] = Copies(*identity, offsets)
        return known

    def _place(self, topic: str, partition: int) -> DeadLetterPartition:
        elsewhere = self._others.led_elsewhere(topic, partition)
        return LedHere(self._node, self._node.partitions.get(topic, partition)) if elsewhere is None else elsewhere

    async def make(self, group: str, partition: LedPartition) -> tuple[DeadLetterPartition, Copies]:
        """Returns the partition to copy to and the copies from this partition. Makes the topic if there is none."""
        topic = await self._make_topic(group, partition.topic)
        target = self._place(topic.name, partition.tp.partition)
        copies = await self.copies(group, partition)
        assert copies is not None, "the dead-letter topic was just made"
        return target, copies

    async def copy(
        self,
        group: str,
        source: LedPartition,
        record: Record,
        notes: Mapping[str, str],
        target: DeadLetterPartition,
        copies: Copies,
    ) -> Offset:
        """Appends the copy, waits until it is committed, and remembers it. Returns its offset."""
        try:
            offset = await target.append(_with_origin(record, source, notes, self._node.clock()))
        except BaseException:
            # The copy may or may not be in the log. The copies are read again before the next one is made.
            self._known.pop((group, source.tp), None)
            raise
        copies.offsets[record.offset] = offset
        self.copied += 1
        return offset

    async def _read(self, group: str, source: LedPartition, target: DeadLetterPartition) -> dict[int, int]:
        offsets: dict[int, int] = {}
        source_id = str(source.topic.id)
        async for records in target.records():
            for record in records:
                origin = origin_of(record)
                if origin is not None and origin.group == group and origin.topic_id == source_id:
                    offsets.setdefault(origin.offset, record.offset)
        return offsets

    async def _make_topic(self, group: str, source: Topic) -> Topic:
        name = dead_letter_topic_name(group, source)
        admin, image = self._node.admin, self._node.image
        topic = image.find_topic(name)
        if topic is None:
            try:
                return await admin.create_topic(
                    name,
                    source.partitions,
                    source.replication_factor,
                    _dead_letter_config(source, self._node.partitions.config(source)),
                )
            except TopicExists:
                topic = image.topic(name)
        if topic.partitions < source.partitions:
            topic = await admin.add_partitions(name, source.partitions)
        return topic


def dead_letter_topic_name(group: str, source: Topic) -> str:
    """Returns the name of the dead-letter topic. Raises InvalidTopicName if there cannot be one."""
    if source.internal:
        raise InvalidTopicName(f"{source.name} belongs to the service", hint="Its records cannot be dead-lettered.")
    name = f"{source.name}.{group}{SUFFIX}"
    try:
        check_topic_name(name)
    except InvalidTopicName:
        raise InvalidTopicName(
            f"the dead-letter topic of group {group!r} cannot be named {name!r}",
            hint="Use a group name of a-z, A-Z, 0-9, '.', '_' and '-'. "
            f"The whole topic name has at most {NAME_LIMIT} characters.",
        ) from None
    return name


def _dead_letter_config(source: Topic, settings: TopicConfig) -> dict[str, str]:
    """Returns settings that keep a copy longer than its origin: it is made later and kept as long.

    So no record is copied twice. `max.message.bytes` leaves room for the headers that a copy adds.
    """
    config = {
        "cleanup.policy": "delete",
        "retention.bytes": "-1",
        "max.message.bytes": str(min(settings.max_message_bytes + NOTES_BYTES, INT32_MAX)),
    }
    if settings.compacted:
        config["retention.ms"] = "-1"
    for name in ("retention.ms", "remote.storage.enable", "min.insync.replicas", "flush"):
        if name in source.config:
            config.setdefault(name, source.config[name])
    return config


def _with_origin(record: Record, source: LedPartition, notes: Mapping[str, str], now_ms: int) -> NewRecord:
    origin = {
        **notes,
        "topic": source.tp.topic,
        "topic_id": str(source.topic.id),
        "partition": str(source.tp.partition),
        "offset": str(record.offset),
        "timestamp": str(record.timestamp),
    }
    headers = tuple((HEADER + name, text.encode()) for name, text in origin.items())
    return NewRecord(now_ms, record.key, record.value, (*record.headers, *headers))


def origin_of(record: Record) -> Origin | None:
    """Returns where a copy comes from. If a header occurs twice, the last one counts: a copy may be copied again."""
    notes: Mapping[str, bytes] = {
        name: value for name, value in record.headers if name is not None and value is not None
    }
    try:
        return Origin(
            notes[HEADER + "group"].decode(),
            notes[HEADER + "topic_id"].decode(),
            int(notes[HEADER + "offset"]),
        )
    except (KeyError, ValueError):
        return None

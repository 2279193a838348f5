"""The dead-letter topics `<topic>.<group>.dlq`: making them, copying records into them, knowing what is in them.

The dead-letter topic is the only record of what was dead-lettered. Its partition p holds the copies from the topic's
partition p, each naming its origin in its headers; it is read once, when it is first needed, and known in memory
from then on. So a copy and the knowledge of it are one write, and a crash cannot part them.

- At most one copy of a record per group, as long as callers hold one lock per group and partition.
- A copy names the id of the topic it comes from: a topic made anew under its old name starts without dead letters.
  It names its group, because `a` + `b.c` and `a.b` + `c` meet in one dead-letter topic.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from gateway.node import Node
from gateway.record_stream import RecordStream
from hot_tier.cluster.admin import NAME_LIMIT, check_topic_name
from hot_tier.cluster.model import Topic
from hot_tier.errors import InvalidTopicName, TopicExists
from hot_tier.ids import Offset, TopicId, TopicPartition
from hot_tier.record.batch import read_header
from hot_tier.record.records import NewRecord, Record, encode_records
from hot_tier.replication.partition import Partition

SUFFIX: Final = ".dlq"
HEADER: Final = "tierlog.dlq."


class Origin(NamedTuple):
    group: str
    topic_id: str
    offset: int


@dataclass(slots=True)
class Copies:
    """What was copied from one partition for one group: origin offset → offset in the dead-letter topic."""

    dlq_id: TopicId
    source_id: TopicId
    offsets: dict[int, int]


class DeadLetterTopics:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._known: dict[tuple[str, TopicPartition], Copies] = {}
        self.copied = 0

    def of_group(self, group: str) -> list[tuple[str, Topic]]:
        """Origin and dead-letter topic, for each dead-letter topic of this group."""
        ending = f".{group}{SUFFIX}"
        return [
            (topic.name.removesuffix(ending), topic)
            for topic in sorted(self._node.image.topics(), key=lambda each: each.name)
            if topic.name.endswith(ending) and len(topic.name) > len(ending)
        ]

    async def copies(self, group: str, partition: Partition) -> Copies | None:
        """What was copied from this partition; None while there is no dead-letter topic for it."""
        dlq = self._node.image.find_topic(f"{partition.tp.topic}.{group}{SUFFIX}")
        if dlq is None or partition.tp.partition >= dlq.partitions:
            return None
        key = (group, partition.tp)
        known = self._known.get(key)
        if known is not None and known.dlq_id == dlq.id and known.source_id == partition.topic.id:
            return known
        offsets = await self._read(group, partition, self._node.partitions.get(dlq.name, partition.tp.partition))
        # Somebody else may have finished reading first, and copied since.
        known = self._known.get(key)
        if known is None or known.dlq_id != dlq.id or known.source_id != partition.topic.id:
            known = self._known[key] = Copies(dlq.id, partition.topic.id, offsets)
        return known

    async def make(self, group: str, partition: Partition) -> tuple[Partition, Copies]:
        """The partition to copy to, made if need be, and what was copied there already."""
        topic = await self._make_topic(group, partition.topic)
        target = self._node.partitions.get(topic.name, partition.tp.partition)
        copies = await self.copies(group, partition)
        assert copies is not None, "the dead-letter topic was just made"
        return target, copies

    def copy(
        self, copies: Copies, target: Partition, source: Partition, record: Record, notes: Mapping[str, str]
    ) -> Offset:
        """Append the copy and know of it. Its commit is the caller's to wait for.

        Not held to `max.message.bytes`: a record that was just small enough must fit with its new headers.
        """
        now_ms = self._node.clock()
        batch = encode_records([_with_origin(record, source, notes, now_ms)])
        offset = target.append(batch, read_header(batch), now_ms).base_offset
        copies.offsets[record.offset] = offset
        self.copied += 1
        return offset

    async def _read(self, group: str, source: Partition, target: Partition) -> dict[int, int]:
        committed = target.when_committed(target.log.log_end_offset)
        if committed is not None:
            await committed
        offsets: dict[int, int] = {}
        stream = RecordStream(self._node, target, target.log.log_start_offset, target.high_watermark)
        source_id = str(source.topic.id)
        while (chunk := await stream.next()) is not None:
            for record in await chunk.records():
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
                    _dead_letter_config(source, self._node.partitions.config(source).compacted),
                )
            except TopicExists:
                topic = image.topic(name)
        if topic.partitions < source.partitions:
            topic = await admin.add_partitions(name, source.partitions)
        return topic


def dead_letter_topic_name(group: str, source: Topic) -> str:
    """The name of the dead-letter topic, if there can be one."""
    if source.internal:
        raise InvalidTopicName(f"{source.name} belongs to the service", hint="Its records have no dead letters.")
    name = f"{source.name}.{group}{SUFFIX}"
    try:
        check_topic_name(name)
    except InvalidTopicName:
        raise InvalidTopicName(
            f"the dead-letter topic of group {group!r} cannot be named {name!r}",
            hint=f"Use a group name of a-z, A-Z, 0-9, '.', '_' and '-'; all of it has at most {NAME_LIMIT} characters.",
        ) from None
    return name


def _dead_letter_config(source: Topic, compacted: bool) -> dict[str, str]:
    """A copy outlives its origin: it is made later, and kept as long. So no record is copied twice."""
    config = {"cleanup.policy": "delete", "retention.bytes": "-1"}
    if compacted:
        config["retention.ms"] = "-1"
    for name in ("retention.ms", "remote.storage.enable", "min.insync.replicas", "flush"):
        if name in source.config:
            config.setdefault(name, source.config[name])
    return config


def _with_origin(record: Record, source: Partition, notes: Mapping[str, str], now_ms: int) -> NewRecord:
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
    """Where a copy comes from; the last note of each name counts, since a copy may be copied again."""
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

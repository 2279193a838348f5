"""Records that a group cannot handle: copied aside, once, so that the group goes on and nothing is lost.

Owns: the dead-letter topics `<topic>.<group>.dlq`, when a record goes there by itself, and moving the group's
committed offset behind it. Counts are `gateway.failed_deliveries`'; offsets are the group coordinator's.

- The dead-letter topic is the only record of what was dead-lettered. Its partition p holds the copies from the
  topic's partition p, each naming its origin in its headers; it is read once, when it is first needed, and
  known in memory from then on. So a copy and the knowledge of it are one write, and a crash cannot part them.
- A copy names the id of the topic it comes from: a topic made anew under its old name starts without dead letters.
- The committed offset moves only over dead-lettered records that begin exactly at it, never over one that is
  not handled, never backwards, and never for a group with live Kafka members.
- A delivery that nobody reported as failed counts against a record only if that record was delivered alone; an
  answer with several records that was not handled only makes those records suspect, to be delivered one by one.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

import structlog

from gateway.coordinators.errors import GroupError
from gateway.failed_deliveries import FailedDeliveries, Failure
from gateway.node import Node
from gateway.record_stream import RecordStream
from hot_tier.cluster.admin import NAME_LIMIT, check_topic_name
from hot_tier.cluster.model import Topic
from hot_tier.errors import InvalidTopicName, OffsetOutOfRange, TopicExists
from hot_tier.ids import Offset, TopicId, TopicPartition
from hot_tier.record.batch import read_header
from hot_tier.record.records import NewRecord, Record, encode_records
from hot_tier.replication.partition import Partition

SUFFIX: Final = ".dlq"
HEADER: Final = "tierlog.dlq."
MAX_SESSIONS: Final = 10_000

_log = structlog.get_logger()


class Delivery(Enum):
    WHOLE = "deliver all of it"
    ALONE = "deliver the first record only"
    MOVED_ON = "the first record was dead-lettered: look again"


class DeadLetter(NamedTuple):
    topic: str
    partition: int
    offset: int
    duplicate: bool
    """It had been copied before."""
    committed_offset: int | None


class Counted(NamedTuple):
    failures: int
    max_deliveries: int
    dead_letter: DeadLetter | None


class Origin(NamedTuple):
    group: str
    topic_id: str
    offset: int


@dataclass(slots=True)
class _Session:
    """What is known of a group at a partition while this node serves it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    first: int = -1
    """First record of the answer that waits to be committed; -1: none."""
    end: int = 0
    alone: bool = False
    at_ms: int = 0


@dataclass(slots=True)
class _Copies:
    """Origin offset → offset in the dead-letter topic."""

    dlq_id: TopicId
    source_id: TopicId
    offsets: dict[int, int]


class DeadLetters:
    def __init__(self, node: Node, *, max_deliveries: int, redelivery_after_ms: int) -> None:
        self._node = node
        self._max_deliveries = max_deliveries
        self._redelivery_after_ms = redelivery_after_ms
        self._failed = FailedDeliveries(node.store)
        self._sessions: dict[tuple[str, TopicPartition], _Session] = {}
        self._copies: dict[tuple[str, TopicPartition], _Copies] = {}
        self.dead_lettered = 0

    # What consumers report

    async def dead_letter(self, group: str, partition: Partition, offset: int, reason: str) -> DeadLetter:
        async with self._session(group, partition).lock:
            return await self._set_aside(group, partition, offset, reason)

    async def fail(
        self, group: str, partition: Partition, offset: int, reason: str, max_deliveries: int | None = None
    ) -> Counted:
        """Count a failed delivery; the one that reaches the limit dead-letters the record."""
        limit = self._max_deliveries if max_deliveries is None else max_deliveries
        session = self._session(group, partition)
        async with session.lock:
            if session.first == offset:
                session.first = -1
            return await self._count(group, partition, offset, reason, limit)

    # What consumers read

    def group_position(self, group: str, partition: Partition) -> int:
        """Where the group reads next: its committed offset, or the log start if there is none in the log."""
        log = partition.log
        committed = self._committed(group, partition)
        if committed is None or not log.log_start_offset <= committed <= log.log_end_offset:
            return log.log_start_offset
        return committed

    async def handled(self, group: str, partition: Partition) -> Collection[int]:
        """The offsets that were dead-lettered for this group."""
        copies = await self._known_copies(group, partition)
        return () if copies is None else copies.offsets.keys()

    async def before_delivery(self, group: str, partition: Partition, first: int) -> Delivery:
        """The group is about to be given records from `first` on, which it has not committed."""
        if not self._max_deliveries or not self._redelivery_after_ms:
            return Delivery.WHOLE
        session = self._session(group, partition)
        async with session.lock:
            due_ms = session.at_ms + self._redelivery_after_ms
            again = session.first == first and self._node.clock() >= due_ms
            if again and await self._failed_silently(group, partition, session):
                return Delivery.MOVED_ON
            tally = await self._failed.get(group, partition.topic.id, partition.tp.partition)
            return Delivery.ALONE if first < tally.suspect_end else Delivery.WHOLE

    def delivered(self, group: str, partition: Partition, first: int, end: int, *, alone: bool) -> None:
        """The records from `first` up to `end` were sent; repeating it soon is still the same delivery."""
        session = self._session(group, partition)
        if session.first != first:
            session.first, session.end, session.alone = first, end, alone
            session.at_ms = self._node.clock()
        else:
            session.end, session.alone = max(end, session.end), alone and session.alone

    # What operators ask

    async def failing(self, group: str) -> list[tuple[TopicId, int, int, Failure]]:
        """Records whose delivery has failed and that the group has not got past: topic, partition, offset, failure."""
        found = []
        for topic_id, number, tally in await self._failed.of_group(group):
            topic = self._node.image.find_topic_by_id(topic_id)
            if topic is None:
                continue
            position = self.group_position(group, self._node.partitions.get(topic.name, number))
            found += [
                (topic_id, number, offset, failure)
                for offset, failure in sorted(tally.failures.items())
                if offset >= position
            ]
        return found

    def topics(self, group: str) -> list[tuple[str, Topic]]:
        """Origin and dead-letter topic, for each dead-letter topic of this group."""
        ending = f".{group}{SUFFIX}"
        return sorted(
            (topic.name.removesuffix(ending), topic)
            for topic in self._node.image.topics()
            if topic.name.endswith(ending) and len(topic.name) > len(ending)
        )

    async def forget_group(self, group: str) -> None:
        await self._failed.forget_group(group)

    # Counting

    async def _count(self, group: str, partition: Partition, offset: int, reason: str, limit: int) -> Counted:
        _check_source(group, partition.topic)
        copies = await self._known_copies(group, partition)
        if copies is not None and offset in copies.offsets:
            return Counted(limit, limit, await self._set_aside(group, partition, offset, reason))
        await self._read(partition, offset)
        position = self.group_position(group, partition)
        now_ms = self._node.clock()
        tally = await self._failed.change(
            group,
            partition.topic.id,
            partition.tp.partition,
            lambda before: before.counted(offset, reason, now_ms, position),
        )
        failures = tally.failures[offset].times
        if not limit or failures < limit:
            return Counted(failures, limit, None)
        return Counted(failures, limit, await self._set_aside(group, partition, offset, reason, failures))

    async def _failed_silently(self, group: str, partition: Partition, session: _Session) -> bool:
        """What was delivered is asked for again. Whether its first record was dead-lettered for it."""
        first, end, alone = session.first, session.end, session.alone
        session.first = -1
        if not alone:
            await self._failed.change(
                group, partition.topic.id, partition.tp.partition, lambda before: before.suspecting(end)
            )
            return False
        waited_s = (self._node.clock() - session.at_ms) / 1000
        reason = f"delivered and not committed in {waited_s:.0f} s"
        try:
            counted = await self._count(group, partition, first, reason, self._max_deliveries)
        except InvalidTopicName:
            # No dead-letter topic can be named for this group: it keeps its record, as without any of this.
            return False
        return counted.dead_letter is not None

    # Copying

    async def _set_aside(
        self, group: str, partition: Partition, offset: int, reason: str, failures: int | None = None
    ) -> DeadLetter:
        source = partition.topic
        dlq = await self._dead_letter_topic(group, source)
        target = self._node.partitions.get(dlq.name, partition.tp.partition)
        copies = await self._known_copies(group, partition)
        assert copies is not None, "the dead-letter topic was just made"
        copied_to = copies.offsets.get(offset)
        duplicate = copied_to is not None
        if copied_to is None:
            record = await self._read(partition, offset)
            if failures is None:
                tally = await self._failed.get(group, source.id, partition.tp.partition)
                known = tally.failures.get(offset)
                failures = 0 if known is None else known.times
            copied_to = self._append(target, _copy(record, group, partition, reason, failures, self._node.clock()))
            copies.offsets[offset] = copied_to
            self.dead_lettered += 1
        committed = target.when_committed(Offset(copied_to + 1))
        if committed is not None:
            await committed
        await self._failed.change(group, source.id, partition.tp.partition, lambda before: before.without(offset))
        moved_to = await self._move_on(group, partition, copies)
        return DeadLetter(dlq.name, partition.tp.partition, copied_to, duplicate, moved_to)

    def _append(self, target: Partition, record: NewRecord) -> int:
        """Not held to `max.message.bytes`: a record that was just small enough must fit with its new headers."""
        batch = encode_records([record])
        return target.append(batch, read_header(batch), record.timestamp).base_offset

    async def _dead_letter_topic(self, group: str, source: Topic) -> Topic:
        name = _check_source(group, source)
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

    async def _known_copies(self, group: str, partition: Partition) -> _Copies | None:
        """What was copied from this partition; None while there is no dead-letter topic for it."""
        dlq = self._node.image.find_topic(f"{partition.tp.topic}.{group}{SUFFIX}")
        if dlq is None or partition.tp.partition >= dlq.partitions:
            return None
        key = (group, partition.tp)
        known = self._copies.get(key)
        if known is not None and known.dlq_id == dlq.id and known.source_id == partition.topic.id:
            return known
        target = self._node.partitions.get(dlq.name, partition.tp.partition)
        committed = target.when_committed(target.log.log_end_offset)
        if committed is not None:
            await committed
        offsets: dict[int, int] = {}
        stream = RecordStream(self._node, target, target.log.log_start_offset, target.high_watermark)
        source_id = str(partition.topic.id)
        while (chunk := await stream.next()) is not None:
            for record in await chunk.records():
                origin = origin_of(record)
                if origin is not None and origin.group == group and origin.topic_id == source_id:
                    offsets.setdefault(origin.offset, record.offset)
        # Somebody else may have finished reading first, and copied since.
        known = self._copies.get(key)
        if known is None or known.dlq_id != dlq.id or known.source_id != partition.topic.id:
            known = self._copies[key] = _Copies(dlq.id, partition.topic.id, offsets)
        return known

    async def _read(self, partition: Partition, offset: int) -> Record:
        log = partition.log
        if log.log_start_offset <= offset < partition.last_stable_offset:
            stream = RecordStream(self._node, partition, offset, offset + 1)
            chunk = await stream.next(1)
            records = [] if chunk is None else await chunk.records(1)
            if records:
                return records[0]
        raise OffsetOutOfRange(f"there is no record at offset {offset}", where=str(partition.tp))

    # The group's offset

    def _committed(self, group: str, partition: Partition) -> int | None:
        held = self._node.groups.fetch_offsets(group).get(partition.tp)
        return None if held is None else held.offset

    async def _move_on(self, group: str, partition: Partition, copies: _Copies) -> int | None:
        """Commit past the dead-lettered records that the group would read next. Its committed offset then."""
        committed = self._committed(group, partition)
        end = start = self.group_position(group, partition)
        stream = RecordStream(self._node, partition, start, partition.last_stable_offset)
        while (chunk := await stream.next()) is not None:
            records = await chunk.records()
            others = [record.offset for record in records if record.offset not in copies.offsets]
            passed = [record.offset for record in records if not others or record.offset < others[0]]
            end = passed[-1] + 1 if passed else end
            if others:
                break
        if end > start:
            try:
                await self._node.groups.move_offset(group, partition.tp, committed, end)
            except GroupError as error:
                # The record is set aside and will be left out; the offset follows with the next one.
                _log.warning(
                    "offset not moved past a dead letter", group=group, where=str(partition.tp), error=str(error)
                )
        return self._committed(group, partition)

    def _session(self, group: str, partition: Partition) -> _Session:
        key = (group, partition.tp)
        session = self._sessions.get(key)
        if session is None:
            if len(self._sessions) >= MAX_SESSIONS:
                idle = next((each for each, old in self._sessions.items() if not old.lock.locked()), None)
                if idle is not None:
                    del self._sessions[idle]
            session = self._sessions[key] = _Session()
        return session


def _check_source(group: str, source: Topic) -> str:
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


def _copy(record: Record, group: str, partition: Partition, reason: str, failures: int, now_ms: int) -> NewRecord:
    notes = {
        "reason": reason,
        "group": group,
        "topic": partition.tp.topic,
        "topic_id": str(partition.topic.id),
        "partition": str(partition.tp.partition),
        "offset": str(record.offset),
        "timestamp": str(record.timestamp),
        "failures": str(failures),
    }
    headers = tuple((HEADER + name, text.encode()) for name, text in notes.items())
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

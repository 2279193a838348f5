"""Sets aside records that a group cannot handle, each of them once, so that the group goes on and nothing is lost.

It decides when a record is dead-lettered without a request to do so, and it moves the group's committed offset past
dead-lettered records. `dead_letter_topics` keeps the copies, `failed_deliveries` the counts, and the group coordinator
the offsets.

- The committed offset moves only over dead-lettered records that begin exactly at it. It never moves over a record that
  is not handled, never backwards, and never for a group with live Kafka members.
- A delivery that nobody reported as failed counts against a record only if the record was delivered alone. If an answer
  with several records was not handled, those records become suspect and are delivered one by one.
- Every change is made under one lock per group and partition.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Protocol

import structlog

from gateway.coordinators.errors import CoordinatorError
from gateway.delivery.dead_letter_topics import Copies, DeadLetterTopics, OtherBrokers, dead_letter_topic_name
from gateway.delivery.failed_deliveries import FailedDeliveries, Failure, Tally
from gateway.node import Node
from gateway.record_stream import RecordStream
from hot_tier.errors import BrokerUnreachable, InvalidTopicName, NoLeader, OffsetOutOfRange, OutcomeUnknown
from hot_tier.ids import NO_EPOCH, LeaderEpoch, PartitionId, TopicId, TopicPartition
from hot_tier.record.records import Record
from hot_tier.replication.led_partition import LedPartition

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
    """Whether the record had been copied before."""
    committed_offset: int | None


class Counted(NamedTuple):
    failures: int
    max_deliveries: int
    dead_letter: DeadLetter | None


class LogRange(Protocol):
    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...


class Elsewhere(OtherBrokers, Protocol):
    """Reaches groups and partitions on any broker."""

    async def committed(self, group: str, tp: TopicPartition) -> int | None: ...

    async def move_offset(self, group: str, tp: TopicPartition, expected: int | None, offset: int) -> bool: ...

    async def bounds_of(self, tp: TopicPartition) -> LogRange: ...


@dataclass(slots=True)
class _Session:
    """What this node knows about a group at a partition while it leads the partition."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    leader_epoch: LeaderEpoch = NO_EPOCH
    first: int = -1
    """The first record of the answer that the group has not committed yet; -1 if there is none."""
    end: int = 0
    alone: bool = False
    at_ms: int = 0


class DeadLetters:
    def __init__(self, node: Node, elsewhere: Elsewhere, *, max_deliveries: int, redelivery_after_ms: int) -> None:
        self._node = node
        self._elsewhere = elsewhere
        self._max_deliveries = max_deliveries
        self._redelivery_after_ms = redelivery_after_ms
        self._failed = FailedDeliveries(node.store)
        self._sessions: dict[tuple[str, TopicId, int], _Session] = {}
        self.topics = DeadLetterTopics(node, elsewhere)

    # What consumers report

    async def dead_letter(self, group: str, partition: LedPartition, offset: int, reason: str) -> DeadLetter:
        async with self._session(group, partition).lock:
            return await self._set_aside(group, partition, offset, reason)

    async def fail(
        self, group: str, partition: LedPartition, offset: int, reason: str, max_deliveries: int | None = None
    ) -> Counted:
        """Counts a failed delivery. When the count reaches the limit, the record is dead-lettered."""
        limit = self._max_deliveries if max_deliveries is None else max_deliveries
        session = self._session(group, partition)
        async with session.lock:
            if session.first == offset:
                session.first = -1
            return await self._count(group, partition, offset, reason, limit)

    # What consumers read

    async def group_position(self, group: str, partition: LedPartition) -> int:
        """Returns where the group reads next: its committed offset, or the log start if that is not in the log."""
        return _position(await self._elsewhere.committed(group, partition.tp), partition)

    async def handled(self, group: str, partition: LedPartition) -> Collection[int]:
        """Returns the offsets that were dead-lettered for this group."""
        copies = await self.topics.copies(group, partition)
        return () if copies is None else copies.offsets.keys()

    async def before_delivery(self, group: str, partition: LedPartition, first: int) -> Delivery:
        """Returns how to deliver the records from `first` on. The group has not committed them."""
        if not self._max_deliveries or not self._redelivery_after_ms:
            return Delivery.WHOLE
        session = self._session(group, partition)
        async with session.lock:
            due_ms = session.at_ms + self._redelivery_after_ms
            again = session.first == first and self._node.clock() >= due_ms
            if again and await self._failed_silently(group, partition, session):
                return Delivery.MOVED_ON
            tally = await self._failed.get(group, partition.topic.id, partition.tp.partition)
            if first < tally.suspect_end:
                return Delivery.ALONE
            if tally.suspect_end:
                # The group has passed all suspect records. A later replay is delivered whole again.
                await self._change(group, partition, lambda before: before.cleared())
            return Delivery.WHOLE

    def delivered(self, group: str, partition: LedPartition, first: int, end: int, *, alone: bool) -> None:
        """Notes that the records from `first` to `end` were sent. The same records again soon are the same delivery."""
        session = self._session(group, partition)
        if session.first != first:
            session.first, session.end, session.alone = first, end, alone
            session.at_ms = self._node.clock()
        else:
            session.end, session.alone = max(end, session.end), alone and session.alone

    # What operators ask

    async def failing(self, group: str) -> list[tuple[TopicId, int, int, Failure]]:
        """Returns records whose delivery failed and that the group has not passed: topic, partition, offset, reason."""
        found = []
        for topic_id, number, tally in await self._failed.of_group(group):
            topic = self._node.image.find_topic_by_id(topic_id)
            if topic is None:
                continue
            tp = TopicPartition(topic.name, PartitionId(number))
            position = _position(await self._elsewhere.committed(group, tp), await self._elsewhere.bounds_of(tp))
            found += [
                (topic_id, number, offset, failure)
                for offset, failure in sorted(tally.failures.items())
                if offset >= position
            ]
        return found

    async def forget_group(self, group: str) -> None:
        await self._failed.forget_group(group)

    # Counting

    async def _count(self, group: str, partition: LedPartition, offset: int, reason: str, limit: int) -> Counted:
        dead_letter_topic_name(group, partition.topic)
        copies = await self.topics.copies(group, partition)
        if copies is not None and offset in copies.offsets:
            return Counted(limit, limit, await self._set_aside(group, partition, offset, reason))
        await self._read(partition, offset)
        position = await self.group_position(group, partition)
        now_ms = self._node.clock()
        tally = await self._change(group, partition, lambda before: before.counted(offset, reason, now_ms, position))
        failures = tally.failures[offset].times
        if not limit or failures < limit:
            return Counted(failures, limit, None)
        return Counted(failures, limit, await self._set_aside(group, partition, offset, reason, failures))

    async def _failed_silently(self, group: str, partition: LedPartition, session: _Session) -> bool:
        """Counts a delivery that the group asks for again. Returns whether its first record is now dead-lettered."""
        first, end, alone = session.first, session.end, session.alone
        session.first = -1
        if not alone:
            await self._change(group, partition, lambda before: before.suspecting(end))
            return False
        waited_s = (self._node.clock() - session.at_ms) / 1000
        reason = f"delivered and not committed in {waited_s:.0f} s"
        try:
            counted = await self._count(group, partition, first, reason, self._max_deliveries)
        except InvalidTopicName:
            # No dead-letter topic can be named for this group, so the record is not set aside.
            return False
        return counted.dead_letter is not None

    async def _change(self, group: str, partition: LedPartition, decide: Callable[[Tally], Tally]) -> Tally:
        return await self._failed.change(group, partition.topic.id, partition.tp.partition, decide)

    # Setting aside

    async def _set_aside(
        self, group: str, partition: LedPartition, offset: int, reason: str, failures: int | None = None
    ) -> DeadLetter:
        target, copies = await self.topics.make(group, partition)
        copied_to = copies.offsets.get(offset)
        duplicate = copied_to is not None
        if copied_to is None:
            record = await self._read(partition, offset)
            if failures is None:
                tally = await self._failed.get(group, partition.topic.id, partition.tp.partition)
                failures = tally.failures[offset].times if offset in tally.failures else 0
            notes = {"reason": reason, "group": group, "failures": str(failures)}
            copied_to = await self.topics.copy(group, partition, record, notes, target, copies)
        await self._change(group, partition, lambda before: before.without(offset))
        moved_to = await self._move_on(group, partition, copies)
        return DeadLetter(target.tp.topic, target.tp.partition, copied_to, duplicate, moved_to)

    async def _read(self, partition: LedPartition, offset: int) -> Record:
        if partition.log_start_offset <= offset < partition.last_stable_offset:
            stream = RecordStream(self._node, partition, offset, offset + 1)
            chunk = await stream.next(1)
            records = [] if chunk is None else await chunk.records(1)
            if records:
                return records[0]
        raise OffsetOutOfRange(f"there is no record at offset {offset}", where=str(partition.tp))

    # The group's offset

    async def _move_on(self, group: str, partition: LedPartition, copies: Copies) -> int | None:
        """Commits past the dead-lettered records that the group would read next. Returns its committed offset."""
        committed = await self._elsewhere.committed(group, partition.tp)
        end = start = _position(committed, partition)
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
                await self._elsewhere.move_offset(group, partition.tp, committed, end)
            except (CoordinatorError, NoLeader, BrokerUnreachable, OutcomeUnknown) as error:
                # The record is set aside, and reads leave it out. The next dead letter moves the offset.
                _log.warning(
                    "offset not moved past a dead letter", group=group, where=str(partition.tp), error=str(error)
                )
        return await self._elsewhere.committed(group, partition.tp)

    def _session(self, group: str, partition: LedPartition) -> _Session:
        key = (group, partition.topic.id, int(partition.tp.partition))
        session = self._sessions.get(key)
        if session is None:
            if len(self._sessions) >= MAX_SESSIONS:
                idle = next((each for each, old in self._sessions.items() if not old.lock.locked()), None)
                if idle is not None:
                    del self._sessions[idle]
            session = self._sessions[key] = _Session()
        if session.leader_epoch != partition.leader_epoch:
            # Another broker may have led meanwhile and counted failures.
            session.leader_epoch, session.first = partition.leader_epoch, -1
            self._failed.forget(group, partition.topic.id, partition.tp.partition)
        return session


def _position(committed: int | None, log: LogRange) -> int:
    if committed is None or not log.log_start_offset <= committed <= log.log_end_offset:
        return log.log_start_offset
    return committed

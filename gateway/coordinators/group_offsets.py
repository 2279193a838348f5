"""Commits, deletes and expires the offsets of groups. A change is applied when its record is committed, in log order.

So what a group shows goes back only if a client commits an older offset: an offset that could be read survives a crash,
and a deletion also removes the commits before it. The writer's callbacks apply the changes, not the tasks that wait for
them. So nothing changes when a client disconnects.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from gateway.coordinators.errors import (
    CoordinatorNotAvailable,
    GroupNotEmpty,
    GroupSubscribedToTopic,
    IllegalGeneration,
    OffsetMetadataTooLarge,
)
from gateway.coordinators.group_members import GroupMembers, refusal_of
from gateway.coordinators.groups.classic import ClassicGroup
from gateway.coordinators.groups.group_map import GroupEntry, GroupMap
from gateway.coordinators.groups.messages import NO_GENERATION, NO_MEMBER
from gateway.coordinators.groups.states import State
from gateway.coordinators.groups.subscription import CONSUMER_PROTOCOL_TYPE
from gateway.coordinators.journal.writer import InTransaction, KeyValue
from gateway.coordinators.offsets_topic.keys import GroupKey, OffsetKey, write_key
from gateway.coordinators.offsets_topic.values import CommittedOffset, write_offset
from gateway.coordinators.retention import expired_offsets
from gateway.coordinators.settings import GroupSettings
from hot_tier.cluster.image import ClusterImage
from hot_tier.errors import InvalidTransactionState, ProducerFenced, TierlogError, UnknownPartition, UnknownTopic
from hot_tier.ids import TopicPartition

COMMIT_WAIT_S: Final = 5.0
"""How long a commit waits, as in Kafka. The member's heartbeats wait behind it, and without them its session ends."""

Results = dict[TopicPartition, TierlogError | None]


class Commit(NamedTuple):
    """What a client commits for one partition: the offset where it wants to continue.

    A negative offset is stored, as in Kafka: kafkajs commits -1 or -2 to begin again (`CommittedOffset.position`).
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Sender(NamedTuple):
    """Who commits. The default is a sender without membership: a consumer outside group management, or an operator."""

    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    instance_id: str | None = None


class GroupOffsets:
    def __init__(
        self, image: ClusterImage, members: GroupMembers, settings: GroupSettings, clock: Callable[[], int]
    ) -> None:
        self._image = image
        self._members = members
        self._settings = settings
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.commits = 0
        self.expirations = 0

    async def commit(
        self, home: GroupMap, group_id: str, sender: Sender, commits: Mapping[TopicPartition, Commit]
    ) -> Results:
        entry, results, accepted = self._accept(home, group_id, sender, commits)
        if accepted:
            await self._wait(results, accepted, self._write_commits(entry, accepted), group_id)
        return results

    async def commit_in_transaction(
        self,
        home: GroupMap,
        group_id: str,
        sender: Sender,
        commits: Mapping[TopicPartition, Commit],
        producer: InTransaction,
    ) -> Results:
        """Writes the offsets; they are pending until `GroupMap.end_transaction` decides on them."""
        entry, results, accepted = self._accept(home, group_id, sender, commits, in_transaction=True)
        if accepted:
            try:
                told = self._write_pending(entry, accepted, producer)
            except TierlogError as error:
                results.update(dict.fromkeys(accepted, _refusal_in_transaction(error, group_id)))
                home.drop_if_vacant(entry)
            else:
                await self._wait(results, accepted, told, group_id)
        return results

    def _accept(
        self,
        home: GroupMap,
        group_id: str,
        sender: Sender,
        commits: Mapping[TopicPartition, Commit],
        *,
        in_transaction: bool = False,
    ) -> tuple[GroupEntry, Results, dict[TopicPartition, CommittedOffset]]:
        """Returns the group, an answer for each partition, and what is to be written. Then the group is in the map."""
        entry = home.groups.get(group_id)
        if entry is None:
            entry = GroupEntry(group_id, home, ClassicGroup(self._members.limits))
            if sender.generation >= 0:
                return entry, dict.fromkeys(commits, IllegalGeneration(where=group_id)), {}
        refusal = entry.group.commit(
            sender.member_id,
            sender.instance_id,
            sender.generation,
            self._members.now_ms(),
            in_transaction=in_transaction,
        )
        self._members.carry_out(entry)
        if refusal is not None:
            return entry, dict.fromkeys(commits, refusal(where=group_id)), {}
        results: Results = {tp: self._check(tp, commit) for tp, commit in commits.items()}
        now_ms = self._clock()
        accepted = {
            tp: CommittedOffset(*commits[tp], commit_ms=now_ms) for tp, error in results.items() if error is None
        }
        if accepted:
            home.groups[group_id] = entry
        return entry, results, accepted

    async def _wait(
        self,
        results: Results,
        accepted: Collection[TopicPartition],
        told: asyncio.Future[TierlogError | None],
        group_id: str,
    ) -> None:
        try:
            async with asyncio.timeout(COMMIT_WAIT_S):
                failure = await told
        except TimeoutError:
            failure = CoordinatorNotAvailable("the offsets are written, but not yet on all in-sync replicas")
        if failure is not None:
            results.update(dict.fromkeys(accepted, refusal_of(failure)(str(failure), where=group_id)))

    def _write_commits(
        self, entry: GroupEntry, accepted: Mapping[TopicPartition, CommittedOffset]
    ) -> asyncio.Future[TierlogError | None]:
        told: asyncio.Future[TierlogError | None] = self._loop.create_future()
        entry.in_flight.update(accepted.keys())

        def done(error: TierlogError | None) -> None:
            entry.in_flight -= Counter(accepted.keys())
            if error is None:
                entry.offsets.update(accepted)
                entry.decided(accepted, number)
                self.commits += len(accepted)
            entry.home.drop_if_vacant(entry)
            if not told.done():
                told.set_result(error)

        number = entry.home.writer.write(_offset_records(entry, accepted), done)
        return told

    def _write_pending(
        self, entry: GroupEntry, accepted: Mapping[TopicPartition, CommittedOffset], producer: InTransaction
    ) -> asyncio.Future[TierlogError | None]:
        """Raises an error if nothing is written. From the write on the offsets are pending, committed or not: once the
        marker of the transaction is committed, so is everything before it in the log."""
        told: asyncio.Future[TierlogError | None] = self._loop.create_future()

        def done(error: TierlogError | None) -> None:
            if not told.done():
                told.set_result(error)

        number = entry.home.writer.write_in_transaction(_offset_records(entry, accepted), producer, done)
        entry.home.pend(entry, producer.producer_id, accepted, number)
        return told

    def _check(self, tp: TopicPartition, commit: Commit) -> TierlogError | None:
        if (missing := self._missing(tp)) is not None:
            return missing
        limit = self._settings.offset_metadata_max_bytes
        if len(commit.metadata.encode()) > limit:
            return OffsetMetadataTooLarge(f"the metadata of a commit has at most {limit} bytes", where=str(tp))
        return None

    def _missing(self, tp: TopicPartition) -> TierlogError | None:
        topic = self._image.find_topic(tp.topic)
        if topic is None:
            return UnknownTopic(f"there is no topic {tp.topic!r}")
        if not 0 <= tp.partition < topic.partitions:
            return UnknownPartition(f"topic {tp.topic!r} has the partitions 0 to {topic.partitions - 1}", where=str(tp))
        return None

    # Deleting

    async def delete(self, entry: GroupEntry, asked: Collection[TopicPartition]) -> Results:
        """Deletes offsets of topics that no member subscribes to. An offset that never existed counts as deleted."""
        kept: Collection[TopicPartition] = ()
        if entry.group.state is not State.EMPTY:
            if entry.group.protocol_type != CONSUMER_PROTOCOL_TYPE:
                raise GroupNotEmpty(where=entry.group_id)
            topics = entry.group.subscribed_topics()
            kept = {tp for tp in asked if topics is None or tp.topic in topics}
        results: Results = {tp: None if _has(entry, tp) else self._missing(tp) for tp in asked}
        results.update({tp: GroupSubscribedToTopic(where=f"{entry.group_id}, {tp}") for tp in kept})
        gone = [tp for tp, error in results.items() if error is None and _has(entry, tp)]
        if gone:
            failure = await self._forget(entry, gone)
            if failure is not None:
                results.update(dict.fromkeys(gone, refusal_of(failure)(str(failure), where=entry.group_id)))
        return results

    async def delete_group(self, entry: GroupEntry) -> None:
        """Deletes a group and its offsets. From this call on nobody can join it."""
        snapshot = entry.classic.snapshot()
        if entry.group.state is not State.EMPTY:
            raise GroupNotEmpty(where=entry.group_id, hint="stop its consumers first")
        self._members.end(entry, CoordinatorNotAvailable)
        failure = await self._forget(entry, entry.known_partitions(), with_group=True)
        if failure is not None:
            # Nothing was deleted, so the group continues as it was.
            entry.group = ClassicGroup.restored(snapshot, self._members.limits, self._members.now_ms())
            raise refusal_of(failure)(f"not deleted: {failure}", where=entry.group_id)

    async def delete_damaged(self, home: GroupMap, group_id: str) -> None:
        damaged = home.damaged[group_id]
        entry = GroupEntry(group_id, home, ClassicGroup(self._members.limits), damaged.offsets)
        gone = {*damaged.offsets, *(tp for pending in damaged.pending.values() for tp in pending)}
        failure = await self._forget(entry, gone, with_group=True, more_keys=damaged.unreadable)
        if failure is not None:
            raise refusal_of(failure)(f"not deleted: {failure}", where=group_id)
        home.damaged.pop(group_id, None)

    def forget_topic(self, maps: Iterable[GroupMap], topic: str, until_ms: int) -> None:
        """Deletes the offsets of a deleted topic. Otherwise groups would begin at them in a new topic of that name."""
        for home in maps:
            for entry in home.groups.values():
                gone = {
                    tp for tp, offset in entry.offsets.items() if tp.topic == topic and offset.commit_ms <= until_ms
                }
                gone |= {tp for tp in entry.in_flight if tp.topic == topic}
                gone |= {
                    tp
                    for tp, commits in entry.pending.items()
                    if tp.topic == topic and any(each.offset.commit_ms <= until_ms for each in commits.values())
                }
                if gone:
                    self._forget(entry, gone)

    async def expire(self, maps: Iterable[GroupMap]) -> None:
        """Deletes expired offsets, and groups that have no offsets left. What fails is tried again next time."""
        retention_ms = self._settings.offsets_retention_minutes * 60_000
        for home in maps:
            for entry in list(home.groups.values()):
                if entry.in_flight or entry.pending:
                    continue
                gone = expired_offsets(entry.group, entry.empty_since_ms, entry.offsets, retention_ms, self._clock())
                ends = len(gone) == len(entry.offsets) and _is_idle(entry)
                if (gone or ends) and await self._forget(entry, gone, with_group=ends) is None:
                    self.expirations += len(gone)
            await asyncio.sleep(0)

    def _forget(
        self,
        entry: GroupEntry,
        gone: Collection[TopicPartition],
        *,
        with_group: bool = False,
        more_keys: Iterable[bytes] = (),
    ) -> asyncio.Future[TierlogError | None]:
        told: asyncio.Future[TierlogError | None] = self._loop.create_future()

        def done(error: TierlogError | None) -> None:
            if error is None:
                for tp in gone:
                    entry.offsets.pop(tp, None)
                entry.decided(gone, number)
                if with_group and not entry.offsets:
                    self._remove_idle(entry)
            if not told.done():
                told.set_result(error)

        keys = [_offset_key(entry.group_id, tp) for tp in gone]
        if with_group:
            keys.append(write_key(GroupKey(entry.group_id)))
        tombstones: list[KeyValue] = [(key, None) for key in {*keys, *more_keys}]
        number = entry.home.writer.write(tombstones, done)
        return told

    def _remove_idle(self, entry: GroupEntry) -> None:
        """Removes the group, unless a member joined or committed while its tombstones were written."""
        if entry.home.groups.get(entry.group_id) is not entry:
            return
        if entry.group.state is State.DEAD:
            del entry.home.groups[entry.group_id]
        elif _is_idle(entry):
            del entry.home.groups[entry.group_id]
            self._members.end(entry, CoordinatorNotAvailable)


def _is_idle(entry: GroupEntry) -> bool:
    return entry.group.is_idle and not entry.in_flight and not entry.pending


def _has(entry: GroupEntry, tp: TopicPartition) -> bool:
    return tp in entry.offsets or tp in entry.in_flight or tp in entry.pending


def _offset_records(entry: GroupEntry, offsets: Mapping[TopicPartition, CommittedOffset]) -> list[KeyValue]:
    return [(_offset_key(entry.group_id, tp), write_offset(value)) for tp, value in offsets.items()]


def _refusal_in_transaction(error: TierlogError, group_id: str) -> TierlogError:
    """Returns what the client is told. If its transaction does not allow the write, it must hear that."""
    if isinstance(error, InvalidTransactionState | ProducerFenced):
        return error
    return refusal_of(error)(str(error), where=group_id)


def _offset_key(group_id: str, tp: TopicPartition) -> bytes:
    return write_key(OffsetKey(group_id, tp.topic, tp.partition))

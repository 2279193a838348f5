"""The group coordinator: what the Kafka handlers, the HTTP API and the command line ask of consumer groups.

It starts and stops the parts, and it finds groups. `group_members` (with the pure machine in `groups`) handles members,
`group_offsets` handles offsets, and `journal` knows which groups are served here.

Every call may raise CoordinatorLoading, CoordinatorNotAvailable or NotCoordinator. Calls that make or change a group
make the offsets topic if there is none. For calls that only read, there are no groups while there is no offsets topic.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

import structlog

from gateway.coordinators.errors import (
    CoordinatorLoading,
    GroupFull,
    GroupNotEmpty,
    GroupNotFound,
    InvalidGroupId,
    NotCoordinator,
    RebalanceInProgress,
    Refusal,
    UnknownMember,
)
from gateway.coordinators.group_members import GroupMembers
from gateway.coordinators.group_offsets import Commit, GroupOffsets, Results, Sender
from gateway.coordinators.groups.classic import ClassicGroup
from gateway.coordinators.groups.group_map import READ_BACK, GroupEntry, GroupMap
from gateway.coordinators.groups.messages import (
    NO_MEMBER,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    SyncAnswer,
    SyncRequest,
)
from gateway.coordinators.groups.states import State
from gateway.coordinators.journal.journal import Journal
from gateway.coordinators.journal.writer import InTransaction
from gateway.coordinators.offsets_topic.decoding import LoadedGroup, decode_groups
from gateway.coordinators.offsets_topic.topic import OFFSETS_TOPIC, offsets_topic
from gateway.coordinators.offsets_topic.values import CommittedOffset
from gateway.coordinators.settings import LONGEST_STRING_BYTES, GroupSettings
from hot_tier.cluster.admin import TopicAdmin
from hot_tier.cluster.image import ClusterImage, ImageChange
from hot_tier.cluster.model import BrokerInfo
from hot_tier.errors import InvalidRequest
from hot_tier.ids import NodeId, PartitionId, TopicPartition
from hot_tier.replication.table import PartitionTable

MAX_METADATA_BYTES: Final = 4 << 20
"""Limit for the metadata of one member, over all the protocols that it supports."""
MAX_PROTOCOLS: Final = 100

_log = structlog.get_logger()


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    """Empty for a group whose consumers only commit."""
    state: State
    members: int


class Transaction(NamedTuple):
    """A transaction as its producer names it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    tv2: bool
    """Its producer has an epoch for each transaction."""


class MemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    """Empty, as is the assignment, while the group is not Stable."""
    assignment: bytes


class GroupDescription(NamedTuple):
    group_id: str
    state: State
    protocol_type: str
    protocol_name: str
    """Empty while the group is not Stable."""
    generation: int
    members: tuple[MemberDescription, ...]


class GroupCoordinator:
    def __init__(
        self,
        *,
        node_id: NodeId,
        image: ClusterImage,
        admin: TopicAdmin,
        partitions: PartitionTable,
        settings: GroupSettings,
        clock: Callable[[], int],
    ) -> None:
        self._image = image
        self._settings = settings
        self._clock = clock
        self.members = GroupMembers(settings, clock)
        self.offsets = GroupOffsets(image, self.members, settings, clock)
        self.shards = Journal(
            offsets_topic(settings),
            make_machine=GroupMap,
            decode=decode_groups,
            restore=self._restore,
            end=self._end,
            node_id=node_id,
            image=image,
            admin=admin,
            partitions=partitions,
            clock=clock,
        )
        self._expiring: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts to read groups back and returns at once. Requests for a group are refused until it is read back."""
        self.shards.open()
        self._image.subscribe(self._image_changed)
        self._expiring = asyncio.get_running_loop().create_task(self._expire_regularly(), name="offset retention")

    async def stop(self) -> None:
        """Tells all members that wait to look for another coordinator. Committed offsets stay."""
        self._image.unsubscribe(self._image_changed)
        if self._expiring is not None:
            self._expiring.cancel()
            await asyncio.gather(self._expiring, return_exceptions=True)
        await self.shards.close()
        self.members.close()

    async def find(self, group_id: str) -> BrokerInfo:
        """Returns the broker that coordinates a group. Makes the offsets topic if there is none."""
        check_group_id(group_id, may_be_empty=True)
        return await self.shards.coordinator(group_id)

    def find_existing(self, group_id: str) -> NodeId | None:
        """Returns who coordinates a group: NO_NODE if nobody does now, None while there is no offsets topic."""
        check_group_id(group_id, may_be_empty=True)
        return self.shards.leader(group_id)

    # Membership

    async def join(self, group_id: str, request: JoinRequest) -> JoinAnswer:
        _check_fits(request)
        home = await self._map_to_change(group_id)
        entry = home.groups.get(group_id)
        if entry is None:
            if request.member_id != NO_MEMBER:
                return JoinAnswer(request.member_id, UnknownMember)
            entry = home.groups[group_id] = GroupEntry(group_id, home, ClassicGroup(self.members.limits))
        return await self.members.join(entry, request)

    async def sync(self, group_id: str, request: SyncRequest) -> SyncAnswer:
        check_group_id(group_id)
        try:
            entry = self._map_of(group_id).groups.get(group_id)
        except CoordinatorLoading:
            # The rebalance of this request is lost. No other answer makes clients join again.
            return SyncAnswer(RebalanceInProgress)
        if entry is None:
            return SyncAnswer(UnknownMember)
        return await self.members.sync(entry, request)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> Refusal:
        check_group_id(group_id)
        try:
            entry = self._map_of(group_id).groups.get(group_id)
        except CoordinatorLoading:
            # The member's session has not begun here. If it were told to wait, a Java consumer would give up for good.
            return None
        if entry is None:
            return UnknownMember
        refusal = entry.classic.heartbeat(member_id, instance_id, generation, self.members.now_ms())
        self.members.carry_out(entry)
        return refusal

    def leave(self, group_id: str, leaving: Sequence[LeavingMember]) -> list[Refusal]:
        """Returns one answer for each member that leaves."""
        check_group_id(group_id)
        entry = self._map_of(group_id).groups.get(group_id)
        if entry is None:
            return [UnknownMember for _ in leaving]
        refusals = [entry.classic.leave(each, self.members.now_ms()) for each in leaving]
        self.members.carry_out(entry)
        return refusals

    # Offsets

    async def commit(self, group_id: str, sender: Sender, commits: Mapping[TopicPartition, Commit]) -> Results:
        """Commits as Kafka's clients do. Returns an answer for each partition."""
        home = await self._map_to_change(group_id, may_be_empty=True)
        return await self.offsets.commit(home, group_id, sender, commits)

    async def commit_in_transaction(
        self,
        group_id: str,
        sender: Sender,
        commits: Mapping[TopicPartition, Commit],
        transaction: Transaction,
        admit: Callable[[TopicPartition], Awaitable[None]],
    ) -> Results:
        """Commits as part of a producer's transaction: the offsets count when `transaction_ended` says so.

        `admit` asks the transaction's coordinator whether this partition of the offsets topic is in the transaction, or
        adds it. It raises the refusal, and is called only while the transaction has written nothing to the partition.
        """
        home = await self._map_to_change(group_id)
        transactional_id, producer_id, producer_epoch, tv2 = transaction
        producer, asked = (transactional_id, producer_id, producer_epoch), None
        for _ in range(2):  # the marker of the transaction before may come while it is asked, and make that void
            verification = home.writer.begin_verification(*producer, tv2=tv2)
            if verification in (None, asked):
                break
            asked = verification
            await admit(TopicPartition(OFFSETS_TOPIC, PartitionId(home.writer.number)))
            home = await self._map_to_change(group_id)
        written_by = InTransaction(producer_id, producer_epoch, verification)
        return await self.offsets.commit_in_transaction(home, group_id, sender, commits, written_by)

    def transaction_ended(self, partition: int, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """Applies or drops what a transaction has committed here: its marker in this partition is committed.

        Every marker of a producer ends its open transaction, whatever its epoch; the log takes no other marker.
        """

        def end(home: GroupMap) -> None:
            self.offsets.commits += home.end_transaction(producer_id, committed)

        self.shards.when_read_back(partition, end)

    async def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Sets (offset, metadata) for a group without members. Raises the first refusal.

        This is also how a group is reset. A group with members decides itself where it continues.
        """
        commits = {tp: Commit(offset, metadata=metadata) for tp, (offset, metadata) in offsets.items()}
        results = await self.commit(group_id, Sender(), commits)
        for error in results.values():
            if isinstance(error, UnknownMember):
                raise GroupNotEmpty(where=group_id, hint="stop its consumers first")
            if error is not None:
                raise error

    async def move_offset(self, group_id: str, tp: TopicPartition, expected: int | None, offset: int) -> bool:
        """Commits for a group without members if its offset is still `expected`. Returns whether it did."""
        home = await self._map_to_change(group_id)
        entry = home.groups.get(group_id)
        held = None if entry is None else entry.offsets.get(tp)
        if (held.position if held is not None else None) != expected:
            return False
        if entry is not None and (entry.in_flight[tp] or tp in entry.pending):
            return False
        kept = "" if held is None else held.metadata
        # The check above and this write happen in one step of the loop.
        results = await self.offsets.commit(home, group_id, Sender(), {tp: Commit(offset, metadata=kept)})
        return results[tp] is None

    def fetch_offsets(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Returns the committed offsets; no offsets for a group that does not exist."""
        check_group_id(group_id, may_be_empty=True)
        entry = self._find(group_id)
        return {} if entry is None else entry.offsets

    def unstable_offsets(self, group_id: str) -> Collection[TopicPartition]:
        """Returns the partitions for which an open transaction has committed another offset."""
        check_group_id(group_id, may_be_empty=True)
        entry = self._find(group_id)
        return () if entry is None else entry.pending.keys()

    def positions(self, group_id: str) -> dict[TopicPartition, CommittedOffset | None]:
        """Returns the committed offsets, and None for each partition that a member reads, or an open transaction has
        committed, where nothing is committed yet."""
        found: dict[TopicPartition, CommittedOffset | None] = {}
        check_group_id(group_id, may_be_empty=True)
        entry = self._find(group_id)
        if entry is not None:
            found.update(dict.fromkeys((*entry.read_partitions(), *entry.pending)))
            found.update(entry.offsets)
        return found

    async def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> Results:
        check_group_id(group_id)
        return await self.offsets.delete(self._require(group_id), partitions)

    # Groups as a whole

    def list_groups(self) -> list[GroupListing]:
        """Returns the groups that this broker coordinates and has read back. If `is_loading`, there may be more."""
        return [
            GroupListing(entry.group_id, entry.group.protocol_type or "", entry.group.state, entry.group.size)
            for shard in self.shards
            if not shard.loading
            for entry in shard.machine.groups.values()
            if entry.group.state is not State.DEAD
        ]

    @property
    def is_loading(self) -> bool:
        return any(shard.loading for shard in self.shards)

    async def loaded(self) -> None:
        await self.shards.settled()

    def describe(self, group_id: str) -> GroupDescription:
        check_group_id(group_id, may_be_empty=True)
        group = self._require(group_id).classic
        stable = group.state is State.STABLE and group.protocol_name is not None
        name = group.protocol_name or ""
        return GroupDescription(
            group_id=group_id,
            state=group.state,
            protocol_type=group.protocol_type or "",
            protocol_name=name if stable else "",
            generation=group.generation,
            members=tuple(
                MemberDescription(
                    member.id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata_for(name) if stable else b"",
                    member.assignment if stable else b"",
                )
                for member in group.roster
            ),
        )

    async def delete_group(self, group_id: str) -> None:
        """Deletes a group without members, and its offsets."""
        check_group_id(group_id, may_be_empty=True)
        try:
            shard = self.shards.find(group_id)
        except NotCoordinator:
            if self._image.find_topic(OFFSETS_TOPIC) is None:
                raise GroupNotFound(where=group_id) from None
            raise
        if group_id in shard.machine.damaged and not shard.loading:
            await self.offsets.delete_damaged(shard.machine, group_id)
        else:
            await self.offsets.delete_group(self._require(group_id))

    # Finding a group

    def _map_of(self, group_id: str) -> GroupMap:
        home = self.shards.find_ready(group_id)
        home.check_readable(group_id)
        return home

    async def _map_to_change(self, group_id: str, *, may_be_empty: bool = False) -> GroupMap:
        check_group_id(group_id, may_be_empty=may_be_empty)
        await self.shards.require_topic()
        home = self._map_of(group_id)
        limit = self._settings.max_groups
        if group_id not in home.groups and sum(len(each.machine.groups) for each in self.shards) >= limit:
            raise GroupFull(
                f"there are {limit} groups already", where=group_id, hint="delete groups, or raise groups.max_groups"
            )
        return home

    def _find(self, group_id: str) -> GroupEntry | None:
        if self._image.find_topic(OFFSETS_TOPIC) is None:
            return None
        return self._map_of(group_id).groups.get(group_id)

    def _require(self, group_id: str) -> GroupEntry:
        entry = self._find(group_id)
        if entry is None or entry.group.state is State.DEAD:
            raise GroupNotFound(f"there is no group {group_id!r}")
        return entry

    # Changes that no client asks for

    def _restore(self, home: GroupMap, groups: dict[str, LoadedGroup]) -> None:
        home.was_read_back = bool(groups)
        for group_id, loaded in groups.items():
            if loaded.damage:
                _log.error("stored state of a group is damaged", group=group_id, damage=loaded.damage)
                home.damaged[group_id] = loaded
            else:
                entry = home.groups[group_id] = self._restored(home, group_id, loaded)
                self.members.carry_out(entry)
        # These topics were deleted while no broker coordinated these groups.
        for topic in self._image.deleted_topics():
            self.offsets.forget_topic([home], topic.name, topic.deleted_ms)

    def _restored(self, home: GroupMap, group_id: str, loaded: LoadedGroup) -> GroupEntry:
        limits = self.members.limits
        entry = GroupEntry(group_id, home, ClassicGroup(limits), loaded.offsets)
        if loaded.record is not None:
            entry.group = ClassicGroup.restored(loaded.record.snapshot, limits, self.members.now_ms())
            entry.empty_since_ms = 0 if loaded.record.snapshot.members else max(loaded.record.state_ms, 0)
        for producer_id, offsets in loaded.pending.items():
            home.pend(entry, producer_id, offsets, READ_BACK)
        return entry

    def _end(self, home: GroupMap) -> None:
        for entry in list(home.groups.values()):
            if entry.group.state is not State.DEAD:
                self.members.end(entry, NotCoordinator)
        home.groups.clear()
        home.open.clear()

    def _image_changed(self, change: ImageChange) -> None:
        for name, (before, after) in change.topics.items():
            if before is not None and (after is None or after.id != before.id):
                self.offsets.forget_topic([shard.machine for shard in self.shards], name, self._clock())

    async def _expire_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._settings.offsets_retention_check_interval_ms / 1000)
            await self.offsets.expire([shard.machine for shard in self.shards if not shard.loading])


def _check_fits(request: JoinRequest) -> None:
    """Raises InvalidRequest if a member's names are longer than a record can hold, or its metadata is too large."""
    if len(request.protocols) > MAX_PROTOCOLS:
        raise InvalidRequest(f"a member has {len(request.protocols)} protocols", hint=f"at most {MAX_PROTOCOLS}")
    names = [request.instance_id or "", request.protocol_type, *(name for name, _ in request.protocols)]
    longest = max(len(name.encode()) for name in names)
    if longest > LONGEST_STRING_BYTES:
        raise InvalidRequest(f"a name has {longest} bytes", hint=f"at most {LONGEST_STRING_BYTES} can be stored")
    total = sum(len(name) + len(metadata) for name, metadata in request.protocols)
    if total > MAX_METADATA_BYTES:
        raise InvalidRequest(
            f"a member has {total} bytes of metadata", hint=f"at most {MAX_METADATA_BYTES} are accepted"
        )


def check_group_id(group_id: str, *, may_be_empty: bool = False) -> None:
    """Raises InvalidGroupId if the offsets topic cannot hold the id. Some calls allow the empty id, as in Kafka."""
    try:
        length = len(group_id.encode())
    except UnicodeEncodeError:
        length = -1
    if length < 0 or length > LONGEST_STRING_BYTES or (length == 0 and not may_be_empty):
        raise InvalidGroupId(
            "a group id is 1 to 32767 bytes of UTF-8", hint="set group.id to a name of your application"
        )

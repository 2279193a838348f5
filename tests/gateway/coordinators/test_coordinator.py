"""The coordinator over real partitions: what is kept over a restart, what is refused, what waits for what."""

import asyncio
import dataclasses
import struct

import pytest
import uvloop

from gateway.coordinators.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    GroupFull,
    GroupNotEmpty,
    GroupNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidGroupId,
    MemberIdRequired,
    NotCoordinator,
    OffsetMetadataTooLarge,
    RebalanceInProgress,
    UnknownMember,
)
from gateway.coordinators.group_offsets import Commit, Sender
from gateway.coordinators.groups.messages import LeavingMember, Protocol
from gateway.coordinators.groups.states import State
from gateway.coordinators.journal.partitioning import partition_of
from gateway.coordinators.offsets_topic.keys import GroupKey, OffsetKey, read_key, write_key
from gateway.coordinators.offsets_topic.topic import OFFSETS_TOPIC
from hot_tier.cluster.model import encode, partition_key
from hot_tier.cluster.store import Put
from hot_tier.errors import InvalidRequest, StorageFailure, UnknownPartition, UnknownTopic
from hot_tier.ids import NodeId, PartitionId, TopicPartition
from hot_tier.record.batch import read_header
from hot_tier.record.records import NewRecord, decode_records, encode_records
from tests.gateway.coordinators.node import SETTINGS, Clock, Coordinated, coordinated, tp
from tests.support.waiting import until


def pytest_asyncio_loop_factories(config, item):
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def directory(tmp_path) -> str:
    return str(tmp_path / "node")


@pytest.fixture
async def node(directory):
    async with coordinated(directory) as running:
        await running.admin.create_topic("t", 4)
        yield running


async def stored(node: Coordinated, group_id: str = "g") -> list:
    """The (key, value) records of the group's partition, in order."""
    log = node.partitions.get(OFFSETS_TOPIC, partition_of(group_id, SETTINGS.offsets_topic_partitions)).log
    found = []
    position = log.log_start_offset
    while (place := log.locate(position, 1 << 20, log.log_end_offset)) is not None:
        data = await log.read(place)
        records = decode_records(data, from_offset=position)
        found += [(read_key(record.key), record.value) for record in records]
        position = records[-1].offset + 1
    return found


def append(node: Coordinated, key: bytes, value: bytes | None, group_id: str = "g") -> None:
    partition = node.partitions.get(OFFSETS_TOPIC, partition_of(group_id, SETTINGS.offsets_topic_partitions))
    batch = encode_records([NewRecord(node.clock(), key, value)])
    partition.append(batch, read_header(batch), node.clock())


# The offsets topic


async def test_the_topic_is_made_when_first_needed(node):
    assert node.image.find_topic(OFFSETS_TOPIC) is None
    assert node.groups.fetch_offsets("g") == {}
    assert node.groups.list_groups() == []
    assert node.image.find_topic(OFFSETS_TOPIC) is None
    found = await asyncio.gather(*(node.groups.find("g") for _ in range(20)))
    assert {(broker.id, str(broker.endpoints["kafka"])) for broker in found} == {(0, "127.0.0.1:9092")}
    topic = node.image.topic(OFFSETS_TOPIC)
    assert (topic.partitions, topic.replication_factor, topic.internal) == (4, 1, True)
    assert topic.config["cleanup.policy"] == "compact"


async def test_a_caller_that_goes_away_does_not_stop_the_topic_from_being_made(node):
    first = asyncio.ensure_future(node.groups.find("g"))
    second = asyncio.ensure_future(node.groups.find("g"))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).id == 0


# Commits


async def test_a_commit_is_answered_when_it_is_committed_and_read_with_all_it_carried(node):
    commits = {tp(0): Commit(42, 3, "sum=7"), tp(2): Commit(7)}
    assert await node.groups.commit("g", Sender(), commits) == {tp(0): None, tp(2): None}
    offsets = node.groups.fetch_offsets("g")
    assert {each: tuple(offsets[each])[:3] for each in offsets} == {tp(0): (42, 3, "sum=7"), tp(2): (7, -1, "")}
    partition = node.partitions.get(OFFSETS_TOPIC, partition_of("g", 4))
    assert partition.high_watermark == partition.log.log_end_offset == 2
    assert [key for key, _ in await stored(node)] == [OffsetKey("g", "t", 0), OffsetKey("g", "t", 2)]


async def test_each_partition_has_its_own_answer(node):
    commits = {
        tp(0): Commit(1),
        tp(9): Commit(1),
        tp(0, "nowhere"): Commit(1),
        tp(2): Commit(1, metadata="x" * 4097),
        tp(3): Commit(1, metadata="ä" * 2048),
    }
    results = await node.groups.commit("g", Sender(), commits)
    assert {each: type(error) for each, error in results.items() if error is not None} == {
        tp(9): UnknownPartition,
        tp(0, "nowhere"): UnknownTopic,
        tp(2): OffsetMetadataTooLarge,
    }
    assert set(node.groups.fetch_offsets("g")) == {tp(0), tp(3)}


async def test_a_refused_commit_leaves_no_group_behind(node):
    await node.groups.commit("g", Sender(), {tp(0, "nowhere"): Commit(1)})
    results = await node.groups.commit("h", Sender("stranger", 3), {tp(0): Commit(1)})
    assert isinstance(results[tp(0)], IllegalGeneration)
    assert node.groups.list_groups() == []


async def test_only_the_current_generation_commits(node):
    me = await node.member()

    async def refusal(sender: Sender):
        error = (await node.groups.commit("g", sender, {tp(0): Commit(5)}))[tp(0)]
        return None if error is None else type(error)

    assert await refusal(Sender(me, 1)) is None
    assert await refusal(Sender(me, 0)) is IllegalGeneration
    assert await refusal(Sender(me, 2)) is IllegalGeneration
    assert await refusal(Sender("zombie", 1)) is UnknownMember
    assert await refusal(Sender()) is UnknownMember
    with pytest.raises(GroupNotEmpty):
        await node.groups.commit_offsets("g", {tp(0): (0, "")})
    assert node.groups.fetch_offsets("g")[tp(0)].offset == 5
    node.groups.leave("g", [LeavingMember(me)])
    assert await refusal(Sender(me, 1)) is UnknownMember
    await node.groups.commit_offsets("g", {tp(0): (0, "reset")})
    assert node.groups.fetch_offsets("g")[tp(0)].offset == 0


async def test_an_offset_is_moved_only_from_where_it_was_seen(node):
    assert await node.groups.move_offset("g", tp(0), None, 3)
    assert not await node.groups.move_offset("g", tp(0), None, 9)
    assert not await node.groups.move_offset("g", tp(0), 2, 9)
    moves = await asyncio.gather(*(node.groups.move_offset("g", tp(0), 3, to) for to in (4, 5, 6)))
    assert moves == [True, False, False]
    assert node.groups.fetch_offsets("g")[tp(0)].offset == 4
    await node.member()
    assert not await node.groups.move_offset("g", tp(0), 4, 9), "members decide for themselves"


async def test_many_commits_at_once_share_batches_and_keep_their_order(node):
    await node.groups.find("g")
    writers = [shard.writer for shard in node.groups.shards]
    groups = [f"g{i}" for i in range(200)]
    commits = [
        node.groups.commit(group, Sender(), {tp(0): Commit(offset)}) for offset in range(1, 6) for group in groups
    ]
    results = await asyncio.gather(*commits)
    assert all(result == {tp(0): None} for result in results)
    assert all(node.groups.fetch_offsets(group)[tp(0)].offset == 5 for group in groups)
    assert sum(writer.written_records for writer in writers) == 1000
    assert sum(writer.written_batches for writer in writers) <= 8


async def test_without_sync_the_order_of_commits_holds_too(directory):
    async with coordinated(directory, flush="os") as node:
        await node.admin.create_topic("t", 1)
        await node.groups.find("g")
        await asyncio.gather(
            *(node.groups.commit("g", Sender(), {tp(0): Commit(offset)}) for offset in range(100)),
        )
        assert node.groups.fetch_offsets("g")[tp(0)].offset == 99


async def test_a_commit_that_cannot_be_written_is_refused_and_not_shown(node):
    await node.groups.commit_offsets("g", {tp(0): (1, "")})
    partition = node.partitions.get(OFFSETS_TOPIC, partition_of("g", 4))
    partition.log.sync.fail(StorageFailure("the disk is gone"))
    results = await node.groups.commit("g", Sender(), {tp(0): Commit(2)})
    assert isinstance(results[tp(0)], CoordinatorNotAvailable)
    assert node.groups.fetch_offsets("g")[tp(0)].offset == 1
    with pytest.raises(CoordinatorNotAvailable):
        await node.groups.delete_group("g")
    assert node.groups.describe("g").state is State.EMPTY


@pytest.mark.parametrize("group_id", ["", "g" * 32768, "\ud800"])
async def test_group_ids_are_checked(node, group_id):
    with pytest.raises(InvalidGroupId):
        await node.join(group_id)
    with pytest.raises(InvalidGroupId):
        node.groups.heartbeat(group_id, "m", None, 1)
    if group_id:
        with pytest.raises(InvalidGroupId):
            await node.groups.commit_offsets(group_id, {tp(0): (1, "")})


async def test_the_empty_group_id_may_commit_as_in_kafka(node):
    await node.groups.commit_offsets("", {tp(0): (1, "")})
    assert node.groups.fetch_offsets("")[tp(0)].offset == 1


@pytest.mark.parametrize(
    "too_much",
    [
        {"instance_id": "i" * 32768},
        {"protocol_type": "ä" * 16384},
        {"protocols": (Protocol("p" * 32768, b""),)},
        {"protocols": (Protocol("range", bytes(2 << 20)), Protocol("sticky", bytes((2 << 20) + 1)))},
    ],
)
async def test_what_a_member_brings_has_bounds(node, too_much):
    with pytest.raises(InvalidRequest):
        await node.join(**too_much)
    assert node.groups.list_groups() == []


async def test_members_of_all_groups_are_bounded_and_an_address_has_its_share(directory):
    """Joins whose clients go away at once: they are kept for the length of their session, so there are not too many."""
    settings = dataclasses.replace(SETTINGS, max_bytes=1 << 20, initial_rebalance_delay_ms=0)
    large = (Protocol("range", bytes(50_000)),)
    async with coordinated(directory, settings) as node:
        refused = 0
        for number in range(40):
            answer = await node.join(f"g{number}", protocols=large)
            refused += answer.error is GroupFull
        budget = node.groups.members.budget
        assert refused >= 25
        assert budget.used <= budget.most_for_one
        answer = await node.join("other", protocols=large, client_host="/10.0.0.1")
        assert answer.error is None
        for listed in node.groups.list_groups():
            for member in node.groups.describe(listed.group_id).members:
                node.groups.leave(listed.group_id, [LeavingMember(member.member_id)])
        assert budget.used == 0


async def test_the_number_of_groups_is_bounded(directory):
    async with coordinated(directory, dataclasses.replace(SETTINGS, max_groups=3)) as node:
        await node.admin.create_topic("t", 4)
        for number in range(3):
            await node.groups.commit_offsets(f"g{number}", {tp(0): (1, "")})
        with pytest.raises(GroupFull, match="groups already"):
            await node.groups.commit_offsets("g3", {tp(0): (1, "")})
        with pytest.raises(GroupFull):
            await node.join("g3")
        await node.groups.commit_offsets("g0", {tp(0): (2, "")})
        await node.groups.delete_group("g1")
        await node.groups.commit_offsets("g3", {tp(0): (1, "")})


async def test_the_longest_names_are_kept(node):
    await node.member("g" * 32767, instance_id="i" * 32767, client_id="c" * 32767)
    (member,) = node.groups.describe("g" * 32767).members
    assert member.instance_id == "i" * 32767


async def test_assignments_that_no_record_can_hold_are_refused(node):
    joined = await node.join()
    answer = await node.sync(joined.member_id, 1, assignments={joined.member_id: bytes(33 << 20)})
    assert answer.error is CoordinatorNotAvailable
    assert node.groups.describe("g").state is State.PREPARING_REBALANCE


# Restart


async def test_offsets_and_members_survive_a_restart(directory):
    async with coordinated(directory) as node:
        await node.admin.create_topic("t", 4)
        me = await node.member("g", instance_id="host-1")
        await node.groups.commit("g", Sender(me, 1), {tp(0): Commit(10, 2, "meta")})
        await node.groups.commit("g", Sender(me, 1), {tp(0): Commit(11, 2, "meta")})
        await node.groups.commit_offsets("simple", {tp(3): (5, "")})
        await node.groups.commit_offsets("gone", {tp(3): (5, "")})
        await node.groups.delete_group("gone")
    async with coordinated(directory) as node:
        await node.groups.loaded()
        assert tuple(node.groups.fetch_offsets("g")[tp(0)])[:3] == (11, 2, "meta")
        assert node.groups.fetch_offsets("simple")[tp(3)].offset == 5
        assert node.groups.fetch_offsets("gone") == {}
        described = node.groups.describe("g")
        assert (described.state, described.generation, described.protocol_name) == (State.STABLE, 1, "range")
        (member,) = described.members
        assert (member.member_id, member.instance_id, member.assignment) == (me, "host-1", me.encode())
        assert node.groups.heartbeat("g", me, "host-1", 1) is None
        assert await node.groups.commit("g", Sender(me, 1, "host-1"), {tp(0): Commit(12)}) == {tp(0): None}
        assert (await node.sync(me, 1)).assignment == me.encode()
        assert node.groups.heartbeat("g", me, None, 0) is IllegalGeneration
        assert {listed.group_id for listed in node.groups.list_groups()} == {"g", "simple"}


async def test_requests_during_loading_are_put_off(directory):
    async with coordinated(directory) as node:
        await node.admin.create_topic("t", 1)
        me = await node.member()
        await node.groups.commit("g", Sender(me, 1), {tp(0): Commit(3)})
    async with coordinated(directory) as node:
        assert node.groups.is_loading
        with pytest.raises(CoordinatorLoading):
            node.groups.fetch_offsets("g")
        with pytest.raises(CoordinatorLoading):
            await node.groups.commit("g", Sender(me, 1), {tp(0): Commit(0)})
        with pytest.raises(CoordinatorLoading):
            await node.join("g", me)
        assert node.groups.heartbeat("g", me, None, 1) is None
        assert (await node.sync(me, 1)).error is RebalanceInProgress
        await node.groups.loaded()
        assert not node.groups.is_loading
        assert node.groups.fetch_offsets("g")[tp(0)].offset == 3


async def test_a_restored_member_that_stays_silent_is_removed(directory):
    async with coordinated(directory) as node:
        await node.admin.create_topic("t", 1)
        await node.member(session_timeout_ms=1_000)
    async with coordinated(directory) as node:
        await node.groups.loaded()
        assert node.groups.describe("g").state is State.STABLE
        await until(lambda: node.groups.describe("g").state is State.EMPTY)
        assert node.groups.describe("g").generation == 2


async def test_generations_go_on_after_a_restart(directory):
    async with coordinated(directory) as node:
        await node.admin.create_topic("t", 1)
        me = await node.member()
        node.groups.leave("g", [LeavingMember(me)])
    async with coordinated(directory) as node:
        await node.groups.loaded()
        assert (await node.join()).generation == 3


async def test_a_damaged_value_stops_its_group_alone_until_it_is_deleted(directory):
    async with coordinated(directory) as node:
        await node.admin.create_topic("t", 2)
        await node.groups.commit_offsets("g", {tp(0): (1, ""), tp(1): (1, "")})
        neighbour = next(name for name in map("n{}".format, range(99)) if partition_of(name, 4) == partition_of("g", 4))
        await node.groups.commit_offsets(neighbour, {tp(0): (8, "")})
        append(node, write_key(OffsetKey("g", "t", 0)), struct.pack(">hq", 99, 1))
        append(node, struct.pack(">h", 7) + b"a kind of key that came later", b"?")
        append(node, b"\0", b"no key at all")
    async with coordinated(directory) as node:
        await node.groups.loaded()
        assert node.groups.fetch_offsets(neighbour)[tp(0)].offset == 8
        with pytest.raises(CoordinatorNotAvailable, match="damaged"):
            node.groups.fetch_offsets("g")
        with pytest.raises(CoordinatorNotAvailable):
            await node.groups.commit_offsets("g", {tp(0): (1, "")})
        await node.groups.delete_group("g")
        assert node.groups.fetch_offsets("g") == {}
    async with coordinated(directory) as node:
        await node.groups.loaded()
        assert node.groups.fetch_offsets("g") == {}


# Membership over time


async def test_members_meet_and_get_what_the_leader_assigned(node):
    joins = await asyncio.gather(*(node.join() for _ in range(5)))
    assert {joined.generation for joined in joins} == {1}
    (leader,) = [joined for joined in joins if joined.members]
    assert len(leader.members) == 5
    plan = {member_id: member_id[::-1].encode() for member_id, _, _ in leader.members}
    synced = await asyncio.gather(
        *(node.sync(joined.member_id, 1, assignments=plan if joined is leader else None) for joined in joins)
    )
    assert [answer.assignment for answer in synced] == [plan[joined.member_id] for joined in joins]
    assert node.groups.describe("g").state is State.STABLE


async def test_thousands_of_members_cost_no_tasks_and_little_heap(node):
    await node.groups.find("g")
    tasks_before = len(asyncio.all_tasks())
    members = []
    for group in map("group-{}".format, range(40)):
        joins = await asyncio.gather(*(node.join(group, session_timeout_ms=60_000) for _ in range(50)))
        members += [(group, joined.member_id, joined.generation) for joined in joins]
    assert len(asyncio.all_tasks()) <= tasks_before + 1
    for _ in range(5):
        assert {node.groups.heartbeat(group, me, None, generation) for group, me, generation in members} == {None}
    assert len(node.groups.members._deadlines) <= len(members) + 40
    assert len(node.groups.members._deadlines._heap) < 3 * len(members)


async def test_the_initial_delay_lets_members_meet(directory):
    settings = dataclasses.replace(SETTINGS, initial_rebalance_delay_ms=200)
    async with coordinated(directory, settings) as node:
        first = asyncio.ensure_future(node.join())
        await until(lambda: node.groups.list_groups())
        second = asyncio.ensure_future(node.join())
        assert (await first).generation == (await second).generation == 1
        assert len(node.groups.describe("g").members) == 2


async def test_a_silent_member_is_removed_and_the_others_are_told(node):
    silent, alive = await asyncio.gather(node.join(session_timeout_ms=1_000), node.join(session_timeout_ms=1_000))
    leader, other = (silent, alive) if silent.members else (alive, silent)
    await asyncio.gather(node.sync(leader.member_id, 1, assignments={}), node.sync(other.member_id, 1))

    def told() -> bool:
        return node.groups.heartbeat("g", alive.member_id, None, 1) is RebalanceInProgress

    await until(told)
    again = await node.join(member_id=alive.member_id)
    assert again.generation == 2
    assert node.groups.heartbeat("g", silent.member_id, None, 1) is UnknownMember


async def test_an_id_handed_out_and_never_used_is_forgotten(node):
    answer = await node.join(must_know_id=True, session_timeout_ms=1_000)
    assert answer.error is MemberIdRequired
    assert [listed.state for listed in node.groups.list_groups()] == [State.EMPTY]
    await until(lambda: not node.groups.list_groups())


async def test_a_waiting_client_that_goes_away_does_not_disturb_the_rest(node):
    me = await node.member()
    newcomer = asyncio.ensure_future(node.join())
    await until(lambda: node.groups.heartbeat("g", me, None, 1) is RebalanceInProgress)
    newcomer.cancel()
    assert (await node.join(member_id=me)).generation == 2


async def test_stopping_releases_everybody_who_waits(directory):
    async with coordinated(directory) as node:
        await node.member()
        waiting = asyncio.ensure_future(node.join())
        await until(lambda: node.groups.describe("g").state is State.PREPARING_REBALANCE)
    assert (await waiting).error is NotCoordinator


async def test_groups_go_and_come_with_the_leadership_of_their_partition(node):
    me = await node.member()
    await node.groups.commit("g", Sender(me, 1), {tp(0): Commit(4)})
    waiting = asyncio.ensure_future(node.join())
    await until(lambda: node.groups.describe("g").state is State.PREPARING_REBALANCE)

    await lead(node, 9)
    assert (await waiting).error is NotCoordinator
    with pytest.raises(NotCoordinator):
        node.groups.fetch_offsets("g")
    with pytest.raises(NotCoordinator):
        await node.join()
    with pytest.raises(CoordinatorNotAvailable):
        await node.groups.find("g")

    await lead(node, 0)
    await node.groups.loaded()
    assert node.groups.fetch_offsets("g")[tp(0)].offset == 4
    assert node.groups.heartbeat("g", me, None, 1) is None
    assert (await node.groups.find("g")).id == 0


async def lead(node: Coordinated, leader: int) -> None:
    """Give the partition of the group "g" to another broker, or back."""
    topic = node.image.topic(OFFSETS_TOPIC)
    place = TopicPartition(OFFSETS_TOPIC, PartitionId(partition_of("g", topic.partitions)))
    state = node.image.partition_state(place)
    moved = dataclasses.replace(state, leader=NodeId(leader), leader_epoch=state.leader_epoch + 1)
    revision = await node.store.transact([], [Put(partition_key(topic.id, place.partition), encode(moved))])
    await node.image.reached(revision)


# Deleting


async def test_a_group_is_deleted_with_everything_it_holds(node):
    me = await node.member()
    await node.groups.commit("g", Sender(me, 1), {tp(0): Commit(1), tp(1): Commit(1)})
    with pytest.raises(GroupNotEmpty):
        await node.groups.delete_group("g")
    node.groups.leave("g", [LeavingMember(me)])
    await node.groups.delete_group("g")
    with pytest.raises(GroupNotFound):
        node.groups.describe("g")
    with pytest.raises(GroupNotFound):
        await node.groups.delete_group("g")
    last = dict(await stored(node))
    assert last == {OffsetKey("g", "t", 0): None, OffsetKey("g", "t", 1): None, GroupKey("g"): None}


async def test_deleting_where_there_never_was_a_group(node):
    with pytest.raises(GroupNotFound):
        await node.groups.delete_group("g")
    with pytest.raises(GroupNotFound):
        await node.groups.delete_offsets("g", [tp(0)])
    assert node.image.find_topic(OFFSETS_TOPIC) is None


async def test_a_deletion_wins_over_commits_in_flight(node):
    await node.groups.commit_offsets("g", {tp(0): (1, "")})
    commit = asyncio.ensure_future(node.groups.commit("g", Sender(), {tp(1): Commit(2)}))
    await until(lambda: node.groups.shards.find("g").machine.groups["g"].in_flight or commit.done())
    await node.groups.delete_group("g")
    await commit
    assert node.groups.fetch_offsets("g") == {}
    assert dict(await stored(node))[OffsetKey("g", "t", 1)] is None


async def test_nobody_joins_a_group_that_is_being_deleted(node):
    await node.groups.commit_offsets("g", {tp(0): (1, "")})
    deletion = asyncio.ensure_future(node.groups.delete_group("g"))
    await asyncio.sleep(0)
    answer = await node.join()
    assert answer.error is CoordinatorNotAvailable or deletion.done()
    await deletion
    assert (await node.join()).error is None


async def test_single_offsets_are_deleted_where_nobody_reads(node):
    await node.admin.create_topic("other", 1)
    me = await node.member()
    await node.groups.commit("g", Sender(me, 1), {tp(0): Commit(1), tp(0, "other"): Commit(1)})
    await node.admin.create_topic("unread", 1)
    asked = [tp(0), tp(0, "other"), tp(7, "other"), tp(0, "unread"), tp(0, "unknown")]
    results = await node.groups.delete_offsets("g", asked)
    assert isinstance(results[tp(0)], GroupSubscribedToTopic)
    assert results[tp(0, "other")] is results[tp(0, "unread")] is None
    assert isinstance(results[tp(7, "other")], UnknownPartition)
    assert isinstance(results[tp(0, "unknown")], UnknownTopic)
    assert set(node.groups.fetch_offsets("g")) == {tp(0)}
    node.groups.leave("g", [LeavingMember(me)])
    assert await node.groups.delete_offsets("g", [tp(0)]) == {tp(0): None}
    assert node.groups.fetch_offsets("g") == {}


async def test_offsets_of_a_group_of_another_kind_are_not_deleted_under_its_members(node):
    await node.member(protocol_type="connect")
    with pytest.raises(GroupNotEmpty):
        await node.groups.delete_offsets("g", [tp(0)])


async def test_a_deleted_topic_takes_its_offsets_along(node):
    await node.admin.create_topic("other", 1)
    await node.groups.commit_offsets("g", {tp(0): (1, ""), tp(0, "other"): (9, "")})
    await node.admin.delete_topic("other")
    await until(lambda: set(node.groups.fetch_offsets("g")) == {tp(0)})
    await node.admin.create_topic("other", 1)
    assert tp(0, "other") not in node.groups.fetch_offsets("g")


async def test_offsets_of_a_topic_deleted_while_down_are_not_brought_back(directory):
    async with coordinated(directory) as node:
        await node.admin.create_topic("t", 1)
        await node.admin.create_topic("other", 1)
        await node.groups.commit_offsets("g", {tp(0): (1, ""), tp(0, "other"): (9, "")})
        node.groups.offsets.forget_topic = lambda *_: None
        await node.admin.delete_topic("other")
        assert len(node.groups.fetch_offsets("g")) == 2
    async with coordinated(directory) as node:
        await node.groups.loaded()
        await until(lambda: set(node.groups.fetch_offsets("g")) == {tp(0)})


# Retention


async def test_offsets_expire_and_groups_with_them(directory):
    clock = Clock()
    settings = dataclasses.replace(SETTINGS, offsets_retention_minutes=60, offsets_retention_check_interval_ms=20)
    async with coordinated(directory, settings, clock) as node:
        await node.admin.create_topic("t", 4)
        me = await node.member("left")
        await node.groups.commit("left", Sender(me, 1), {tp(0): Commit(1)})
        stays = await node.member("stays", session_timeout_ms=60_000)
        await node.groups.commit("stays", Sender(stays, 1), {tp(0): Commit(1)})
        await node.groups.commit_offsets("simple", {tp(0): (1, "")})
        clock.ahead_ms = 50 * 60_000
        node.groups.leave("left", [LeavingMember(me)])
        await node.groups.commit_offsets("simple", {tp(1): (2, "")})
        clock.ahead_ms = 70 * 60_000
        await until(lambda: set(node.groups.fetch_offsets("simple")) == {tp(1)})
        assert node.groups.fetch_offsets("left"), "its time began when its last member left"
        clock.ahead_ms = 120 * 60_000
        await until(lambda: [listed.group_id for listed in node.groups.list_groups()] == ["stays"])
        assert set(node.groups.fetch_offsets("stays")) == {tp(0)}
    async with coordinated(directory, settings, clock) as node:
        await node.groups.loaded()
        assert [listed.group_id for listed in node.groups.list_groups()] == ["stays"]


async def test_compaction_does_not_change_what_is_read_back(directory):
    settings = dataclasses.replace(SETTINGS, offsets_topic_segment_bytes=16 * 1024)
    async with coordinated(directory, settings) as node:
        await node.admin.create_topic("t", 4)
        for offset in range(300):
            await node.groups.commit_offsets(
                "g", {tp(p): (offset, "some metadata that takes a little room") for p in range(4)}
            )
        log = node.partitions.get(OFFSETS_TOPIC, partition_of("g", 4)).log
        before = log.size_bytes
        assert await node.logs.compactor.compact(log)
        assert log.size_bytes < before / 4
    async with coordinated(directory, settings) as node:
        await node.groups.loaded()
        assert {each: value.offset for each, value in node.groups.fetch_offsets("g").items()} == {
            tp(p): 299 for p in range(4)
        }

"""Groups over the wire, byte for byte as clients of every version speak."""

from dataclasses import replace

import pytest

from gateway.coordinators.settings import GroupSettings
from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from gateway.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from gateway.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from gateway.kafka.protocol.messages.heartbeat import HeartbeatRequest
from gateway.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from gateway.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from gateway.kafka.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from gateway.kafka.protocol.messages.list_groups import ListGroupsRequest
from gateway.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gateway.kafka.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from gateway.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from gateway.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gateway.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from hot_tier.ids import PartitionId, TopicPartition
from tests.gateway.kafka.batches import batch
from tests.gateway.kafka.node import running_node
from tests.gateway.kafka.wire import Wire
from tests.support.waiting import until

SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"


def joining(member_id: str = "", group_id: str = "g", **fields) -> JoinGroupRequest:
    defaults = {
        "group_id": group_id,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol("range", SUBSCRIPTION)],
    }
    return JoinGroupRequest(**(defaults | fields))


async def joined(wire: Wire, version: int = 9, **fields):
    """Through the detour by MEMBER_ID_REQUIRED where the version has one."""
    answer = await wire.ask(joining(**fields), version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = await wire.ask(joining(answer.member_id, **fields), version)
    assert answer.error_code == 0
    return answer


async def stable(wire: Wire, **fields) -> tuple[str, int]:
    answer = await joined(wire, **fields)
    me, generation = answer.member_id, answer.generation_id
    request = SyncGroupRequest(
        group_id=fields.get("group_id", "g"),
        generation_id=generation,
        member_id=me,
        assignments=[SyncGroupRequestAssignment(me, b"all of it")],
    )
    assert (await wire.ask(request, 4)).assignment == b"all of it"
    return me, generation


def committing(offset: int, *, partition: int = 0, topic: str = "t", metadata: str | None = "m", **fields):
    return OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=0,
                        committed_metadata=metadata,
                    )
                ],
            )
        ],
        **fields,
    )


@pytest.fixture
async def wire(node):
    await node.node.admin.create_topic("t", 2)
    async with node.connect() as connection:
        yield connection


# Finding a coordinator


@pytest.mark.parametrize("version", range(7))
async def test_the_coordinator_of_a_group(node, wire, version):
    found = await wire.ask(FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"]), version)
    expected = (0, node.host, node.port, 0)
    if version < 4:
        assert (found.node_id, found.host, found.port, found.error_code) == expected
    else:
        assert [each.key for each in found.coordinators] == ["g", "h"]
        assert all((each.node_id, each.host, each.port, each.error_code) == expected for each in found.coordinators)


@pytest.mark.parametrize("version", [1, 4])
async def test_there_are_no_other_coordinators(wire, version):
    answer = await wire.ask(FindCoordinatorRequest(key="k", coordinator_keys=["k"], key_type=9), version)
    found = answer if version < 4 else answer.coordinators[0]
    assert (found.error_code, found.node_id, found.port) == (ErrorCode.INVALID_REQUEST, -1, -1)
    assert found.error_message


# Joining, syncing, staying, leaving


@pytest.mark.parametrize("version", range(10))
async def test_join(wire, version):
    answer = await wire.ask(joining(), version)
    if version >= 4:
        assert (answer.error_code, answer.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
        assert answer.member_id.startswith("test-")
        answer = await wire.ask(joining(answer.member_id), version)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert answer.leader == answer.member_id and answer.member_id.startswith("test-")
    assert [(each.member_id, each.metadata) for each in answer.members] == [(answer.member_id, SUBSCRIPTION)]
    if version >= 7:
        assert answer.protocol_type == "consumer"


@pytest.mark.parametrize("version", range(10))
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_joins_that_are_refused(wire, version, fields, code):
    answer = await wire.ask(joining(**fields), version)
    assert (answer.error_code, answer.generation_id, answer.members) == (code, -1, [])
    assert answer.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", range(6))
async def test_sync(wire, version):
    answer = await joined(wire)
    me = answer.member_id
    request = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=me,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(me, b"mine"), SyncGroupRequestAssignment("nobody", b"x")],
    )
    synced = await wire.ask(request, version)
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    if version >= 5:
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
    refused = await wire.ask(SyncGroupRequest(group_id="g", generation_id=7, member_id=me), version)
    assert (refused.error_code, refused.assignment) == (ErrorCode.ILLEGAL_GENERATION, b"")
    unknown = await wire.ask(SyncGroupRequest(group_id="h", generation_id=1, member_id=me), version)
    assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(5))
async def test_heartbeat(node, wire, version):
    me, generation = await stable(wire)

    async def beat(**fields) -> int:
        request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=me)
        return (await wire.ask(replace(request, **fields), version)).error_code

    assert await beat() == 0
    assert await beat(generation_id=0) == ErrorCode.ILLEGAL_GENERATION
    assert await beat(member_id="stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert await beat(group_id="h") == ErrorCode.UNKNOWN_MEMBER_ID
    assert await beat(group_id="") == ErrorCode.INVALID_GROUP_ID
    if version >= 3:
        assert await beat(group_instance_id="i") == ErrorCode.UNKNOWN_MEMBER_ID
    async with node.connect() as other:
        await other.send(joining(), 3)
        await until(lambda: node.node.groups.describe("g").state.value == "PreparingRebalance")
        assert await beat() == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", range(6))
async def test_leave(node, wire, version):
    me, _ = await stable(wire)
    if version < 3:
        assert (await wire.ask(LeaveGroupRequest(group_id="g", member_id="x"), version)).error_code == 25
        assert (await wire.ask(LeaveGroupRequest(group_id="g", member_id=me), version)).error_code == 0
    else:
        members = [MemberIdentity(me), MemberIdentity("x"), MemberIdentity("", "i")]
        answer = await wire.ask(LeaveGroupRequest(group_id="g", members=members), version)
        assert answer.error_code == 0
        assert [(each.member_id, each.group_instance_id, each.error_code) for each in answer.members] == [
            (me, None, 0),
            ("x", None, ErrorCode.UNKNOWN_MEMBER_ID),
            ("", "i", ErrorCode.UNKNOWN_MEMBER_ID),
        ]
    assert node.node.groups.describe("g").state.value == "Empty"


@pytest.mark.parametrize("version", [5, 8, 9])
async def test_a_static_member_comes_back(node, wire, version):
    me, _ = await stable(wire, group_instance_id="host-1")
    async with node.connect() as restarted:
        back = await restarted.ask(joining(group_instance_id="host-1"), version)
    assert (back.error_code, back.generation_id) == (0, 1)
    assert back.member_id != me and back.member_id.startswith("host-1-")
    assert (back.leader, back.skip_assignment) == ((back.member_id, True) if version >= 9 else (me, False))
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=me, group_instance_id="host-1")
    assert (await wire.ask(beat, 4)).error_code == ErrorCode.FENCED_INSTANCE_ID


async def test_two_members_rebalance_over_two_connections(node, wire):
    me, _ = await stable(wire)
    async with node.connect() as other:
        await other.send(joining(), 3)
        await until(lambda: node.node.groups.describe("g").state.value == "PreparingRebalance")
        mine = await wire.ask(joining(me), 9)
        _, theirs = await other.receive(ApiKey.JOIN_GROUP, 3)
        assert mine.generation_id == theirs.generation_id == 2
        assert len(mine.members) == 2 and theirs.members == [] and theirs.leader == me
        plan = [SyncGroupRequestAssignment(me, b"0"), SyncGroupRequestAssignment(theirs.member_id, b"1")]
        await other.send(SyncGroupRequest(group_id="g", generation_id=2, member_id=theirs.member_id), 3)
        synced = await wire.ask(SyncGroupRequest(group_id="g", generation_id=2, member_id=me, assignments=plan), 5)
        assert synced.assignment == b"0"
        assert (await other.receive(ApiKey.SYNC_GROUP, 3))[1].assignment == b"1"


async def test_a_group_has_a_largest_size(tmp_path):
    groups = GroupSettings(initial_rebalance_delay_ms=0, offsets_topic_partitions=1, max_size=1)
    async with running_node(str(tmp_path), groups=groups) as node, node.connect() as wire:
        await stable(wire)
        async with node.connect() as other:
            assert (await other.ask(joining(), 9)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


# Offsets


@pytest.mark.parametrize("version", range(2, 10))
async def test_commit(node, wire, version):
    answer = await wire.ask(committing(7), version)
    assert [(t.name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in answer.topics] == [
        ("t", [(0, 0)])
    ]
    committed = node.node.groups.fetch_offsets("g")
    (value,) = committed.values()
    assert (value.offset, value.metadata, value.leader_epoch) == (7, "m", 0 if version >= 6 else -1)


@pytest.mark.parametrize("version", [2, 9])
@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (committing(7, topic="nowhere"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (committing(7, partition=2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (committing(7, metadata="x" * 5000), ErrorCode.OFFSET_METADATA_TOO_LARGE),
        (committing(7, generation_id_or_member_epoch=3, member_id="x"), ErrorCode.ILLEGAL_GENERATION),
        (committing(7, metadata=None), ErrorCode.NONE),
    ],
)
async def test_commits_that_are_refused(wire, version, request_, code):
    (topic,) = (await wire.ask(request_, version)).topics
    assert topic.partitions[0].error_code == code


async def test_a_zombie_cannot_commit(wire):
    me, _ = await stable(wire)
    for generation, member_id, code in [(1, me, 0), (0, me, 22), (1, "x", 25), (-1, "", 25)]:
        request = committing(generation, generation_id_or_member_epoch=generation, member_id=member_id)
        (topic,) = (await wire.ask(request, 7)).topics
        assert topic.partitions[0].error_code == code


@pytest.mark.parametrize("version", range(1, 10))
async def test_fetch(wire, version):
    await wire.ask(committing(7, metadata="note"), 9)
    if version >= 8:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
        groups = [OffsetFetchRequestGroup("g", topics=topics), OffsetFetchRequestGroup("unknown", topics=topics)]
        answer = await wire.ask(OffsetFetchRequest(groups=groups, require_stable=True), version)
        assert [(each.group_id, each.error_code) for each in answer.groups] == [("g", 0), ("unknown", 0)]
        (topic,), (unknown,) = (each.topics for each in answer.groups)
        assert [p.committed_offset for p in unknown.partitions] == [-1, -1]
    else:
        request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic("t", [0, 1])])
        answer = await wire.ask(request, version)
        (topic,) = answer.topics
        assert answer.error_code == 0
    assert [(p.partition_index, p.committed_offset, p.metadata, p.error_code) for p in topic.partitions] == [
        (0, 7, "note", 0),
        (1, -1, "", 0),
    ]
    if version >= 5:
        assert [p.committed_leader_epoch for p in topic.partitions] == [0, -1]


@pytest.mark.parametrize("version", range(2, 10))
async def test_fetch_all(wire, version):
    await wire.ask(committing(7), 9)
    await wire.ask(committing(8, partition=1), 9)
    if version >= 8:
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup("g", topics=None), OffsetFetchRequestGroup("h", topics=None)]
        )
        known, unknown = (await wire.ask(request, version)).groups
        (topic,) = known.topics
        assert unknown.topics == [] and unknown.error_code == 0
    else:
        (topic,) = (await wire.ask(OffsetFetchRequest(group_id="g", topics=None), version)).topics
    assert sorted((p.partition_index, p.committed_offset) for p in topic.partitions) == [(0, 7), (1, 8)]


async def test_delete_offsets(wire):
    await wire.ask(committing(7), 9)

    def deleting(group_id: str) -> OffsetDeleteRequest:
        partitions = [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(1)]
        return OffsetDeleteRequest(group_id=group_id, topics=[OffsetDeleteRequestTopic("t", partitions)])

    answer = await wire.ask(deleting("g"), 0)
    assert answer.error_code == 0
    assert [(p.partition_index, p.error_code) for p in answer.topics[0].partitions] == [(0, 0), (1, 0)]
    assert (await wire.ask(deleting("unknown"), 0)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    await stable(wire, group_id="busy")
    answer = await wire.ask(deleting("busy"), 0)
    assert [p.error_code for p in answer.topics[0].partitions] == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * 2


async def test_clients_do_not_write_into_the_offsets_topic(node, wire):
    await wire.ask(committing(7), 9)
    forged = [PartitionProduceData(index, bytes(batch(b"forged"))) for index in range(4)]
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="__consumer_offsets", partition_data=forged)]
    )
    (topic,) = (await wire.ask(request, 9)).responses
    assert {each.error_code for each in topic.partition_responses} == {ErrorCode.INVALID_TOPIC}
    ends = [node.node.partitions.get("__consumer_offsets", index).log.log_end_offset for index in range(4)]
    assert sum(ends) == 1


# Looking at groups


@pytest.mark.parametrize("version", range(7))
async def test_describe(node, wire, version):
    me, _ = await stable(wire, group_instance_id="host-1")
    await wire.ask(replace(committing(1), group_id="simple"), 9)
    request = DescribeGroupsRequest(groups=["g", "simple", "unknown"], include_authorized_operations=True)
    group, simple, unknown = (await wire.ask(request, version)).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == (me, "test", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, b"all of it")
    if version >= 4:
        assert member.group_instance_id == "host-1"
    if version >= 3:
        assert group.authorized_operations == 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
    assert (simple.group_state, simple.protocol_type, simple.members) == ("Empty", "", [])
    assert unknown.group_state == "Dead"
    assert unknown.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    if version >= 6:
        assert "unknown" in unknown.error_message


@pytest.mark.parametrize("version", range(6))
async def test_list(wire, version):
    await stable(wire)
    await wire.ask(replace(committing(1), group_id="simple"), 9)

    async def names(**filters) -> set[str]:
        answer = await wire.ask(ListGroupsRequest(**filters), version)
        assert answer.error_code == 0
        return {each.group_id for each in answer.groups}

    listed = {each.group_id: each for each in (await wire.ask(ListGroupsRequest(), version)).groups}
    assert {name: each.protocol_type for name, each in listed.items()} == {"g": "consumer", "simple": ""}
    if version >= 4:
        assert {name: each.group_state for name, each in listed.items()} == {"g": "Stable", "simple": "Empty"}
        assert await names(states_filter=["stable", "Dead"]) == {"g"}
    if version >= 5:
        assert {each.group_type for each in listed.values()} == {"classic"}
        assert await names(types_filter=["consumer"]) == set()
        assert await names(types_filter=["Classic"], states_filter=["Empty"]) == {"simple"}


@pytest.mark.parametrize("version", range(3))
async def test_delete(wire, version):
    await stable(wire)
    await wire.ask(replace(committing(1), group_id="simple"), 9)
    answer = await wire.ask(DeleteGroupsRequest(groups_names=["g", "simple", "unknown", "simple"]), version)
    assert [(each.group_id, each.error_code) for each in answer.results] == [
        ("g", ErrorCode.NON_EMPTY_GROUP),
        ("simple", 0),
        ("unknown", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


# While groups are read back


async def test_requests_during_loading(tmp_path):
    async with running_node(str(tmp_path)) as node:
        await node.node.admin.create_topic("t", 2)
        async with node.connect() as wire:
            me, generation = await stable(wire)
            await wire.ask(committing(5, generation_id_or_member_epoch=1, member_id=me), 9)
    async with running_node(str(tmp_path)) as node, node.connect() as wire:
        await node.node.groups.loaded()
        shard = node.node.groups.shards.find("g")
        shard.loading = True
        assert (await wire.ask(joining(me), 9)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        beat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=me)
        assert (await wire.ask(beat, 4)).error_code == 0
        sync = SyncGroupRequest(group_id="g", generation_id=generation, member_id=me)
        assert (await wire.ask(sync, 5)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        commit = committing(0, generation_id_or_member_epoch=1, member_id=me)
        (topic,) = (await wire.ask(commit, 9)).topics
        assert topic.partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        asked = [OffsetFetchRequestTopic("t", [0])]
        old = await wire.ask(OffsetFetchRequest(group_id="g", topics=asked), 1)
        assert old.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        newer = await wire.ask(OffsetFetchRequest(group_id="g", topics=asked), 7)
        assert newer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        newest = await wire.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]), 9)
        assert newest.groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await wire.ask(ListGroupsRequest(), 5)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        described = await wire.ask(DescribeGroupsRequest(groups=["g"]), 6)
        assert described.groups[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        shard.loading = False
        assert (await wire.ask(beat, 4)).error_code == 0


@pytest.mark.parametrize("offset", [-1, -2, -(2**63)])
async def test_a_negative_offset_is_kept_and_means_that_there_is_none(node, wire, offset):
    (topic,) = (await wire.ask(committing(offset), 9)).topics
    assert topic.partitions[0].error_code == 0
    (group,) = (await wire.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]), 9)).groups
    assert [each.committed_offset for each in group.topics[0].partitions] == [offset]
    tp = TopicPartition("t", PartitionId(0))
    assert await node.node.groups.move_offset("g", tp, None, 3)
    assert not await node.node.groups.move_offset("g", tp, None, 4)


# Producer ids


@pytest.mark.parametrize("version", range(6))
async def test_every_producer_gets_an_id_of_its_own(wire, version):
    first = await wire.ask(InitProducerIdRequest(transaction_timeout_ms=1), version)
    second = await wire.ask(InitProducerIdRequest(producer_id=first.producer_id, producer_epoch=0), version)
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert (second.error_code, second.producer_epoch) == (0, 0)
    assert second.producer_id > first.producer_id >= 0


async def test_an_empty_transactional_id_is_refused(wire):
    answer = await wire.ask(InitProducerIdRequest(transactional_id=""), 4)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_REQUEST, -1)

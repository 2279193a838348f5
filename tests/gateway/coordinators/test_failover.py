"""The coordinator when leadership of the offsets topic changes: a shard per leader epoch, of what is committed."""

import asyncio
import dataclasses

import pytest
import uvloop

from gateway.coordinators.errors import CoordinatorLoading, CoordinatorNotAvailable, NotCoordinator
from gateway.coordinators.groups.states import State
from gateway.coordinators.journal.partitioning import partition_of
from gateway.coordinators.offsets_topic.keys import OffsetKey, write_key
from gateway.coordinators.offsets_topic.topic import OFFSETS_TOPIC
from gateway.coordinators.offsets_topic.values import CommittedOffset, write_offset
from hot_tier.cluster.model import PartitionState, encode, partition_key
from hot_tier.cluster.store import Put
from hot_tier.errors import NotLeader
from hot_tier.ids import NodeId, PartitionId, TopicPartition
from tests.gateway.coordinators.node import NODE_ID, SETTINGS, Coordinated, coordinated, tp
from tests.support.waiting import until

OTHER = NodeId(5)
NUMBER = partition_of("g", SETTINGS.offsets_topic_partitions)


def pytest_asyncio_loop_factories(config, item):
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def node(tmp_path):
    async with coordinated(str(tmp_path / "node")) as running:
        await running.admin.create_topic("t", 4)
        await running.groups.commit_offsets("g", {tp(0): (3, "")})
        yield running


async def change(node: Coordinated, *, epoch: int = 0, **changes: object) -> PartitionState:
    """What another broker or the controller writes, as of when this node has seen it."""
    place = TopicPartition(OFFSETS_TOPIC, PartitionId(NUMBER))
    state = node.image.partition_state(place)
    state = dataclasses.replace(state, leader_epoch=state.leader_epoch + epoch, **changes)
    key = partition_key(node.image.topic(OFFSETS_TOPIC).id, PartitionId(NUMBER))
    revision = await node.store.transact([], [Put(key, encode(state))])
    assert revision is not None
    await node.image.reached(revision)
    return state


async def test_groups_leave_with_the_leadership_and_come_back_with_it(node):
    await node.member()
    joining = asyncio.ensure_future(node.join())
    await change(node, epoch=1, leader=OTHER, isr=(OTHER,), replicas=(NODE_ID, OTHER))
    assert (await joining).error is NotCoordinator
    with pytest.raises(NotCoordinator):
        node.groups.fetch_offsets("g")
    await change(node, epoch=1, leader=NODE_ID, isr=(NODE_ID,))
    await node.groups.loaded()
    assert node.groups.fetch_offsets("g")[tp(0)].offset == 3
    assert node.groups.describe("g").state is not State.EMPTY, "its members have their sessions to come back"


async def test_the_same_leader_in_a_new_epoch_reads_back_what_others_wrote_in_between(node):
    """The image may show only the end of a move there and back."""
    before = node.groups.shards.find("g")
    partition = node.partitions.get(OFFSETS_TOPIC, NUMBER)
    written = (write_key(OffsetKey("g", "t", 1)), write_offset(CommittedOffset(9, -1, "", node.clock())))
    settled = asyncio.get_running_loop().create_future()
    before.writer.write([written], settled.set_result)
    assert await settled is None, "as another coordinator would have written it: unknown to the groups in memory"
    assert tp(1) not in node.groups.fetch_offsets("g")
    await change(node, epoch=1)
    await node.groups.loaded()
    assert node.groups.shards.find("g") is not before
    assert partition.leader_epoch == node.groups.shards.find("g").leader_epoch
    assert node.groups.fetch_offsets("g")[tp(1)].offset == 9


async def test_groups_are_not_served_from_what_is_not_committed(node):
    await change(node, isr=(NODE_ID, OTHER), replicas=(NODE_ID, OTHER))
    committing = asyncio.ensure_future(node.groups.commit_offsets("g", {tp(0): (7, "")}))
    partition = node.partitions.get(OFFSETS_TOPIC, NUMBER)
    await until(lambda: partition.log.log_end_offset > partition.high_watermark)
    await change(node, epoch=1)
    with pytest.raises(CoordinatorLoading):
        node.groups.fetch_offsets("g")
    assert node.groups.is_loading
    assert node.groups.heartbeat("g", "m", None, 1) is None, "a member waits, it does not give up"
    await change(node, isr=(NODE_ID,))
    await node.groups.loaded()
    assert node.groups.fetch_offsets("g")[tp(0)].offset == 7
    await asyncio.wait_for(asyncio.gather(committing, return_exceptions=True), 10)


async def test_what_an_old_epoch_still_had_to_write_is_refused(node):
    writer = node.groups.shards.find("g").writer
    await change(node, epoch=1)
    await node.groups.loaded()
    end = node.partitions.get(OFFSETS_TOPIC, NUMBER).log.log_end_offset
    told = asyncio.get_running_loop().create_future()
    writer.write([(write_key(OffsetKey("g", "t", 0)), None)], told.set_result)
    assert isinstance(await told, NotLeader)
    assert node.partitions.get(OFFSETS_TOPIC, NUMBER).log.log_end_offset == end


async def test_a_commit_under_way_when_the_leadership_goes(node):
    await change(node, isr=(NODE_ID, OTHER), replicas=(NODE_ID, OTHER))
    committing = asyncio.ensure_future(node.groups.commit_offsets("g", {tp(0): (7, "")}))
    partition = node.partitions.get(OFFSETS_TOPIC, NUMBER)
    await until(lambda: partition.log.log_end_offset > partition.high_watermark)
    await change(node, epoch=1, leader=OTHER)
    with pytest.raises(NotCoordinator):
        await committing


async def test_a_commit_is_answered_also_while_nothing_can_be_committed(node, monkeypatch):
    monkeypatch.setattr("gateway.coordinators.group_offsets.COMMIT_WAIT_S", 0.05)
    await change(node, isr=(NODE_ID, OTHER), replicas=(NODE_ID, OTHER))
    with pytest.raises(CoordinatorNotAvailable):
        await asyncio.wait_for(node.groups.commit_offsets("g", {tp(0): (7, "")}), 10)
    assert node.groups.fetch_offsets("g")[tp(0)].offset == 3
    await change(node, isr=(NODE_ID,))
    await until(lambda: node.groups.fetch_offsets("g")[tp(0)].offset == 7)

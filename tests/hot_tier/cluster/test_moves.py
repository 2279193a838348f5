"""What people ask for: reassignments, elections, a broker out of the cluster, an even load."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from hot_tier.cluster import model
from hot_tier.cluster.moves import PartitionMoves
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.cluster.store import Compare, Put
from hot_tier.errors import (
    ElectionNotNeeded,
    InvalidAssignment,
    InvalidReplication,
    NoEligibleLeader,
    NoReassignment,
    UnknownBroker,
    UnknownPartition,
)
from hot_tier.ids import NodeId, PartitionId, TopicPartition
from tests.hot_tier.cluster.members import Member
from tests.hot_tier.cluster.test_membership import write_state

T0 = TopicPartition("t", PartitionId(0))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "metadata.db"))
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def members(store: SqliteStore) -> AsyncIterator[list[Member]]:
    """Brokers 0 to 3; 0 governs."""
    members = [await Member(store, node).join() for node in range(4)]
    yield members
    for member in members:
        await member.die()


@pytest.fixture
def moves(store: SqliteStore, members: list[Member]) -> PartitionMoves:
    return PartitionMoves(store, members[0].image)


async def catch_up(member: Member, topic: str) -> None:
    """As the leaders would do it: every replica is in sync now. Until no reassignment is left."""
    image = member.image
    for index in range(image.topic(topic).partitions):
        state = member.state(topic, index)
        key = model.partition_key(image.topic(topic).id, index)
        whole = replace(state, isr=state.replicas)
        assert await member.store.transact([Compare(key, state.version)], [Put(key, model.encode(whole))]) is not None
    async with asyncio.timeout(20):
        await image.wait_for(
            lambda: all(
                set(state.isr) == set(state.replicas) and not state.adding and not state.removing
                for state in image.partition_states(image.topic(topic))
            )
        )


async def test_a_partition_moves(members: list[Member], moves: PartitionMoves) -> None:
    await members[0].admin.create_topic("t", assignment={0: [0, 1], 1: [1, 2]})
    assert await moves.reassign({T0: [2, 3]}) == {T0: None}
    state = members[0].state("t")
    assert (state.replicas, state.adding, state.removing) == ((2, 3, 0, 1), (2, 3), (0, 1))
    assert list(moves.reassignments()) == [T0]
    await catch_up(members[0], "t")
    state = members[0].state("t")
    assert (state.replicas, state.isr, state.leader, state.leader_epoch) == ((2, 3), (2, 3), 2, 1)
    assert moves.reassignments() == {}


async def test_a_move_can_be_called_off(members: list[Member], moves: PartitionMoves) -> None:
    await members[0].admin.create_topic("t", assignment={0: [0, 1]})
    await moves.reassign({T0: [2, 3]})
    assert await moves.reassign({T0: None}) == {T0: None}
    assert members[0].state("t").replicas == (0, 1)
    again = await moves.reassign({T0: None})
    assert isinstance(again[T0], NoReassignment)


@pytest.mark.parametrize("target", [[], [0, 0], [0, 9]])
async def test_targets_that_cannot_be(members: list[Member], moves: PartitionMoves, target: list[int]) -> None:
    await members[0].admin.create_topic("t", assignment={0: [0, 1]})
    assert isinstance((await moves.reassign({T0: target}))[T0], InvalidAssignment)
    missing = TopicPartition("t", PartitionId(7))
    assert isinstance((await moves.reassign({missing: [0]}))[missing], UnknownPartition)


async def test_a_topic_gets_another_replication_factor(members: list[Member], moves: PartitionMoves) -> None:
    await members[0].admin.create_topic("t", assignment={0: [0], 1: [1]})
    t1 = TopicPartition("t", PartitionId(1))
    await moves.reassign({T0: [0, 2]})
    assert members[0].image.topic("t").replication_factor == 1
    await moves.reassign({t1: [1, 3]})
    assert members[0].image.topic("t").replication_factor == 2
    await catch_up(members[0], "t")
    grown = await members[0].admin.add_partitions("t", 3)
    assert len(members[0].image.partition_states(grown)[2].replicas) == 2


async def test_the_preferred_replica_leads_when_asked_for(members: list[Member], moves: PartitionMoves) -> None:
    await members[0].admin.create_topic("t", assignment={0: [1, 2]})
    assert isinstance((await moves.elect([T0]))[T0], ElectionNotNeeded)
    await write_state(members[0], leader=NodeId(2), leader_epoch=1, isr=(NodeId(2),))
    assert isinstance((await moves.elect([T0]))[T0], NoEligibleLeader)
    await write_state(members[0], isr=(NodeId(2), NodeId(1)))
    assert await moves.elect([T0]) == {T0: None}
    state = members[0].state("t")
    assert (state.leader, state.leader_epoch) == (1, 2)


async def test_an_unclean_election_by_hand(store: SqliteStore, members: list[Member], moves: PartitionMoves) -> None:
    await members[0].admin.create_topic("t", assignment={0: [3, 2]})
    await write_state(members[0], isr=(NodeId(3),))
    assert isinstance((await moves.elect([T0], unclean=True))[T0], ElectionNotNeeded)
    await members[3].die()
    await store.revoke_lease(members[3].membership.lease)
    await members[0].until("t", model.NO_NODE)
    assert await moves.elect([T0], unclean=True) == {T0: None}
    assert (members[0].state("t").leader, members[0].state("t").isr) == (2, (2,))


async def test_a_broker_is_emptied_and_stays_empty(
    store: SqliteStore, members: list[Member], moves: PartitionMoves
) -> None:
    await members[0].admin.create_topic("t", partitions=8, replication_factor=3)
    held = moves.replicas_on(NodeId(3))
    assert held > 0
    assert await moves.decommission(NodeId(3)) == held, "it keeps them until others have them"
    await catch_up(members[0], "t")
    assert moves.replicas_on(NodeId(3)) == 0
    await members[0].admin.create_topic("later", partitions=8, replication_factor=3)
    assert moves.replicas_on(NodeId(3)) == 0
    await members[3].leave()
    back = await Member(store, 3).join()
    assert back.membership.info.draining, "a restart does not undo it"
    await moves.recommission(NodeId(3))
    await members[0].admin.create_topic("again", partitions=8, replication_factor=3)
    assert moves.replicas_on(NodeId(3)) > 0
    await back.die()


async def test_a_broker_that_is_needed_cannot_leave(members: list[Member], moves: PartitionMoves) -> None:
    await members[0].admin.create_topic("t", partitions=1, replication_factor=4)
    with pytest.raises(InvalidReplication):
        await moves.decommission(NodeId(3))
    info = members[0].image.broker(NodeId(3))
    assert info is not None
    assert not info.draining
    with pytest.raises(UnknownBroker):
        await moves.decommission(NodeId(17))


async def test_a_new_broker_gets_its_share(store: SqliteStore, members: list[Member], moves: PartitionMoves) -> None:
    await members[0].admin.create_topic("t", partitions=10, replication_factor=2)
    more = await Member(store, 4).join()
    await members[0].image.reached(more.membership.registration_epoch)
    planned = await moves.rebalance(dry_run=True)
    assert moves.reassignments() == {}
    assert await moves.rebalance() == planned
    await catch_up(members[0], "t")
    states = members[0].image.partition_states(members[0].image.topic("t"))
    assert set(Counter(node for state in states for node in state.replicas).values()) == {4}
    assert set(Counter(state.replicas[0] for state in states).values()) == {2}
    assert await moves.rebalance() == {}
    await more.die()

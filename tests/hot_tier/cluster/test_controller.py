"""One broker governs; when a leader or the controller itself is lost, another one takes its place."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from hot_tier.cluster import model
from hot_tier.cluster.configs import ConfigChange, ConfigOperation
from hot_tier.cluster.elections import begin_reassignment
from hot_tier.cluster.model import CONTROLLER_KEY, NO_NODE, DeletedTopic
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.cluster.standalone import REMEMBER_DELETED_MS
from hot_tier.cluster.store import Compare, Delete, Put
from hot_tier.errors import MetadataUnavailable
from hot_tier.ids import NodeId
from tests.hot_tier.cluster.members import NOW_MS, SETTINGS, Member
from tests.hot_tier.cluster.test_membership import write_state


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "metadata.db"))
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def three(store: SqliteStore) -> AsyncIterator[list[Member]]:
    """Brokers 1, 2 and 3; 1 governs."""
    members = [await Member(store, 1).join()]
    await until_governed(members[0], 1)
    members += [await Member(store, node).join() for node in (2, 3)]
    yield members
    for member in members:
        await member.die()


async def until_governed(member: Member, node: int) -> None:
    async with asyncio.timeout(10):
        await member.image.wait_for(lambda: member.image.controller == node)


async def lose(store: SqliteStore, member: Member) -> None:
    """Killed, and its lease has run out."""
    await member.die()
    await store.revoke_lease(member.membership.lease)


async def test_the_first_in_sync_replica_takes_over(store: SqliteStore, three: list[Member]) -> None:
    await three[0].admin.create_topic("t", assignment={0: [3, 1, 2], 1: [2, 3, 1], 2: [3, 2, 1]})
    await lose(store, three[2])
    first, third = await three[1].until("t", 1, 0), await three[1].until("t", 2, 2)
    assert (first.leader_epoch, first.isr, first.replicas) == (1, (1, 2), (3, 1, 2))
    assert (third.leader_epoch, third.isr) == (1, (2, 1))
    assert three[1].state("t", 1).leader_epoch == 0, (
        "led by one who is alive: the leader itself shrinks its in-sync set"
    )


async def test_a_lost_controller_is_replaced_and_its_partitions_too(store: SqliteStore, three: list[Member]) -> None:
    await three[0].admin.create_topic("t", assignment={index: [1, 2, 3] for index in range(300)})
    await lose(store, three[0])
    for index in (0, 150, 299):
        await three[2].until("t", 2, index)
    assert three[2].image.controller in (2, 3)
    assert {state.leader_epoch for state in three[2].image.partition_states(three[2].image.topic("t"))} == {1}


async def test_a_stopping_controller_hands_over_at_once(store: SqliteStore, three: list[Member]) -> None:
    await three[0].controller.stop()
    async with asyncio.timeout(10):
        await three[1].image.wait_for(lambda: three[1].image.controller in (2, 3))


async def test_nobody_out_of_sync_leads_unless_the_topic_allows_it(store: SqliteStore, three: list[Member]) -> None:
    await three[0].admin.create_topic("t", assignment={0: [3, 2]})
    await write_state(three[0], isr=(NodeId(3),))
    await lose(store, three[2])
    state = await three[0].until("t", NO_NODE)
    assert state.isr == (3,)
    await three[0].admin.alter_config(
        "t", [ConfigChange("unclean.leader.election.enable", ConfigOperation.SET, "true")]
    )
    state = await three[0].until("t", 2)
    assert (state.isr, state.leader_epoch) == ((2,), 2)


async def test_it_leads_again_when_it_is_back(store: SqliteStore, three: list[Member]) -> None:
    await three[0].admin.create_topic("t", assignment={0: [3]})
    await lose(store, three[2])
    await three[0].until("t", NO_NODE)
    back = await Member(store, 3).join()
    state = await three[0].until("t", 3)
    assert state.leader_epoch == 2
    await back.die()


async def test_one_who_was_deposed_writes_nothing(store: SqliteStore, three: list[Member]) -> None:
    """1 is cut off and does not hear that 2 governs; it still believes that 3 is gone."""
    await three[0].admin.create_topic("t", assignment={0: [3, 2]})
    deposed = three[0]
    held = await store.get(CONTROLLER_KEY)
    assert held is not None
    await deposed.image.close()
    deposed.controller._image._brokers.pop(NodeId(3))
    lease = three[1].membership.lease
    await store.transact(
        [Compare(CONTROLLER_KEY, held.revision)], [Put(CONTROLLER_KEY, model.encode({"node": 2}), lease)]
    )
    deposed.controller._all_touched = True
    await deposed.controller._settle()
    await three[1].image.reached((await store.range("")).revision)
    assert three[1].state("t").leader_epoch == 0


async def test_a_reassignment_is_finished(three: list[Member]) -> None:
    await three[0].admin.create_topic("t", assignment={0: [1, 2]})
    begun = begin_reassignment(three[0].state("t"), [NodeId(2), NodeId(3)])
    assert begun is not None
    await write_state(three[0], replicas=begun.replicas, adding=begun.adding, removing=begun.removing)
    await write_state(three[0], isr=(NodeId(1), NodeId(2), NodeId(3)))
    state = await three[0].until("t", 2)
    assert (state.replicas, state.isr, state.adding, state.removing) == ((2, 3), (2, 3), (), ())
    assert state.leader_epoch == 1


async def test_preferred_leaders_get_their_partitions_back(store: SqliteStore) -> None:
    settings = replace(SETTINGS, leader_rebalance_interval_ms=50)
    one, two = [await Member(store, node, settings=settings).join() for node in (1, 2)]
    await one.admin.create_topic("t", assignment={0: [1, 2], 1: [1, 2]})
    await write_state(two, leader=NodeId(2), leader_epoch=1)
    state = await two.until("t", 1)
    assert (state.leader_epoch, state.isr) == (2, (1, 2))
    await one.leave()
    await two.leave()


async def test_the_services_own_topics_get_their_replicas_when_brokers_come(store: SqliteStore) -> None:
    members = [await Member(store, 1).join()]
    image = members[0].image
    await members[0].admin.create_topic("__consumer_offsets", 4, 1, internal=True)
    await members[0].admin.create_topic("mine", 1, 1)
    widths = []
    image.subscribe(lambda _: widths.append(image.topic("__consumer_offsets").replication_factor))
    for node, width in ((2, 2), (3, 3), (4, 3)):
        members.append(await Member(store, node).join())
        async with asyncio.timeout(10):
            await image.wait_for(lambda: widths[-1] >= min(3, len(members)))
        assert widths[-1] == width
    assert {len(set(state.replicas)) for state in image.partition_states(image.topic("__consumer_offsets"))} == {3}
    assert len(members[0].state("mine").replicas) == 1
    for member in members:
        await member.die()


async def test_deletions_are_forgotten_in_the_end(store: SqliteStore) -> None:
    settings = replace(SETTINGS, leader_rebalance_interval_ms=50)
    ids = [model.new_topic_id() for _ in range(2)]
    for topic_id, age_ms in zip(ids, (REMEMBER_DELETED_MS + 1, 0), strict=True):
        gone = DeletedTopic("gone", topic_id, 1, NOW_MS - age_ms)
        await store.transact([], [Put(model.deleted_key(topic_id), model.encode(gone))])
    one = await Member(store, 1, settings=settings).join()
    async with asyncio.timeout(10):
        await one.image.wait_for(lambda: [deleted.id for deleted in one.image.deleted_topics()] == ids[1:])
    await one.leave()


async def test_a_store_that_was_away_is_asked_again(
    store: SqliteStore, three: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    await three[0].admin.create_topic("t", assignment={0: [3, 1, 2]})
    real, failures = store.transact, [MetadataUnavailable("away"), MetadataUnavailable("away")]

    async def transact(*arguments: object) -> object:
        if failures:
            raise failures.pop()
        return await real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "transact", transact)
    await lose(store, three[2])
    await three[0].until("t", 1)
    assert not failures


async def test_a_conflict_costs_only_what_changed(store: SqliteStore, three: list[Member]) -> None:
    """One partition of many was changed by its leader meanwhile: the others are decided all the same."""
    await three[0].admin.create_topic("t", assignment={index: [3, 2, 1] for index in range(40)})
    topic = three[0].image.topic("t")
    changed = replace(three[0].state("t", 7), isr=(NodeId(3), NodeId(2)))
    controller = three[0].controller
    await three[0].image.close()
    await store.transact([], [Put(model.partition_key(topic.id, 7), model.encode(changed))])
    three[0].image._brokers.pop(NodeId(3))
    controller._all_touched = True
    await controller._settle()
    items = (await store.range(f"{model.PARTITIONS_PREFIX}{topic.id.hex}/")).items
    led = {item.key.rpartition("/")[2]: model.decode_partition(item.key, item.value, item.revision) for item in items}
    assert led.pop("7") == changed
    assert {state.leader for state in led.values()} == {2}
    await store.transact([], [Delete(CONTROLLER_KEY)])

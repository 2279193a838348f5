"""The image shows the store, step by step, also after it missed some."""

import asyncio

import pytest

from hot_tier.cluster import model, sqlite
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.image import ClusterImage, ImageChange
from hot_tier.cluster.model import BrokerInfo
from hot_tier.cluster.standalone import REMEMBER_DELETED_MS, take_over
from hot_tier.cluster.store import Delete, Put
from hot_tier.errors import UnknownPartition, UnknownTopic, UnknownTopicId
from hot_tier.ids import NodeId, PartitionId, TopicPartition
from tests.hot_tier.cluster.conftest import NOW_MS, Metadata

DEADLINE_S = 20


def tp(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(topic, PartitionId(partition))


async def test_unknown_things_have_their_errors(metadata: Metadata) -> None:
    await metadata.admin.create_topic("t", 2)
    with pytest.raises(UnknownTopic):
        metadata.image.topic("u")
    with pytest.raises(UnknownTopic):
        metadata.image.partition_state(tp("u", 0))
    with pytest.raises(UnknownTopicId):
        metadata.image.topic_by_id(model.new_topic_id())
    for partition in (2, -1, 2**31 - 1):
        with pytest.raises(UnknownPartition):
            metadata.image.partition_state(tp("t", partition))


async def test_listeners_hear_before_and_after(metadata: Metadata) -> None:
    heard: list[ImageChange] = []
    metadata.image.subscribe(heard.append)
    made = await metadata.admin.create_topic("t", 2)
    grown = await metadata.admin.add_partitions("t", 3)
    await metadata.admin.delete_topic("t")
    topics = [change.topics for change in heard if change.topics]
    assert topics == [{"t": (None, made)}, {"t": (made, grown)}, {"t": (grown, None)}]
    assert heard[0].partitions == {(made.id, 0), (made.id, 1)}


async def test_a_listener_that_fails_does_not_stop_the_rest(metadata: Metadata) -> None:
    heard: list[ImageChange] = []

    def fail(change: ImageChange) -> None:
        raise RuntimeError("listener")

    metadata.image.subscribe(fail)
    metadata.image.subscribe(heard.append)
    await metadata.admin.create_topic("t", 1)
    assert heard
    metadata.image.unsubscribe(fail)


async def test_brokers_come_and_go(metadata: Metadata) -> None:
    await metadata.add_broker(5, "rack-a")
    await metadata.add_broker(3)
    assert [broker.id for broker in metadata.image.brokers()] == [0, 3, 5]
    assert metadata.image.broker(NodeId(5)) == BrokerInfo(NodeId(5), simple_endpoints("127.0.0.1", 9097), "rack-a")
    revision = await metadata.store.transact([], [Delete(model.broker_key(NodeId(5)))])
    assert revision is not None
    await metadata.image.reached(revision)
    assert metadata.image.broker(NodeId(5)) is None


async def test_waiting_for_something_to_show(metadata: Metadata) -> None:
    waiting = asyncio.ensure_future(metadata.image.wait_for(lambda: metadata.image.find_topic("t") is not None))
    await metadata.admin.create_topic("other", 1)
    assert not waiting.done()
    await metadata.admin.create_topic("t", 1)
    async with asyncio.timeout(DEADLINE_S):
        await waiting


async def test_a_waiter_that_gives_up_is_forgotten(metadata: Metadata) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await metadata.image.wait_for(lambda: False)
    assert metadata.image._waiters == []


async def test_a_bad_value_leaves_the_rest_standing(metadata: Metadata) -> None:
    made = await metadata.admin.create_topic("t", 1)
    revision = await metadata.store.transact(
        [], [Put("topics/t", b"{"), Put("partitions/nonsense", b"{}"), Put("unknown/kind", b"?")]
    )
    assert revision is not None
    await metadata.image.reached(revision)
    assert metadata.image.topic("t") == made
    await metadata.admin.create_topic("u", 1)


async def test_after_a_gap_the_difference_is_announced(metadata: Metadata, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch is starved until the store has forgotten what it missed."""
    monkeypatch.setattr(sqlite, "HISTORY_TRANSACTIONS", 2)
    kept = await metadata.admin.create_topic("kept", 1)
    first = await metadata.admin.create_topic("again", 1)
    await metadata.admin.create_topic("gone", 2)
    heard: list[ImageChange] = []
    late = ClusterImage(metadata.store)
    await late.open()
    late.subscribe(heard.append)
    assert late._following is not None
    late._following.cancel()
    await asyncio.gather(late._following, return_exceptions=True)

    await metadata.admin.delete_topic("gone")
    await metadata.admin.delete_topic("again")
    second = await metadata.admin.create_topic("again", 1)
    await metadata.add_broker(9)
    late._following = asyncio.ensure_future(late._follow())
    async with asyncio.timeout(DEADLINE_S):
        await late.reached(metadata.image.revision)

    (change,) = heard
    assert set(change.topics) == {"again", "gone"}
    assert change.topics["again"] == (first, second)
    assert change.topics["gone"][1] is None
    assert late.topic("kept") == kept
    assert late.find_topic_by_id(first.id) is None
    assert late.topic_by_id(second.id) == second
    assert late._states.keys() == {kept.id, second.id}
    assert [broker.id for broker in late.brokers()] == [0, 9]
    await late.close()


# A node alone


async def test_the_cluster_is_named_once(metadata: Metadata) -> None:
    named = metadata.image.cluster_id
    assert len(named) == 22
    await take_over(metadata.store, BrokerInfo(NodeId(0), simple_endpoints("127.0.0.1", 9092)), NOW_MS)
    again = ClusterImage(metadata.store)
    await again.open()
    assert again.cluster_id == named
    await again.close()


async def test_every_start_begins_a_new_epoch(metadata: Metadata) -> None:
    await metadata.admin.create_topic("t", 300)
    revision = await take_over(metadata.store, BrokerInfo(NodeId(7), simple_endpoints("h", 1)), NOW_MS)
    await metadata.image.reached(revision)
    states = metadata.image.partition_states(metadata.image.topic("t"))
    assert len(states) == 300
    assert {(s.leader, s.leader_epoch, s.isr, s.replicas) for s in states} == {(7, 1, (7,), (7,))}
    assert [broker.id for broker in metadata.image.brokers()] == [7]
    assert metadata.image.controller == 7


async def test_deleted_topics_are_remembered_for_a_week(metadata: Metadata) -> None:
    await metadata.admin.create_topic("t", 1)
    await metadata.admin.delete_topic("t")
    broker = BrokerInfo(NodeId(0), simple_endpoints("h", 1))
    await take_over(metadata.store, broker, NOW_MS + REMEMBER_DELETED_MS)
    assert len((await metadata.store.range(model.DELETED_PREFIX)).items) == 1
    await take_over(metadata.store, broker, NOW_MS + REMEMBER_DELETED_MS + 1)
    assert (await metadata.store.range(model.DELETED_PREFIX)).items == ()

"""Topics made, changed and deleted by Kafka's rules, each refusal by its own error."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from unittest.mock import AsyncMock

import pytest

from hot_tier.cluster import model
from hot_tier.cluster.admin import NewTopic, TopicAdmin
from hot_tier.cluster.configs import ConfigChange, ConfigOperation
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import Topic
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.cluster.store import Compare, MetadataStore, Put
from hot_tier.errors import (
    InvalidAssignment,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplication,
    InvalidRequest,
    InvalidTopicName,
    TierlogError,
    TopicExists,
    UnknownTopic,
    UnknownTopicId,
)
from hot_tier.ids import LeaderEpoch, NodeId, TopicPartition
from hot_tier.log.config import TopicConfig
from tests.hot_tier.cluster.conftest import NOW_MS, Metadata

SET, DELETE, APPEND, SUBTRACT = ConfigOperation


async def written(metadata: Metadata) -> dict[str, int]:
    return {item.key: item.revision for item in (await metadata.store.range("")).items}


# Creating


async def test_a_topic_is_there_when_the_call_returns(metadata: Metadata) -> None:
    made = await metadata.admin.create_topic("orders", 3, 1, {"retention.ms": "1000"})
    seen = metadata.image.topic("orders")
    assert seen == made
    assert seen.version == made.version > 0
    assert metadata.image.topic_by_id(made.id) is seen
    assert (seen.partitions, seen.replication_factor, dict(seen.config)) == (3, 1, {"retention.ms": "1000"})
    assert (seen.created_ms, seen.internal) == (NOW_MS, False)
    for state in metadata.image.partition_states(seen):
        assert (state.leader, state.leader_epoch, state.isr, state.replicas) == (0, 0, (0,), (0,))


async def test_minus_one_means_the_settings(metadata: Metadata) -> None:
    made = await metadata.admin.create_topic("orders", -1, -1)
    assert (made.partitions, made.replication_factor) == (4, 1)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "__mine", "...", "-"])
async def test_good_names(metadata: Metadata, name: str) -> None:
    assert (await metadata.admin.create_topic(name, 1)).name == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "a/b", "../etc", "a b", "ä", "a\x00", "a\n", "a:b", "a\\b", "%2e"]
)
async def test_bad_names(metadata: Metadata, name: str) -> None:
    before = await written(metadata)
    with pytest.raises(InvalidTopicName):
        await metadata.admin.create_topic(name, 1)
    assert await written(metadata) == before


async def test_names_that_differ_in_dot_and_underscore_live_together(metadata: Metadata) -> None:
    await metadata.admin.create_topic("a.b", 1)
    await metadata.admin.create_topic("a_b", 1)


@pytest.mark.parametrize("partitions", [0, -2, 10_001, 2**31 - 1])
async def test_bad_partition_counts(metadata: Metadata, partitions: int) -> None:
    with pytest.raises(InvalidPartitions):
        await metadata.admin.create_topic("t", partitions)


@pytest.mark.parametrize("factor", [0, -2, 2, 32767])
async def test_replication_that_cannot_be_placed(metadata: Metadata, factor: int) -> None:
    with pytest.raises(InvalidReplication) as refused:
        await metadata.admin.create_topic("t", 1, factor)
    assert type(refused.value) is InvalidReplication


@pytest.mark.parametrize("config", [{"retention.ms": "soon"}, {"no.such.setting": "1"}, {"cleanup.policy": "burn"}])
async def test_bad_settings(metadata: Metadata, config: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig):
        await metadata.admin.create_topic("t", 1, 1, config)
    assert metadata.image.find_topic("t") is None


async def test_a_name_is_used_once(metadata: Metadata) -> None:
    first = await metadata.admin.create_topic("t", 1)
    with pytest.raises(TopicExists):
        await metadata.admin.create_topic("t", 2)
    assert metadata.image.topic("t") == first


async def test_of_two_creations_at_once_one_wins_and_leaves_nothing_of_the_other(metadata: Metadata) -> None:
    results = await metadata.admin.create_topics([NewTopic("t", 300), NewTopic("t", 300)])
    assert sorted(type(result).__name__ for result in results) == ["Topic", "TopicExists"]
    winner = metadata.image.topic("t")
    keys = {item.key for item in (await metadata.store.range(model.PARTITIONS_PREFIX)).items}
    assert keys == {model.partition_key(winner.id, n) for n in range(300)}


async def test_of_many_each_stands_alone(metadata: Metadata) -> None:
    good, bad, also_good = await metadata.admin.create_topics([NewTopic("a", 1), NewTopic("b", 0), NewTopic("c", 1)])
    assert isinstance(bad, InvalidPartitions)
    assert isinstance(good, Topic) and isinstance(also_good, Topic)
    assert {topic.name for topic in metadata.image.topics()} == {"a", "c"}


async def test_validate_only_writes_nothing(metadata: Metadata) -> None:
    before = await written(metadata)
    made = await metadata.admin.create_topic("t", 3, 1, {"flush": "os"}, validate_only=True)
    assert (made.name, made.partitions) == ("t", 3)
    with pytest.raises(InvalidPartitions):
        await metadata.admin.create_topic("t", 0, validate_only=True)
    assert await written(metadata) == before


async def test_a_thousand_topics_take_seconds_at_most(metadata: Metadata) -> None:
    started = time.perf_counter()
    results = await metadata.admin.create_topics([NewTopic(f"t{n}", 4) for n in range(1000)])
    assert time.perf_counter() - started < 10
    assert not any(isinstance(result, TierlogError) for result in results)
    assert len(list(metadata.image.topics())) == 1000


async def test_more_partitions_than_a_transaction_holds(metadata: Metadata) -> None:
    seen_at: list[int] = []

    def watch_states(change: object) -> None:
        topic = metadata.image.find_topic("wide")
        if topic is not None:
            seen_at.append(len(metadata.image.partition_states(topic)))

    metadata.image.subscribe(watch_states)
    made = await metadata.admin.create_topic("wide", 1000)
    assert len(metadata.image.partition_states(made)) == 1000
    assert set(seen_at) == {1000}, "the topic was visible before its partitions"


# Placing


async def test_leaders_and_replicas_go_round(metadata: Metadata) -> None:
    await metadata.add_broker(1)
    await metadata.add_broker(2)
    topic = await metadata.admin.create_topic("t", 6, 2)
    states = metadata.image.partition_states(topic)
    assert all(len(set(state.replicas)) == 2 and state.leader == state.replicas[0] for state in states)
    leaders = [state.leader for state in states]
    assert sorted(leaders) == [0, 0, 1, 1, 2, 2]


async def test_an_assignment_is_taken_as_it_is(metadata: Metadata) -> None:
    await metadata.add_broker(1)
    topic = await metadata.admin.create_topic("t", assignment={1: [0, 1], 0: [1, 0]})
    assert (topic.partitions, topic.replication_factor) == (2, 2)
    assert [state.replicas for state in metadata.image.partition_states(topic)] == [(1, 0), (0, 1)]


@pytest.mark.parametrize(
    "assignment",
    [
        {1: [0]},
        {0: [0], 2: [0]},
        {0: []},
        {0: [0, 0]},
        {0: [7]},
        {-1: [0]},
        {0: [0], 1: [0, 1]},
    ],
)
async def test_bad_assignments(metadata: Metadata, assignment: dict[int, list[int]]) -> None:
    await metadata.add_broker(1)
    with pytest.raises(InvalidAssignment):
        await metadata.admin.create_topic("t", assignment=assignment)


async def test_an_assignment_and_numbers_contradict(metadata: Metadata) -> None:
    with pytest.raises(InvalidRequest):
        await metadata.admin.create_topic("t", 1, -1, assignment={0: [0]})
    with pytest.raises(InvalidRequest):
        await metadata.admin.create_topic("t", -1, 1, assignment={0: [0]})


# Deleting


async def test_a_deleted_topic_is_gone_and_remembered(metadata: Metadata) -> None:
    made = await metadata.admin.create_topic("t", 300)
    assert await metadata.admin.delete_topic("t") == made
    assert metadata.image.find_topic("t") is None
    assert metadata.image.find_topic_by_id(made.id) is None
    assert (await metadata.store.range(model.PARTITIONS_PREFIX)).items == ()
    (deleted,) = metadata.image.deleted_topics()
    assert (deleted.name, deleted.id, deleted.partitions, deleted.deleted_ms) == ("t", made.id, 300, NOW_MS)
    with pytest.raises(UnknownTopic):
        await metadata.admin.delete_topic("t")


async def test_a_name_used_again_gets_another_id(metadata: Metadata) -> None:
    first = await metadata.admin.create_topic("t", 1)
    await metadata.admin.delete_topic("t")
    second = await metadata.admin.create_topic("t", 1)
    assert first.id != second.id
    assert 0 not in (first.id.int, second.id.int)


async def test_internal_topics_are_the_services_own(metadata: Metadata) -> None:
    for name in ("__consumer_offsets", "__transaction_state"):
        with pytest.raises(InvalidTopicName):
            await metadata.admin.create_topic(name, 1)
    assert list(metadata.image.topics()) == []


async def test_internal_topics_stay_as_they_are(metadata: Metadata) -> None:
    await metadata.admin.create_topic("__consumer_offsets", 1, internal=True)
    with pytest.raises(InvalidTopicName):
        await metadata.admin.delete_topic("__consumer_offsets")
    with pytest.raises(InvalidTopicName):
        await metadata.admin.add_partitions("__consumer_offsets", 5)
    topic = metadata.image.topic("__consumer_offsets")
    assert topic.internal and topic.partitions == 1


# Growing


async def test_a_topic_grows(metadata: Metadata) -> None:
    made = await metadata.admin.create_topic("t", 2)
    grown = await metadata.admin.add_partitions("t", 500)
    assert grown.id == made.id
    assert metadata.image.topic("t").partitions == 500
    assert len(metadata.image.partition_states(grown)) == 500


@pytest.mark.parametrize("total", [2, 1, 0, -1, 10_001])
async def test_a_topic_only_grows_and_not_without_bound(metadata: Metadata, total: int) -> None:
    await metadata.admin.create_topic("t", 2)
    with pytest.raises(InvalidPartitions):
        await metadata.admin.add_partitions("t", total)
    assert metadata.image.topic("t").partitions == 2


async def test_new_partitions_by_assignment(metadata: Metadata) -> None:
    await metadata.add_broker(1)
    await metadata.admin.create_topic("t", assignment={0: [0]})
    grown = await metadata.admin.add_partitions("t", 3, [[1], [0]])
    assert [state.replicas for state in metadata.image.partition_states(grown)] == [(0,), (1,), (0,)]
    for bad in ([[0]], [[0], [0], [0]], [[0, 1], [0, 1]], [[0], [9]]):
        with pytest.raises(InvalidAssignment):
            await metadata.admin.add_partitions("t", 5, bad)


async def test_growing_can_be_tried_out(metadata: Metadata) -> None:
    await metadata.admin.create_topic("t", 2)
    before = await written(metadata)
    assert (await metadata.admin.add_partitions("t", 4, validate_only=True)).partitions == 4
    assert await written(metadata) == before


async def test_growing_an_unknown_topic(metadata: Metadata) -> None:
    with pytest.raises(UnknownTopic):
        await metadata.admin.add_partitions("nothing", 4)


async def test_two_growths_at_once_end_in_the_larger(metadata: Metadata) -> None:
    await metadata.admin.create_topic("t", 2)
    await asyncio.gather(
        metadata.admin.add_partitions("t", 400),
        metadata.admin.add_partitions("t", 600),
        return_exceptions=True,
    )
    topic = metadata.image.topic("t")
    assert topic.partitions == 600
    assert len(metadata.image.partition_states(topic)) == 600


# Settings


async def test_settings_change_one_by_one(metadata: Metadata) -> None:
    await metadata.admin.create_topic("t", 1, 1, {"retention.ms": "1000", "segment.ms": "500"})
    await metadata.admin.alter_config(
        "t", [ConfigChange("retention.ms", SET, "2000"), ConfigChange("segment.ms", DELETE)]
    )
    assert dict(metadata.image.topic("t").config) == {"retention.ms": "2000"}


async def test_lists_grow_and_shrink_from_what_is_in_force(metadata: Metadata) -> None:
    await metadata.admin.create_topic("t", 1)
    await metadata.admin.alter_config("t", [ConfigChange("cleanup.policy", APPEND, "compact")])
    assert metadata.image.topic("t").config["cleanup.policy"] == "delete,compact"
    await metadata.admin.alter_config("t", [ConfigChange("cleanup.policy", SUBTRACT, "delete")])
    assert metadata.image.topic("t").config["cleanup.policy"] == "compact"


@pytest.mark.parametrize(
    "change",
    [
        ConfigChange("retention.ms", APPEND, "1"),
        ConfigChange("retention.ms", SUBTRACT, "1"),
        ConfigChange("retention.ms", SET, None),
        ConfigChange("retention.ms", SET, "soon"),
        ConfigChange("cleanup.policy", APPEND, "burn"),
        ConfigChange("cleanup.policy", APPEND, None),
        ConfigChange("no.such.setting", SET, "1"),
        ConfigChange("no.such.setting", DELETE),
    ],
)
async def test_bad_changes_change_nothing(metadata: Metadata, change: ConfigChange) -> None:
    made = await metadata.admin.create_topic("t", 1, 1, {"segment.ms": "500"})
    with pytest.raises(InvalidConfig if change.value or change.operation is DELETE else InvalidRequest):
        await metadata.admin.alter_config("t", [ConfigChange("segment.ms", SET, "600"), change])
    assert metadata.image.topic("t") == made


async def test_one_setting_changed_twice_is_refused(metadata: Metadata) -> None:
    await metadata.admin.create_topic("t", 1)
    with pytest.raises(InvalidRequest):
        await metadata.admin.alter_config(
            "t", [ConfigChange("segment.ms", SET, "1"), ConfigChange("segment.ms", DELETE)]
        )


async def test_settings_are_replaced_whole(metadata: Metadata) -> None:
    await metadata.admin.create_topic("t", 1, 1, {"retention.ms": "1000"})
    await metadata.admin.replace_config("t", {"segment.ms": "500"})
    assert dict(metadata.image.topic("t").config) == {"segment.ms": "500"}
    with pytest.raises(InvalidConfig):
        await metadata.admin.replace_config("t", {"segment.ms": "never"})


async def test_a_change_can_be_tried_out(metadata: Metadata) -> None:
    await metadata.admin.create_topic("t", 1)
    before = await written(metadata)
    await metadata.admin.alter_config("t", [ConfigChange("segment.ms", SET, "1")], validate_only=True)
    await metadata.admin.replace_config("t", {"segment.ms": "1"}, validate_only=True)
    assert await written(metadata) == before


async def test_changes_from_two_sides_are_both_kept(metadata: Metadata) -> None:
    await metadata.admin.create_topic("t", 1)
    names = ["retention.ms", "segment.ms", "delete.retention.ms", "max.message.bytes"]
    await asyncio.gather(*(metadata.admin.alter_config("t", [ConfigChange(name, SET, "4711")]) for name in names))
    assert dict(metadata.image.topic("t").config) == dict.fromkeys(names, "4711")


# Losing a race: another broker writes between our decision and our write


def slow_admin(metadata: Metadata, meanwhile: Callable[[], Awaitable[object]]) -> TopicAdmin:
    """An admin whose first writes come after `meanwhile`."""
    transact = metadata.store.transact
    once: list[asyncio.Future[object]] = []

    async def late(compares: list[Compare], writes: list[Put]) -> object:
        if not once:
            once.append(asyncio.ensure_future(meanwhile()))
        await once[0]
        return await transact(compares, writes)

    store = AsyncMock(spec=MetadataStore, transact=late)
    return TopicAdmin(store, metadata.image, defaults=TopicConfig(), settings=ClusterSettings(), clock=lambda: NOW_MS)


async def test_settings_of_a_topic_that_was_deleted_meanwhile(metadata: Metadata) -> None:
    await metadata.admin.create_topic("t", 1)
    slow = slow_admin(metadata, lambda: metadata.admin.delete_topic("t"))
    with pytest.raises(UnknownTopic):
        await slow.alter_config("t", [ConfigChange("segment.ms", SET, "1")])
    assert await metadata.store.get(model.topic_key("t")) is None


async def test_deleting_a_topic_that_was_made_again_meanwhile(metadata: Metadata) -> None:
    first = await metadata.admin.create_topic("t", 1)

    async def make_again() -> None:
        await metadata.admin.delete_topic("t")
        await metadata.admin.create_topic("t", 2)

    slow = slow_admin(metadata, make_again)
    with pytest.raises(UnknownTopicId):
        await slow.delete_topic("t", first.id)
    assert metadata.image.topic("t").partitions == 2
    assert [deleted.id for deleted in metadata.image.deleted_topics()] == [first.id]


async def test_growing_leaves_partitions_alone_that_were_added_meanwhile(metadata: Metadata) -> None:
    topic = await metadata.admin.create_topic("t", 2)
    led = model.PartitionState(NodeId(0), LeaderEpoch(9), (NodeId(0),), (NodeId(0),))

    async def grow_and_lead() -> None:
        await metadata.admin.add_partitions("t", 400)
        await metadata.store.transact([], [Put(model.partition_key(topic.id, 5), model.encode(led))])

    grown = await slow_admin(metadata, grow_and_lead).add_partitions("t", 600)
    states = metadata.image.partition_states(grown)
    assert len(states) == 600
    assert states[5] == led


async def test_a_change_to_what_is_already_so_writes_nothing(metadata: Metadata) -> None:
    await metadata.admin.create_topic("t", 1, 1, {"segment.ms": "5"})
    before = await written(metadata)
    await metadata.admin.alter_config("t", [ConfigChange("segment.ms", SET, "5"), ConfigChange("flush", DELETE)])
    assert await written(metadata) == before


async def test_everything_is_there_after_a_restart(metadata: Metadata) -> None:
    made = await metadata.admin.create_topic("t", 2, 1, {"segment.ms": "5"})
    again = ClusterImage(metadata.store)
    await again.open()
    assert again.topic("t") == made
    assert again.partition_state(TopicPartition("t", 1)) == metadata.image.partition_state(TopicPartition("t", 1))  # type: ignore[arg-type]
    await again.close()

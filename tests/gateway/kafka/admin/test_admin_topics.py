"""CreateTopics, DeleteTopics, CreatePartitions in every version, and each refusal's exact code."""

from uuid import UUID, uuid4

import pytest

from gateway.kafka.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from gateway.kafka.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from gateway.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from gateway.kafka.protocol.schema import NO_ID
from tests.gateway.kafka.admin.conftest import NODE, Caller


def new(name: str, partitions: int = 2, factor: int = 1, **config: str | None) -> CreatableTopic:
    settings = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in config.items()]
    return CreatableTopic(name, partitions, factor, [], settings)


async def create(call: Caller, *topics: CreatableTopic) -> list[int]:
    answer = await call(CreateTopicsRequest(list(topics)), 7)
    return [topic.error_code for topic in answer.topics]


@pytest.mark.parametrize("version", range(2, 8))
async def test_create(call: Caller, version: int) -> None:
    answer = await call(CreateTopicsRequest([new("orders", 3, retention_ms="1000")]), version)
    (result,) = answer.topics
    assert (result.name, result.error_code, result.error_message) == ("orders", 0, None)
    topic = call.node.image.topic("orders")
    assert topic.partitions == 3
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        shown = {config.name: (config.value, config.config_source) for config in result.configs}
        assert shown["retention.ms"] == ("1000", 1)
        assert shown["segment.bytes"] == ("1073741824", 5)
    if version >= 7:
        assert result.topic_id == topic.id != NO_ID


@pytest.mark.parametrize("version", range(2, 8))
async def test_each_refusal_has_its_code_and_says_why(call: Caller, version: int) -> None:
    assert await create(call, new("taken")) == [0]
    cases = {
        "taken": (new("taken"), 36),
        "a/b": (new("a/b"), 17),
        "none": (new("none", 0), 37),
        "wide": (new("wide", 100_000), 37),
        "copies": (new("copies", 1, 2), 38),
        "value": (new("value", retention_ms="soon"), 40),
        "key": (new("key", no_such="1"), 40),
        "null": (new("null", retention_ms=None), 40),
        "placed": (CreatableTopic("placed", -1, -1, [CreatableReplicaAssignment(0, [9])]), 39),
        "both": (CreatableTopic("both", 1, -1, [CreatableReplicaAssignment(0, [NODE])]), 42),
        "again": (
            CreatableTopic(
                "again", -1, -1, [CreatableReplicaAssignment(0, [NODE]), CreatableReplicaAssignment(0, [NODE])]
            ),
            42,
        ),
    }
    answer = await call(CreateTopicsRequest([case for case, _ in cases.values()]), version)
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        name: code for name, (_, code) in cases.items()
    }
    assert all(topic.error_message for topic in answer.topics)
    assert all(topic.configs == [] for topic in answer.topics), "Java iterates over them, also beside an error"
    assert {topic.name for topic in call.node.image.topics()} == {"taken"}


async def test_a_topic_named_twice_is_not_made_at_all(call: Caller) -> None:
    answer = await call(CreateTopicsRequest([new("twice"), new("once"), new("twice", 5)]), 7)
    assert {topic.name: topic.error_code for topic in answer.topics} == {"twice": 42, "once": 0}
    assert len(answer.topics) == 2
    assert {topic.name for topic in call.node.image.topics()} == {"once"}


async def test_an_assignment_names_the_replicas(call: Caller) -> None:
    assigned = [CreatableReplicaAssignment(n, [NODE]) for n in range(3)]
    assert await create(call, CreatableTopic("t", -1, -1, assigned)) == [0]
    assert call.node.image.topic("t").partitions == 3


async def test_create_can_be_tried_out(call: Caller) -> None:
    request = CreateTopicsRequest([new("t", 5), new("bad", 0)], validate_only=True)
    good, bad = (await call(request, 7)).topics
    assert (good.error_code, good.num_partitions, good.topic_id) == (0, 5, NO_ID)
    assert bad.error_code == 37
    assert list(call.node.image.topics()) == []


@pytest.mark.parametrize("version", range(1, 7))
async def test_delete_by_name(call: Caller, version: int) -> None:
    await create(call, new("a"), new("b"))
    request = (
        DeleteTopicsRequest([DeleteTopicState("a"), DeleteTopicState("missing")])
        if version >= 6
        else DeleteTopicsRequest(topic_names=["a", "missing"])
    )
    deleted, missing = (await call(request, version)).responses
    assert (deleted.name, deleted.error_code) == ("a", 0)
    assert (missing.name, missing.error_code) == ("missing", 3)
    assert {topic.name for topic in call.node.image.topics()} == {"b"}


async def test_delete_by_id(call: Caller) -> None:
    await create(call, new("a"))
    topic_id = call.node.image.topic("a").id
    unknown = uuid4()
    request = DeleteTopicsRequest([DeleteTopicState(topic_id=topic_id), DeleteTopicState(topic_id=unknown)])
    deleted, missing = (await call(request, 6)).responses
    assert (deleted.name, deleted.topic_id, deleted.error_code) == ("a", topic_id, 0)
    assert (missing.name, missing.topic_id, missing.error_code) == (None, unknown, 100)
    assert list(call.node.image.topics()) == []


async def test_delete_needs_one_way_to_name_a_topic(call: Caller) -> None:
    await create(call, new("a"), new("b"))
    topic_id = call.node.image.topic("a").id
    request = DeleteTopicsRequest(
        [DeleteTopicState("a", topic_id), DeleteTopicState(), DeleteTopicState("b"), DeleteTopicState("b")]
    )
    assert [each.error_code for each in (await call(request, 6)).responses] == [42, 42, 42]
    assert len(list(call.node.image.topics())) == 2


async def test_a_topic_made_again_has_another_id(call: Caller) -> None:
    ids: set[UUID] = set()
    for _ in range(3):
        (made,) = (await call(CreateTopicsRequest([new("t")]), 7)).topics
        ids.add(made.topic_id)
        await call(DeleteTopicsRequest([DeleteTopicState("t")]), 6)
    assert len(ids) == 3


@pytest.mark.parametrize("version", range(4))
async def test_more_partitions(call: Caller, version: int) -> None:
    await create(call, new("t", 2), new("u", 2))
    request = CreatePartitionsRequest(
        [
            CreatePartitionsTopic("t", 4, None),
            CreatePartitionsTopic("u", 3, [CreatePartitionsAssignment([NODE])]),
            CreatePartitionsTopic("missing", 3, None),
        ]
    )
    grown, assigned, missing = (await call(request, version)).results
    assert (grown.name, grown.error_code, grown.error_message) == ("t", 0, None)
    assert assigned.error_code == 0
    assert missing.error_code == 3 and missing.error_message
    assert call.node.image.topic("t").partitions == 4
    assert call.node.image.topic("u").partitions == 3


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (CreatePartitionsTopic("t", 2, None), 37),
        (CreatePartitionsTopic("t", 1, None), 37),
        (CreatePartitionsTopic("t", -1, None), 37),
        (CreatePartitionsTopic("t", 3, [CreatePartitionsAssignment([9])]), 39),
        (CreatePartitionsTopic("t", 4, [CreatePartitionsAssignment([NODE])]), 39),
    ],
)
async def test_bad_growth(call: Caller, topic: CreatePartitionsTopic, code: int) -> None:
    await create(call, new("t", 2))
    (result,) = (await call(CreatePartitionsRequest([topic]), 3)).results
    assert (result.error_code, bool(result.error_message)) == (code, True)
    assert call.node.image.topic("t").partitions == 2


async def test_growth_named_twice_or_tried_out(call: Caller) -> None:
    await create(call, new("t", 2))
    twice = CreatePartitionsRequest([CreatePartitionsTopic("t", 3, None), CreatePartitionsTopic("t", 4, None)])
    assert [each.error_code for each in (await call(twice, 3)).results] == [42]
    trial = CreatePartitionsRequest([CreatePartitionsTopic("t", 3, None)], validate_only=True)
    assert [each.error_code for each in (await call(trial, 3)).results] == [0]
    assert call.node.image.topic("t").partitions == 2

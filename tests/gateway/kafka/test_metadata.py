"""Metadata over the wire: all versions, all ways to ask, and topics that come into being by being asked for."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.messages.api_versions import ApiVersionsRequest
from gateway.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from hot_tier.cluster import model
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.model import BrokerInfo
from hot_tier.cluster.store import Delete, Put
from hot_tier.ids import NodeId
from tests.gateway.kafka.node import KAFKA, running_node
from tests.support.waiting import until

VERSIONS = range(14)


def ask(*names, **fields):
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **fields)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_topic_and_the_cluster_around_it(node, version):
    made = await node.node.admin.create_topic("t", 3)
    async with node.connect() as wire:
        answer = await wire.ask(ask("t", allow_auto_topic_creation=False), version)
        assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(0, node.host, node.port)]
        if version >= 1:
            assert answer.controller_id == 0
        if version >= 2:
            assert answer.cluster_id == node.node.cluster_id
        (topic,) = answer.topics
        assert (topic.name, topic.error_code, topic.is_internal) == ("t", 0, False)
        if version >= 10:
            assert topic.topic_id == made.id
        assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
        for partition in topic.partitions:
            assert (partition.error_code, partition.leader_id) == (0, 0)
            assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([0], [0], [])
            if version >= 7:
                assert partition.leader_epoch == 0


async def test_all_topics_and_none(node):
    for name in ("a", "b"):
        await node.node.admin.create_topic(name, 1)
    async with node.connect() as wire:

        async def names(request, version):
            return sorted(topic.name for topic in (await wire.ask(request, version)).topics)

        assert await names(MetadataRequest(topics=[]), 0) == ["a", "b"]
        assert await names(MetadataRequest(topics=None), 1) == ["a", "b"]
        assert await names(MetadataRequest(topics=None), 12) == ["a", "b"]
        assert await names(MetadataRequest(topics=[]), 1) == []
        assert await names(MetadataRequest(topics=[]), 12) == []


async def test_by_id(node):
    made = await node.node.admin.create_topic("t", 1)
    async with node.connect() as wire:
        known = MetadataRequestTopic(topic_id=made.id, name=None)
        unknown = MetadataRequestTopic(topic_id=UUID(int=5), name=None)
        for version in (10, 12, 13):
            answer = await wire.ask(MetadataRequest(topics=[known, unknown]), version)
            found, missing = answer.topics
            assert (found.name, found.topic_id, found.error_code) == ("t", made.id, 0)
            assert (missing.topic_id, missing.error_code) == (UUID(int=5), ErrorCode.UNKNOWN_TOPIC_ID)
            assert not missing.name


async def test_an_id_changes_when_a_topic_is_made_anew(node):
    async with node.connect() as wire:
        first = (await wire.ask(ask("t"), 12)).topics[0].topic_id
        await node.node.admin.delete_topic("t")
        second = (await wire.ask(ask("t"), 12)).topics[0].topic_id
        assert UUID(int=0) not in (first, second)
        assert first != second


@pytest.mark.parametrize("version", [0, 4, 12])
async def test_a_missing_topic_is_made_if_all_agree(node, version):
    async with node.connect() as wire:
        answer = await wire.ask(ask("new", "new", "other"), version)
        assert [(t.name, t.error_code, len(t.partitions)) for t in answer.topics] == [
            ("new", 0, 1),
            ("other", 0, 1),
        ]


async def test_a_missing_topic_stays_missing_if_the_client_says_so(node):
    async with node.connect() as wire:
        answer = await wire.ask(ask("new", allow_auto_topic_creation=False), 12)
        assert (answer.topics[0].name, answer.topics[0].error_code) == ("new", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert node.node.image.find_topic("new") is None


async def test_a_missing_topic_stays_missing_if_the_settings_say_so(tmp_path):
    settings = replace(KAFKA, auto_create_topics=False)
    async with running_node(str(tmp_path), settings) as running, running.connect() as wire:
        answer = await wire.ask(ask("new"), 12)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../../etc", "a b", "a\0b", "é", "x" * 250])
async def test_names_that_no_topic_may_have(node, name):
    async with node.connect() as wire:
        answer = await wire.ask(ask(name, "good"), 12)
        bad, good = answer.topics
        assert (bad.name, bad.error_code, bad.partitions) == (name, ErrorCode.INVALID_TOPIC, [])
        assert good.error_code == 0
        assert [topic.name for topic in node.node.image.topics()] == ["good"]


async def test_internal_topics_are_not_made_by_asking(node):
    async with node.connect() as wire:
        answer = await wire.ask(ask("__consumer_offsets"), 12)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_operations_are_told_when_asked_for(node):
    await node.node.admin.create_topic("t", 1)
    async with node.connect() as wire:
        silent = await wire.ask(ask("t"), 8)
        assert silent.topics[0].topic_authorized_operations == silent.cluster_authorized_operations == -(2**31)
        told = await wire.ask(
            ask("t", include_topic_authorized_operations=True, include_cluster_authorized_operations=True), 8
        )
        assert told.topics[0].topic_authorized_operations > 0
        assert told.cluster_authorized_operations > 0


async def test_the_versions_that_clients_are_promised(node):
    async with node.connect() as wire:
        for version in range(5):
            answer = await wire.ask(ApiVersionsRequest("test", "1"), version)
            assert answer.error_code == 0
            ranges = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
            promised = {0: (0, 12), 1: (4, 17), 2: (1, 11), 3: (0, 13), 18: (0, 4), 21: (0, 2), 23: (2, 4)}
            assert promised.items() <= ranges.items()
            levels = {each.name: each.max_version_level for each in answer.finalized_features}
            assert levels == ({"transaction.version": 2} if version >= 3 else {})
            assert answer.finalized_features_epoch == (1 if version >= 3 else -1)


async def led_elsewhere(node) -> NodeId:
    """A second broker, which leads the topic t and has this one as its follower."""
    other, store, image = NodeId(7), node.node.store, node.node.image
    written = await store.transact(
        [], [Put(model.broker_key(other), model.encode(BrokerInfo(other, simple_endpoints("other", 9))))]
    )
    await image.reached(written)
    await node.node.admin.create_topic("t", assignment={0: [other, 0]})
    return other


async def elect_this_node(node) -> None:
    image = node.node.image
    topic = image.topic("t")
    successor = replace(image.partition_states(topic)[0], leader=NodeId(0), leader_epoch=1)
    await node.node.store.transact([], [Put(model.partition_key(topic.id, 0), model.encode(successor))])


async def test_a_leader_in_doubt_is_not_named_before_its_successor_can_be(node):
    other = await led_elsewhere(node)
    async with node.connect() as wire:
        assert (await wire.ask(ask("t"), 12)).topics[0].partitions[0].leader_id == other
        node.node.image.doubt(other)
        asked = asyncio.ensure_future(wire.ask(ask("t"), 12))
        await until(lambda: node.node.image._waiters)
        await elect_this_node(node)
        answer = await asked
        assert answer.topics[0].partitions[0].leader_id == 0
        assert answer.topics[0].partitions[0].leader_epoch == 1


async def test_a_leader_that_is_trusted_again_is_named(node):
    other = await led_elsewhere(node)
    async with node.connect() as wire:
        node.node.image.doubt(other)
        asked = asyncio.ensure_future(wire.ask(ask("t"), 12))
        await until(lambda: node.node.image._waiters)
        node.node.image.trust(other)
        assert (await asked).topics[0].partitions[0].leader_id == other


async def test_without_a_successor_the_answer_comes_all_the_same(node):
    other = await led_elsewhere(node)
    async with node.connect() as wire:
        node.node.image.doubt(other)
        assert (await wire.ask(ask("t"), 12)).topics[0].partitions[0].leader_id == other


async def test_a_broker_that_has_just_gone_is_still_listed(node):
    other = await led_elsewhere(node)
    async with node.connect() as wire:
        await elect_this_node(node)
        await node.node.image.reached(await node.node.store.transact([], [Delete(model.broker_key(other))]))
        answer = await wire.ask(ask("t"), 12)
        assert [broker.node_id for broker in answer.brokers] == [0, other]
        assert answer.topics[0].partitions[0].offline_replicas == [other]


async def nobody_registered(node, monkeypatch) -> None:
    """As a broker sees it that has just started, before it registers."""
    monkeypatch.setattr("hot_tier.cluster.image.REMEMBER_GONE_S", 0)
    await node.node.image.reached(await node.node.store.transact([], [Delete(model.broker_key(NodeId(0)))]))


@pytest.mark.parametrize("names", [("t",), ()])
async def test_an_answer_waits_until_there_is_a_broker_to_name(node, monkeypatch, names):
    await node.node.admin.create_topic("t", 1)
    await nobody_registered(node, monkeypatch)
    async with node.connect() as wire:
        asked = asyncio.ensure_future(wire.ask(ask(*names), 12))
        await until(lambda: node.node.image._waiters)
        back = BrokerInfo(NodeId(0), simple_endpoints(node.host, node.port))
        await node.node.store.transact([], [Put(model.broker_key(back.id), model.encode(back))])
        assert [broker.node_id for broker in (await asked).brokers] == [0]


async def test_without_any_broker_there_is_no_answer(node, monkeypatch):
    await node.node.admin.create_topic("t", 1)
    await nobody_registered(node, monkeypatch)
    async with node.connect() as wire:
        with pytest.raises(asyncio.IncompleteReadError):
            await wire.ask(ask("t"), 12)

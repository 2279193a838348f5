"""The APIs that Kafka's admin tools ask for, over the wire."""

import pytest

from gateway.kafka.errors import ErrorCode
from gateway.kafka.handlers.describe_topic_partitions import MAX_PARTITIONS
from gateway.kafka.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from gateway.kafka.protocol.messages.api_versions import ApiVersionsRequest
from gateway.kafka.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from gateway.kafka.protocol.messages.describe_quorum import DescribeQuorumRequest
from gateway.kafka.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    RequestCursor,
)
from gateway.kafka.protocol.messages.describe_topic_partitions import TopicRequest as NamedTopic
from gateway.kafka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from gateway.kafka.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from gateway.kafka.protocol.messages.list_config_resources import ListConfigResourcesRequest
from gateway.kafka.protocol.messages.list_transactions import ListTransactionsRequest
from gateway.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gateway.kafka.protocol.messages.unregister_broker import UnregisterBrokerRequest
from gateway.kafka.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from hot_tier.cluster import model
from hot_tier.cluster.store import Put
from hot_tier.ids import NodeId
from tests.gateway.kafka.batches import batch

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
async def wire(node):
    async with node.connect() as connected:
        yield connected


# DescribeTopicPartitions


async def pages(wire, limit, *names):
    """Every page: what it holds as topic, error and partitions."""
    found, cursor = [], None
    while True:
        request = DescribeTopicPartitionsRequest([NamedTopic(name) for name in names], limit, cursor)
        answer = await wire.ask(request, 0)
        found.append(
            [(each.name, each.error_code, [part.partition_index for part in each.partitions]) for each in answer.topics]
        )
        if answer.next_cursor is None:
            return found
        cursor = RequestCursor(answer.next_cursor.topic_name, answer.next_cursor.partition_index)


async def test_topics_are_described_page_by_page(node, wire):
    for name, partitions in (("c", 1), ("a", 3), ("b", 2)):
        await node.node.admin.create_topic(name, partitions)
    whole = [("a", 0, [0, 1, 2]), ("b", 0, [0, 1]), ("c", 0, [0])]
    assert await pages(wire, 2000) == [whole]
    assert await pages(wire, 2000, "c", "a", "b", "a") == [whole]
    assert await pages(wire, 2) == [[("a", 0, [0, 1])], [("a", 0, [2]), ("b", 0, [0])], [("b", 0, [1]), ("c", 0, [0])]]
    assert await pages(wire, 3, "a", "b") == [[("a", 0, [0, 1, 2])], [("b", 0, [0, 1])]]
    assert await pages(wire, 0, "c", "b") == [[("b", 0, [0])], [("b", 0, [1])], [("c", 0, [0])]]
    assert await pages(wire, 9, "b", "none", "x/y") == [[("b", 0, [0, 1]), ("none", 3, []), ("x/y", 17, [])]]


async def test_a_page_is_bounded_whatever_is_asked_for(node, wire):
    await node.node.admin.create_topic("big", MAX_PARTITIONS + 1)
    assert [len(topics[0][2]) for topics in await pages(wire, 2**31 - 1)] == [MAX_PARTITIONS, 1]
    unknown = await pages(wire, 5, *(f"n{index}" for index in range(12)))
    assert [len(page) for page in unknown] == [5, 5, 2]


async def test_a_described_partition(node, wire):
    topic = await node.node.admin.create_topic("a", 1)
    (found,) = (await wire.ask(DescribeTopicPartitionsRequest([NamedTopic("a")]), 0)).topics
    assert (found.topic_id, found.is_internal) == (topic.id, False)
    (part,) = found.partitions
    me = int(node.node.node_id)
    assert (part.error_code, part.leader_id, part.replica_nodes, part.isr_nodes) == (0, me, [me], [me])
    assert (part.eligible_leader_replicas, part.last_known_elr, part.offline_replicas) == ([], [], [])


async def test_a_page_does_not_begin_below_zero(wire):
    request = DescribeTopicPartitionsRequest([NamedTopic("a")], 10, RequestCursor("a", -1))
    (topic,) = (await wire.ask(request, 0)).topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST


# ListConfigResources


async def test_what_has_settings_is_listed_by_kind(node, wire):
    await node.node.admin.create_topic("t", 1)
    await node.node.kept.change("group", "g", lambda _: {"consumer.session.timeout.ms": "1"}, False)

    async def listed(*kinds, version=1):
        answer = await wire.ask(ListConfigResourcesRequest(list(kinds)), version)
        return answer.error_code, [(each.resource_type, each.resource_name) for each in answer.config_resources]

    me = str(int(node.node.node_id))
    assert await listed() == (0, [(TOPIC, "t"), (BROKER, me), (GROUP, "g")])
    assert await listed(GROUP, TOPIC, GROUP) == (0, [(TOPIC, "t"), (GROUP, "g")])
    assert await listed(METRICS, LOGGER) == (0, [])
    assert await listed(TOPIC, 77) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert await listed(version=0) == (0, [])


# Producers and transactions


async def test_the_producers_of_a_partition(node, wire):
    await node.node.admin.create_topic("t", 2)
    data = batch(b"a", b"b", producer_id=7, producer_epoch=3, base_sequence=0)
    sent = ProduceRequest(None, -1, 1000, [TopicProduceData(name="t", partition_data=[PartitionProduceData(0, data)])])
    answer = await wire.ask(sent, 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    asked = [TopicRequest("t", [0, 1, 0, 9]), TopicRequest("none", [0]), TopicRequest("t", [1])]
    topics = (await wire.ask(DescribeProducersRequest(asked), 0)).topics
    found = {(topic.name, part.partition_index): part for topic in topics for part in topic.partitions}
    assert {place: part.error_code for place, part in found.items()} == {
        ("t", 0): 0,
        ("t", 1): 0,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    (producer,) = found["t", 0].active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 3, 1)
    assert producer.current_txn_start_offset == -1
    assert found["t", 1].active_producers == []


@pytest.mark.parametrize("version", range(3))
async def test_there_are_no_transactions(wire, version):
    answer = await wire.ask(ListTransactionsRequest(["Ongoing", "Odd", "Odd"]), version)
    assert (answer.error_code, answer.transaction_states, answer.unknown_state_filters) == (0, [], ["Odd"])
    states = (await wire.ask(DescribeTransactionsRequest(["a", "b", "a"]), 0)).transaction_states
    assert [(each.transactional_id, each.error_code) for each in states] == [("a", 105), ("b", 105)]


# Features, brokers, directories, users


async def test_features_stay_at_the_level_they_are_at(wire):
    assert (await wire.ask(ApiVersionsRequest("x", "1"), 3)).supported_features == []
    shown = (await wire.ask(ApiVersionsRequest("x", "1"), 4)).supported_features
    levels = {each.name: (each.min_version, each.max_version) for each in shown}
    assert levels.pop("transaction.version") == (0, 2)
    assert list(levels.values()) == [(0, 0)] * 3

    async def update(version, **levels):
        keys = [FeatureUpdateKey(name.replace("_", "."), level) for name, level in levels.items()]
        answer = await wire.ask(UpdateFeaturesRequest(feature_updates=keys), version)
        return answer.error_code, [each.error_code for each in answer.results], answer.error_message

    refused = ErrorCode.INVALID_UPDATE_VERSION
    for version in (0, 1, 2):
        code, results, message = await update(version, share_version=0, group_version=1)
        assert (code, results, message) == (refused, [], "group.version is served at level 0 alone")
    assert await update(2, share_version=0, transaction_version=2) == (0, [], None)
    assert (await update(2, transaction_version=1))[0] == refused


async def test_a_broker_is_registered_while_it_runs(node, wire):
    put = Put(model.node_key(NodeId(5)), model.encode(model.NodeRecord("disk")))
    revision = await node.node.store.transact([], [put])
    await node.node.image.reached(revision)
    me = int(node.node.node_id)
    codes = [(await wire.ask(UnregisterBrokerRequest(number), 0)).error_code for number in (me, 5, 99)]
    assert codes == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.BROKER_ID_NOT_REGISTERED]


@pytest.mark.parametrize("version", range(3))
async def test_there_is_no_quorum_to_describe(wire, version):
    answer = await wire.ask(DescribeQuorumRequest(), version)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    if version >= 2:
        assert "no quorum of brokers" in answer.error_message


@pytest.mark.parametrize("version", (1, 2))
async def test_replicas_stay_in_the_one_directory(node, wire, version):
    await node.node.admin.create_topic("t", 1)
    here = AlterReplicaLogDir(node.node.logs.disk.data_dir, [AlterReplicaLogDirTopic("t", [0, 4])])
    there = AlterReplicaLogDir("/elsewhere", [AlterReplicaLogDirTopic("u", [0])])
    answer = await wire.ask(AlterReplicaLogDirsRequest([here, there]), version)
    codes = {
        (each.topic_name, part.partition_index): part.error_code for each in answer.results for part in each.partitions
    }
    assert codes == {("t", 0): 0, ("t", 4): 3, ("u", 0): ErrorCode.LOG_DIR_NOT_FOUND}


async def test_no_user_has_a_password(wire):
    for everybody in (None, []):
        answer = await wire.ask(DescribeUserScramCredentialsRequest(everybody), 0)
        assert (answer.error_code, answer.results) == (0, [])
    answer = await wire.ask(DescribeUserScramCredentialsRequest([UserName("a"), UserName("b")]), 0)
    assert [(each.user, each.error_code) for each in answer.results] == [("a", 91), ("b", 91)]
    answer = await wire.ask(DescribeUserScramCredentialsRequest([UserName("a"), UserName("a")]), 0)
    assert [(each.user, each.error_code) for each in answer.results] == [("a", 92)]

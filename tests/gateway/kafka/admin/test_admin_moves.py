"""Reassignments and elections as administrators' tools ask for them."""

import pytest

from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from gateway.kafka.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from gateway.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from gateway.kafka.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from hot_tier.cluster import model
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.model import BrokerInfo
from hot_tier.cluster.store import Put
from hot_tier.ids import NodeId
from tests.gateway.kafka.admin.conftest import Caller


@pytest.fixture
async def cluster(call: Caller) -> Caller:
    """Brokers 3, 4 and 5; the topic t with two partitions on 3 and 4."""
    brokers = [BrokerInfo(NodeId(node), simple_endpoints("other.example", 9092)) for node in (4, 5)]
    revision = await call.node.store.transact(
        [], [Put(model.broker_key(each.id), model.encode(each)) for each in brokers]
    )
    assert revision is not None
    await call.node.image.reached(revision)
    await call.node.admin.create_topic("t", assignment={0: [3, 4], 1: [4, 3]})
    return call


def move(*targets: tuple[int, list[int] | None], topic: str = "t") -> list[ReassignableTopic]:
    return [ReassignableTopic(topic, [ReassignablePartition(index, replicas) for index, replicas in targets])]


async def test_a_reassignment_is_begun_listed_and_called_off(cluster: Caller) -> None:
    answer = await cluster(AlterPartitionReassignmentsRequest(topics=move((0, [5, 4]))), 1)
    assert answer.error_code == ErrorCode.NONE
    (topic,) = answer.responses
    assert (topic.name, [(each.partition_index, each.error_code) for each in topic.partitions]) == ("t", [(0, 0)])

    (listed,) = (await cluster(ListPartitionReassignmentsRequest(topics=None), 0)).topics
    (ongoing,) = listed.partitions
    assert (listed.name, ongoing.partition_index) == ("t", 0)
    assert (ongoing.replicas, ongoing.adding_replicas, ongoing.removing_replicas) == ([5, 4, 3], [5], [3])
    other = [ListPartitionReassignmentsTopics("t", [1])]
    assert (await cluster(ListPartitionReassignmentsRequest(topics=other), 0)).topics == []

    answer = await cluster(AlterPartitionReassignmentsRequest(topics=move((0, None), (1, None))), 0)
    (topic,) = answer.responses
    codes = [each.error_code for each in topic.partitions]
    assert codes == [ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
    assert (await cluster(ListPartitionReassignmentsRequest(topics=None), 0)).topics == []


async def test_each_partition_has_its_own_error(cluster: Caller) -> None:
    topics = move((0, [3, 9]), (1, []), (7, [3])) + move((0, [3]), topic="missing")
    answer = await cluster(AlterPartitionReassignmentsRequest(topics=topics), 1)
    codes = {
        (topic.name, each.partition_index): each.error_code for topic in answer.responses for each in topic.partitions
    }
    assert codes == {
        ("t", 0): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ("t", 1): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


async def test_a_replication_factor_that_must_stay(cluster: Caller) -> None:
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=False, topics=move((0, [3, 4, 5]), (1, [4, 5]))
    )
    (topic,) = (await cluster(request, 1)).responses
    assert [each.error_code for each in topic.partitions] == [ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.NONE]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_preferred_leaders(cluster: Caller, version: int) -> None:
    """Partition 1 is led by 3 since 4 was away; 4 is back."""
    node = cluster.node
    topic = node.image.topic("t")
    state = model.PartitionState(NodeId(3), model.LeaderEpoch(1), (NodeId(3), NodeId(4)), (NodeId(4), NodeId(3)))
    revision = await node.store.transact([], [Put(model.partition_key(topic.id, 1), model.encode(state))])
    assert revision is not None
    await node.image.reached(revision)

    asked = [TopicPartitions("t", [0, 1, 2])]
    answer = await cluster(ElectLeadersRequest(topic_partitions=asked), version)
    (result,) = answer.replica_election_results
    assert {each.partition_id: each.error_code for each in result.partition_result} == {
        0: ErrorCode.ELECTION_NOT_NEEDED,
        1: ErrorCode.NONE,
        2: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert node.image.partition_states(topic)[1].leader == 4
    everything = await cluster(ElectLeadersRequest(topic_partitions=None), version)
    assert everything.replica_election_results == []


def throttle(kind: int, name: str, **config: str | None) -> AlterConfigsResource:
    """None takes a setting away."""
    return AlterConfigsResource(
        kind,
        name,
        [AlterableConfig(key.replace("_", "."), 1 if value is None else 0, value) for key, value in config.items()],
    )


async def test_traffic_is_limited_as_tools_do_it(cluster: Caller) -> None:
    """kafka-reassign-partitions --throttle sets these, and --verify takes them away."""
    topic, broker = 2, 4
    node = cluster.node
    record = Put(model.node_key(NodeId(5)), model.encode(model.NodeRecord("disk")))
    revision = await node.store.transact([], [record])
    assert revision is not None
    await node.image.reached(revision)

    async def alter(*resources: AlterConfigsResource) -> list[int]:
        answer = await cluster(IncrementalAlterConfigsRequest(list(resources)), 1)
        return [each.error_code for each in answer.responses]

    def rate() -> int | None:
        known = node.image.node(NodeId(5))
        assert known is not None
        return known.reassignment_bytes_per_second

    rates = {"leader_replication_throttled_rate": "5000", "follower_replication_throttled_rate": "6000"}
    lists = {"leader_replication_throttled_replicas": "0:3", "follower_replication_throttled_replicas": "0:5"}
    assert await alter(throttle(topic, "t", **lists), throttle(broker, "5", **rates)) == [0, 0]
    assert rate() == 6000
    assert len(node.image.topic("t").config) == 2
    assert await alter(throttle(broker, "5", follower_replication_throttled_rate="fast")) == [ErrorCode.INVALID_CONFIG]
    assert await alter(throttle(broker, "5", num_partitions="7")) == [ErrorCode.INVALID_REQUEST]
    assert await alter(throttle(broker, "77", **rates)) == [ErrorCode.BROKER_ID_NOT_REGISTERED]
    cleared = [throttle(topic, "t", **dict.fromkeys(lists)), throttle(broker, "5", **dict.fromkeys(rates))]
    assert await alter(*cleared) == [0, 0]
    assert rate() is None
    assert node.image.topic("t").config == {}


async def test_an_unclean_election(cluster: Caller) -> None:
    node = cluster.node
    topic = node.image.topic("t")
    state = model.PartitionState(model.NO_NODE, model.LeaderEpoch(1), (NodeId(9),), (NodeId(9), NodeId(3)))
    revision = await node.store.transact([], [Put(model.partition_key(topic.id, 0), model.encode(state))])
    assert revision is not None
    await node.image.reached(revision)
    asked = [TopicPartitions("t", [0])]
    for election_type, code in ((0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE), (1, ErrorCode.NONE)):
        answer = await cluster(ElectLeadersRequest(election_type, asked), 2)
        assert answer.replica_election_results[0].partition_result[0].error_code == code
    elected = node.image.partition_states(topic)[0]
    assert (elected.leader, elected.isr, elected.leader_epoch) == (3, (3,), 2)
    assert (await cluster(ElectLeadersRequest(7, asked), 2)).error_code == ErrorCode.INVALID_REQUEST

"""What a client is told when another broker leads the partition it asks for (KIP-951)."""

from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gateway.kafka.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gateway.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from gateway.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from hot_tier.cluster import model
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.model import BrokerInfo, PartitionState
from hot_tier.cluster.store import Put
from hot_tier.ids import LeaderEpoch, NodeId
from tests.gateway.kafka.batches import batch

OTHER = NodeId(7)


async def hand_over(running, epoch, *, leader=OTHER, alive=True):
    """The metadata as a cluster would have it after a change of leader."""
    topic = running.node.image.topic("t")
    state = PartitionState(leader, LeaderEpoch(epoch), (leader,), (OTHER, NodeId(0)))
    writes = [Put(model.partition_key(topic.id, 0), model.encode(state))]
    if alive:
        writes.append(
            Put(
                model.broker_key(OTHER),
                model.encode(BrokerInfo(OTHER, simple_endpoints("other.example", 9999), "rack")),
            )
        )
    revision = await running.node.store.transact([], writes)
    await running.node.image.reached(revision)


async def test_produce_and_fetch_are_told_the_leader_and_where_it_is(node):
    topic = await node.node.admin.create_topic("t", 1)
    async with node.connect() as wire:
        data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(0, bytes(batch(b"a")))])]
        produce = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data)
        assert (await wire.ask(produce, 10)).node_endpoints == []
        await hand_over(node, 5)

        answer = await wire.ask(produce, 10)
        (part,) = answer.responses[0].partition_responses
        assert (part.error_code, part.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (7, 5)
        (endpoint,) = answer.node_endpoints
        assert (endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack) == (7, "other.example", 9999, "rack")

        wanted = FetchTopic(topic_id=topic.id, partitions=[FetchPartition(0, partition_max_bytes=1000)])
        answer = await wire.ask(FetchRequest(max_wait_ms=5000, min_bytes=1, topics=[wanted]), 16)
        (part,) = answer.responses[0].partitions
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (7, 5)
        assert [(e.node_id, e.host, e.port) for e in answer.node_endpoints] == [(7, "other.example", 9999)]

        asked = ListOffsetsTopic("t", [ListOffsetsPartition(0, -1, -1)])
        answer = await wire.ask(ListOffsetsRequest(topics=[asked]), 9)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_metadata_names_no_leader_that_is_not_there(node):
    await node.node.admin.create_topic("t", 1)
    async with node.connect() as wire:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        await hand_over(node, 5, alive=False)
        (partition,) = (await wire.ask(request, 12)).topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert partition.offline_replicas == [7]
        await hand_over(node, 6)
        answer = await wire.ask(request, 12)
        (partition,) = answer.topics[0].partitions
        assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 7, 6)
        assert [(broker.node_id, broker.rack) for broker in answer.brokers] == [(0, None), (7, "rack")]

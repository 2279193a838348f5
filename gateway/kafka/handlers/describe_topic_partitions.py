"""DescribeTopicPartitions: topics and their partitions, page by page, in the order of their names.

An answer holds a limited number of partitions and a cursor, which says where the next page begins. Kafka's own tools
use this API.
"""

from collections.abc import Mapping
from typing import Final

from gateway.kafka.errors import ErrorCode, error_code
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)
from hot_tier.cluster.acls import ResourceType
from hot_tier.cluster.admin import check_topic_name
from hot_tier.cluster.model import PartitionState
from hot_tier.errors import InvalidRequest, TierlogError
from hot_tier.ids import NodeId

MAX_PARTITIONS: Final = 2000
"""Limit for one answer, whatever the client asks for; the same as Kafka's."""


async def handle(request: DescribeTopicPartitionsRequest, context: RequestContext) -> DescribeTopicPartitionsResponse:
    node = context.node
    names = sorted({topic.name for topic in request.topics} or {topic.name for topic in node.image.topics()})
    first, left = 0, min(max(request.response_partition_limit, 1), MAX_PARTITIONS)
    cursor = request.cursor
    if cursor is not None:
        if cursor.partition_index < 0:
            raise InvalidRequest(f"a page cannot begin at partition {cursor.partition_index}", where=cursor.topic_name)
        names = [name for name in names if name >= cursor.topic_name]
        first = cursor.partition_index if names[:1] == [cursor.topic_name] else 0
    response = DescribeTopicPartitionsResponse()
    alive = {broker.id for broker in node.image.brokers()}
    async for name in context.turn().through(names):
        if left == 0:
            response.next_cursor = ResponseCursor(name, 0)
            break
        described, more = _topic(name, first, left, context, alive)
        response.topics.append(described)
        # A topic that does not exist takes room too: a request may have many names.
        left -= max(len(described.partitions), 1)
        if more:
            response.next_cursor = ResponseCursor(name, first + len(described.partitions))
            break
        first = 0
    return response


def _topic(
    name: str, first: int, limit: int, context: RequestContext, alive: set[NodeId]
) -> tuple[DescribeTopicPartitionsResponseTopic, bool]:
    """Returns the topic with at most `limit` partitions from `first` on, and whether there are more."""
    operations = context.authorized_operations(ResourceType.TOPIC, name)
    image = context.node.image
    try:
        check_topic_name(name)
        topic = image.topic(name)
    except TierlogError as error:
        return DescribeTopicPartitionsResponseTopic(
            error_code=error_code(error), name=name, topic_authorized_operations=operations
        ), False
    states = image.partition_states(topic)
    return DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=topic.id,
        is_internal=topic.internal,
        partitions=[_partition(index, states[index], alive) for index in range(first, min(first + limit, len(states)))],
        topic_authorized_operations=operations,
    ), first + limit < len(states)


def _partition(index: int, state: PartitionState, alive: set[NodeId]) -> DescribeTopicPartitionsResponsePartition:
    led = state.leader in alive
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=state.leader if led else -1,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[replica for replica in state.replicas if replica not in alive],
    )


HANDLERS: Final[Mapping[int, Handler]] = {ApiKey.DESCRIBE_TOPIC_PARTITIONS: Handler(0, 0, handle)}

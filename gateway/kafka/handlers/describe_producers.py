"""DescribeProducers: the idempotent producers that a partition's leader remembers."""

from collections.abc import Mapping
from typing import Final

from gateway.kafka.errors import error_code
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from gateway.lane import Turn
from gateway.node import Node
from hot_tier.errors import TierlogError


async def handle(request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    turn = context.turn()
    asked: dict[str, dict[int, None]] = {}
    async for topic in turn.through(request.topics):
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name, [await _partition(name, index, context.node, turn) async for index in turn.through(indexes)]
            )
            async for name, indexes in turn.through(asked.items())
        ]
    )


async def _partition(topic: str, index: int, node: Node, turn: Turn) -> PartitionResponse:
    answer = PartitionResponse(partition_index=index)
    try:
        known = list(node.partitions.get(topic, index).describe_producers())
    except TierlogError as error:
        answer.error_code, answer.error_message = error_code(error), str(error)
        return answer
    async for each in turn.through(known):
        answer.active_producers.append(
            ProducerState(
                each.producer_id,
                each.epoch,
                each.last_sequence,
                each.last_write_ms,
                each.coordinator_epoch,
                each.transaction_start_offset,
            )
        )
    return answer


HANDLERS: Final[Mapping[int, Handler]] = {ApiKey.DESCRIBE_PRODUCERS: Handler(0, 0, handle)}

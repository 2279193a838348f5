"""DescribeProducers: the idempotent producers that a partition remembers, as its leader knows them."""

import asyncio
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
from gateway.node import Node
from hot_tier.errors import TierlogError

AT_ONCE: Final = 1000
"""Producers that are described before others have their turn: a partition may remember very many."""


async def handle(request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return DescribeProducersResponse(
        topics=[
            TopicResponse(name, [await _partition(name, index, context.node) for index in indexes])
            for name, indexes in asked.items()
        ]
    )


async def _partition(topic: str, index: int, node: Node) -> PartitionResponse:
    answer = PartitionResponse(partition_index=index)
    try:
        known = list(node.partitions.get(topic, index).log.describe_producers())
    except TierlogError as error:
        answer.error_code, answer.error_message = error_code(error), str(error)
        return answer
    for number, each in enumerate(known, 1):
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
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
    return answer


HANDLERS: Final[Mapping[int, Handler]] = {ApiKey.DESCRIBE_PRODUCERS: Handler(0, 0, handle)}

"""OffsetForLeaderEpoch: where an epoch's records end, so that a reader can see how far it agrees with the leader."""

from operator import attrgetter

from gateway.kafka.errors import error_code
from gateway.kafka.handler import Handler, Once, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from hot_tier.errors import TierlogError


async def handle(request: OffsetForLeaderEpochRequest, context: RequestContext) -> OffsetForLeaderEpochResponse:
    turn, once = context.turn(), Once()
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic.topic,
                [
                    _end_of(topic.topic, asked, context)
                    async for asked in turn.through(once.of(topic.topic, topic.partitions, attrgetter("partition")))
                ],
            )
            async for topic in turn.through(request.topics)
        ]
    )


def _end_of(topic: str, asked: OffsetForLeaderPartition, context: RequestContext) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition)
    try:
        partition = context.node.partitions.get(topic, asked.partition)
        partition.check_leader_epoch(asked.current_leader_epoch)
        answer.leader_epoch, answer.end_offset = partition.end_of_epoch(asked.leader_epoch)
    except TierlogError as error:
        answer.error_code = error_code(error)
    return answer


HANDLERS = {ApiKey.OFFSET_FOR_LEADER_EPOCH: Handler(2, 4, handle)}

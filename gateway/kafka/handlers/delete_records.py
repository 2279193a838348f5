"""DeleteRecords: moves the start of a partition forward, for good."""

from collections import Counter
from operator import attrgetter
from typing import Final

from gateway.kafka.errors import error_code
from gateway.kafka.handler import Handler, Once, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from hot_tier.errors import InvalidRequest, InvalidTopicName, PolicyViolation, TierlogError

_PARTITION: Final = attrgetter("partition_index")


async def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    turn, once = context.turn(), Once()
    named = Counter((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                topic.name,
                [
                    _delete(topic.name, asked, named[topic.name, asked.partition_index], context)
                    async for asked in turn.through(once.of(topic.name, topic.partitions, _PARTITION))
                ],
            )
            async for topic in turn.through(request.topics)
        ]
    )


def _delete(
    topic: str, asked: DeleteRecordsPartition, times: int, context: RequestContext
) -> DeleteRecordsPartitionResult:
    answer = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
    try:
        if times > 1:
            raise InvalidRequest("a partition is named twice in this request", where=f"{topic}-{asked.partition_index}")
        partition = context.node.partitions.get(topic, asked.partition_index)
        if partition.topic.internal:
            raise InvalidTopicName(f"{topic} belongs to the service", hint="delete records of a topic of your own")
        if "delete" not in partition.config.cleanup_policy:
            raise PolicyViolation("the topic's cleanup.policy does not allow deletes", where=str(partition.tp))
        answer.low_watermark = partition.delete_records_before(asked.offset)
    except TierlogError as error:
        answer.error_code = error_code(error)
    return answer


HANDLERS = {ApiKey.DELETE_RECORDS: Handler(0, 2, handle)}

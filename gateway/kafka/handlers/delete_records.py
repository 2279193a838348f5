"""DeleteRecords: moves the start of a partition up, for good."""

from gateway.kafka.errors import error_code
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from hot_tier.errors import InvalidTopicName, PolicyViolation, TierlogError


def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(topic.name, [_delete(topic.name, asked, context) for asked in topic.partitions])
            for topic in request.topics
        ]
    )


def _delete(topic: str, asked: DeleteRecordsPartition, context: RequestContext) -> DeleteRecordsPartitionResult:
    answer = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
    try:
        partition = context.node.partitions.get(topic, asked.partition_index)
        if partition.topic.internal:
            raise InvalidTopicName(f"{topic} belongs to the service", hint="delete records of a topic of your own")
        if "delete" not in partition.log.config.cleanup_policy:
            raise PolicyViolation("cleanup.policy does not delete", where=str(partition.tp))
        answer.low_watermark = partition.delete_records_before(asked.offset)
    except TierlogError as error:
        answer.error_code = error_code(error)
    return answer


HANDLERS = {ApiKey.DELETE_RECORDS: Handler(0, 2, handle)}

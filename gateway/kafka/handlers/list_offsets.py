"""ListOffsets: the offset where a partition begins or ends, or that belongs to a time.

The special timestamps: −1 latest, −2 earliest, −3 the record with the greatest timestamp, −4 the earliest on local
disk, −5 the latest in the archive, −6 the earliest that is not archived yet. Latest means the latest that the client
may read.
"""

from collections import Counter
from operator import attrgetter
from typing import Final

from gateway.fetch.reader import Isolation
from gateway.kafka.errors import UnsupportedVersion, error_code
from gateway.kafka.handler import Handler, Once, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from hot_tier.errors import InvalidRequest, TierlogError
from hot_tier.replication.led_partition import LedPartition

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING: Final = -6
SINCE_VERSION: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING: 11,
}

Answer = ListOffsetsPartitionResponse
Search = tuple[LedPartition, ListOffsetsPartition, Answer]

_PARTITION: Final = attrgetter("partition_index")


async def handle(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    turn, once = context.turn(), Once()
    searches: list[Search] = []
    named = Counter((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
    async for topic in turn.through(request.topics):
        answers = []
        async for asked in turn.through(once.of(topic.name, topic.partitions, _PARTITION)):
            answer = Answer(partition_index=asked.partition_index)
            answers.append(answer)
            try:
                if named[topic.name, asked.partition_index] > 1:
                    raise InvalidRequest("a partition is named twice in this request")
                partition = context.node.partitions.get(topic.name, asked.partition_index)
                partition.check_leader_epoch(asked.current_leader_epoch)
                if not _known(partition, asked.timestamp, request.isolation_level, answer, context):
                    searches.append((partition, asked, answer))
            except TierlogError as error:
                answer.error_code = error_code(error)
        response.topics.append(ListOffsetsTopicResponse(topic.name, answers))
    await turn.gather(lambda search: _search(*search, request.isolation_level, context), searches)
    return response


def _known(partition: LedPartition, timestamp: int, isolation: int, answer: Answer, context: RequestContext) -> bool:
    """Fills in the answer if that needs no read of records. Returns False if it does."""
    if timestamp < 0 and context.api_version < SINCE_VERSION.get(timestamp, 1 << 16):
        raise UnsupportedVersion(f"version {context.api_version} has no timestamp {timestamp}", where=str(partition.tp))
    if timestamp == LATEST:
        partition.check_committed_known()
        committed = isolation == Isolation.READ_COMMITTED
        answer.offset = partition.last_stable_offset if committed else partition.high_watermark
        answer.leader_epoch = partition.leader_epoch
    elif timestamp == EARLIEST:
        answer.offset = partition.log_start_offset
        answer.leader_epoch = partition.epoch_at(partition.log_start_offset)
    elif timestamp == EARLIEST_LOCAL:
        answer.offset = partition.local_log_start_offset
        answer.leader_epoch = partition.epoch_at(partition.local_log_start_offset)
    elif timestamp == LATEST_TIERED:
        answer.offset = context.node.reader.archived_end(partition) - 1
        answer.leader_epoch = partition.epoch_at(answer.offset)
    elif timestamp == EARLIEST_PENDING:
        if partition.config.remote_storage_enable:
            answer.offset = max(context.node.reader.archived_end(partition), partition.local_log_start_offset)
            answer.leader_epoch = partition.epoch_at(answer.offset)
    else:
        return False
    return True


async def _search(
    partition: LedPartition, asked: ListOffsetsPartition, answer: Answer, isolation: int, context: RequestContext
) -> None:
    reader = context.node.reader
    try:
        if asked.timestamp == MAX_TIMESTAMP:
            found = await reader.max_timestamp_offset(partition, isolation)
        else:
            found = await reader.offset_for_timestamp(partition, asked.timestamp, isolation)
        if found is None:
            partition.check_committed_known()
        else:
            answer.offset = found.offset
            answer.timestamp = found.timestamp
            answer.leader_epoch = found.leader_epoch
    except TierlogError as error:
        answer.error_code = error_code(error)
    except Exception as error:
        context.report(error, partition=str(partition.tp))
        answer.error_code = error_code(error)


HANDLERS = {ApiKey.LIST_OFFSETS: Handler(1, 11, handle)}

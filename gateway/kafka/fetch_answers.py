"""Parts of a fetch response: what a partition answers without records, and responses joined to one."""

from gateway.fetch.reader import Fetched
from gateway.kafka.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchResponse,
    PartitionData,
)
from hot_tier.replication.readable import ReadablePartition


def aborted(fetched: Fetched) -> list[AbortedTransaction]:
    return [AbortedTransaction(each.producer_id, each.first_offset) for each in fetched.aborted]


def without_records(partition: ReadablePartition, index: int) -> PartitionData:
    return PartitionData(
        partition_index=index,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=partition.log_start_offset,
        aborted_transactions=None,
        records=b"",
    )


def diverging_answer(partition: ReadablePartition, index: int, diverging: tuple[int, int]) -> PartitionData:
    answer = without_records(partition, index)
    answer.diverging_epoch = EpochEndOffset(*diverging)
    return answer


def see(partition: ReadablePartition, index: int, replica: int) -> PartitionData:
    answer = without_records(partition, index)
    answer.preferred_read_replica = replica
    return answer


def join(whole: FetchResponse, part: FetchResponse) -> None:
    whole.throttle_time_ms = max(whole.throttle_time_ms, part.throttle_time_ms)
    known = {endpoint.node_id for endpoint in whole.node_endpoints}
    whole.node_endpoints += [endpoint for endpoint in part.node_endpoints if endpoint.node_id not in known]
    for topic in part.responses:
        last = whole.responses[-1] if whole.responses else None
        if last is not None and (last.topic, last.topic_id) == (topic.topic, topic.topic_id):
            last.partitions += topic.partitions
        else:
            whole.responses.append(topic)

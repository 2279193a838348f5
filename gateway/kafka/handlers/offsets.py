"""OffsetCommit, OffsetFetch, OffsetDelete: the offsets of a group, as its consumers and tools set and read them.

OffsetCommit's retention time (versions 2 to 4) is read and not used: offsets live as long as their group, see
`gateway.coordinators.retention`. `require_stable` asks to wait for open transactions on the offsets.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from gateway.coordinators.group_offsets import Commit, Sender
from gateway.coordinators.offsets_topic.values import CommittedOffset
from gateway.kafka.errors import ErrorCode, error_code
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from gateway.kafka.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from gateway.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from hot_tier.errors import TierlogError
from hot_tier.ids import PartitionId, TopicPartition

MANY_GROUPS: Final = 8
"""From this version of OffsetFetch on one request asks for many groups."""
ERROR_OF_ITS_OWN: Final = 2
"""From this version on a group's error has a place beside its partitions'."""

NONE_COMMITTED: Final = CommittedOffset(offset=-1, leader_epoch=-1, metadata="", commit_ms=-1)

Asked = Iterable[OffsetFetchRequestTopic] | Iterable[OffsetFetchRequestTopics] | None
Offsets = Mapping[TopicPartition, CommittedOffset]


async def commit(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    commits = {
        _tp(topic.name, each.partition_index): Commit(
            each.committed_offset, each.committed_leader_epoch, each.committed_metadata or ""
        )
        for topic in request.topics
        for each in topic.partitions
    }
    sender = Sender(request.member_id, request.generation_id_or_member_epoch, request.group_instance_id)
    results = await context.node.groups.commit(request.group_id, sender, commits)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        each.partition_index, _code(results[_tp(topic.name, each.partition_index)])
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def fetch(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    if context.api_version >= MANY_GROUPS:
        return OffsetFetchResponse(groups=[_fetch_group(group, context) for group in request.groups])
    code = ErrorCode.NONE
    offsets: Offsets = {}
    try:
        offsets = context.node.groups.fetch_offsets(request.group_id)
    except TierlogError as error:
        code = error_code(error)
    in_partitions = code if context.api_version < ERROR_OF_ITS_OWN else ErrorCode.NONE
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=found.offset,
                        committed_leader_epoch=found.leader_epoch,
                        metadata=found.metadata,
                        error_code=in_partitions,
                    )
                    for index, found in partitions.items()
                ],
            )
            for topic, partitions in _select(offsets, request.topics).items()
        ],
    )


def _fetch_group(asked: OffsetFetchRequestGroup, context: RequestContext) -> OffsetFetchResponseGroup:
    try:
        offsets = context.node.groups.fetch_offsets(asked.group_id)
    except TierlogError as error:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error_code(error))
    return OffsetFetchResponseGroup(
        group_id=asked.group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=topic,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=found.offset,
                        committed_leader_epoch=found.leader_epoch,
                        metadata=found.metadata,
                    )
                    for index, found in partitions.items()
                ],
            )
            for topic, partitions in _select(offsets, asked.topics).items()
        ],
    )


def _select(offsets: Offsets, asked: Asked) -> dict[str, dict[int, CommittedOffset]]:
    """By topic and partition: what was asked for, committed or not, or all that is committed."""
    found: dict[str, dict[int, CommittedOffset]] = {}
    if asked is None:
        for tp, committed in offsets.items():
            found.setdefault(tp.topic, {})[tp.partition] = committed
        return found
    for topic in asked:
        partitions = found.setdefault(topic.name, {})
        for index in topic.partition_indexes:
            partitions[index] = offsets.get(_tp(topic.name, index), NONE_COMMITTED)
    return found


async def delete(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    asked = [_tp(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    try:
        results = await context.node.groups.delete_offsets(request.group_id, asked)
    except TierlogError as error:
        return OffsetDeleteResponse(error_code=error_code(error))
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        each.partition_index, _code(results[_tp(topic.name, each.partition_index)])
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _tp(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(topic, PartitionId(partition))


def _code(error: TierlogError | None) -> ErrorCode:
    return ErrorCode.NONE if error is None else error_code(error)


HANDLERS: Final = {
    ApiKey.OFFSET_COMMIT: Handler(2, 9, commit),
    ApiKey.OFFSET_FETCH: Handler(1, 9, fetch),
    ApiKey.OFFSET_DELETE: Handler(0, 0, delete),
}

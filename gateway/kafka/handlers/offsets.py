"""OffsetCommit, OffsetFetch, OffsetDelete: the offsets of a group, as its consumers and tools set and read them.

OffsetCommit's retention time (versions 2 to 4) is read but not used: offsets live as long as their group, see
`gateway.coordinators.retention`. With `require_stable` (version 7 and up of OffsetFetch), a partition whose offset an
open transaction may replace is answered with UNSTABLE_OFFSET_COMMIT, and the consumer asks again.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from gateway.coordinators.errors import UnstableOffset
from gateway.coordinators.group_offsets import Commit, Results, Sender
from gateway.coordinators.offsets_topic.values import CommittedOffset
from gateway.kafka.errors import ErrorCode, error_code
from gateway.kafka.handler import Handler, RequestContext, once
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
from gateway.lane import Turn
from hot_tier.errors import TierlogError
from hot_tier.ids import PartitionId, TopicPartition

MANY_GROUPS: Final = 8
"""From this version of OffsetFetch on, one request asks for many groups."""
ERROR_OF_ITS_OWN: Final = 2
"""From this version on, a group has an error of its own besides those of its partitions."""

COMMITTED_AT_ONCE: Final = 5000
"""How many partitions' offsets are written together, all or none."""

NONE_COMMITTED: Final = CommittedOffset(offset=-1, leader_epoch=-1, metadata="", commit_ms=-1)


class Found(NamedTuple):
    """The answer for one partition."""

    committed: CommittedOffset = NONE_COMMITTED
    code: ErrorCode = ErrorCode.NONE


NOT_COMMITTED: Final = Found()
UNSTABLE: Final = Found(code=error_code(UnstableOffset))

Asked = Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None
Offsets = Mapping[TopicPartition, CommittedOffset]


async def commit(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    turn = context.turn()
    commits = {
        _tp(topic.name, each.partition_index): Commit(
            each.committed_offset, each.committed_leader_epoch, each.committed_metadata or ""
        )
        for topic in request.topics
        async for each in turn.through(topic.partitions)
    }
    sender = Sender(request.member_id, request.generation_id_or_member_epoch, request.group_instance_id)
    results: Results = {}
    async for some in turn.parts(list(commits.items()), COMMITTED_AT_ONCE):
        results |= await context.node.groups.commit(request.group_id, sender, dict(some))
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        each.partition_index, _code(results[_tp(topic.name, each.partition_index)])
                    )
                    async for each in turn.through(topic.partitions)
                ],
            )
            async for topic in turn.through(request.topics)
        ]
    )


async def fetch(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    turn = context.turn()
    if context.api_version >= MANY_GROUPS:
        groups = turn.through(once(request.groups, lambda group: group.group_id))
        return OffsetFetchResponse(groups=[await _fetch_group(group, request, context, turn) async for group in groups])
    code = ErrorCode.NONE
    offsets: Offsets = {}
    unstable: Collection[TopicPartition] = ()
    try:
        offsets, unstable = _offsets(request.group_id, request, context)
    except TierlogError as error:
        code = error_code(error)
    in_partitions = code if context.api_version < ERROR_OF_ITS_OWN else ErrorCode.NONE
    found = await _select(offsets, unstable, request.topics, turn)
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=offset.offset,
                        committed_leader_epoch=offset.leader_epoch,
                        metadata=offset.metadata,
                        error_code=in_partitions or own,
                    )
                    async for index, (offset, own) in turn.through(partitions.items())
                ],
            )
            async for topic, partitions in turn.through(found.items())
        ],
    )


async def _fetch_group(
    asked: OffsetFetchRequestGroup, request: OffsetFetchRequest, context: RequestContext, turn: Turn
) -> OffsetFetchResponseGroup:
    try:
        offsets, unstable = _offsets(asked.group_id, request, context)
    except TierlogError as error:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=error_code(error))
    found = await _select(offsets, unstable, asked.topics, turn)
    return OffsetFetchResponseGroup(
        group_id=asked.group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=topic,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=offset.offset,
                        committed_leader_epoch=offset.leader_epoch,
                        metadata=offset.metadata,
                        error_code=code,
                    )
                    async for index, (offset, code) in turn.through(partitions.items())
                ],
            )
            async for topic, partitions in turn.through(found.items())
        ],
    )


def _offsets(
    group_id: str, request: OffsetFetchRequest, context: RequestContext
) -> tuple[Offsets, Collection[TopicPartition]]:
    """Returns the group's offsets, and the partitions where they are not what the client wants to know."""
    groups = context.node.groups
    return groups.fetch_offsets(group_id), groups.unstable_offsets(group_id) if request.require_stable else ()


async def _select(
    offsets: Offsets, unstable: Collection[TopicPartition], asked: Asked, turn: Turn
) -> dict[str, dict[int, Found]]:
    """Returns the offsets by topic and partition: those asked for, committed or not, or all committed ones."""
    found: dict[str, dict[int, Found]] = {}
    if asked is None:
        async for tp, committed in turn.through(list(offsets.items())):
            found.setdefault(tp.topic, {})[tp.partition] = UNSTABLE if tp in unstable else Found(committed)
        return found
    async for topic in turn.through(asked):
        partitions = found.setdefault(topic.name, {})
        async for index in turn.through(topic.partition_indexes):
            tp = _tp(topic.name, index)
            if tp in unstable:
                partitions[index] = UNSTABLE
            else:
                partitions[index] = Found(offsets[tp]) if tp in offsets else NOT_COMMITTED
    return found


async def delete(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    turn = context.turn()
    asked = [_tp(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    results: Results = {}
    try:
        async for some in turn.parts(asked):
            results |= await context.node.groups.delete_offsets(request.group_id, some)
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
                    async for each in turn.through(topic.partitions)
                ],
            )
            async for topic in turn.through(request.topics)
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

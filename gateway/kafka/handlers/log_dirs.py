"""DescribeLogDirs: how many bytes each partition takes on this broker's disk, and how much room is left.

AlterReplicaLogDirs: a broker has one directory. A move into it changes nothing; other directories are unknown.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Final

from gateway.kafka.errors import ErrorCode, error_code
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from gateway.kafka.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from gateway.node import Node
from hot_tier.errors import TierlogError
from hot_tier.ids import PartitionId, TopicPartition


async def handle(request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    node = context.node
    if request.topics is None:
        asked: dict[str, Iterable[int]] = {topic.name: range(topic.partitions) for topic in node.image.topics()}
    else:
        asked = {each.topic: dict.fromkeys(each.partitions) for each in request.topics}
    directory = node.logs.disk.data_dir
    result = DescribeLogDirsResult(log_dir=directory, topics=await _topics(asked, context))
    try:
        disk = os.statvfs(directory)
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        result.total_bytes = disk.f_blocks * disk.f_frsize
        result.usable_bytes = disk.f_bavail * disk.f_frsize
    return DescribeLogDirsResponse(results=[result])


async def _topics(asked: Mapping[str, Iterable[int]], context: RequestContext) -> list[DescribeLogDirsTopic]:
    """Returns only partitions that this broker holds, as Kafka does: each broker describes its own."""
    node, turn = context.node, context.turn()
    topics = []
    async for name, partitions in turn.through(asked.items()):
        found = []
        async for index in turn.through(partitions):
            try:
                state = node.image.partition_state(TopicPartition(name, PartitionId(index)))
            except TierlogError:
                continue
            if node.node_id in state.replicas:
                local = node.partitions.find_local(name, index)
                found.append(DescribeLogDirsPartition(index, local.size_bytes if local is not None else 0))
        if found:
            topics.append(DescribeLogDirsTopic(name, found))
    return topics


async def alter(request: AlterReplicaLogDirsRequest, context: RequestContext) -> AlterReplicaLogDirsResponse:
    node, turn = context.node, context.turn()
    answers: dict[str, dict[int, int]] = {}
    async for directory in turn.through(request.dirs):
        known = directory.path == node.logs.disk.data_dir
        async for topic in turn.through(directory.topics):
            answered = answers.setdefault(topic.name, {})
            async for index in turn.through(topic.partitions):
                answered[index] = _stays(topic.name, index, node) if known else ErrorCode.LOG_DIR_NOT_FOUND
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                name,
                [
                    AlterReplicaLogDirPartitionResult(index, code)
                    async for index, code in turn.through(answered.items())
                ],
            )
            async for name, answered in turn.through(answers.items())
        ]
    )


def _stays(topic: str, index: int, node: Node) -> int:
    try:
        state = node.image.partition_state(TopicPartition(topic, PartitionId(index)))
    except TierlogError as error:
        return error_code(error)
    return ErrorCode.NONE if node.node_id in state.replicas else ErrorCode.REPLICA_NOT_AVAILABLE


HANDLERS: Final[Mapping[int, Handler]] = {
    ApiKey.DESCRIBE_LOG_DIRS: Handler(1, 4, handle),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Handler(1, 2, alter),
}

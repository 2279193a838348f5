"""DescribeLogDirs: how many bytes each partition takes on this broker's disk, and how much room is left."""

import os
from collections.abc import Iterable, Mapping
from typing import Final

from gateway.kafka.errors import ErrorCode
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
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


def handle(request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    node = context.node
    if request.topics is None:
        asked: dict[str, Iterable[int]] = {topic.name: range(topic.partitions) for topic in node.image.topics()}
    else:
        asked = {each.topic: each.partitions for each in request.topics}
    directory = node.logs.disk.data_dir
    result = DescribeLogDirsResult(log_dir=directory, topics=_topics(asked, node))
    try:
        disk = os.statvfs(directory)
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        result.total_bytes = disk.f_blocks * disk.f_frsize
        result.usable_bytes = disk.f_bavail * disk.f_frsize
    return DescribeLogDirsResponse(results=[result])


def _topics(asked: Mapping[str, Iterable[int]], node: Node) -> list[DescribeLogDirsTopic]:
    """What is not kept here is left out, as Kafka does: each broker tells of its own."""
    topics = []
    for name, partitions in asked.items():
        found = []
        for index in partitions:
            try:
                state = node.image.partition_state(TopicPartition(name, PartitionId(index)))
            except TierlogError:
                continue
            if node.node_id in state.replicas:
                log = node.partitions.find_log(name, index)
                found.append(DescribeLogDirsPartition(index, log.size_bytes if log is not None else 0))
        if found:
            topics.append(DescribeLogDirsTopic(name, found))
    return topics


HANDLERS: Final[Mapping[int, Handler]] = {ApiKey.DESCRIBE_LOG_DIRS: Handler(1, 4, handle)}

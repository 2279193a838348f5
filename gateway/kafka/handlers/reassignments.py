"""AlterPartitionReassignments and ListPartitionReassignments: moves replicas to other brokers, and lists open moves.

The rules are in `hot_tier.cluster.moves`. An answer says that a reassignment has begun, not that it is done.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, TypeVar

from gateway.kafka.errors import ErrorCode, error_code, error_message
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from gateway.kafka.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from gateway.node import Node
from hot_tier.cluster.elections import reassignment_target
from hot_tier.errors import InvalidReplication, TierlogError, UnknownPartition, UnknownTopic
from hot_tier.ids import PartitionId, TopicPartition

T = TypeVar("T")


async def alter(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    node, turn = context.node, context.turn()
    outcome: dict[TopicPartition, TierlogError | None] = {}
    targets: dict[TopicPartition, Sequence[int] | None] = {}
    for topic in request.topics:
        async for asked in turn.through(topic.partitions):
            tp = TopicPartition(topic.name, PartitionId(asked.partition_index))
            if not request.allow_replication_factor_change and _changes_factor(node, tp, asked.replicas):
                outcome[tp] = InvalidReplication(
                    f"{len(asked.replicas or ())} replicas would change the replication factor",
                    where=str(tp),
                    hint="name as many brokers as there are replicas, or allow the change",
                )
            else:
                targets[tp] = asked.replicas
    async for some in turn.parts(list(targets.items())):
        outcome |= await node.moves.reassign(dict(some))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            ReassignableTopicResponse(
                name,
                [
                    ReassignablePartitionResponse(
                        tp.partition,
                        ErrorCode.NONE if error is None else error_code(error),
                        None if error is None else error_message(error),
                    )
                    async for tp, error in turn.through(of_topic)
                ],
            )
            for name, of_topic in _by_topic(outcome)
        ],
    )


def _changes_factor(node: Node, tp: TopicPartition, replicas: Sequence[int] | None) -> bool:
    try:
        state = node.image.partition_state(tp)
    except (UnknownTopic, UnknownPartition):
        return False  # the unknown partition is refused later
    return replicas is not None and len(replicas) != len(reassignment_target(state))


def _by_topic(of_partitions: Mapping[TopicPartition, T]) -> Iterator[tuple[str, Iterator[tuple[TopicPartition, T]]]]:
    return groupby(sorted(of_partitions.items(), key=lambda item: item[0]), key=lambda item: item[0].topic)


async def list_ongoing(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    turn = context.turn()
    ongoing = context.node.moves.reassignments()
    if request.topics is not None:
        asked = {(topic.name, index) for topic in request.topics for index in topic.partition_indexes}
        ongoing = {tp: state for tp, state in ongoing.items() if tp in asked}
    return ListPartitionReassignmentsResponse(
        topics=[
            OngoingTopicReassignment(
                name,
                [
                    OngoingPartitionReassignment(
                        tp.partition, list(state.replicas), list(state.adding), list(state.removing)
                    )
                    async for tp, state in turn.through(of_topic)
                ],
            )
            for name, of_topic in _by_topic(ongoing)
        ]
    )


HANDLERS: Final[Mapping[int, Handler]] = {
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Handler(0, 1, alter),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Handler(0, 0, list_ongoing),
}

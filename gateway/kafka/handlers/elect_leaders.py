"""ElectLeaders: makes preferred replicas lead again or, if no in-sync replica is alive, any live replica (unclean)."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final

from gateway.kafka.errors import ErrorCode, error_code, error_message
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from hot_tier.cluster.model import Topic
from hot_tier.errors import ElectionNotNeeded, TierlogError
from hot_tier.ids import PartitionId, TopicPartition

PREFERRED: Final = 0
UNCLEAN: Final = 1


async def handle(request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    node = context.node
    if request.election_type not in (PREFERRED, UNCLEAN):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    asked = request.topic_partitions
    turn = context.turn()
    named = _all(list(node.image.topics())) if asked is None else _named(asked)
    partitions = [each async for each in turn.through(named)]
    outcome: dict[TopicPartition, TierlogError | None] = {}
    async for some in turn.parts(partitions, 200):
        outcome |= await node.moves.elect(some, unclean=request.election_type == UNCLEAN)
    results = [
        (
            tp,
            PartitionResult(
                tp.partition,
                ErrorCode.NONE if error is None else error_code(error),
                None if error is None else error_message(error),
            ),
        )
        async for tp, error in turn.through(sorted(outcome.items(), key=lambda item: item[0]))
        # A request for all partitions gets only those where something happened.
        if asked is not None or not isinstance(error, ElectionNotNeeded)
    ]
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic, [result for _, result in of_topic])
            async for topic, of_topic in turn.through(groupby(results, key=lambda item: item[0].topic))
        ]
    )


def _all(topics: Iterable[Topic]) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.name, PartitionId(index)) for topic in topics for index in range(topic.partitions))


def _named(topics: Iterable[TopicPartitions]) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.topic, PartitionId(index)) for topic in topics for index in topic.partitions)


HANDLERS: Final[Mapping[int, Handler]] = {ApiKey.ELECT_LEADERS: Handler(0, 2, handle)}

"""WriteTxnMarkers: another broker coordinates transactions that ended, and this one leads some of their partitions.

A marker decides what readers see, so only brokers may send one: a peer at a listener that takes peers, allowed to act
for the cluster. The answer comes when the markers are committed, or says which of them are not after `WAIT_S`; the
coordinator sends those again.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from gateway.coordinators.transactions.peers import End, OneMarker
from gateway.coordinators.transactions.values import TV2
from gateway.kafka.errors import NotAuthorized, error_code
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from hot_tier.cluster.acls import Operation, ResourceType
from hot_tier.errors import InvalidRequest
from hot_tier.ids import PartitionId, TopicPartition

WAIT_S: Final = 1.0
MAX_MARKERS: Final = 10_000

Outcome = asyncio.Future[Exception | None]


async def write(request: WriteTxnMarkersRequest, context: RequestContext) -> WriteTxnMarkersResponse:
    if not context.listener.is_peer(context.principal):
        raise NotAuthorized(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    count = sum(len(topic.partition_indexes) for marker in request.markers for topic in marker.topics)
    if count > MAX_MARKERS:
        raise InvalidRequest(f"{count} markers in one request", hint=f"at most {MAX_MARKERS}")
    turn = context.turn()
    loop = asyncio.get_running_loop()
    writing: dict[OneMarker, Outcome] = {}
    async for one in turn.through([one for marker in request.markers for one in _each(marker)]):
        if one not in writing:
            writing[one] = loop.create_future()
            _write(one, writing[one], context)
    if writing:
        await asyncio.wait(writing.values(), timeout=WAIT_S)
    codes = {one: _code(outcome) for one, outcome in writing.items()}
    return WriteTxnMarkersResponse([_answer(marker, codes) for marker in request.markers])


def _each(marker: WritableTxnMarker) -> list[OneMarker]:
    end = _end(marker)
    return [
        OneMarker(end, TopicPartition(topic.name, PartitionId(index)))
        for topic in marker.topics
        for index in topic.partition_indexes
    ]


def _end(marker: WritableTxnMarker) -> End:
    return End(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        min(marker.transaction_version, TV2),
    )


def _write(one: OneMarker, outcome: Outcome, context: RequestContext) -> None:
    try:
        context.node.transactions.local_markers.write(one, outcome.set_result)
    except Exception as error:
        context.report(error, topic=one.tp.topic, partition=one.tp.partition)
        outcome.set_result(error)


def _code(outcome: Outcome) -> int:
    error = outcome.result() if outcome.done() else TimeoutError()
    return 0 if error is None else error_code(error)


def _answer(marker: WritableTxnMarker, codes: Mapping[OneMarker, int]) -> WritableTxnMarkerResult:
    end = _end(marker)
    return WritableTxnMarkerResult(
        marker.producer_id,
        [
            WritableTxnMarkerTopicResult(
                topic.name,
                [
                    WritableTxnMarkerPartitionResult(
                        index, codes[OneMarker(end, TopicPartition(topic.name, PartitionId(index)))]
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )


HANDLERS: Final[Mapping[int, Handler]] = {ApiKey.WRITE_TXN_MARKERS: Handler(1, 2, write)}

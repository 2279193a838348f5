"""TxnOffsetCommit: a producer commits the offsets of a group as part of its transaction.

They count when the transaction is committed. Up to version 4 the producer has named the group to the transaction's
coordinator before (AddOffsetsToTxn), and the coordinator is asked whether that is so. From version 5 on (transactions
with an epoch each) the group's partition is added to the transaction here.
"""

from typing import Final

from gateway.coordinators.coordinator import Transaction
from gateway.coordinators.errors import (
    ConcurrentTransactions,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotCoordinator,
    ProducerFencedByNewer,
    TransactionAbortable,
)
from gateway.coordinators.group_offsets import Commit, Results, Sender
from gateway.kafka.errors import ErrorCode, error_code
from gateway.kafka.handler import CloseConnection, Handler, RequestContext
from gateway.kafka.handlers.offsets import COMMITTED_AT_ONCE
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from hot_tier.errors import InvalidTransactionState, ProducerFenced, TierlogError
from hot_tier.ids import PartitionId, TopicPartition

KNOWS_LOADING: Final = 2
"""Before this version producers give up when they hear that the coordinator is loading."""
KNOWS_ABORTABLE: Final = 4
ADDS: Final = 5
"""From this version on, the request itself adds the group's partition to the transaction."""

WAITS: Final = (ConcurrentTransactions, CoordinatorLoading, CoordinatorNotAvailable, NotCoordinator)
"""What the transaction's coordinator answers while it is not ready."""


async def commit(request: TxnOffsetCommitRequest, context: RequestContext) -> TxnOffsetCommitResponse:
    node, turn, version = context.node, context.turn(), context.api_version
    if version < ADDS and _is_late(request, context):
        raise CloseConnection  # for the reason in `transactions`
    transaction = Transaction(
        request.transactional_id, request.producer_id, request.producer_epoch, tv2=version >= ADDS
    )
    sender = Sender(request.member_id, request.generation_id, request.group_instance_id)
    commits = {
        _tp(topic.name, each.partition_index): Commit(
            each.committed_offset, each.committed_leader_epoch, each.committed_metadata or ""
        )
        for topic in request.topics
        async for each in turn.through(topic.partitions)
    }

    async def admit(tp: TopicPartition) -> None:
        answers = await node.transactions.admit(*transaction[:3], (tp,), add=version >= ADDS)
        error = answers[tp]
        if isinstance(error, WAITS):
            # So clients send it again, to this broker: only the transaction's coordinator is not ready.
            raise CoordinatorLoading(f"the transaction cannot be verified now: {error}", where=error.where)
        if error is not None:
            raise error

    results: Results = {}
    async for some in turn.parts(list(commits.items()), COMMITTED_AT_ONCE):
        try:
            results |= await node.groups.commit_in_transaction(request.group_id, sender, dict(some), transaction, admit)
        except TierlogError as error:
            results.update((tp, error) for tp, _ in some)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        each.partition_index, _code(results[_tp(topic.name, each.partition_index)], version)
                    )
                    async for each in turn.through(topic.partitions)
                ],
            )
            async for topic in turn.through(request.topics)
        ]
    )


def _is_late(request: TxnOffsetCommitRequest, context: RequestContext) -> bool:
    try:
        home = context.node.groups.shards.find_ready(request.group_id)
    except TierlogError:
        return False
    return home.is_late(request.producer_id, context.connected_s)


def _tp(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(topic, PartitionId(partition))


def _code(error: TierlogError | None, version: int) -> ErrorCode:
    match error:
        case None:
            return ErrorCode.NONE
        case CoordinatorLoading() if version < KNOWS_LOADING:
            return error_code(CoordinatorNotAvailable)
        case TransactionAbortable() if version < KNOWS_ABORTABLE:
            return error_code(InvalidTransactionState)
        case ProducerFencedByNewer():
            return error_code(ProducerFenced)
    return error_code(error)


HANDLERS: Final = {ApiKey.TXN_OFFSET_COMMIT: Handler(0, 5, commit)}

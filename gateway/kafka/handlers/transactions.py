"""Transactions over the wire: add partitions and offsets, end; list and describe.

This module only translates between messages and `gateway.coordinators.transactions`. AddPartitionsToTxn comes from
producers up to version 3, and from brokers in version 4 and up, for many transactions at once.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Final

import pyarrow
import pyarrow.compute

from gateway.coordinators.errors import CoordinatorError
from gateway.coordinators.transactions.states import State
from gateway.coordinators.transactions.transaction import Producer
from gateway.kafka.errors import ErrorCode, error_code
from gateway.kafka.handler import CloseConnection, Handler, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from gateway.kafka.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from gateway.kafka.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from gateway.kafka.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from gateway.kafka.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from gateway.kafka.protocol.messages.list_transactions import TransactionState as ListedTransaction
from gateway.lane import Turn
from hot_tier.cluster.acls import Operation, ResourceType
from hot_tier.errors import InvalidRequest, TierlogError
from hot_tier.ids import PartitionId, TopicPartition

FROM_BROKERS: Final = 4
TV2_SINCE: Final = 5
"""From this version of EndTxn and, between brokers, of AddPartitionsToTxn on, the producer speaks TV2."""
FENCED_SINCE: Final = 2
"""Lower versions of the requests of a transaction do not know PRODUCER_FENCED."""
LONGEST_PATTERN: Final = 1_000
AT_ONCE: Final = 100
"""Up to so many partitions are added without a task."""

STATES: Final = {state.title: state for state in State}


def add_partitions(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    if context.api_version >= FROM_BROKERS:
        return _add_for_broker(request, context)
    transactional_id = request.v3_and_below_transactional_id
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    _check_connection(transactional_id, *producer, context)
    topics = request.v3_and_below_topics
    if sum(len(topic.partitions) for topic in topics) > AT_ONCE:
        return _add_many(request, context)
    asked = _partitions(topics)
    refused = {tp: code for tp in asked if (code := _refuse(tp, context))}
    if refused:
        return _all_results(topics, dict.fromkeys(asked, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused)

    def answer(outcome: Producer | Exception) -> AddPartitionsToTxnResponse:
        return _all_results(topics, dict.fromkeys(asked, _code_of(outcome, context.api_version)))

    return context.node.transactions.added(transactional_id, producer, set(asked), answer)


async def _add_many(request: AddPartitionsToTxnRequest, context: RequestContext) -> AddPartitionsToTxnResponse:
    """Does the same in slices."""
    turn = context.turn()
    topics = request.v3_and_below_topics
    asked = [tp async for tp in turn.through(_partitions(topics))]
    refused = {tp: code async for tp in turn.through(asked) if (code := _refuse(tp, context))}
    codes: dict[TopicPartition, int] = dict.fromkeys(asked, ErrorCode.OPERATION_NOT_ATTEMPTED) | refused
    if not refused:
        results = await context.node.transactions.add_partitions(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            set(asked),
        )
        codes = {tp: _code(error, context.api_version) async for tp, error in turn.through(results.items())}
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _topic_results(topics, codes, turn))


def _refuse(tp: TopicPartition, context: RequestContext) -> int:
    """Returns why a client may not write to the partition; 0 if it may."""
    topic = context.node.image.find_topic(tp.topic)
    if not context.may(Operation.WRITE, ResourceType.TOPIC, tp.topic) or (topic is not None and topic.internal):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.NONE if _exists(tp, context) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _add_for_broker(request: AddPartitionsToTxnRequest, context: RequestContext) -> AddPartitionsToTxnResponse:
    if not context.listener.is_peer(context.principal):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    transactions = {each.transactional_id: each for each in request.transactions}
    if len(transactions) != len(request.transactions):
        raise InvalidRequest("a transactional id is named twice", hint="send two requests")
    turn = context.turn()
    answers = await turn.gather(lambda each: _added(each, context), list(transactions.values()))
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(each.transactional_id, await _topic_results(each.topics, codes, turn))
            async for each, codes in turn.through(zip(transactions.values(), answers, strict=True))
        ]
    )


async def _added(asked: AddPartitionsToTxnTransaction, context: RequestContext) -> Mapping[TopicPartition, int]:
    coordinator = context.node.transactions
    producer = asked.transactional_id, asked.producer_id, asked.producer_epoch
    partitions = set(_partitions(asked.topics))
    if asked.verify_only:
        results = await coordinator.verify(*producer, partitions)
        return {tp: _code(error) for tp, error in results.items()}
    unknown = {tp for tp in partitions if not _exists(tp, context)}
    if unknown:
        # Nobody could write the marker that would end it.
        return {
            tp: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if tp in unknown else ErrorCode.OPERATION_NOT_ATTEMPTED
            for tp in partitions
        }
    # The broker asks again by itself: other transactions of its request do not wait for this one.
    tv2 = context.api_version >= TV2_SINCE
    results = await coordinator.add_partitions(*producer, partitions, tv2=tv2, wait_s=0)
    return {tp: _code(error) for tp, error in results.items()}


def _exists(tp: TopicPartition, context: RequestContext) -> bool:
    topic = context.node.image.find_topic(tp.topic)
    return topic is not None and 0 <= tp.partition < topic.partitions


async def add_offsets(request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse:
    _check_connection(request.transactional_id, request.producer_id, request.producer_epoch, context)
    try:
        await context.node.transactions.add_offsets(
            request.transactional_id, request.producer_id, request.producer_epoch, request.group_id
        )
    except TierlogError as error:
        return AddOffsetsToTxnResponse(error_code=_code(error, context.api_version))
    return AddOffsetsToTxnResponse()


def end(request: EndTxnRequest, context: RequestContext) -> "asyncio.Future[EndTxnResponse]":
    if context.api_version < TV2_SINCE:
        _check_connection(request.transactional_id, request.producer_id, request.producer_epoch, context)

    def answer(outcome: Producer | Exception) -> EndTxnResponse:
        if isinstance(outcome, Exception):
            return EndTxnResponse(error_code=_code_of(outcome, context.api_version))
        return EndTxnResponse(producer_id=outcome.id, producer_epoch=outcome.epoch)

    return context.node.transactions.ended(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        answer,
        commit=request.committed,
        tv2=context.api_version >= TV2_SINCE,
    )


def _check_connection(transactional_id: str, producer_id: int, epoch: int, context: RequestContext) -> None:
    """Closes a connection that the producer has left.

    Without TV2 the epoch does not tell one transaction from the next. What a client sent and gave up after a time-out
    may still come, from its kernel, when the network is mended: by then another transaction is open, and an EndTxn of
    the last one would commit a part of it. A client that is in its right connects again and asks again.
    """
    if context.node.transactions.is_late(transactional_id, producer_id, epoch, context.connected_s):
        raise CloseConnection


async def list_all(request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    """Returns the transactions known so far; while some are still being read back, with an error that says so."""
    unknown = dict.fromkeys(name for name in request.state_filters if name not in STATES)
    states = {STATES[name] for name in request.state_filters if name in STATES}
    coordinator = context.node.transactions
    response = ListTransactionsResponse(unknown_state_filters=list(unknown))
    if coordinator.is_loading:
        response.error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return response
    if unknown and not states:
        return response
    found = coordinator.list(
        states=states, producer_ids=frozenset(request.producer_id_filters), open_for_ms=request.duration_filter
    )
    if request.transactional_id_pattern:
        try:
            names = [each.transactional_id for each in found]
            keeps = await asyncio.to_thread(_matching, names, request.transactional_id_pattern)
        except InvalidRequest:
            response.error_code = ErrorCode.INVALID_REGULAR_EXPRESSION
            return response
        found = [each for each, keep in zip(found, keeps, strict=True) if keep]
    response.transaction_states = [
        ListedTransaction(each.transactional_id, each.producer_id, each.state.title)
        async for each in context.turn().through(found)
    ]
    return response


def _matching(names: list[str], pattern: str) -> list[bool]:
    """Returns which names match as a whole. The pattern is a stranger's: RE2 takes linear time for any."""
    if len(pattern) > LONGEST_PATTERN:
        raise InvalidRequest(f"the pattern has {len(pattern)} characters", hint=f"at most {LONGEST_PATTERN}")
    try:
        found = pyarrow.compute.match_substring_regex(pyarrow.array(names, pyarrow.string()), rf"\A(?:{pattern})\z")
    except pyarrow.ArrowInvalid as error:
        raise InvalidRequest(f"the pattern is not one: {error}") from None
    return [bool(each) for each in found.to_pylist()]


async def describe(request: DescribeTransactionsRequest, context: RequestContext) -> DescribeTransactionsResponse:
    turn = context.turn()
    asked = turn.through(dict.fromkeys(request.transactional_ids))
    return DescribeTransactionsResponse(
        transaction_states=[await _describe(transactional_id, context, turn) async for transactional_id in asked]
    )


async def _describe(transactional_id: str, context: RequestContext, turn: Turn) -> TransactionState:
    """Shows only the topics that the sender may describe, as Kafka does."""
    try:
        found = context.node.transactions.describe(transactional_id)
    except CoordinatorError as error:
        return TransactionState(error_code(error), transactional_id, transaction_start_time_ms=0)
    topics: dict[str, list[int]] = {}
    async for tp in turn.through(found.partitions):
        if context.may(Operation.DESCRIBE, ResourceType.TOPIC, tp.topic):
            topics.setdefault(tp.topic, []).append(tp.partition)
    return TransactionState(
        ErrorCode.NONE,
        transactional_id,
        found.state.title,
        found.timeout_ms,
        found.started_ms,
        found.producer_id,
        found.producer_epoch,
        [TopicData(topic, numbers) for topic, numbers in topics.items()],
    )


def _partitions(topics: list[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, PartitionId(index)) for topic in topics for index in topic.partitions]


def _all_results(
    topics: list[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, int]
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                topic.name,
                [
                    AddPartitionsToTxnPartitionResult(index, codes[TopicPartition(topic.name, PartitionId(index))])
                    for index in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


async def _topic_results(
    topics: list[AddPartitionsToTxnTopic], codes: Mapping[TopicPartition, int], turn: Turn
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic.name,
            [
                AddPartitionsToTxnPartitionResult(index, codes[TopicPartition(topic.name, PartitionId(index))])
                async for index in turn.through(topic.partitions)
            ],
        )
        async for topic in turn.through(topics)
    ]


def _code_of(outcome: Producer | Exception, version: int) -> ErrorCode:
    """Returns the code of what the coordinator says. Raises what is a mistake of ours."""
    if isinstance(outcome, Exception) and not isinstance(outcome, TierlogError):
        raise outcome
    return _code(outcome if isinstance(outcome, TierlogError) else None, version)


def _code(error: TierlogError | None, version: int = FENCED_SINCE) -> ErrorCode:
    code = ErrorCode.NONE if error is None else error_code(error)
    if code is ErrorCode.PRODUCER_FENCED and version < FENCED_SINCE:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


HANDLERS: Final[Mapping[int, Handler]] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: Handler(0, 5, add_partitions),
    ApiKey.ADD_OFFSETS_TO_TXN: Handler(0, 4, add_offsets),
    ApiKey.END_TXN: Handler(0, 5, end),
    ApiKey.LIST_TRANSACTIONS: Handler(0, 2, list_all),
    ApiKey.DESCRIBE_TRANSACTIONS: Handler(0, 0, describe),
}

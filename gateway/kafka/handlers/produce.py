"""Produce: one batch per partition is checked, appended, and acknowledged as the producer asked.

Everything up to the append happens before this returns, in the order of requests: the records are views into the
receive buffer, and a pipelining producer relies on the order. Only the acknowledgement may come later: the answer waits
until every batch is as safe as `acks` asks (all: committed; 1: on this broker as the topic's `flush` says), or says
which batches were not in time.

To check a batch that is large when decompressed, or to compress it again, would hold up all other clients. Such a batch
is copied, then checked and compressed in a thread, and the connection's next request waits for the whole answer, so
that the order stays. A batch that is not compressed, and stays so, is checked in less time than a copy takes. If a
request has so many batches that together they take long, the rest of them is copied and appended in slices
(`gateway.lane`). The first batch of a transaction on a partition is copied too if it must wait until the transaction's
coordinator admits it (`gateway.kafka.produced_transactions`). The others of the transaction go the usual way.
"""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from time import perf_counter
from typing import Final

import structlog

from gateway.kafka.errors import (
    InvalidRequiredAcks,
    NoMemory,
    NotAuthorized,
    UnsupportedCompression,
    error_code,
    error_message,
)
from gateway.kafka.handler import CloseConnection, Handler, RequestContext
from gateway.kafka.leadership import current_leader
from gateway.kafka.produced_transactions import MustWait, Transactions
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from gateway.off_loop import in_thread
from hot_tier.cluster.acls import Operation, ResourceType
from hot_tier.errors import (
    BatchTooLarge,
    CorruptBatch,
    FencedLeaderEpoch,
    InvalidRecord,
    InvalidRequest,
    InvalidTopicName,
    NotLeader,
    TierlogError,
)
from hot_tier.ids import PartitionId, TopicPartition
from hot_tier.log.config import TopicConfig
from hot_tier.log.transactions import Verification
from hot_tier.record.batch import BatchHeader, read_header
from hot_tier.record.compression import Codec
from hot_tier.record.recompression import recompressed
from hot_tier.record.validate import MAX_NAMED_RECORDS, BatchLimits, validate_produced
from hot_tier.replication.led_partition import ACKS_ALL, ACKS_NONE, LedPartition

NO_ERROR: Final = 0
NO_OFFSET: Final = -1
ZSTD_SINCE: Final = 7
MAX_BATCHES: Final = 10_000
ON_LOOP_S: Final = 0.02
"""How long the batches of one request may take in one step. Some hundred batches fit."""

_log = structlog.get_logger()

Later = tuple[str, PartitionProduceData, list[PartitionProduceResponse], int, bool]
"""A topic, a batch that is not appended yet, the list and index for its answer, and whether it is to be checked in a
thread."""


class Commit:
    """A batch whose acknowledgement waits. The partition tells it the outcome, once."""

    __slots__ = ("_decided", "answer", "error", "header", "response", "tp")

    def __init__(self, answer: PartitionProduceResponse, tp: TopicPartition, header: BatchHeader) -> None:
        self.answer = answer
        self.tp = tp
        self.header = header
        self.error: BaseException | None = None
        self.response: CommitWait | None = None
        """What waits for it, once the whole request is appended."""
        self._decided = False

    def done(self) -> bool:
        return self._decided

    def set_result(self, _: None) -> None:
        self._decided = True
        response, self.response = self.response, None
        if response is not None:
            response.decided(self)

    def set_exception(self, error: BaseException) -> None:
        self.error = error
        self.set_result(None)


class RecordErrors:
    """The bad records that one response names, so that clients can tell them from the good ones in the same batch.

    There are at most `MAX_NAMED_RECORDS` over all batches: a few bytes may decompress to thousands of such records.
    """

    def __init__(self) -> None:
        self._left = MAX_NAMED_RECORDS

    def take(self, error: InvalidRecord) -> list[BatchIndexAndErrorMessage]:
        named = error.records[: self._left]
        self._left -= len(named)
        return [BatchIndexAndErrorMessage(index, why) for index, why in named]


class _TakesLong(Exception):
    """The batch cannot be checked on the loop."""


class _NotNow(Exception):
    """The batch is not checked in this step."""


def handle(
    request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    if sum(len(topic.partition_data) for topic in request.topic_data) > MAX_BATCHES:
        raise InvalidRequest(f"more than {MAX_BATCHES} batches in one request", hint="send several requests")
    acks = request.acks
    if acks not in (ACKS_ALL, ACKS_NONE, 1):
        return _refuse_all(request, InvalidRequiredAcks(f"acks={acks}", hint="use 0, 1 or -1 (all)"), context)
    node = context.node
    now_ms = node.clock()
    ends_s = perf_counter() + ON_LOOP_S
    nbytes = 0
    commits: list[Commit] = []
    later: list[Later] = []
    transactions: Transactions | None = None
    named = RecordErrors()
    responses: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            try:
                if perf_counter() > ends_s:
                    raise _NotNow
                partition, records = _writable(topic.name, data, context)
                header = _check(partition, records, now_ms, context)
                verification = None
                if header.is_transactional:
                    transactions = transactions or Transactions(request.transactional_id, context)
                    verification = transactions.verified(partition, header)
                answer = _append(partition, records, header, acks, now_ms, commits, context, verification)
            except (_TakesLong, _NotNow, MustWait) as why:
                if data.records is not None:
                    data.records = memoryview(bytearray(data.records))
                later.append((topic.name, data, answers, len(answers), isinstance(why, _TakesLong)))
                answer = PartitionProduceResponse(index=data.index)
            except Exception as error:
                answer = _refused(topic.name, data, error, acks, named, context)
            answers.append(answer)
            nbytes += len(data.records or b"")
        responses.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
    throttle_ms = node.quotas.charge(context.client_id, "produce", nbytes, now_ms, context.principal.name)
    response = ProduceResponse(responses, throttle_ms)
    if later:
        transactions = transactions or Transactions(request.transactional_id, context)
        return _after_later(later, response, commits, request, transactions, now_ms, named, context)
    return _answer(response, commits, request, context)


def _refuse_all(request: ProduceRequest, error: TierlogError, context: RequestContext) -> ProduceResponse:
    named = RecordErrors()
    return ProduceResponse(
        [
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    _refused(topic.name, data, error, request.acks, named, context) for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


async def _after_later(
    later: list[Later],
    response: ProduceResponse,
    commits: list[Commit],
    request: ProduceRequest,
    transactions: Transactions,
    now_ms: int,
    named: RecordErrors,
    context: RequestContext,
) -> ProduceResponse | None:
    buffers = context.buffers
    size = sum(len(data.records or b"") for _, data, _, _, _ in later)
    buffers.receiving.hold(context.host, size)
    try:
        await transactions.admit()
        async for topic, data, answers, position, is_large in context.turn().through(later):
            try:
                partition, batch, header = await _checked(topic, data, is_large, now_ms, context)
                verification = None
                if header.is_transactional:
                    verification = await transactions.verification(partition, header)
                    partition, _ = _writable(topic, data, context)
                answers[position] = _append(
                    partition, batch, header, request.acks, now_ms, commits, context, verification
                )
            except Exception as error:
                answers[position] = _refused(topic, data, error, request.acks, named, context)
    finally:
        buffers.receiving.give_back(context.host, size)
    answer = _answer(response, commits, request, context)
    return await answer if isinstance(answer, asyncio.Future) else answer


async def _checked(
    topic: str, data: PartitionProduceData, is_large: bool, now_ms: int, context: RequestContext
) -> tuple[LedPartition, memoryview | bytearray, BatchHeader]:
    partition, records = _writable(topic, data, context)
    try:
        if is_large:
            raise _TakesLong
        return partition, records, _check(partition, records, now_ms, context)
    except _TakesLong:
        limits, config = context.node.batch_limits(partition), partition.config
        batch, header = await in_thread(_prepare, records, limits, now_ms, config)
        partition, _ = _writable(topic, data, context)  # another broker may lead it now
        return partition, batch, header


def _prepare(
    records: memoryview, limits: BatchLimits, now_ms: int, config: TopicConfig
) -> tuple[memoryview | bytearray, BatchHeader]:
    return recompressed(records, validate_produced(records, limits, now_ms), config.compression_type)


def _answer(
    response: ProduceResponse, commits: list[Commit], request: ProduceRequest, context: RequestContext
) -> "ProduceResponse | asyncio.Future[ProduceResponse] | None":
    if request.acks == ACKS_NONE:
        if response.throttle_time_ms:
            context.throttle(response.throttle_time_ms)
        return None
    if context.api_version >= 10:
        response.node_endpoints = _endpoints(response, context)
    return CommitWait(response, commits, request.timeout_ms, context) if commits else response


def _writable(topic: str, data: PartitionProduceData, context: RequestContext) -> tuple[LedPartition, memoryview]:
    if context.guarded and not context.may(Operation.WRITE, ResourceType.TOPIC, topic):
        raise NotAuthorized(Operation.WRITE, ResourceType.TOPIC)
    partition = context.node.partitions.get(topic, data.index)
    if partition.topic.internal:
        raise InvalidTopicName(f"{topic} belongs to the service", hint="produce to a topic of your own")
    if not isinstance(data.records, memoryview):
        raise InvalidRecord("the request has no records", where=str(partition.tp))
    return partition, data.records


def _check(partition: LedPartition, records: memoryview, now_ms: int, context: RequestContext) -> BatchHeader:
    node = context.node
    try:
        return validate_produced(records, node.batch_limits(partition, on_loop=True), now_ms)
    except BatchTooLarge:
        pass
    limits = node.batch_limits(partition)
    if len(records) > limits.max_bytes:
        return validate_produced(records, limits, now_ms)  # refuses it for its size
    if not context.buffers.receiving.has_room(context.host, len(records)):
        raise NoMemory("there is no memory to check a large batch now", where=str(partition.tp), hint="try again")
    raise _TakesLong


def _append(
    partition: LedPartition,
    records: memoryview | bytearray,
    header: BatchHeader,
    acks: int,
    now_ms: int,
    commits: list[Commit],
    context: RequestContext,
    verification: Verification | None = None,
) -> PartitionProduceResponse:
    if header.codec == Codec.ZSTD and context.api_version < ZSTD_SINCE:
        raise UnsupportedCompression(f"Produce version {context.api_version} has no zstd", where=str(partition.tp))
    context.refusals.check(partition.tp, header)
    appended = partition.append(records, header, now_ms, acks, verification)
    answer = PartitionProduceResponse(
        partition.tp.partition,
        NO_ERROR,
        appended.base_offset,
        appended.log_append_time_ms,
        partition.log_start_offset,
    )
    commit = Commit(answer, partition.tp, header)
    if partition.tell_acknowledged(appended.end_offset, acks, commit):
        commits.append(commit)
    return answer


def _refused(
    topic: str, data: PartitionProduceData, error: Exception, acks: int, named: RecordErrors, context: RequestContext
) -> PartitionProduceResponse:
    if acks == ACKS_NONE:
        _log.debug("connection closed", peer=context.peer, reason=f"acks=0 and {error}")
        raise CloseConnection from error
    answer = PartitionProduceResponse(index=data.index)
    _fill_error(answer, error)
    with suppress(CorruptBatch):
        context.refusals.note(TopicPartition(topic, PartitionId(data.index)), read_header(data.records or b""), error)
    if isinstance(error, InvalidRecord):
        answer.record_errors = named.take(error)
    elif isinstance(error, NotLeader | FencedLeaderEpoch):
        leader = current_leader(context.node, topic, data.index)
        if leader is not None:
            answer.current_leader = LeaderIdAndEpoch(leader.id, leader.epoch)
    elif not isinstance(error, TierlogError):
        context.report(error, topic=topic, partition=data.index)
    return answer


def _fill_error(answer: PartitionProduceResponse, error: BaseException) -> None:
    answer.error_code = error_code(error)
    answer.error_message = error_message(error)
    answer.base_offset = NO_OFFSET
    answer.log_append_time_ms = -1
    answer.log_start_offset = NO_OFFSET


def _endpoints(response: ProduceResponse, context: RequestContext) -> list[NodeEndpoint]:
    leaders = {
        answer.current_leader.leader_id
        for topic in response.responses
        for answer in topic.partition_responses
        if answer.current_leader is not None
    }
    brokers = [broker for broker in context.node.image.brokers() if broker.id in leaders] if leaders else []
    return [NodeEndpoint(each.id, at.host, at.port, each.rack) for each, at in context.reachable(brokers)]


class CommitWait(asyncio.Future[ProduceResponse]):
    """A response that waits only for commits. It answers when all are decided or the time is over."""

    def __init__(
        self, response: ProduceResponse, commits: list[Commit], timeout_ms: int, context: RequestContext
    ) -> None:
        super().__init__()
        self._response = response
        self._commits = commits
        self._refusals = context.refusals
        self._timeouts = context.node.timeouts
        self._undecided = len(commits)
        self._tick = self._timeouts.begin(self, max(0, timeout_ms) / 1000)
        for commit in commits:
            if commit.done():
                self.decided(commit)
            else:
                commit.response = self

    def decided(self, commit: Commit) -> None:
        if commit.error is not None:
            _fill_error(commit.answer, commit.error)
            self._refusals.note(commit.tp, commit.header, commit.error)
        self._undecided -= 1
        if not self._undecided:
            self._timeouts.end(self, self._tick)
            if not self.done():
                self.set_result(self._response)

    def expire(self) -> None:
        """Answers with a timeout. The batches are in the log and may still be committed; the producer may retry."""
        for commit in self._commits:
            if not commit.done():
                commit.set_exception(TimeoutError())
                commit.answer.error_message = "written, but not as safe as acks asks within the request's timeout"


HANDLERS = {ApiKey.PRODUCE: Handler(0, 12, handle)}
"""Versions below 3 are listed, because otherwise Debian's librdkafka does not compress. They are not served."""

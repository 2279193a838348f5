"""Produce: one batch per partition, checked, appended, and acknowledged as the producer asked.

Everything up to the append happens before this returns, in the order requests came in: the records are views into
the receive buffer, and a pipelining producer relies on the order. Only the acknowledgement may come later: with
acks=all the answer waits until every batch is committed, or says which were not in time.
"""

import asyncio
from collections.abc import Awaitable
from typing import Final

import structlog

from gateway.kafka.errors import InvalidRequiredAcks, error_code, error_message
from gateway.kafka.handler import CloseConnection, Handler, RequestContext
from gateway.kafka.handlers.leadership import current_leader
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
from hot_tier.errors import (
    FencedLeaderEpoch,
    InvalidRecord,
    InvalidTopicName,
    NotLeader,
    TierlogError,
    UnsupportedBatch,
)
from hot_tier.record.validate import validate_produced

NO_ERROR: Final = 0
NO_OFFSET: Final = -1
ACKS_ALL: Final = -1
ACKS_NONE: Final = 0

_log = structlog.get_logger()

Commit = tuple[PartitionProduceResponse, asyncio.Future[None]]
"""An answer, and what it waits for."""


def handle(request: ProduceRequest, context: RequestContext) -> ProduceResponse | Awaitable[ProduceResponse] | None:
    acks = request.acks
    if acks not in (ACKS_ALL, ACKS_NONE, 1):
        raise InvalidRequiredAcks(f"acks={acks}", hint="use 0, 1 or -1 (all)")
    node = context.node
    now_ms = node.clock()
    nbytes = 0
    commits: list[Commit] = []
    responses: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        answers = []
        for data in topic.partition_data:
            try:
                answer = _append(topic.name, data, acks, now_ms, context, commits)
            except Exception as error:
                if acks == ACKS_NONE:
                    _log.info("connection closed", peer=context.peer, reason=f"acks=0 and {error}")
                    raise CloseConnection from error
                answer = _refused(topic.name, data, error, context)
            answers.append(answer)
            nbytes += len(data.records or b"")
        responses.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
    throttle_ms = node.quotas.charge(context.client_id, "produce", nbytes, now_ms, context.principal)
    if acks == ACKS_NONE:
        return None
    response = ProduceResponse(responses, throttle_ms)
    if context.api_version >= 10:
        response.node_endpoints = _endpoints(response, context)
    if commits:
        return CommitWait(response, commits, request.timeout_ms).future
    return response


def _append(
    topic: str,
    data: PartitionProduceData,
    acks: int,
    now_ms: int,
    context: RequestContext,
    commits: list[Commit],
) -> PartitionProduceResponse:
    node = context.node
    partition = node.partitions.get(topic, data.index)
    if partition.topic.internal:
        raise InvalidTopicName(f"{topic} belongs to the service", hint="produce to a topic of your own")
    records = data.records
    if not isinstance(records, memoryview):
        raise InvalidRecord("no records", where=str(partition.tp))
    header = validate_produced(records, node.batch_limits(partition), now_ms)
    if header.is_transactional:
        raise UnsupportedBatch("transactions are not served", where=str(partition.tp))
    appended = partition.append(records, header, now_ms, acks)
    answer = PartitionProduceResponse(
        data.index,
        NO_ERROR,
        appended.base_offset,
        appended.log_append_time_ms,
        partition.log.log_start_offset,
    )
    if acks == ACKS_ALL:
        committed = partition.when_committed(appended.end_offset)
        if committed is not None:
            commits.append((answer, committed))
    return answer


def _refused(
    topic: str, data: PartitionProduceData, error: Exception, context: RequestContext
) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(index=data.index)
    _fill_error(answer, error)
    if isinstance(error, InvalidRecord):
        position = error.where.removeprefix("record ")
        if position.isdigit():
            answer.record_errors = [BatchIndexAndErrorMessage(int(position), error.what)]
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
    return [NodeEndpoint(broker.id, broker.host, broker.port, broker.rack) for broker in brokers]


class CommitWait:
    """A response that is ready but for some commits; answers when all are decided or the time is over."""

    __slots__ = ("_left", "_open", "_response", "_timer", "future")

    def __init__(self, response: ProduceResponse, commits: list[Commit], timeout_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._response = response
        self._open = {committed: answer for answer, committed in commits}
        self.future: asyncio.Future[ProduceResponse] = loop.create_future()
        self._timer = loop.call_later(max(0, timeout_ms) / 1000, self._expire)
        for _, committed in commits:
            committed.add_done_callback(self._committed)

    def _committed(self, committed: asyncio.Future[None]) -> None:
        answer = self._open.pop(committed, None)
        if answer is None:
            return
        if not committed.cancelled():
            error = committed.exception()
            if error is not None:
                _fill_error(answer, error)
        if not self._open:
            self._finish()

    def _expire(self) -> None:
        """The batches are in the log and may be committed yet; the producer will ask again, or not."""
        for committed, answer in self._open.items():
            _fill_error(answer, TimeoutError())
            answer.error_message = "not committed within the request's timeout"
            committed.cancel()
        self._open.clear()
        self._finish()

    def _finish(self) -> None:
        self._timer.cancel()
        if not self.future.done():
            self.future.set_result(self._response)


HANDLERS = {ApiKey.PRODUCE: Handler(0, 11, handle)}
"""Versions below 3 are named because Debian's librdkafka compresses only if they are; they are not served."""

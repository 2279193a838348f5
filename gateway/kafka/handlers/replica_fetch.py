"""Fetch for followers: up to the log end, in a session whose cost grows with the changes, not with the partitions.

A follower names a partition to report a position: everything below that offset is durable on the follower. From then on
the session watches the partition and answers with records as soon as there are some. An answer with records, with an
error or with a diverging epoch uses up the position: the partition is left out until the follower names it again. An
answer without any of these reports a new high watermark, and the position stays.

A session may have two open requests: when the next one comes, a request that waits is answered at once. So a follower
can report a new position, or follow another partition, without waiting for news about the others.

A session knows its follower's positions, and which partitions have news. `hot_tier.replication.led_partition` decides
what a position means, and `hot_tier.log` has the bytes.

- A position counts only if it comes from the registered incarnation of the follower's broker, in the current leader
  epoch, and after a check that the follower's last epoch ends at its position.
"""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from gateway.kafka.errors import ErrorCode, InconsistentTopicId, error_code
from gateway.kafka.fetch_answers import diverging_answer, without_records
from gateway.kafka.handler import Overtakable, RequestContext
from gateway.kafka.leadership import diverging_epoch
from gateway.kafka.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
    SnapshotId,
)
from hot_tier.clock import steady_ms
from hot_tier.cluster.acls import Operation, ResourceType
from hot_tier.cluster.model import BrokerInfo
from hot_tier.errors import InvalidRequest, NotLeader, TierlogError
from hot_tier.ids import NodeId, Offset
from hot_tier.log.reading import FileSlice
from hot_tier.replication.led_partition import LedPartition

if TYPE_CHECKING:
    from gateway.node import Node

FIRST_EPOCH: Final = 0
LAST_EPOCH: Final = 2**31 - 1
NO_OFFSET: Final = -1
WATERMARK_NEWS_S: Final = 0.02
"""How long a new high watermark waits for records to go with it. Otherwise every commit would cost a fetch."""
TOUCH_MS: Final = 250
"""How often unchanged positions count as reported again."""


def handle(request: FetchRequest, context: RequestContext) -> FetchResponse | Awaitable[FetchResponse]:
    asker = request.replica_state
    assert asker is not None
    may = context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    if not may or not context.listener.is_peer(context.principal):
        return FetchResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    node = context.node
    broker = node.image.broker(NodeId(asker.replica_id))
    if broker is None or broker.epoch != asker.replica_epoch:
        return FetchResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    context.replica_sessions.heard_ms[broker.id] = steady_ms()
    session = context.replica_sessions.find(broker.id, context.client_id)
    if request.session_epoch == FIRST_EPOCH:
        session = context.replica_sessions.begin(
            broker.id,
            context.client_id,
            lambda session_id: ReplicaSession(session_id, node, broker),
            {each.id for each in node.image.brokers()},
        )
    elif session is None or session.id != request.session_id or session.replica_epoch != broker.epoch:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    elif session.epoch != request.session_epoch:
        return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    session.epoch = 1 if session.epoch == LAST_EPOCH else session.epoch + 1
    return session.fetch(request, context)


class Followed:
    """One partition in a session: the follower's position, and what it was last told."""

    __slots__ = ("answer", "index", "leader_epoch", "max_bytes", "offset", "partition", "session", "told", "topic_id")

    def __init__(self, session: "ReplicaSession", topic_id: UUID, index: int) -> None:
        self.session = session
        self.topic_id = topic_id
        self.index = index
        self.partition: LedPartition | None = None
        self.offset: Offset | None = None
        """None while the follower has no position: the last records it got are not durable there yet."""
        self.leader_epoch = -1
        self.max_bytes = 0
        self.told = (NO_OFFSET, NO_OFFSET)
        """The high watermark and the log start in the last answer."""
        self.answer: PartitionData | None = None
        """What to send instead of records."""

    def changed(self) -> None:
        """Called when the partition has grown, has committed or deleted more, or its leadership has changed."""
        partition, offset = self.partition, self.offset
        if offset is None or partition is None:
            return
        if partition.log_end_offset > offset or partition.leader_epoch != self.leader_epoch or not partition.is_open:
            self.session.is_ready(self)
        elif (partition.high_watermark, partition.log_start_offset) != self.told:
            self.session.has_committed(self)

    def watch(self, partition: LedPartition | None) -> None:
        if partition is not self.partition:
            if self.partition is not None:
                self.partition.remove_append_listener(self.changed)
            if partition is not None:
                partition.add_append_listener(self.changed)
            self.partition = partition


class ReplicaSession:
    __slots__ = (
        "_committed",
        "_context",
        "_followed",
        "_loop",
        "_max_bytes",
        "_news_timer",
        "_node",
        "_poll",
        "_poll_timer",
        "_ready",
        "_replica",
        "_scheduled",
        "_touched_ms",
        "epoch",
        "id",
        "replica_epoch",
    )

    def __init__(self, session_id: int, node: "Node", replica: BrokerInfo) -> None:
        self.id = session_id
        self.epoch = FIRST_EPOCH
        self.replica_epoch = replica.epoch
        self._node = node
        self._replica = replica.id
        self._loop = asyncio.get_running_loop()
        self._followed: dict[tuple[UUID, int], Followed] = {}
        self._ready: dict[Followed, None] = {}
        """Partitions that may have records to send, or an answer instead."""
        self._committed: dict[Followed, None] = {}
        """Partitions that have committed or deleted more than the follower knows."""
        self._poll: Overtakable | None = None
        self._poll_timer: asyncio.TimerHandle | None = None
        self._news_timer: asyncio.TimerHandle | None = None
        self._scheduled = False
        self._touched_ms = 0
        self._max_bytes = 0
        self._context: RequestContext

    def fetch(self, request: FetchRequest, context: RequestContext) -> FetchResponse | Awaitable[FetchResponse]:
        if self._poll is not None:
            self._finish(FetchResponse(session_id=self.id))
        self._context = context
        self._max_bytes = context.buffers.answer_bytes(min(request.max_bytes, self._node.kafka.fetch_max_bytes))
        now_ms = steady_ms()
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                self._forget(topic.topic_id, index)
        for named in request.topics:
            for asked in named.partitions:
                self._place(named.topic_id, asked, now_ms)
        self._touch(now_ms)
        if self._ready or request.max_wait_ms <= 0 or request.session_epoch == FIRST_EPOCH:
            return self._answer()
        wait_s = min(request.max_wait_ms, self._node.kafka.fetch_max_wait_ms) / 1000
        self._poll = Overtakable(loop=self._loop)
        self._poll.add_done_callback(self._poll_over)
        self._poll_timer = self._loop.call_later(wait_s, self._look, True)
        if self._committed:
            self._tell_soon()
        return self._poll

    def end(self) -> None:
        """Ends the session: another one replaces it, or its broker is gone."""
        for followed in self._followed.values():
            followed.watch(None)
        self._followed.clear()
        if self._poll is not None:
            self._finish(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))

    # News from partitions

    def is_ready(self, followed: Followed) -> None:
        self._ready[followed] = None
        if self._poll is not None and not self._scheduled:
            # This call comes during an append. The look comes soon after, when this step of the loop has appended all.
            self._scheduled = True
            self._loop.call_soon(self._look)

    def has_committed(self, followed: Followed) -> None:
        self._committed[followed] = None
        if self._poll is not None:
            self._tell_soon()

    def _tell_soon(self) -> None:
        if self._news_timer is None:
            self._news_timer = self._loop.call_later(WATERMARK_NEWS_S, self._look, True)

    # News from the follower

    def _place(self, topic_id: UUID, asked: FetchPartition, now_ms: int) -> None:
        key = (topic_id, asked.partition)
        followed = self._followed.get(key)
        if followed is None:
            followed = self._followed[key] = Followed(self, topic_id, asked.partition)
        followed.offset = followed.answer = None
        try:
            partition = self._partition(topic_id, asked.partition)
            if asked.current_leader_epoch < 0:
                raise InvalidRequest("a follower must name its leader epoch", where=str(partition.tp))
            partition.check_leader_epoch(asked.current_leader_epoch)
            followed.watch(partition)
            followed.leader_epoch = asked.current_leader_epoch
            followed.max_bytes = asked.partition_max_bytes
            diverging = diverging_epoch(partition, asked.last_fetched_epoch, asked.fetch_offset)
            if diverging is not None:
                followed.answer = diverging_answer(partition, asked.partition, diverging)
            else:
                partition.check_follower_offset(asked.fetch_offset)
                followed.offset = Offset(asked.fetch_offset)
                partition.replica_fetched(self._replica, self.replica_epoch, followed.offset, now_ms)
                followed.changed()
        except Exception as error:
            followed.answer = self._error(followed, error)
        if followed.answer is not None:
            self._ready[followed] = None

    def _partition(self, topic_id: UUID, index: int) -> LedPartition:
        topic = self._node.image.topic_by_id(topic_id)
        partition = self._node.partitions.get(topic.name, index)
        if partition.topic.id != topic_id:
            raise InconsistentTopicId(f"topic {topic.name} has another id", where=str(partition.tp))
        return partition

    def _forget(self, topic_id: UUID, index: int) -> None:
        followed = self._followed.pop((topic_id, index), None)
        if followed is not None:
            followed.watch(None)
            self._ready.pop(followed, None)
            self._committed.pop(followed, None)

    def _touch(self, now_ms: int) -> None:
        """Repeats unchanged positions: a follower at the log end reports nothing, but it is still there."""
        if now_ms - self._touched_ms < TOUCH_MS:
            return
        self._touched_ms = now_ms
        for followed in self._followed.values():
            partition = followed.partition
            if (
                followed.offset is not None
                and partition is not None
                and partition.is_open
                and partition.leader_epoch == followed.leader_epoch
            ):
                partition.replica_fetched(self._replica, self.replica_epoch, followed.offset, now_ms)

    # Answers to the follower

    def _look(self, now: bool = False) -> None:
        self._scheduled = False
        if self._poll is None or not (now or self._ready):
            return
        answer = self._answer()
        if isinstance(answer, FetchResponse):
            self._finish(answer)
        else:
            poll, self._poll = self._poll, None
            self._stop_timers()
            asyncio.ensure_future(answer).add_done_callback(lambda read: _pass_on(read, poll))

    def _finish(self, response: FetchResponse) -> None:
        poll, self._poll = self._poll, None
        self._stop_timers()
        if poll is not None and not poll.done():
            poll.set_result(response)

    def _poll_over(self, poll: "asyncio.Future[FetchResponse]") -> None:
        """Called when the poll is done, also if the follower disconnected and nobody takes the answer."""
        if poll is self._poll:
            self._poll = None
            self._stop_timers()

    def _stop_timers(self) -> None:
        for timer in (self._poll_timer, self._news_timer):
            if timer is not None:
                timer.cancel()
        self._poll_timer = self._news_timer = None

    def _answer(self) -> FetchResponse | Awaitable[FetchResponse]:
        answers: list[tuple[Followed, PartitionData]] = []
        away: list[tuple[Followed, PartitionData, FileSlice]] = []
        left = self._max_bytes
        for followed in tuple(self._ready):
            if left <= 0:
                break
            try:
                answer, found = self._next(followed, min(followed.max_bytes, left), min_one=not answers)
            except Exception as error:
                answer, found = self._error(followed, error), None
            if answer is None:
                # The partition keeps its place. So a batch larger than the limits soon comes first, and is sent whole.
                continue
            del self._ready[followed]
            self._committed.pop(followed, None)
            followed.told = answer.high_watermark, answer.log_start_offset
            answers.append((followed, answer))
            if found is not None:
                away.append((followed, answer, found))
                left -= found.length or followed.max_bytes
            else:
                left -= len(answer.records or b"")
        for followed in self._committed:
            partition = followed.partition
            if partition is not None and followed.offset is not None:
                answer = without_records(partition, followed.index)
                followed.told = answer.high_watermark, answer.log_start_offset
                answers.append((followed, answer))
        self._committed.clear()
        response = FetchResponse(session_id=self.id, responses=_by_topic(answers))
        return self._when_read(response, away) if away else response

    def _next(self, followed: Followed, max_bytes: int, min_one: bool) -> tuple[PartitionData | None, FileSlice | None]:
        """Returns the partition's answer, and where its records are if they are not in memory. The answer is None if
        the first batch does not fit any more."""
        if followed.answer is not None:
            answer, followed.answer = followed.answer, None
            return answer, None
        partition, offset = followed.partition, followed.offset
        assert partition is not None and offset is not None
        if self._node.partitions.find(*partition.tp) is not partition:
            raise NotLeader(
                "this broker's leadership has ended or begun again", where=str(partition.tp), hint="try again"
            )
        partition.check_leader_epoch(followed.leader_epoch)
        answer = without_records(partition, followed.index)
        if offset >= partition.log_end_offset:
            return answer, None
        partition.check_follower_offset(offset)
        found = partition.locate(offset, max_bytes, partition.log_end_offset, min_one=min_one)
        if found is None:
            return None, None
        followed.offset = None
        answer.records = partition.read_now(found)
        if answer.records is None:
            return answer, found
        _tell_gaps(answer, partition, found)
        return answer, None

    async def _when_read(
        self, response: FetchResponse, away: list[tuple[Followed, PartitionData, FileSlice]]
    ) -> FetchResponse:
        """Reads from the disk in threads, in parallel: the follower is far behind."""
        reads = await asyncio.gather(
            *(followed.partition.read(found) for followed, _, found in away if followed.partition is not None),
            return_exceptions=True,
        )
        for (followed, answer, found), read in zip(away, reads, strict=True):
            if isinstance(read, BaseException):
                failed = self._error(followed, read)
                answer.error_code, answer.records = failed.error_code, b""
            else:
                answer.records = read
                if followed.partition is not None:
                    _tell_gaps(answer, followed.partition, found)
        return response

    def _error(self, followed: Followed, error: BaseException) -> PartitionData:
        if not isinstance(error, TierlogError):
            self._context.report(error, topic=str(followed.topic_id), partition=followed.index)
        followed.offset = None
        partition = followed.partition
        answer = without_records(partition, followed.index) if partition is not None else PartitionData(followed.index)
        answer.error_code = error_code(error)
        answer.records = b""
        return answer


def _tell_gaps(answer: PartitionData, partition: LedPartition, found: FileSlice) -> None:
    """Tells the follower where offsets may be missing; elsewhere it takes a gap for damage. The end of the compacted
    part is sent in the field of Kafka's snapshot, which also stands for missing records."""
    end = partition.gaps_below(found)
    if end:
        answer.snapshot_id = SnapshotId(end)


def _by_topic(answers: Iterable[tuple[Followed, PartitionData]]) -> list[FetchableTopicResponse]:
    topics: dict[UUID, FetchableTopicResponse] = {}
    for followed, answer in answers:
        topic = topics.get(followed.topic_id)
        if topic is None:
            topic = topics[followed.topic_id] = FetchableTopicResponse(topic_id=followed.topic_id)
        topic.partitions.append(answer)
    return list(topics.values())


def _pass_on(read: "asyncio.Future[FetchResponse]", poll: "asyncio.Future[FetchResponse]") -> None:
    if poll.done():
        return
    error = read.exception()
    if error is not None:
        poll.set_exception(error)
    else:
        poll.set_result(read.result())

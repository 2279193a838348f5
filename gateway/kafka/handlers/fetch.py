"""Fetch: records from many partitions in one response. It waits a while if there are too few.

A fetch first locates (no I/O) what each partition has within the limits. If that is enough, or if it must not wait, it
takes the bytes and answers at once. Otherwise a `LongPoll` waits until one of its partitions changes or the time is
over, and then does the same. Only two kinds of fetch cost a task: those whose bytes are not in memory, and those with
more partitions than one step can look at (`LargeFetch`).

- The whole response stays within the request's `max_bytes`, each partition within its own. The first batch of the first
  partition that has one is sent whole even beyond both, so that a large batch cannot stop a reader.
- Records go from the page cache into the response buffer and from there to the kernel; no copy joins them.
"""

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from time import perf_counter
from typing import Final
from uuid import UUID

from gateway.fetch.reader import Fetched, Isolation, Located
from gateway.kafka.errors import InconsistentTopicId, NotAuthorized, error_code
from gateway.kafka.fetch_answers import aborted, diverging_answer, join, see
from gateway.kafka.handler import Handler, RequestContext
from gateway.kafka.handlers import replica_fetch
from gateway.kafka.leadership import current_leader, diverging_epoch, nearer_replica
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from gateway.kafka.sessions.fetch import MAX_PARTITIONS, Plan, Wanted, news
from gateway.timeouts import Timeouts
from hot_tier.cluster.acls import Operation, ResourceType
from hot_tier.errors import FencedLeaderEpoch, NotLeader, TierlogError
from hot_tier.replication.readable import ReadablePartition

NO_OFFSET: Final = -1
MANY: Final = 1000
"""How many partitions are looked at in one step."""
PART: Final = 200
RESTS: Final = 10
COLD_WAIT_MS: Final = 500
"""The same as Kafka's `remote.fetch.max.wait.ms`."""
FOLLOWERS_SINCE: Final = 11
"""From this version on, a client knows that it may read from a follower (KIP-392)."""

Outcome = Located | PartitionData
"""What a partition has: records to take, or already an answer (an error, a diverging epoch)."""


def handle(request: FetchRequest, context: RequestContext) -> FetchResponse | Awaitable[FetchResponse]:
    node = context.node
    if request.replica_state is not None and request.replica_state.replica_id >= 0:
        return replica_fetch.handle(request, context)
    plan = context.fetch_sessions.plan(request, context.api_version, node.clock(), context.principal.name)
    if plan.error:
        return FetchResponse(error_code=plan.error, session_id=plan.session_id)
    max_bytes = context.buffers.answer_bytes(min(request.max_bytes, node.kafka.fetch_max_bytes))
    wait_ms = min(request.max_wait_ms, node.kafka.fetch_max_wait_ms)
    min_bytes = min(request.min_bytes, max_bytes)
    if len(plan.wanted) > MANY:
        return LargeFetch(plan, context, request, max_bytes, wait_ms).answer(min_bytes)
    fetch = Fetch(plan, context, request, max_bytes, wait_ms)
    outcomes = fetch.locate()
    if wait_ms <= 0 or not plan.wanted or fetch.enough(outcomes, min_bytes):
        return fetch.answer(outcomes)
    return LongPoll(fetch, outcomes, min_bytes, wait_ms, node.timeouts)


class Fetch:
    """One request's partitions and limits."""

    __slots__ = ("_context", "_isolation", "_max_bytes", "_min_bytes", "_rack", "_wait_ms", "plan")

    def __init__(
        self, plan: Plan, context: RequestContext, request: FetchRequest, max_bytes: int, wait_ms: int
    ) -> None:
        self.plan = plan
        self._rack = request.rack_id
        self._context = context
        self._max_bytes = max_bytes
        self._min_bytes = min(request.min_bytes, max_bytes)
        self._isolation = request.isolation_level
        self._wait_ms = wait_ms

    def locate(self, *, empty: bool = True) -> list[Outcome]:
        """`empty` means that the answer has no records so far: then the first batch may be larger than all limits."""
        left = self._max_bytes
        outcomes: list[Outcome] = []
        for wanted in self.plan.wanted:
            outcome = self._locate_one(wanted, min(wanted.max_bytes, left), empty)
            if isinstance(outcome, Located) and outcome.size:
                empty = False
                left = max(0, left - outcome.size)
            outcomes.append(outcome)
        return outcomes

    def enough(self, outcomes: Sequence[Outcome], min_bytes: int) -> bool:
        """Returns whether to answer now. Errors and diverging epochs do not wait."""
        total = 0
        for outcome in outcomes:
            if isinstance(outcome, PartitionData):
                return True
            total += outcome.available
        return total >= min_bytes

    def answer(self, outcomes: Sequence[Outcome]) -> FetchResponse | Awaitable[FetchResponse]:
        reader = self._context.node.reader
        answers: list[PartitionData | None] = []
        away: list[int] = []
        for position, (wanted, outcome) in enumerate(zip(self.plan.wanted, outcomes, strict=True)):
            if isinstance(outcome, PartitionData):
                answers.append(outcome)
                continue
            try:
                fetched = reader.take_now(outcome)
            except Exception as error:
                answers.append(self._error(wanted, error))
                continue
            if fetched is None:
                away.append(position)
                answers.append(None)
            else:
                answers.append(self._data(wanted, fetched))
        if away:
            return self._answer_when_there(outcomes, answers, away)
        return self._response(answers)

    async def _answer_when_there(
        self, outcomes: Sequence[Outcome], answers: list[PartitionData | None], away: list[int]
    ) -> FetchResponse:
        """Reads the bytes that are only on the disk or in the bucket, in parallel.

        The answer is complete as soon as it has enough, so no partition with bytes waits for the bucket, and the client
        reads the first ones while the others come. If there is nothing else to send, the bucket gets at least
        `COLD_WAIT_MS`. If it answers later, its records or its error are there when the client asks again.
        """
        reader = self._context.node.reader
        reads: dict[int, asyncio.Task[Fetched]] = {}
        in_time: list[asyncio.Task[Fetched]] = []
        for position in away:
            located = outcomes[position]
            assert isinstance(located, Located)
            reads[position] = asyncio.ensure_future(reader.take(located))
            if not located.is_cold:
                in_time.append(reads[position])
        there = [answer for answer in answers if answer is not None]
        told = in_time or any(answer.records or answer.error_code for answer in there)
        ends_s = perf_counter() + (self._wait_ms if told else max(self._wait_ms, COLD_WAIT_MS)) / 1000
        if in_time:
            await asyncio.wait(in_time)
        while not self._suffices(there, reads.values()) and (left_s := ends_s - perf_counter()) > 0:
            at_work = [read for read in reads.values() if not read.done()]
            await asyncio.wait(at_work, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        for position, read in reads.items():
            wanted, located = self.plan.wanted[position], outcomes[position]
            assert isinstance(located, Located)
            if not read.done():
                answers[position] = self._data(wanted, reader.leave(located, read))
            elif (error := read.exception()) is not None:
                answers[position] = self._error(wanted, error)
            else:
                answers[position] = self._data(wanted, read.result())
        return self._response(answers)

    def _suffices(self, there: Sequence[PartitionData], reads: Collection[asyncio.Task[Fetched]]) -> bool:
        """Returns whether there is as much as the client wants to wait for, or an error, or nothing more to come."""
        done = [read for read in reads if read.done()]
        if len(done) == len(reads) or any(read.exception() for read in done) or any(each.error_code for each in there):
            return True
        nbytes = sum(len(each.records or b"") for each in there) + sum(len(read.result().records) for read in done)
        return nbytes >= max(self._min_bytes, 1)

    def _partition(self, wanted: Wanted) -> ReadablePartition:
        node = self._context.node
        find = node.partitions.readable if self._context.api_version >= FOLLOWERS_SINCE else node.partitions.get
        if isinstance(wanted.topic, UUID):
            topic = node.image.topic_by_id(wanted.topic)
            self._check_may_read(topic.name)
            partition = find(topic.name, wanted.partition)
            if partition.topic.id != wanted.topic:
                raise InconsistentTopicId(f"topic {topic.name} has another id", where=str(partition.tp))
            return partition
        self._check_may_read(wanted.topic)
        return find(wanted.topic, wanted.partition)

    def _check_may_read(self, topic: str) -> None:
        context = self._context
        if context.guarded and not context.may(Operation.READ, ResourceType.TOPIC, topic):
            raise NotAuthorized(Operation.READ, ResourceType.TOPIC)

    def _locate_one(self, wanted: Wanted, max_bytes: int, min_one: bool) -> Outcome:
        try:
            partition = self._partition(wanted)
            partition.check_leader_epoch(wanted.leader_epoch)
            if self._rack:
                nearer = nearer_replica(partition, self._context.node, self._rack, wanted.fetch_offset)
                if nearer is not None:
                    return see(partition, wanted.partition, nearer)
            diverging = diverging_epoch(partition, wanted.last_fetched_epoch, wanted.fetch_offset)
            if diverging is not None:
                return diverging_answer(partition, wanted.partition, diverging)
            return self._context.node.reader.locate(
                partition, wanted.fetch_offset, max_bytes, self._isolation, min_one=min_one
            )
        except Exception as error:
            return self._error(wanted, error)

    def _data(self, wanted: Wanted, fetched: Fetched) -> PartitionData:
        return PartitionData(
            partition_index=wanted.partition,
            high_watermark=fetched.high_watermark,
            last_stable_offset=fetched.last_stable_offset,
            log_start_offset=fetched.log_start_offset,
            aborted_transactions=aborted(fetched) if self._isolation == Isolation.READ_COMMITTED else None,
            records=fetched.records,
        )

    def _error(self, wanted: Wanted, error: BaseException) -> PartitionData:
        if not isinstance(error, TierlogError):
            self._context.report(error, topic=str(wanted.topic), partition=wanted.partition)
        answer = PartitionData(
            partition_index=wanted.partition,
            error_code=error_code(error),
            high_watermark=NO_OFFSET,
            aborted_transactions=None,
            records=b"",
        )
        if isinstance(error, NotLeader | FencedLeaderEpoch):
            leader = current_leader(self._context.node, wanted.topic, wanted.partition)
            if leader is not None:
                answer.current_leader = LeaderIdAndEpoch(leader.id, leader.epoch)
        return answer

    def _response(self, answers: Sequence[PartitionData | None]) -> FetchResponse:
        plan = self.plan
        responses: list[FetchableTopicResponse] = []
        topic: FetchableTopicResponse | None = None
        last: str | UUID | None = None
        nbytes = 0
        for wanted, answer in zip(plan.wanted, answers, strict=True):
            assert answer is not None
            if not news(plan, wanted, answer):
                continue
            if topic is None or wanted.topic != last:
                last = wanted.topic
                topic = (
                    FetchableTopicResponse(topic_id=last)
                    if isinstance(last, UUID)
                    else FetchableTopicResponse(topic=last)
                )
                responses.append(topic)
            topic.partitions.append(answer)
            nbytes += len(answer.records or b"")
        context = self._context
        node = context.node
        throttle_ms = node.quotas.charge(context.client_id, "fetch", nbytes, node.clock(), context.principal.name)
        return FetchResponse(
            throttle_time_ms=throttle_ms,
            session_id=plan.session_id,
            responses=responses,
            node_endpoints=self._endpoints(responses),
        )

    def _endpoints(self, responses: Sequence[FetchableTopicResponse]) -> list[NodeEndpoint]:
        """Returns the addresses of the leaders that the response names (KIP-951)."""
        leaders = {
            answer.current_leader.leader_id
            for topic in responses
            for answer in topic.partitions
            if answer.current_leader is not None
        }
        brokers = [broker for broker in self._context.node.image.brokers() if broker.id in leaders] if leaders else []
        return [NodeEndpoint(each.id, at.host, at.port, each.rack) for each, at in self._context.reachable(brokers)]


class LongPoll(asyncio.Future[FetchResponse]):
    """A fetch that waits for more bytes in any of its partitions, or until its time is over.

    Partitions call back during an append, so the callback only schedules another look. If the client disconnects, this
    is cancelled.
    """

    def __init__(
        self, fetch: Fetch, outcomes: Sequence[Outcome], min_bytes: int, wait_ms: int, timeouts: Timeouts
    ) -> None:
        super().__init__()
        self._fetch = fetch
        self._min_bytes = min_bytes
        self._scheduled = False
        self._partitions = [outcome.partition for outcome in outcomes if isinstance(outcome, Located)]
        for partition in self._partitions:
            partition.add_waiter(self._partition_moved)
        self._timeouts = timeouts
        self._tick = timeouts.begin(self, wait_ms / 1000)

    def cancel(self, msg: object = None) -> bool:
        self._stop()
        return super().cancel(msg)

    def expire(self) -> None:
        self._look(last=True)

    def _partition_moved(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self.get_loop().call_soon(self._look)

    def _look(self, *, last: bool = False) -> None:
        self._scheduled = False
        if self.done():
            return
        try:
            outcomes = self._fetch.locate()
            if not last and not self._fetch.enough(outcomes, self._min_bytes):
                return
            answer = self._fetch.answer(outcomes)
        except Exception as error:
            self._stop()
            self.set_exception(error)
            return
        self._stop()
        if isinstance(answer, FetchResponse):
            self.set_result(answer)
        else:
            asyncio.ensure_future(answer).add_done_callback(self._finish)

    def _finish(self, cold: "asyncio.Future[FetchResponse]") -> None:
        if self.done():
            return
        error = cold.exception()
        if error is None:
            self.set_result(cold.result())
        else:
            self.set_exception(error)

    def _stop(self) -> None:
        self._timeouts.end(self, self._tick)
        for partition in self._partitions:
            partition.remove_waiter(self._partition_moved)
        self._partitions = []


class LargeFetch:
    """A fetch with so many partitions that they are looked at in slices (`gateway.lane`), and not after each append.

    It looks at them part by part, like a small fetch. Then it rests `RESTS` times as long as the look took.
    """

    def __init__(
        self, plan: Plan, context: RequestContext, request: FetchRequest, max_bytes: int, wait_ms: int
    ) -> None:
        self._plan = plan
        self._context = context
        self._request = request
        self._max_bytes = max_bytes
        self._ends_s = asyncio.get_running_loop().time() + wait_ms / 1000
        self._moved = asyncio.Event()

    async def answer(self, min_bytes: int) -> FetchResponse:
        sessions = self._context.fetch_sessions
        count = len(self._plan.wanted)
        while sessions.waiting + count <= MAX_PARTITIONS and self._left_s() > 0:
            began_s = perf_counter()
            self._moved.clear()
            waited_for = await self._look(min_bytes)
            if waited_for is None:
                break
            sessions.waiting += count
            try:
                self._context.node.lane.leave()
                await self._wait(RESTS * (perf_counter() - began_s))
            finally:
                sessions.waiting -= count
                for partition in waited_for:
                    partition.remove_waiter(self._moved.set)
        return await self._take()

    def _left_s(self) -> float:
        return self._ends_s - asyncio.get_running_loop().time()

    async def _wait(self, rest_s: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, self._left_s())):
                await self._moved.wait()
                await asyncio.sleep(rest_s)
        except TimeoutError:
            pass

    async def _look(self, min_bytes: int) -> list[ReadablePartition] | None:
        """Returns None if there is enough. Otherwise returns the partitions; they set `_moved` when they change."""
        waited_for: list[ReadablePartition] = []
        total = 0
        async for some in self._context.turn().parts(self._plan.wanted, PART):
            fetch = self._part(some, self._max_bytes)
            outcomes = fetch.locate()
            for outcome in outcomes:
                if isinstance(outcome, Located):
                    outcome.partition.add_waiter(self._moved.set)
                    waited_for.append(outcome.partition)
                    total += outcome.available
            if total >= min_bytes or fetch.enough(outcomes, self._max_bytes + 1):
                for partition in waited_for:
                    partition.remove_waiter(self._moved.set)
                return None
        return waited_for

    async def _take(self) -> FetchResponse:
        left, empty = self._max_bytes, True
        whole = FetchResponse(session_id=self._plan.session_id)
        async for some in self._context.turn().parts(self._plan.wanted, PART):
            fetch = self._part(some, left)
            answer = fetch.answer(fetch.locate(empty=empty))
            response = answer if isinstance(answer, FetchResponse) else await answer
            size = sum(len(each.records or b"") for topic in response.responses for each in topic.partitions)
            left, empty = max(0, left - size), empty and not size
            join(whole, response)
        return whole

    def _part(self, wanted: Sequence[Wanted], max_bytes: int) -> Fetch:
        plan = Plan(list(wanted), self._plan.session, self._plan.full)
        wait_ms = int(max(0.0, self._left_s()) * 1000)
        return Fetch(plan, self._context, self._request, max_bytes, wait_ms)


HANDLERS = {ApiKey.FETCH: Handler(4, 17, handle)}

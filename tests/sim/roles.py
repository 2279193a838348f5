"""A partition at its leader and at a follower: the production drivers, watched by the checker and joined by messages.

`Leading` is `LedPartition` itself, which answers the requests of this simulation. `Fetching` takes the place of
`hot_tier.replication.fetchers`: it asks for what a `FollowedPartition` wants next, and gives it the answer.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hot_tier.cluster.model import PartitionState
from hot_tier.errors import NotLeader, StaleBrokerEpoch, TierlogError
from hot_tier.ids import NO_PRODUCER, LeaderEpoch, NodeId, Offset
from hot_tier.replication.followed_partition import FollowedPartition, Next
from hot_tier.replication.following import FetchAnswer, FetchFrom
from hot_tier.replication.led_partition import LedPartition
from tests.sim.disk import Log, Record, encode_records, header_of
from tests.sim.network import Reply
from tests.sim.world import Resume, Step, Work

if TYPE_CHECKING:
    from tests.sim.broker import Broker

FETCH_WAIT_MS: Final = 150
FETCH_TIMEOUT_MS: Final = 600.0


class Produce(NamedTuple):
    partition: int
    value: int
    producer: int = NO_PRODUCER
    sequence: int = -1


class Acked(NamedTuple):
    offset: int


class Failed(NamedTuple):
    reason: str
    definite: bool
    """Nothing was written; else it may have been."""


class Fetch(NamedTuple):
    partition: int
    node: NodeId
    broker_epoch: int
    start: FetchFrom
    known: Offset
    """The high watermark that the follower knows."""


class Consume(NamedTuple):
    partition: int
    offset: int


class Served(NamedTuple):
    offset: int
    records: list[Record]
    skipped: bool = False
    """The log starts later than was asked for."""


NOT_LEADER: Final = FetchAnswer(NotLeader("another broker leads"))


class Leading(LedPartition):
    log: Any
    """A `disk.Log`."""

    def __init__(self, tp: Any, topic: Any, log: Log, state: PartitionState, *rest: Any) -> None:
        self.broker: Broker = asyncio.get_running_loop().process  # type: ignore[attr-defined]
        self._fetches: list[tuple[Fetch, Reply]] = []
        self._begins(int(tp.partition), log, state.leader_epoch)
        super().__init__(tp, topic, log, state, *rest)  # type: ignore[arg-type]
        self.add_append_listener(self._wake)
        self.broker.world.listener("leads", self.broker.node)

    def _begins(self, partition: int, log: Log, epoch: LeaderEpoch) -> None:
        broker = self.broker
        broker.world.note("broker", broker.node, "leads", partition, "in", epoch, "from", log.log_end_offset)
        broker.checker.leads(broker.node, broker.incarnation, partition, epoch, log)

    def lead(self, state: PartitionState, now_ms: int) -> None:
        if state.leader_epoch != self.leader_epoch:
            self._begins(int(self.tp.partition), self.log, state.leader_epoch)
        super().lead(state, now_ms)

    def _committed(self) -> None:
        broker, end = self.broker, self.leadership.high_watermark
        broker.checker.committed(broker.node, self.tp.partition, self.leader_epoch, end, self.log)
        super()._committed()
        broker.world.listener("commits", broker.node)

    # Producers

    def produce(self, request: Produce, reply: Reply) -> None:
        record = Record(LeaderEpoch(-1), request.value, request.producer, request.sequence)
        try:
            appended = self.append(record, header_of(record), self.broker.clock_ms())  # type: ignore[arg-type]
        except TierlogError as error:
            reply(Failed(str(error), definite=True))
            return
        last, epoch = Offset(appended.end_offset - 1), self.leader_epoch
        try:
            waiting = self.when_committed(appended.end_offset)
        except TierlogError as error:
            reply(Failed(str(error), definite=False))
            return
        if waiting is None:
            self._acknowledge(last, epoch, reply)
        else:
            waiting.add_done_callback(partial(self._settle, last, epoch, reply))

    def _settle(self, last: Offset, epoch: LeaderEpoch, reply: Reply, waited: asyncio.Future[None]) -> None:
        error = waited.exception()
        if error is None:
            self._acknowledge(last, epoch, reply)
        else:
            reply(Failed(str(error), definite=False))

    def _acknowledge(self, last: Offset, epoch: LeaderEpoch, reply: Reply) -> None:
        broker = self.broker
        broker.checker.acked(broker.node, broker.incarnation, self.tp.partition, epoch, last)
        reply(Acked(last))
        broker.world.listener("acks", broker.node)

    # Followers

    def fetch(self, request: Fetch, reply: Reply) -> None:
        """In the order of `gateway.kafka.handlers.replica_fetch`."""
        try:
            answer = self._take_position(request)
        except TierlogError as error:
            answer = FetchAnswer(error, log_start_offset=self.log.log_start_offset)
        if answer is not None:
            reply(answer)
        elif not self._answer(request, reply):
            self._fetches.append((request, reply))
            self.broker.after(FETCH_WAIT_MS, self._give_up, request, reply)

    def _take_position(self, request: Fetch) -> FetchAnswer | None:
        rules, start = self.broker.rules, request.start
        if rules.checks_leader_epoch:
            self.check_leader_epoch(start.leader_epoch)
        registered = self.broker.image.broker(request.node)
        if rules.checks_broker_epoch and (registered is None or registered.epoch != request.broker_epoch):
            raise StaleBrokerEpoch("another incarnation")
        parts = self.diverging(start.offset, start.last_epoch)
        if parts is None:
            self.check_follower_offset(start.offset)
        if parts is None or rules.counts_diverging:
            epoch = registered.epoch if registered and not rules.checks_broker_epoch else request.broker_epoch
            self.replica_fetched(request.node, epoch, start.offset, self.broker.clock_ms())
            self.broker.world.listener("counts", self.broker.node)
        if parts is not None:
            return FetchAnswer(diverging=parts, log_start_offset=self.log.log_start_offset)
        return None

    def _answer(self, request: Fetch, reply: Reply, *, empty: bool = False) -> bool:
        other_epoch = self.leader_epoch != request.start.leader_epoch
        if not self.is_open or (other_epoch and self.broker.rules.checks_leader_epoch):
            reply(NOT_LEADER)
            return True
        log, start, told = self.log, request.start.offset, self.high_watermark
        if start < log.local_log_start_offset:
            reply(FetchAnswer(NotLeader("ask again: the log begins later now")))
            return True
        records = log.read(start, start + 15)
        if not records and told <= request.known and not empty:
            return False
        reply(FetchAnswer(None, encode_records(records), told, log.log_start_offset))
        return True

    def _wake(self) -> None:
        self._fetches = [(request, reply) for request, reply in self._fetches if not self._answer(request, reply)]

    def _give_up(self, request: Fetch, reply: Reply) -> None:
        if (request, reply) in self._fetches:
            self._fetches.remove((request, reply))
            self._answer(request, reply, empty=True)


class Fetching:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def follow(self, replica: FollowedPartition) -> None:
        self._broker.spawn(self._follow(replica))

    def unfollow(self, replica: FollowedPartition) -> None:
        """What is under way finds out by itself: the replica is closed."""

    def _follow(self, replica: FollowedPartition) -> Work:
        broker = self._broker
        while replica.is_open:
            if not replica.is_durable:
                yield _durable(replica)
                continue
            start = replica.next_fetch()
            request = Fetch(replica.tp.partition, broker.node, broker.registration_epoch, start, replica.high_watermark)
            answer = yield broker.call(replica.leader, "fetch", request, FETCH_TIMEOUT_MS)
            if not replica.is_open:
                return
            match Next.LATER if answer is None else self._take(replica, answer):
                case Next.LATER:
                    yield broker.sleep(20 + 40 * broker.world.random.random())
                case Next.FROM_ARCHIVE:
                    yield broker.begin_at_archive(replica)
                    yield broker.sleep(100)

    def _take(self, replica: FollowedPartition, answer: FetchAnswer) -> Next:
        broker, log = self._broker, replica.log
        end = log.log_end_offset
        outcome = replica.take(answer, broker.clock_ms())
        if log.log_end_offset < end:
            broker.world.note("broker", broker.node, "cuts", replica.tp.partition, "at", log.log_end_offset, "of", end)
            broker.world.listener("cuts", broker.node)
        return outcome


def _durable(replica: FollowedPartition) -> Step:
    def start(resume: Resume) -> None:
        replica.durable_listener = resume

    return start

"""A partition at its leader and at a follower, as drivers around the real `Leadership` and `following`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from hot_tier.cluster.model import PartitionState
from hot_tier.cluster.store import Revision
from hot_tier.errors import (
    FencedLeaderEpoch,
    NotLeader,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StaleBrokerEpoch,
    TierlogError,
    UnknownLeaderEpoch,
)
from hot_tier.ids import NO_PRODUCER, NodeId, Offset
from hot_tier.replication.following import (
    Append,
    FetchAnswer,
    FetchFrom,
    ResetTo,
    TruncateTo,
    follower_high_watermark,
    next_fetch,
)
from tests.sim import store as keys
from tests.sim.disk import Record
from tests.sim.network import Reply
from tests.sim.store import STORE, Transaction
from tests.sim.world import Work

if TYPE_CHECKING:
    from tests.sim.broker import Broker

FETCH_WAIT_MS: Final = 150.0
FETCH_TIMEOUT_MS: Final = 600.0
SILENT_MS: Final = 450


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


class Fetched(NamedTuple):
    """A `FetchAnswer` with records in place of their bytes."""

    answer: FetchAnswer
    records: Sequence[Record] = ()


class Consume(NamedTuple):
    partition: int
    offset: int


class Served(NamedTuple):
    offset: int
    records: Sequence[Record]
    skipped: bool = False
    """The log starts later than was asked for."""


class Leading:
    def __init__(self, broker: "Broker", partition: int, state: PartitionState) -> None:
        self.broker = broker
        self.partition = partition
        self.led_by = broker.node
        self.leader_epoch = state.leader_epoch
        self.log = broker.log(partition)
        known = broker.high_watermarks.get(partition, self.log.log_start_offset)
        self.leadership = broker.rules.leadership(broker.node, state, self.log.log_end_offset, known, broker.clock_ms())
        self._syncing = False
        self._uncommitted: list[tuple[Offset, Reply]] = []
        self._waiting: list[tuple[Fetch, Reply]] = []
        broker.world.note(
            "broker", broker.node, "leads", partition, "in", state.leader_epoch, "from", self.log.log_end_offset
        )
        broker.checker.leads(broker.node, broker.incarnation, partition, self.leader_epoch, self.log)

    def start(self) -> None:
        self.broker.world.listener("leads", self.broker.node)
        self._flush()
        self.broker.spawn(self._keep_in_sync())

    def confirm(self, state: PartitionState) -> None:
        if self.leadership.confirm(state):
            self._committed()

    def close(self) -> None:
        for _, reply in self._uncommitted:
            reply(Failed("leader moved", definite=False))
        for _, reply in self._waiting:
            reply(Following.not_leader())
        self._uncommitted, self._waiting = [], []

    # Writing

    def produce(self, request: Produce, reply: Reply) -> None:
        if len(self.leadership.in_sync) < self.broker.settings.min_in_sync:
            reply(Failed("not enough replicas", definite=True))
            return
        offset = None
        if request.producer != NO_PRODUCER:
            try:
                offset = self.log.stored_at(request.producer, request.sequence)
            except OutOfOrderSequence:
                reply(Failed("out of order", definite=True))
                return
        if offset is None:
            record = Record(self.leader_epoch, request.value, request.producer, request.sequence)
            offset = self.log.append(record)
            self._flush()
            self._wake()
        self._uncommitted.append((Offset(offset + 1), reply))
        self._answer_producers()

    def _flush(self) -> None:
        if not self.broker.settings.flush_before_ack:
            self._holds(self.log.log_end_offset)
        elif not self._syncing:
            self._syncing = True
            self.broker.sync(self.log, lambda _: self._flushed())

    def _flushed(self) -> None:
        self._syncing = False
        if self.broker.roles.get(self.partition) is self:
            self._holds(self.log.synced)
            if self.log.synced < self.log.log_end_offset:
                self._flush()

    def _holds(self, end: Offset) -> None:
        if self.leadership.holds(end):
            self._committed()

    def _committed(self) -> None:
        broker, high_watermark = self.broker, self.leadership.high_watermark
        broker.checker.committed(broker.node, self.partition, self.leader_epoch, high_watermark, self.log)
        broker.high_watermarks[self.partition] = high_watermark
        broker.world.listener("commits", broker.node)
        self._answer_producers()
        self._wake()

    def _answer_producers(self) -> None:
        left = []
        for end, reply in self._uncommitted:
            if end > self.leadership.high_watermark:
                left.append((end, reply))
            elif len(self.leadership.in_sync) < self.broker.settings.min_in_sync:
                reply(Failed("not enough replicas after append", definite=False))
            else:
                broker = self.broker
                broker.checker.acked(
                    broker.node, broker.incarnation, self.partition, self.leader_epoch, Offset(end - 1)
                )
                reply(Acked(end - 1))
                broker.world.listener("acks", broker.node)
        self._uncommitted = left

    # Followers

    def fetch(self, request: Fetch, reply: Reply) -> None:
        error = self._refusal(request)
        if error is not None:
            reply(Fetched(FetchAnswer(error, log_start_offset=self.log.log_start_offset)))
            return
        rules, start = self.broker.rules, request.start
        parts = rules.diverging(self.log, self.leader_epoch, start.offset, start.last_epoch)
        if parts is None and not self.log.log_start_offset <= start.offset <= self.log.log_end_offset:
            error = OffsetOutOfRange(f"{start.offset} is not in the log")
            reply(Fetched(FetchAnswer(error, log_start_offset=self.log.log_start_offset)))
            return
        if parts is None or rules.counts_diverging:
            registered = self.broker.image.brokers.get(request.node)
            epoch = registered.epoch if registered and not rules.checks_broker_epoch else request.broker_epoch
            moved = self.leadership.fetched(
                request.node, epoch, start.offset, self.log.log_end_offset, self.broker.clock_ms()
            )
            self.broker.world.listener("counts", self.broker.node)
            if moved:
                self._committed()
        if parts is not None:
            reply(Fetched(FetchAnswer(diverging=parts, log_start_offset=self.log.log_start_offset)))
        elif not self._answer(request, reply):
            self._waiting.append((request, reply))
            self.broker.after(FETCH_WAIT_MS, self._give_up, request, reply)

    def _refusal(self, request: Fetch) -> TierlogError | None:
        rules, start = self.broker.rules, request.start
        if rules.checks_leader_epoch and start.leader_epoch < self.leader_epoch:
            return FencedLeaderEpoch("over")
        if rules.checks_leader_epoch and start.leader_epoch > self.leader_epoch:
            return UnknownLeaderEpoch("not begun")
        registered = self.broker.image.brokers.get(request.node)
        if rules.checks_broker_epoch and (registered is None or registered.epoch != request.broker_epoch):
            return StaleBrokerEpoch("another incarnation")
        return None

    def _answer(self, request: Fetch, reply: Reply, *, empty: bool = False) -> bool:
        log, start = self.log, max(request.start.offset, self.log.log_start_offset)
        told = self.leadership.high_watermark
        records = log.read(start, start + 15) if start == request.start.offset else []
        if not records and told <= request.known and not empty:
            return False
        reply(Fetched(FetchAnswer(high_watermark=told, log_start_offset=log.log_start_offset), records))
        return True

    def _wake(self) -> None:
        self._waiting = [(request, reply) for request, reply in self._waiting if not self._answer(request, reply)]

    def _give_up(self, request: Fetch, reply: Reply) -> None:
        if (request, reply) in self._waiting:
            self._waiting.remove((request, reply))
            self._answer(request, reply, empty=True)

    # The in-sync set

    def _keep_in_sync(self) -> Work:
        broker, leadership, key = self.broker, self.leadership, keys.partition_key(self.partition)
        while broker.roles.get(self.partition) is self:
            live, draining, min_in_sync = broker.image.live, broker.image.draining, broker.settings.min_in_sync
            silence = broker.silence(SILENT_MS)
            wanted = leadership.isr_wanted(
                broker.clock_ms(), broker.settings.lag_max_ms, live, draining, silence, min_in_sync
            )
            if leadership.is_stranded(silence, live, min_in_sync):
                successor = broker.rules.resign(leadership.state, broker.node, live, draining)
                if successor is not None:
                    version = leadership.state.version
                    yield broker.call(STORE, "transact", Transaction([(key, version)], key, successor))
            elif wanted is not None:
                compares = [(key, leadership.state.version)]
                if broker.rules.compares_registrations:
                    added = [node for node in wanted if node not in leadership.in_sync]
                    compares += [(keys.broker_key(node), Revision(live[node])) for node in added]
                proposal = replace(leadership.state, isr=wanted)
                leadership.proposed(wanted)
                broker.world.listener("proposes", broker.node)
                written = yield broker.call(STORE, "transact", Transaction(compares, key, proposal))
                if broker.roles.get(self.partition) is not self:
                    return
                match written:
                    case None:
                        leadership.unanswered()
                    case int():
                        if leadership.settled(replace(proposal, version=Revision(written))):
                            self._committed()
                    case _:
                        leadership.refused()
            yield broker.sleep(30 + 60 * broker.world.random.random())


class Following:
    def __init__(self, broker: "Broker", partition: int, state: PartitionState) -> None:
        self.broker = broker
        self.partition = partition
        self.led_by = state.leader
        self.leader_epoch = state.leader_epoch
        self.log = broker.log(partition)
        if broker.rules.cuts_at_high_watermark:
            known = broker.high_watermarks.get(partition, self.log.log_start_offset)
            self.log.truncate_to(max(known, self.log.log_start_offset))

    def start(self) -> None:
        self.broker.spawn(self._follow())

    @staticmethod
    def not_leader() -> Fetched:
        return Fetched(FetchAnswer(NotLeader("another broker leads")))

    def confirm(self, state: PartitionState) -> None:
        """The in-sync set is the leader's to know."""

    def close(self) -> None:
        """What is under way finds out by itself."""

    def _follow(self) -> Work:
        broker, log = self.broker, self.log
        while broker.roles.get(self.partition) is self:
            if broker.rules.syncs_before_fetching:
                yield broker.synced(log)
            else:
                broker.sync(log, lambda _: None)
            if broker.roles.get(self.partition) is not self:
                return
            start = next_fetch(log, self.leader_epoch)
            known = broker.high_watermarks.get(self.partition, log.log_start_offset)
            request = Fetch(self.partition, broker.node, broker.registration_epoch, start, known)
            answer = yield broker.call(self.led_by, "fetch", request, FETCH_TIMEOUT_MS)
            if broker.roles.get(self.partition) is not self:
                return
            if answer is None or not self._take(answer):
                yield broker.sleep(20 + 40 * broker.world.random.random())

    def _take(self, fetched: Fetched) -> bool:
        """Whether to fetch again at once."""
        broker, log = self.broker, self.log
        match broker.rules.decide(log, fetched.answer):
            case Append(_, told, leader_start):
                for record in fetched.records:
                    log.append(record)
                log.trim_to(min(leader_start, log.log_end_offset))
                self._know(told)
            case TruncateTo(offset):
                broker.world.note("broker", broker.node, "cuts", self.partition, "at", offset, "of", log.log_end_offset)
                log.truncate_to(max(offset, log.log_start_offset))
                broker.world.listener("cuts", broker.node)
                self._know(Offset(0))
            case ResetTo(offset):
                log.reset_to(offset)
                self._know(offset)
            case _:
                return False
        return True

    def _know(self, told: Offset) -> None:
        known = self.broker.high_watermarks.get(self.partition, self.log.log_start_offset)
        self.broker.high_watermarks[self.partition] = max(
            self.log.log_start_offset, follower_high_watermark(known, told, self.log.log_end_offset)
        )

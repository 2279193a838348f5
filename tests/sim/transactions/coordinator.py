"""The coordinator: the machine of production over a journal. Who takes over has what is committed of it.

A change counts when it is committed; until then other requests for the transactional id are told to come again. That a
transaction is complete counts when its markers are committed: the record of it comes with the next change, or later.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gateway.coordinators.errors import ConcurrentTransactions
from gateway.coordinators.transactions.states import PREPARED, State
from gateway.coordinators.transactions.transaction import (
    Accepted,
    Change,
    Decision,
    NeedsId,
    Producer,
    Refused,
    Transaction,
    add,
    begin,
    completed,
    time_out,
    verify,
)
from hot_tier.ids import TopicPartition
from hot_tier.record.control import Marker, MarkerKind
from tests.sim.world import Process, Work

from .network import Reply
from .partition import NOT_NEEDED, TV1, TV2, Failed, Mark, Stored

if TYPE_CHECKING:
    from .simulation import Simulation

PATIENCE_MS = 2_500
AGAIN_MS = 40
COMPLETE_WITHIN_MS = 100
COMPLETE = frozenset({State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
BUSY = Failed("ConcurrentTransactions", definite=False)

Decide = Callable[[Transaction | None, int | None], Decision]


class Coordinator(Process):
    def __init__(self, simulation: "Simulation") -> None:
        super().__init__(simulation.world, "coordinator")
        self._simulation = simulation
        self._journal: list[tuple[str, Transaction, Callable[[], None]]] = []
        self._committed = 0
        self._known: dict[str, Transaction] = {}
        self._busy: set[str] = set()
        self._unwritten: set[str] = set()
        self._next_id = 1000
        self._up = True
        self.epoch = 0
        self.spawn(self._abort_what_takes_too_long())

    # Requests

    def begin(self, request: tuple[str, Producer | None], reply: Reply) -> None:
        name, expected = request
        self._decided(name, lambda known, new_id: begin(known, expected, PATIENCE_MS, new_id, self._now), reply)

    def add(self, request: tuple[str, int, int, TopicPartition, bool], reply: Reply) -> None:
        name, producer_id, epoch, tp, tv2 = request
        producer = Producer(producer_id, epoch)
        self._decided(name, lambda known, _: add(known, producer, [tp], tv2, self._now), reply)

    def verify(self, request: tuple[str, int, int, TopicPartition, bool], reply: Reply) -> None:
        name, producer_id, epoch, tp, _ = request
        if not self._up or name in self._busy:
            reply(BUSY)
            return
        error = verify(self._known.get(name), Producer(producer_id, epoch), [tp])[tp]
        reply("yes" if error is None else _failed(error))

    def end(self, request: tuple[str, Producer, bool, bool], reply: Reply) -> None:
        name, producer, commit, tv2 = request
        rule = self._simulation.rules.end
        self._decided(name, lambda known, new_id: rule(known, producer, commit, tv2, new_id, self._now), reply)

    @property
    def _now(self) -> int:
        return int(self.world.now_ms)

    def _decided(self, name: str, decide: Decide, reply: Reply) -> None:
        if not self._up or name in self._busy:
            reply(BUSY)
            return
        decision = decide(self._known.get(name), None)
        if isinstance(decision, NeedsId):
            self._next_id += 1
            decision = decide(self._known.get(name), self._next_id)
        match decision:
            case Refused(error):
                reply(_failed(error))
            case Accepted(answer):
                reply(answer)
            case Change(to, answer):
                self._write(name, to, lambda: reply(BUSY if answer is None else answer))

    # The journal

    def _write(self, name: str, to: Transaction, then: Callable[[], None]) -> None:
        if name in self._unwritten:
            self._append(name, self._known[name], _nothing)
        self._append(name, to, then)
        self._busy.add(name)
        if not self._simulation.rules.decides_when_written and to.state in PREPARED:
            self._mark(name, to)

    def _append(self, name: str, to: Transaction, then: Callable[[], None]) -> None:
        self._unwritten.discard(name)
        self._journal.append((name, to, then))
        took_ms = self.world.random.random() * (300 if self.world.random.random() < 0.1 else 5)
        self.world.after(took_ms, self._commit, self.epoch, len(self._journal))

    def _commit(self, epoch: int, end: int) -> None:
        if epoch != self.epoch:
            return
        while self._committed < end:
            name, to, then = self._journal[self._committed]
            self._committed += 1
            if to.state in COMPLETE:
                continue
            self._known[name] = to
            self._busy.discard(name)
            if to.state in PREPARED and self._simulation.rules.decides_when_written:
                self._mark(name, to)
            then()

    def fail_over(self) -> None:
        keeps = self.world.random.randint(self._committed, len(self._journal))
        del self._journal[keeps:]
        self._committed = keeps
        self.epoch += 1
        self._up = False
        self._busy.clear()
        self._unwritten.clear()
        self.world.note("the coordinator is another one, with", keeps)
        self.world.after(self.world.random.random() * 300, self._read_back, self.epoch)

    def _read_back(self, epoch: int) -> None:
        if epoch != self.epoch:
            return
        self._known = {name: to for name, to, _ in self._journal}
        self._up = True
        for name, to in self._known.items():
            if to.state in PREPARED:
                self._mark(name, to)

    # Markers

    def _mark(self, name: str, value: Transaction) -> None:
        kind = MarkerKind.COMMIT if value.state is State.PREPARE_COMMIT else MarkerKind.ABORT
        mark = Mark(value.producer_id, value.epoch, Marker(kind, self.epoch), TV2 if value.tv2 else TV1)
        missing = set(value.partitions)
        if not missing:
            self._complete(name, value)
        for tp in sorted(missing):
            self.spawn(self._mark_one(name, value, tp, mark, missing, self.epoch))

    def _mark_one(
        self, name: str, value: Transaction, tp: TopicPartition, mark: Mark, missing: set[TopicPartition], epoch: int
    ) -> Work:
        """The transactions of an old client have one epoch: a marker that comes when its own is over ends the next one.
        That is a flaw of Kafka's older protocol, so such markers do not come late here."""
        partition = self._simulation.partitions[tp.partition]
        while epoch == self.epoch:
            answer = yield self._simulation.network.ask(partition.mark, mark, once=not value.tv2)
            if isinstance(answer, Stored) or answer == NOT_NEEDED:
                missing.discard(tp)
                if epoch == self.epoch and (not missing or not self._simulation.rules.completes_after_all):
                    self._complete(name, value)
                return
            yield self.sleep(AGAIN_MS)

    def _complete(self, name: str, value: Transaction) -> None:
        if self._known.get(name) is value and name not in self._busy:
            self._known[name] = completed(value, self._now)
            self._unwritten.add(name)
            self.world.after(COMPLETE_WITHIN_MS, self._write_completed, name, self.epoch)

    def _write_completed(self, name: str, epoch: int) -> None:
        if epoch == self.epoch and name in self._unwritten:
            self._append(name, self._known[name], _nothing)

    def _abort_what_takes_too_long(self) -> Work:
        while True:
            yield self.sleep(500)
            for name in list(self._known) if self._up else ():
                self._decided(name, lambda known, new_id: time_out(known, new_id, self._now), _nobody)


def _nobody(answer: Any) -> None:
    pass


def _nothing() -> None:
    pass


def _failed(error: type[Exception]) -> Failed:
    return Failed(error.__name__, definite=error is not ConcurrentTransactions)

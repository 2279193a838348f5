"""Runs the machines of transactional ids over their journal: writes what they decide, and acts on it when it counts.

- A transactional id has one change at a time: nothing is decided while a new value is written but not committed.
- A request that meets a step under way waits for it, for a short while, and is decided after it.
- Markers are written when the decision is committed, and again when this broker begins to coordinate what is decided
  and not complete.
- A transaction is complete when its markers are committed. Nobody waits for the record of that: it comes with the next
  change, before it, or alone if there is none soon. Who does not find it writes the markers again.
- A decision is answered before its markers are written.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, TypeVar

import structlog

from gateway.coordinators.errors import (
    ConcurrentTransactions,
    CoordinatorError,
    CoordinatorNotAvailable,
    NotCoordinator,
    TooManyTransactionalIds,
)
from gateway.coordinators.group_members import refusal_of
from gateway.coordinators.journal.journal import Journal
from gateway.coordinators.settings import TransactionSettings
from gateway.coordinators.transactions.decoding import Loaded, decode_transactions
from gateway.coordinators.transactions.keys import check_transactional_id, write_key
from gateway.coordinators.transactions.markers import LocalMarkers, MarkerWriter
from gateway.coordinators.transactions.peers import End, Peers
from gateway.coordinators.transactions.states import PREPARED, State
from gateway.coordinators.transactions.topic import transactions_topic
from gateway.coordinators.transactions.transaction import (
    Accepted,
    Change,
    Decision,
    NeedsId,
    Producer,
    Refused,
    Transaction,
    completed,
)
from gateway.coordinators.transactions.transaction_map import TransactionEntry, TransactionMap, size_of
from gateway.coordinators.transactions.values import TV2, write_transaction
from hot_tier.cluster.admin import TopicAdmin
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.producer_ids import ProducerIds
from hot_tier.errors import TierlogError
from hot_tier.ids import NodeId
from hot_tier.replication.table import PartitionTable

WAIT_S: Final = 0.5
"""How long a request waits for the step before it to be over. A client that is told to try again waits longer."""
WRITE_WAIT_S: Final = 5.0
"""How long a request waits until its change is on all in-sync replicas."""
COMPLETE_WITHIN_S: Final = 0.1
"""How long the record that a transaction is complete waits for the next change of the transactional id."""
COMPLETE_AGAIN_S: Final = 0.5
CLOSE_WAIT_S: Final = 1.0
TV1: Final = 1

_log = structlog.get_logger()

Decide = Callable[[Transaction | None, int | None, int], Decision]
"""Decides from the stored value, a new producer id if one was asked for, and the time."""
Outcome = Producer | Exception
T = TypeVar("T")
"""What a request is answered with."""


class TransactionChanges:
    def __init__(
        self,
        *,
        node_id: NodeId,
        image: ClusterImage,
        admin: TopicAdmin,
        partitions: PartitionTable,
        producer_ids: ProducerIds,
        local_markers: LocalMarkers,
        peers: Peers,
        settings: TransactionSettings,
        clock: Callable[[], int],
    ) -> None:
        self._producer_ids = producer_ids
        self._settings = settings
        self.clock = clock
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unwritten: dict[TransactionEntry, None] = {}
        """Complete, which the journal does not say yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._writing: set[asyncio.Future[None]] = set()
        """For each record that says it and is on its way."""
        self.markers = MarkerWriter(node_id, image, local_markers, peers, self._complete)
        self.shards = Journal(
            transactions_topic(settings),
            make_machine=TransactionMap,
            decode=decode_transactions,
            restore=self._restore,
            end=self._end,
            node_id=node_id,
            image=image,
            admin=admin,
            partitions=partitions,
            clock=clock,
        )
        self._held_bytes = 0

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._write_completed()
        if self._writing:
            await asyncio.wait(self._writing, timeout=CLOSE_WAIT_S)
        await self.shards.close()
        await self.markers.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def map_of(self, transactional_id: str) -> TransactionMap:
        check_transactional_id(transactional_id)
        home = self.shards.find_ready(transactional_id)
        home.check_readable(transactional_id)
        return home

    def entries(self) -> list[TransactionEntry]:
        """Returns the transactional ids that are read back."""
        ready = (shard.machine for shard in self.shards if not shard.loading)
        return [entry for home in ready for entry in home.entries.values()]

    def decided(self, transactional_id: str, decide: Decide, wait_s: float = WAIT_S) -> asyncio.Future[Producer]:
        """Returns what the machine answers, when that is committed. Raises its refusal."""
        return self.answered(transactional_id, decide, or_raise, wait_s)

    def answered(
        self,
        transactional_id: str,
        decide: Decide,
        answer: Callable[[Outcome], T],
        wait_s: float = WAIT_S,
    ) -> asyncio.Future[T]:
        """Does the same, and returns what `answer` makes of it."""
        asked = _Asked(self, transactional_id, decide, answer, wait_s)
        asked.go_on()
        return asked.future

    def get_id(self, then: Callable[[int | Exception], None]) -> None:
        """Calls with a new producer id."""

        async def get() -> None:
            try:
                then(await self._producer_ids.next_id())
            except Exception as error:
                then(error)

        task = self._loop.create_task(get(), name="new producer id")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def new_entry(self, home: TransactionMap, transactional_id: str) -> TransactionEntry:
        limit = self._settings.max_ids
        has_room = self._held_bytes + size_of(transactional_id, None) <= self._settings.max_bytes
        if not has_room or sum(len(shard.machine.entries) for shard in self.shards) >= limit:
            raise TooManyTransactionalIds(
                f"there is no room for another transactional id: at most {limit}, in {self._settings.max_bytes} bytes",
                where=transactional_id,
                hint="use fewer, wait until unused ones expire, or raise transactions.max_ids and max_bytes",
            )
        entry = home.entries[transactional_id] = TransactionEntry(transactional_id, home)
        self._held_bytes += size_of(transactional_id, None)
        return entry

    def change(self, entry: TransactionEntry, to: Transaction, told: Callable[[CoordinatorError | None], None]) -> None:
        """Writes a new value. Tells when it counts, or has failed; the markers are written after that."""
        entry.is_changing = True

        def done(error: TierlogError | None) -> None:
            entry.is_changing = False
            if entry.ended is not None:
                error = entry.ended()
            elif error is None:
                self._unwritten.pop(entry, None)
                self._hold(entry, to)
            elif entry.value is None:
                self._forget(entry)
            if error is None or isinstance(error, CoordinatorError):
                told(error)
            else:
                told(refusal_of(error)(str(error)))
            if error is None and to.state in PREPARED:
                self._loop.call_soon(self._write_markers, entry)
            entry.tell()

        key = write_key(entry.transactional_id)
        records = [(key, write_transaction(to))]
        if entry in self._unwritten:
            assert entry.value is not None
            records.insert(0, (key, write_transaction(entry.value)))
        entry.home.writer.write(records, done)

    def forget(self, entry: TransactionEntry) -> None:
        """Deletes a transactional id. Whoever uses it next begins anew."""
        entry.is_changing = True

        def done(error: TierlogError | None) -> None:
            entry.is_changing = False
            if error is None and entry.ended is None:
                self._forget(entry)
            entry.tell()

        entry.home.writer.write([(write_key(entry.transactional_id), None)], done)

    def _hold(self, entry: TransactionEntry, value: Transaction) -> None:
        name = entry.transactional_id
        self._held_bytes += size_of(name, value) - size_of(name, entry.value)
        entry.value = value

    def _forget(self, entry: TransactionEntry) -> None:
        self._unwritten.pop(entry, None)
        self._held_bytes -= size_of(entry.transactional_id, entry.value)
        entry.home.entries.pop(entry.transactional_id, None)
        entry.ended = CoordinatorNotAvailable

    # After the decision

    def _write_markers(self, entry: TransactionEntry) -> None:
        value = entry.value
        if entry.ended is not None or value is None:
            return
        coordinator_epoch = self.shards.find(entry.transactional_id).leader_epoch
        version = TV2 if value.tv2 else TV1
        commit = value.state is State.PREPARE_COMMIT
        self.markers.begin(entry, End(value.producer_id, value.epoch, commit, coordinator_epoch, version))

    def _complete(self, entry: TransactionEntry) -> None:
        """All markers are committed: the next change may come. Its record follows the one that says so, in one batch.
        If none comes soon, that one is written alone."""
        assert entry.value is not None
        if entry.ended is None and entry.value.state in PREPARED:
            self._hold(entry, completed(entry.value, self.clock()))
            self._write_later(entry, COMPLETE_WITHIN_S)
            entry.tell()

    def _write_later(self, entry: TransactionEntry, wait_s: float) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(wait_s, self._write_completed)
        self._unwritten[entry] = None

    def _write_completed(self) -> None:
        self._timer = None
        waiting, self._unwritten = self._unwritten, {}
        for entry in waiting:
            if entry.is_changing:
                self._write_later(entry, COMPLETE_WITHIN_S)  # it is in the batch of the change, if that is written
            elif entry.value is not None:
                record = write_key(entry.transactional_id), write_transaction(entry.value)
                written: asyncio.Future[None] = self._loop.create_future()
                self._writing.add(written)
                entry.home.writer.write([record], partial(self._completed, entry, entry.value, written))

    def _completed(
        self, entry: TransactionEntry, value: Transaction, written: asyncio.Future[None], error: TierlogError | None
    ) -> None:
        self._writing.discard(written)
        written.set_result(None)
        if error is not None and entry.ended is None and entry.value is value:
            _log.warning("end of a transaction not written", transactional_id=entry.transactional_id, error=str(error))
            self._write_later(entry, COMPLETE_AGAIN_S)

    # Beginning and ending to coordinate

    def _restore(self, home: TransactionMap, loaded: Loaded) -> None:
        for transactional_id, damage in loaded.damaged.items():
            _log.error(
                "stored state of a transactional id is damaged", transactional_id=transactional_id, damage=damage
            )
        home.damaged = loaded.damaged
        for transactional_id, value in loaded.transactions.items():
            entry = home.entries[transactional_id] = TransactionEntry(transactional_id, home, connected_s=home.since_s)
            self._held_bytes += size_of(transactional_id, None)
            self._hold(entry, value)
            if value.state in PREPARED:
                self._loop.call_soon(self._write_markers, entry)

    def _end(self, home: TransactionMap) -> None:
        for entry in list(home.entries.values()):
            self._forget(entry)
            entry.ended = NotCoordinator
            entry.tell()


class _Asked(Generic[T]):
    """A request, until it is answered. It is decided when the step before it is over, and answered when what it changes
    is committed."""

    __slots__ = ("_answer", "_changes", "_decide", "_ends_s", "_id", "_loop", "_new_id", "_timer", "future")

    def __init__(
        self,
        changes: TransactionChanges,
        transactional_id: str,
        decide: Decide,
        answer: Callable[[Outcome], T],
        wait_s: float,
    ) -> None:
        self._changes = changes
        self._id = transactional_id
        self._decide = decide
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._ends_s = self._loop.time() + wait_s
        self._new_id: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.future: asyncio.Future[T] = self._loop.create_future()

    def go_on(self) -> None:
        if self.future.done():
            return
        try:
            self._step()
        except Exception as error:
            self._settle(error)

    def _step(self) -> None:
        changes = self._changes
        home = changes.map_of(self._id)
        entry = home.entries.get(self._id)
        known = None if entry is None else entry.value
        decision: Decision = Refused(ConcurrentTransactions)
        if entry is None or not entry.is_changing:
            decision = self._decide(known, self._new_id, changes.clock())
        match decision:
            case Accepted(answer):
                self._settle(answer)
            case NeedsId():
                changes.get_id(self._numbered)
            case Change(to, answer):
                entry = entry or changes.new_entry(home, self._id)
                self._timer = self._loop.call_later(WRITE_WAIT_S, self._not_written)
                changes.change(entry, to, partial(self._written, answer))
            case Refused(error):
                left_s = self._ends_s - self._loop.time()
                if error is not ConcurrentTransactions or entry is None or left_s <= 0:
                    raise error(where=self._id)
                settled = entry.settled()
                self._timer = self._loop.call_later(left_s, _tell, settled)
                settled.add_done_callback(self._again)

    def _numbered(self, new_id: int | Exception) -> None:
        if isinstance(new_id, Exception):
            self._settle(new_id)
        else:
            self._new_id = new_id
            self.go_on()

    def _again(self, settled: asyncio.Future[None]) -> None:
        self._stop_timer()
        self.go_on()

    def _written(self, answer: Producer | None, error: CoordinatorError | None) -> None:
        self._stop_timer()
        outcome = error or answer
        if outcome is not None:
            self._settle(outcome)
        else:
            self._new_id = None
            self._loop.call_soon(self.go_on)

    def _not_written(self) -> None:
        """The change may still be committed; until then nothing else is decided."""
        what = "the change is written, but not yet on all in-sync replicas"
        self._settle(CoordinatorNotAvailable(what, where=self._id, hint="try again"))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _settle(self, outcome: Outcome) -> None:
        if self.future.done():
            return
        try:
            self.future.set_result(self._answer(outcome))
        except Exception as error:
            self.future.set_exception(error)


def _tell(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def or_raise(outcome: Outcome) -> Producer:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome

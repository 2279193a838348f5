"""Runs the machines of transactional ids over their journal: writes what they decide, and acts on it when it counts.

- A transactional id has one change at a time: nothing is decided while a new value is written but not committed.
- A request that meets a step under way waits for it, for a short while, and is decided after it.
- Markers are written when the decision is committed, and again when this broker begins to coordinate what is decided
  and not complete.
"""

import asyncio
from collections.abc import Callable
from typing import Final

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
from gateway.coordinators.transactions.keys import write_key
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
COMPLETE_AGAIN_S: Final = 0.5
TV1: Final = 1

_log = structlog.get_logger()

Decide = Callable[[Transaction | None, int | None, int], Decision]
"""Decides from the stored value, a new producer id if one was asked for, and the time."""


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
        self._clock = clock
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
        await self.shards.close()
        await self.markers.close()

    def map_of(self, transactional_id: str) -> TransactionMap:
        home = self.shards.find_ready(transactional_id)
        home.check_readable(transactional_id)
        return home

    def entries(self) -> list[TransactionEntry]:
        """Returns the transactional ids that are read back."""
        ready = (shard.machine for shard in self.shards if not shard.loading)
        return [entry for home in ready for entry in home.entries.values()]

    async def decided(self, transactional_id: str, decide: Decide, wait_s: float = WAIT_S) -> Producer:
        """Returns what the machine answers, when that is committed. Raises its refusal."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + wait_s
        new_id: int | None = None
        while True:
            home = self.map_of(transactional_id)
            entry = home.entries.get(transactional_id)
            known = None if entry is None else entry.value
            decision: Decision = Refused(ConcurrentTransactions)
            if entry is None or not entry.is_changing:
                decision = decide(known, new_id, self._clock())
            match decision:
                case Accepted(answer):
                    return answer
                case NeedsId():
                    new_id = await self._producer_ids.next_id()
                case Change(to, answer):
                    entry = entry or self._new_entry(home, transactional_id)
                    await _written(self._changed(entry, to), transactional_id)
                    if answer is not None:
                        return answer
                    new_id = None
                case Refused(error):
                    left_s = ends_s - loop.time()
                    if error is not ConcurrentTransactions or entry is None or left_s <= 0:
                        raise error(where=transactional_id)
                    await asyncio.wait([entry.settled()], timeout=left_s)

    def _new_entry(self, home: TransactionMap, transactional_id: str) -> TransactionEntry:
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

    def _changed(self, entry: TransactionEntry, to: Transaction) -> asyncio.Future[None]:
        """Writes a new value. Returns a future for the moment when it counts, or has failed."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry.is_changing = True

        def done(error: TierlogError | None) -> None:
            entry.is_changing = False
            if entry.ended is not None:
                error = entry.ended()
            elif error is None:
                self._hold(entry, to)
                if to.state in PREPARED:
                    self._write_markers(entry)
            elif entry.value is None:
                self._forget(entry)
            if not told.done():
                if error is None:
                    told.set_result(None)
                else:
                    told.set_exception(error if isinstance(error, CoordinatorError) else refusal_of(error)(str(error)))
            entry.tell()

        entry.home.writer.write([(write_key(entry.transactional_id), write_transaction(to))], done)
        return told

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
        self._held_bytes -= size_of(entry.transactional_id, entry.value)
        entry.home.entries.pop(entry.transactional_id, None)
        entry.ended = CoordinatorNotAvailable

    # After the decision

    def _write_markers(self, entry: TransactionEntry) -> None:
        value = entry.value
        assert value is not None
        coordinator_epoch = self.shards.find(entry.transactional_id).leader_epoch
        version = TV2 if value.tv2 else TV1
        commit = value.state is State.PREPARE_COMMIT
        self.markers.begin(entry, End(value.producer_id, value.epoch, commit, coordinator_epoch, version))

    def _complete(self, entry: TransactionEntry) -> None:
        """Writes that all markers are committed; again and again until that is written, or another coordinates."""
        assert entry.value is not None
        if entry.ended is None and entry.value.state in PREPARED:
            self._changed(entry, completed(entry.value, self._clock())).add_done_callback(
                lambda written: self._completed(entry, written)
            )

    def _completed(self, entry: TransactionEntry, written: asyncio.Future[None]) -> None:
        if written.cancelled():
            return
        error = written.exception()
        if error is not None and entry.ended is None:
            _log.warning("end of a transaction not written", transactional_id=entry.transactional_id, error=str(error))
            asyncio.get_running_loop().call_later(COMPLETE_AGAIN_S, self._complete, entry)

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
                self._write_markers(entry)

    def _end(self, home: TransactionMap) -> None:
        for entry in list(home.entries.values()):
            self._forget(entry)
            entry.ended = NotCoordinator
            entry.tell()


async def _written(change: asyncio.Future[None], transactional_id: str) -> None:
    """Waits for a change. One that takes longer may still be committed; until then nothing else is decided."""
    done, _ = await asyncio.wait([change], timeout=WRITE_WAIT_S)
    if not done:
        change.add_done_callback(lambda late: late.cancelled() or late.exception())
        raise CoordinatorNotAvailable(
            "the change is written, but not yet on all in-sync replicas", where=transactional_id, hint="try again"
        )
    change.result()

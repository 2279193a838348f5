"""The transaction coordinator: what the Kafka handlers, the HTTP API and the command line ask of transactions.

It runs the machines of `transaction` over the journal `__transaction_state`. A request waits until the change before it
is committed, and for a short while until a decided transaction is complete; then the machine decides. What it decides
is written, and counts when it is committed: only then the client is answered, and after that markers are written.

Every call for a transactional id may raise CoordinatorLoading, CoordinatorNotAvailable or NotCoordinator: `find` says
which broker to ask. Calls that begin something make the topic `__transaction_state` if there is none.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import structlog

from gateway.coordinators.coordinator import GroupCoordinator
from gateway.coordinators.errors import InvalidTransactionTimeout, TransactionalIdNotFound
from gateway.coordinators.journal.partitioning import partition_of
from gateway.coordinators.offsets_topic.topic import OFFSETS_TOPIC
from gateway.coordinators.settings import TransactionSettings
from gateway.coordinators.transactions import transaction
from gateway.coordinators.transactions.admission import Admission
from gateway.coordinators.transactions.changes import WAIT_S, Outcome, T, TransactionChanges, or_raise
from gateway.coordinators.transactions.keys import check_transactional_id
from gateway.coordinators.transactions.markers import LocalMarkers
from gateway.coordinators.transactions.peers import Peers, Question
from gateway.coordinators.transactions.rollout import check_served
from gateway.coordinators.transactions.states import State
from gateway.coordinators.transactions.topic import TRANSACTIONS_TOPIC
from gateway.coordinators.transactions.transaction import Producer
from gateway.coordinators.transactions.transaction_map import TransactionEntry
from hot_tier.cluster.admin import TopicAdmin
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import BrokerInfo
from hot_tier.cluster.producer_ids import ProducerIds
from hot_tier.errors import TierlogError
from hot_tier.ids import NodeId, PartitionId, TopicPartition
from hot_tier.replication.table import PartitionTable

_log = structlog.get_logger()

Results = Mapping[TopicPartition, TierlogError | None]


class TransactionListing(NamedTuple):
    transactional_id: str
    producer_id: int
    state: State
    started_ms: int
    """-1 while no transaction is open."""


class TransactionDescription(NamedTuple):
    transactional_id: str
    state: State
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    """-1 while no transaction is open."""
    partitions: tuple[TopicPartition, ...]


class TransactionCoordinator:
    def __init__(
        self,
        groups: GroupCoordinator,
        producer_ids: ProducerIds,
        peers: Peers,
        node_id: NodeId,
        image: ClusterImage,
        admin: TopicAdmin,
        partitions: PartitionTable,
        settings: TransactionSettings,
        clock: Callable[[], int],
    ) -> None:
        self._image = image
        self._node_id = node_id
        self._groups = groups
        self._settings = settings
        self._clock = clock
        self.local_markers = LocalMarkers(partitions, groups.transaction_ended, clock)
        self.changes = TransactionChanges(
            node_id=node_id,
            image=image,
            admin=admin,
            partitions=partitions,
            producer_ids=producer_ids,
            local_markers=self.local_markers,
            peers=peers,
            settings=settings,
            clock=clock,
        )
        self.shards = self.changes.shards
        self._admission = Admission(node_id, image, self.shards, self._admit_own, peers)
        self._peers = peers
        self._tasks: list[asyncio.Task[None]] = []
        self.timed_out = 0
        self.expired = 0

    def start(self) -> None:
        """Starts to read transactional ids back and returns at once."""
        self.shards.open()
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._abort_regularly(), name="time-outs of transactions"),
            loop.create_task(self._expire_regularly(), name="expiry of transactional ids"),
        ]

    async def stop(self) -> None:
        """Tells all who wait to look for another coordinator."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.changes.close()
        await self._admission.close()
        self._peers.close()

    async def find(self, transactional_id: str) -> BrokerInfo:
        """Returns the broker that coordinates a transactional id. Makes the topic if there is none."""
        check_transactional_id(transactional_id)
        check_served(self._image, self._node_id)
        return await self.shards.coordinator(transactional_id)

    def find_existing(self, transactional_id: str) -> NodeId | None:
        """Returns who coordinates a transactional id: NO_NODE if nobody does now, None while there is no topic."""
        check_transactional_id(transactional_id)
        return self.shards.leader(transactional_id)

    # Requests of producers

    async def init_producer(
        self, transactional_id: str, timeout_ms: int, *, expected: tuple[int, int] | None = None
    ) -> tuple[int, int]:
        """Returns (producer id, epoch) for a new producer, and fences every older one of this transactional id.

        An open transaction of an older producer is aborted first; if that takes long, this raises
        ConcurrentTransactions. `expected`: what the caller got before, if it only continues after an error: raises
        ProducerFencedByNewer if somebody else was given a newer epoch meanwhile.

        Raises InvalidTransactionalId, InvalidTransactionTimeout, TooManyTransactionalIds, ProducerFencedByNewer,
        ConcurrentTransactions.
        """
        check_transactional_id(transactional_id)
        check_served(self._image, self._node_id)
        most_ms = self._settings.max_timeout_ms
        if not 0 < timeout_ms <= most_ms:
            raise InvalidTransactionTimeout(
                f"the time-out of the transactions is {timeout_ms} ms",
                where=transactional_id,
                hint=f"it is 1 to {most_ms} ms (transactions.max_timeout_ms)",
            )
        await self.shards.require_topic()
        continuing = None if expected is None else Producer(*expected)
        return await self.changes.decided(
            transactional_id,
            lambda known, new_id, now_ms: transaction.begin(known, continuing, timeout_ms, new_id, now_ms),
        )

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        *,
        tv2: bool = False,
        wait_s: float = WAIT_S,
    ) -> Results:
        """Begins the transaction if none is open, and adds partitions to it. All are added, or none. Waits up to
        `wait_s` while the transaction before it is being completed.

        Does not raise: a refusal stands at every partition. InvalidProducerIdMapping, ProducerFencedByNewer,
        ConcurrentTransactions, TransactionTooLarge.
        """
        try:
            await self.added(transactional_id, Producer(producer_id, epoch), partitions, or_raise, tv2, wait_s)
        except TierlogError as error:
            return dict.fromkeys(partitions, error)
        return dict.fromkeys(partitions)

    def added(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        answer: Callable[[Outcome], T],
        tv2: bool = False,
        wait_s: float = WAIT_S,
    ) -> asyncio.Future[T]:
        """Does the same without a task, and returns what `answer` makes of the producer, or of the refusal."""
        return self.changes.answered(
            transactional_id,
            lambda known, _, now_ms: transaction.add(known, producer, partitions, tv2, now_ms),
            answer,
            wait_s,
        )

    async def verify(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Collection[TopicPartition]
    ) -> Results:
        """Returns which partitions are in the open transaction of this producer: TransactionAbortable where not."""
        return self._verified(transactional_id, Producer(producer_id, epoch), partitions)

    def _verified(self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]) -> Results:
        try:
            home = self.changes.map_of(transactional_id)
        except TierlogError as error:
            return dict.fromkeys(partitions, error)
        entry = home.entries.get(transactional_id)
        known = None if entry is None else entry.value
        found = transaction.verify(known, producer, partitions)
        return {tp: None if refused is None else refused(where=transactional_id) for tp, refused in found.items()}

    async def add_offsets(
        self, transactional_id: str, producer_id: int, epoch: int, group_id: str, *, tv2: bool = False
    ) -> None:
        """Adds the partition of `__consumer_offsets` that holds the group. Raises what `add_partitions` returns."""
        check_transactional_id(transactional_id)
        topic = await self._groups.shards.require_topic()
        tp = TopicPartition(OFFSETS_TOPIC, PartitionId(partition_of(group_id, topic.partitions)))
        await self.added(transactional_id, Producer(producer_id, epoch), (tp,), or_raise, tv2)

    async def end(
        self, transactional_id: str, producer_id: int, epoch: int, *, commit: bool, tv2: bool
    ) -> tuple[int, int]:
        """Decides the open transaction. Returns (producer id, epoch) to continue with, as soon as the decision is
        committed; the markers are written after that. With `tv2` the epoch is a new one.

        Raises InvalidProducerIdMapping, ProducerFencedByNewer, WrongTransactionState, ConcurrentTransactions.
        """
        return await self.ended(transactional_id, producer_id, epoch, or_raise, commit=commit, tv2=tv2)

    def ended(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        answer: Callable[[Outcome], T],
        *,
        commit: bool,
        tv2: bool,
    ) -> asyncio.Future[T]:
        """Does the same without a task, and returns what `answer` makes of what `end` returns or raises."""
        producer = Producer(producer_id, epoch)
        return self.changes.answered(
            transactional_id,
            lambda known, new_id, now_ms: transaction.end(known, producer, commit, tv2, new_id, now_ms),
            answer,
        )

    def is_late(self, transactional_id: str, producer_id: int, epoch: int, connected_s: float) -> bool:
        """Returns whether a producer has left the connection that began then: it has used a newer one, or had to look
        for this broker since. The transaction that its request is about may be over, and another one open."""
        try:
            entry = self.changes.map_of(transactional_id).entries.get(transactional_id)
        except TierlogError:
            return False
        if entry is None or entry.value is None or entry.value.producer != (producer_id, epoch):
            return False
        if connected_s >= entry.connected_s:
            entry.connected_s = connected_s
            return False
        _log.info("late request of a producer that has reconnected", transactional_id=transactional_id)
        return True

    async def abort(self, transactional_id: str) -> None:
        """Aborts the open transaction and fences its producer, as an operator asks. WrongTransactionState if none is
        open; TransactionalIdNotFound."""
        self.describe(transactional_id)
        await self.changes.decided(transactional_id, transaction.abort)

    # Questions of partitions

    async def admit(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Collection[TopicPartition], *, add: bool
    ) -> Results:
        """Asks whoever coordinates a transaction whether partitions that this broker leads are in it; with `add` (TV2),
        it adds them. Does not raise: a refusal stands at each partition, as `verify` or `add_partitions` returns it."""
        producer = Producer(producer_id, epoch)
        return await self._admission.ask(Question(transactional_id, producer, tuple(partitions), add))

    def verified_here(self, transactional_id: str, producer_id: int, epoch: int, tp: TopicPartition) -> Results | None:
        """Returns what `admit` would, without `add`, if this broker coordinates the transaction; else None."""
        if self.shards.leader(transactional_id) != self._node_id:
            return None
        return self._verified(transactional_id, Producer(producer_id, epoch), (tp,))

    async def _admit_own(self, question: Question) -> Results:
        transactional_id, producer, partitions, add = question
        if add:
            return await self.add_partitions(transactional_id, *producer, partitions, tv2=True)
        return self._verified(transactional_id, producer, partitions)

    # Questions of operators

    def list(
        self,
        *,
        states: Collection[State] = (),
        producer_ids: Collection[int] = (),
        open_for_ms: int = -1,
    ) -> Sequence[TransactionListing]:
        """Returns the transactional ids that this broker coordinates and has read back. Empty filters mean all."""
        latest_ms = self._clock() - open_for_ms
        return [
            TransactionListing(entry.transactional_id, value.producer_id, value.state, value.started_ms)
            for entry in self.changes.entries()
            if (value := entry.value) is not None
            and (not states or value.state in states)
            and (not producer_ids or value.producer_id in producer_ids)
            and (open_for_ms < 0 or 0 <= value.started_ms <= latest_ms)
        ]

    @property
    def is_loading(self) -> bool:
        """Whether there may be more to list, which is still being read back."""
        return any(shard.loading for shard in self.shards)

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Raises TransactionalIdNotFound, and what every call may raise."""
        check_transactional_id(transactional_id)
        if self._image.find_topic(TRANSACTIONS_TOPIC) is None:
            raise TransactionalIdNotFound(where=transactional_id)
        entry = self.changes.map_of(transactional_id).entries.get(transactional_id)
        if entry is None or (value := entry.value) is None:
            raise TransactionalIdNotFound(where=transactional_id)
        return TransactionDescription(
            transactional_id,
            value.state,
            value.producer_id,
            value.epoch,
            value.timeout_ms,
            value.started_ms,
            tuple(sorted(value.partitions)),
        )

    # Changes that no client asks for

    async def _abort_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._settings.abort_interval_ms / 1000)
            await self.abort_timed_out()

    async def abort_timed_out(self) -> None:
        now_ms = self._clock()
        for entry in self.changes.entries():
            if entry.value is not None and not entry.is_changing and transaction.is_timed_out(entry.value, now_ms):
                await self._abort_late(entry)

    async def _abort_late(self, entry: TransactionEntry) -> None:
        value = entry.value
        assert value is not None
        try:
            await self.changes.decided(entry.transactional_id, transaction.time_out)
        except TierlogError as error:
            _log.debug("transaction not aborted", transactional_id=entry.transactional_id, error=str(error))
            return
        self.timed_out += 1
        _log.warning(
            "transaction took longer than its time-out and was aborted",
            transactional_id=entry.transactional_id,
            producer_id=value.producer_id,
            timeout_ms=value.timeout_ms,
            partitions=len(value.partitions),
        )

    async def _expire_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._settings.expiration_check_interval_ms / 1000)
            await self.expire()

    async def expire(self) -> None:
        """Forgets transactional ids that nobody has used for long."""
        now_ms, keeps_ms = self._clock(), self._settings.id_expiration_ms
        for entry in self.changes.entries():
            if entry.value is None or entry.is_changing or not transaction.is_expired(entry.value, keeps_ms, now_ms):
                continue
            self.expired += 1
            self.changes.forget(entry)
            await asyncio.sleep(0)

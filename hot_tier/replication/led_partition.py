"""One partition as its leader serves it: what was appended, what is committed, who waits for it.

Owns: the producers that wait for their acknowledgement, and the listeners that hear when the log grows or more is
committed. Leaves to: `hot_tier.log` the bytes and their sync; `leadership` what is committed; `isr` the in-sync set in
the store; `table` who leads and which topics there are; `roles` which states there are; callers the validation of
batches.

- log start ≤ last stable offset ≤ high watermark ≤ log end; the high watermark never goes back within a
  leader epoch.
- acks=all is answered when the high watermark has passed the batch. acks=1 is answered when this leader's own log
  holds it as `flush` asks, and not before the high watermark has moved as far as that alone moves it: where the leader
  is alone in sync, what is acknowledged can be read at once.
- Once closed (the topic is gone, another broker leads, the disk failed) every waiter has been answered and no
  call adds one.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from hot_tier.cluster.model import PartitionState, Topic
from hot_tier.errors import (
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OffsetArchived,
    OffsetNotAvailable,
    OffsetOutOfRange,
    TierlogError,
)
from hot_tier.ids import LeaderEpoch, NodeId, Offset, TopicPartition
from hot_tier.log.config import TopicConfig
from hot_tier.log.partition_log import Appended, PartitionLog
from hot_tier.log.producers import ProducerView
from hot_tier.log.reading import FileSlice
from hot_tier.log.transactions import Verification
from hot_tier.record.batch import BatchHeader
from hot_tier.record.control import Marker
from hot_tier.replication.leadership import Leadership, end_of_epoch
from hot_tier.replication.local_partition import LocalPartition
from hot_tier.replication.readable import Waiter
from hot_tier.replication.roles import Event, Role
from hot_tier.replication.too_old import TooOld, keeps_ms
from hot_tier.replication.waiting import Told, Waiting, copy_of

ACKS_ALL: Final = -1
ACKS_NONE: Final = 0
LEASE_AGAIN_S: Final = 0.1


class LedPartition(LocalPartition):
    __slots__ = (
        "_append_listeners",
        "_flush_before_ack",
        "_isr_due",
        "_keeps_ms",
        "_later",
        "_lease_valid",
        "_loop",
        "_min_in_sync",
        "_node",
        "_too_old",
        "_unclean",
        "_uncommitted",
        "_unsafe",
        "leadership",
    )

    is_led = True

    def __init__(
        self,
        tp: TopicPartition,
        topic: Topic,
        log: PartitionLog,
        state: PartitionState,
        node: NodeId,
        now_ms: int,
        high_watermark: Offset | None = None,
        isr_due: "Callable[[LedPartition], None] | None" = None,
        lease_valid: Callable[[], bool] | None = None,
        too_old: TooOld | None = None,
    ) -> None:
        """`high_watermark` is what this node knew as a follower; `isr_due` hears of followers that catch up and of a
        log that fails; `lease_valid` says whether this broker surely counts as alive."""
        known = log.log_start_offset if high_watermark is None else max(log.log_start_offset, high_watermark)
        super().__init__(tp, topic, log, state.leader_epoch, known)
        self.leadership = Leadership(node, state, log.log_end_offset, known, now_ms)
        """What is known of the followers in this epoch; the in-sync set is `isr`'s to change."""
        self._node = node
        self._isr_due = isr_due
        self._lease_valid = lease_valid
        self._too_old = too_old or TooOld()
        self._later: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._uncommitted = Waiting()
        self._unsafe = Waiting()
        self._append_listeners: dict[Waiter, None] = {}
        log.sync.listener = self._flush_settled
        self._came(Event.LED)
        self.configure(topic, log.config)

    @property
    def in_sync(self) -> tuple[NodeId, ...]:
        return self.leadership.in_sync

    # What the log says of itself

    @property
    def segment_count(self) -> int:
        """Returns the number of segments on local disk."""
        return self.log.segment_count

    @property
    def appended_bytes(self) -> int:
        return self.log.appended_bytes

    @property
    def appended_batches(self) -> int:
        return self.log.appended_batches

    @property
    def producer_count(self) -> int:
        """Returns how many idempotent producers are remembered."""
        return len(self.log.producers)

    def describe_producers(self) -> Iterator[ProducerView]:
        return self.log.producers.describe()

    def epoch_at(self, offset: int) -> LeaderEpoch:
        return self.log.epochs.epoch_at(offset)

    def end_of_epoch(self, epoch: int) -> tuple[LeaderEpoch, Offset]:
        """Returns the greatest epoch at or below `epoch` and its end; (-1, -1) for one that has not begun."""
        return end_of_epoch(self.log, self.leader_epoch, epoch)

    def gaps_below(self, found: FileSlice) -> int:
        """Returns the offset up to which compaction may have left gaps in what a follower is sent; 0: none."""
        return self.log.gaps_below(found)

    # Leading

    def configure(self, topic: Topic, config: TopicConfig) -> None:
        """Takes over the topic's settings, which are new or have changed."""
        self.topic = topic
        self._flush_before_ack = config.flush_before_ack
        self._min_in_sync = config.min_insync_replicas
        self._unclean = config.unclean_leader_election_enable
        self._keeps_ms = keeps_ms(config)
        self._count_own_log()
        if self._flush_before_ack and self.log.flushed_offset < self.log.log_end_offset:
            self.log.request_flush()

    def lead(self, state: PartitionState, now_ms: int) -> None:
        """Leads in this epoch with this in-sync set. A new epoch forgets what other replicas told in the last."""
        if state.leader_epoch == self.leader_epoch:
            if self.leadership.confirm(state):
                self._committed()
            return
        self.leader_epoch = state.leader_epoch
        self._came(Event.LED)
        self.leadership = Leadership(self._node, state, self.log.log_end_offset, self.high_watermark, now_ms)
        self._count_own_log()
        self._tell_append_listeners()

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        """Returns the sequence of the next batch that a coordinator writes here for a producer."""
        return self.log.producers.next_sequence(producer_id, epoch)

    def begin_verification(
        self, header: BatchHeader, transactional_id: str, *, tv2: bool = False
    ) -> Verification | None:
        """Returns what `append` wants for the first batch of a transaction here, once the coordinator has said that the
        transaction goes on and has this partition. None: the coordinator need not be asked.

        A marker that comes in between makes it void. So does nobody holding it any more. `tv2`: the producer has an
        epoch for each transaction."""
        return self.log.producers.begin_verification(header, transactional_id, tv2=tv2)

    def append(
        self,
        batch: memoryview | bytearray,
        header: BatchHeader,
        now_ms: int,
        acks: int = ACKS_ALL,
        verification: Verification | None = None,
    ) -> Appended:
        """Writes a validated batch and begins its commit. `tell_acknowledged` tells when it is done. A batch that would
        begin a transaction without a valid verification raises InvalidTransactionState."""
        self._check_may_append(acks)
        appended = self.log.append(batch, header, self.leader_epoch, now_ms, verification)
        if not appended.duplicate:
            if 0 <= header.max_timestamp < now_ms - self._keeps_ms:
                self._too_old.came(self.tp.topic, header, self._keeps_ms, now_ms)
            self._appended(appended)
        return appended

    def append_marker(
        self, producer_id: int, producer_epoch: int, marker: Marker, now_ms: int, *, transaction_version: int
    ) -> Appended:
        """Ends the producer's transaction and begins the commit of its marker. Raises ProducerFenced if the producer
        has a newer epoch or, from version 2 on, its open transaction has this very epoch; TransactionCoordinatorFenced
        if a newer coordinator has written. A marker where no transaction is open is written too: late batches are
        fenced by its epoch, and a marker may come again."""
        self._check_may_append(ACKS_ALL)
        appended = self.log.append_marker(
            producer_id, producer_epoch, marker, self.leader_epoch, now_ms, transaction_version
        )
        self._appended(appended)
        return appended

    def _check_may_append(self, acks: int) -> None:
        if self.role is not Role.LEADING:
            raise self._others_lead() if self.failure is None else copy_of(self.failure)
        if self._may_be_replaced():
            raise NotLeader(
                "this broker has not renewed its lease, and another may lead without what it takes",
                where=str(self.tp),
                hint="try again",
            )
        if acks == ACKS_ALL and len(self.leadership.in_sync) < self._min_in_sync:
            raise NotEnoughReplicas(
                self._too_few(),
                where=str(self.tp),
                hint="bring brokers back, or lower min.insync.replicas to at most the replication factor",
            )

    def _appended(self, appended: Appended) -> None:
        if self._flush_before_ack:
            self.log.request_flush()
        else:
            self._own_log_is_safe_to(appended.end_offset)
        if self._append_listeners:
            self._tell_append_listeners()

    def tell_acknowledged(self, end_offset: Offset, acks: int, waiter: Told) -> bool:
        """Tells the waiter when everything below `end_offset` is as safe as `acks` asks. Returns False if it is."""
        reached = self.high_watermark if acks == ACKS_ALL else self.leadership.held
        if acks == ACKS_NONE or reached >= end_offset:
            return False
        if self.failure is not None:
            raise copy_of(self.failure)
        (self._uncommitted if acks == ACKS_ALL else self._unsafe).add(end_offset, waiter)
        return True

    def when_committed(self, end_offset: Offset) -> asyncio.Future[None] | None:
        """Returns None if everything below `end_offset` is committed already, else a future for that moment."""
        future: asyncio.Future[None] = self._loop.create_future()
        return future if self.tell_acknowledged(end_offset, ACKS_ALL, future) else None

    def check_committed_known(self) -> None:
        """Raises OffsetNotAvailable until a new leader has committed all that it began with. Before that it does not
        know what was acknowledged before it."""
        if self.high_watermark < self.leadership.epoch_start:
            raise OffsetNotAvailable(
                "a new leader does not know yet what is committed", where=str(self.tp), hint="try again"
            )

    def check_follower_offset(self, offset: int) -> None:
        """Raises OffsetArchived or OffsetOutOfRange unless a follower can go on at `offset` from the local log."""
        local_start = self.local_log_start_offset
        if self.log_start_offset <= offset < local_start and self.config.remote_storage_enable:
            raise OffsetArchived(
                f"offset {offset} is in the bucket, the local log starts at {local_start}", where=str(self.tp)
            )
        if not local_start <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(f"offset {offset} is not there", where=str(self.tp))

    def replica_fetched(self, node: NodeId, broker_epoch: int, offset: Offset, now_ms: int) -> None:
        """Notes that a follower, in this leader epoch and on our history, holds everything below `offset` durably."""
        leadership = self.leadership
        self._came(Event.HEARD)
        if self.is_open and leadership.fetched(node, broker_epoch, offset, self.log.log_end_offset, now_ms):
            self._committed()
        if self._isr_due is not None and node not in leadership.in_sync:
            self._isr_due(self)

    def strand(self) -> None:
        """Ends writes here, because nothing can be committed any more. The handover may take until the lease is gone.
        Producers look for another leader now, until a follower is heard of again."""
        self._came(Event.UNHEARD)
        if self.role is Role.STRANDED:
            self._refuse_waiting(self._others_lead())

    def in_sync_written(self, state: PartitionState) -> None:
        """Notes that the store has the proposed in-sync set now."""
        if state.leader_epoch == self.leader_epoch and self.leadership.settled(state):
            self._committed()

    def add_append_listener(self, callback: Waiter) -> None:
        """Calls back on every append, when the high watermark or the log start moves, and when leading ends or begins
        again."""
        self._append_listeners[callback] = None

    def remove_append_listener(self, callback: Waiter) -> None:
        self._append_listeners.pop(callback, None)

    def delete_records_before(self, offset: int) -> Offset:
        """Moves the log start up to `offset`, or to the high watermark if it is -1. Returns the new log start."""
        target = self.high_watermark if offset == -1 else Offset(offset)
        if not 0 <= target <= self.high_watermark:
            raise OffsetOutOfRange(
                f"cannot delete up to offset {offset}",
                where=str(self.tp),
                hint=f"the high watermark is {self.high_watermark}",
            )
        self.start_at(target)
        return self.log.log_start_offset

    def start_at(self, offset: Offset) -> None:
        """Sets the log start, for followers too. The caller knows that everything below is committed."""
        self.log.delete_records_before(offset)
        self._tell_append_listeners()

    def close(self, reason: TierlogError) -> None:
        """Answers everyone who waits with `reason`. Nothing is appended here any more."""
        self._end(Event.CLOSED, reason)

    def _end(self, event: Event, reason: TierlogError) -> None:
        self._came(event)
        self.failure = reason
        self.log.sync.listener = None
        self._refuse_waiting(reason)
        self._tell_waiters()
        self._tell_append_listeners()

    def _refuse_waiting(self, reason: TierlogError) -> None:
        self._uncommitted.refuse(reason)
        self._unsafe.refuse(reason)

    def _others_lead(self) -> NotLeader:
        return NotLeader(
            "this broker hears of no follower, and another is about to lead",
            where=str(self.tp),
            hint="refresh metadata and try again",
        )

    def _flush_settled(self) -> None:
        if self.log.failure is not None:
            self._end(Event.DISK_FAILED, self.log.failure)
            if self._isr_due is not None:
                self._isr_due(self)
        elif self._flush_before_ack:
            self._count_own_log()

    def _may_be_replaced(self) -> bool:
        """Returns whether another broker may lead already. A leader that is alone in sync is normally the only one that
        can be elected. With unclean election any replica can be, once this broker counts as dead. Then nothing may be
        acknowledged; the lease tells, by the clock."""
        return (
            self._unclean
            and self._lease_valid is not None
            and len(self.leadership.in_sync) == 1 < len(self.leadership.state.replicas)
            and not self._lease_valid()
        )

    def _count_own_log(self) -> None:
        """Counts this broker's own log as far as it is safe now, unless another broker may lead."""
        log = self.log
        if not self.is_open:
            return
        if self._may_be_replaced():
            # Producers wait for this. Without another append nothing else would check again.
            if self._later is None:
                self._later = self._loop.call_later(LEASE_AGAIN_S, self._count_own_log_later)
            return
        self._own_log_is_safe_to(log.flushed_offset if self._flush_before_ack else log.log_end_offset)

    def _count_own_log_later(self) -> None:
        self._later = None
        self._count_own_log()

    def _own_log_is_safe_to(self, end_offset: Offset) -> None:
        """Returns the offset up to which this broker's own log is as safe as `flush` asks."""
        if self.leadership.holds(end_offset):
            self._committed()
        self._unsafe.answer(end_offset)

    def _committed(self) -> None:
        """Answers and tells those who wait for the high watermark, which has moved."""
        committed = self.leadership.high_watermark
        self._commit(committed)
        too_few = len(self.leadership.in_sync) < self._min_in_sync
        self._uncommitted.answer(
            committed, NotEnoughReplicasAfterAppend(self._too_few(), where=str(self.tp)) if too_few else None
        )
        if self._waiters:
            self._tell_waiters()
        if self._append_listeners:
            self._tell_append_listeners()

    def _too_few(self) -> str:
        return f"{len(self.leadership.in_sync)} replicas are in sync, min.insync.replicas is {self._min_in_sync}"

    def _tell_append_listeners(self) -> None:
        for callback in tuple(self._append_listeners):
            callback()

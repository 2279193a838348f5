"""One partition as its leader serves it: what was appended, what is committed, who waits for it.

Owns: the producers that wait for their acknowledgement, and who hears of it when the log or what is committed grows.
Leaves to: `hot_tier.log` the bytes and their sync; `leadership` what is committed; `isr` the in-sync set in the store;
`table` who leads and which topics there are; callers the validation of batches.

- log start ≤ last stable offset ≤ high watermark ≤ log end; the high watermark never goes back within a
  leader epoch.
- acks=all is answered when the high watermark has passed the batch. acks=1 is answered when this leader's own log
  holds it as `flush` asks, and not before the high watermark has moved as far as that alone moves it: where the leader
  is alone in sync, what is acknowledged can be read at once.
- Once closed (the topic is gone, another broker leads, the disk failed) every waiter has been answered and no
  call adds one.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Final

from hot_tier.cluster.model import PartitionState, Topic
from hot_tier.errors import (
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    TierlogError,
)
from hot_tier.ids import LeaderEpoch, NodeId, Offset, TopicPartition
from hot_tier.log.config import TopicConfig
from hot_tier.log.partition_log import Appended, PartitionLog
from hot_tier.log.producers import ProducerView
from hot_tier.log.reading import FileSlice
from hot_tier.record.batch import BatchHeader
from hot_tier.replication.leadership import Leadership, end_of_epoch
from hot_tier.replication.local_partition import LocalPartition
from hot_tier.replication.readable import Waiter
from hot_tier.replication.too_old import TooOld, keeps_ms
from hot_tier.replication.waiting import Waiting, copy_of

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
        "_stranded",
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
        self._stranded = False
        self._loop = asyncio.get_running_loop()
        self._uncommitted = Waiting()
        self._unsafe = Waiting()
        self._append_listeners: dict[Waiter, None] = {}
        log.flush_listener = self._flush_settled
        self.configure(topic, log.config)

    @property
    def in_sync(self) -> tuple[NodeId, ...]:
        return self.leadership.in_sync

    # What the log says of itself

    @property
    def segment_count(self) -> int:
        """On local disk."""
        return self.log.segment_count

    @property
    def appended_bytes(self) -> int:
        return self.log.appended_bytes

    @property
    def appended_batches(self) -> int:
        return self.log.appended_batches

    def describe_producers(self) -> Iterator[ProducerView]:
        return self.log.describe_producers()

    def epoch_at(self, offset: int) -> LeaderEpoch:
        return self.log.epochs.epoch_at(offset)

    def end_of_epoch(self, epoch: int) -> tuple[LeaderEpoch, Offset]:
        """Returns the greatest epoch at or below `epoch` and its end; (-1, -1) for one that has not begun."""
        return end_of_epoch(self.log, self.leader_epoch, epoch)

    def gaps_below(self, found: FileSlice) -> int:
        """Returns up to where compaction may have left gaps in what a follower is sent; 0: nowhere."""
        return self.log.gaps_below(found)

    # Leading

    def configure(self, topic: Topic, config: TopicConfig) -> None:
        """The topic has other settings now, or is seen for the first time."""
        self.topic = topic
        self._flush_before_ack = config.flush_before_ack
        self._min_in_sync = config.min_insync_replicas
        self._unclean = config.unclean_leader_election_enable
        self._keeps_ms = keeps_ms(config)
        self._count_own_log()
        if self._flush_before_ack and self.log.flushed_offset < self.log.log_end_offset:
            self.log.request_flush()

    def lead(self, state: PartitionState, now_ms: int) -> None:
        """Lead in this epoch with this in-sync set. A new epoch forgets what other replicas told in the last."""
        if state.leader_epoch == self.leader_epoch:
            if self.leadership.confirm(state):
                self._committed()
            return
        self.leader_epoch = state.leader_epoch
        self._stranded = False
        self.leadership = Leadership(self._node, state, self.log.log_end_offset, self.high_watermark, now_ms)
        self._count_own_log()
        self._tell_append_listeners()

    def append(self, batch: memoryview | bytearray, header: BatchHeader, now_ms: int, acks: int = ACKS_ALL) -> Appended:
        """Write a validated batch and set its commit in motion; `when_acknowledged` says when it is done."""
        if self.failure is not None:
            raise copy_of(self.failure)
        if self._may_be_replaced():
            raise NotLeader(
                "this broker has not renewed its lease, and another may lead without what it takes",
                where=str(self.tp),
                hint="try again",
            )
        if self._stranded:
            raise self._others_lead()
        if acks == ACKS_ALL and len(self.leadership.in_sync) < self._min_in_sync:
            raise NotEnoughReplicas(
                self._too_few(),
                where=str(self.tp),
                hint="bring brokers back, or lower min.insync.replicas to at most the replication factor",
            )
        appended = self.log.append(batch, header, self.leader_epoch, now_ms)
        if not appended.duplicate:
            if 0 <= header.max_timestamp < now_ms - self._keeps_ms:
                self._too_old.came(self.tp.topic, header, self._keeps_ms, now_ms)
            if self._flush_before_ack:
                self.log.request_flush()
            else:
                self._own_log_is_safe_to(appended.end_offset)
            if self._append_listeners:
                self._tell_append_listeners()
        return appended

    def when_acknowledged(self, end_offset: Offset, acks: int) -> asyncio.Future[None] | None:
        """None when all below `end_offset` is as safe as `acks` asks, else what resolves when it is."""
        if acks == ACKS_ALL:
            return self.when_committed(end_offset)
        if acks == ACKS_NONE or self.leadership.held >= end_offset:
            return None
        if self.failure is not None:
            raise copy_of(self.failure)
        return self._unsafe.add(end_offset)

    def when_committed(self, end_offset: Offset) -> asyncio.Future[None] | None:
        """None when all below `end_offset` is committed already, else what resolves when it is."""
        if self.high_watermark >= end_offset:
            return None
        if self.failure is not None:
            raise copy_of(self.failure)
        return self._uncommitted.add(end_offset)

    def check_committed_known(self) -> None:
        """A new leader knows what was acknowledged before it only once it has committed all that it began with."""
        if self.high_watermark < self.leadership.epoch_start:
            raise OffsetNotAvailable(
                "a new leader does not know yet what is committed", where=str(self.tp), hint="try again"
            )

    def replica_fetched(self, node: NodeId, broker_epoch: int, offset: Offset, now_ms: int) -> None:
        """A follower, in this leader epoch and on our history, holds everything below `offset` durably."""
        leadership = self.leadership
        self._stranded = False
        if self.failure is None and leadership.fetched(node, broker_epoch, offset, self.log.log_end_offset, now_ms):
            self._committed()
        if self._isr_due is not None and node not in leadership.in_sync:
            self._isr_due(self)

    def strand(self) -> None:
        """Nothing is committed here any more: it shall be handed over, which may take until the lease is gone. Who
        produces shall look for another leader now, until a follower is heard of again."""
        if self.failure is None:
            self._stranded = True
            self._refuse_waiting(self._others_lead())

    def in_sync_written(self, state: PartitionState) -> None:
        """The in-sync set that was proposed is the store's now."""
        if state.leader_epoch == self.leader_epoch and self.leadership.settled(state):
            self._committed()

    def add_append_listener(self, callback: Waiter) -> None:
        """Call back on every append, when the high watermark or the log start is moved, and when leading ends or begins
        anew."""
        self._append_listeners[callback] = None

    def remove_append_listener(self, callback: Waiter) -> None:
        self._append_listeners.pop(callback, None)

    def delete_records_before(self, offset: int) -> Offset:
        """Move the log start up to `offset`, -1 for the high watermark. The log start as it is then."""
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
        """The log starts here, for followers too. The caller knows that everything below is committed."""
        self.log.delete_records_before(offset)
        self._tell_append_listeners()

    def close(self, reason: TierlogError) -> None:
        """Answer everyone who waits with `reason`; nothing is appended here any more."""
        self.failure = reason
        self.log.flush_listener = None
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
            self.close(self.log.failure)
            if self._isr_due is not None:
                self._isr_due(self)
        elif self._flush_before_ack:
            self._count_own_log()

    def _may_be_replaced(self) -> bool:
        """Alone in sync, a leader is normally the only one that can be elected. With unclean election any replica can
        be, once this broker counts as dead, so nothing may be acknowledged then; the lease tells, by the clock."""
        return (
            self._unclean
            and self._lease_valid is not None
            and len(self.leadership.in_sync) == 1 < len(self.leadership.state.replicas)
            and not self._lease_valid()
        )

    def _count_own_log(self) -> None:
        """Counts this broker's own log as far as it is safe now, unless another broker may lead."""
        log = self.log
        if self.failure is not None:
            return
        if self._may_be_replaced():
            # Producers wait for it: without another append nothing else would look again.
            if self._later is None:
                self._later = self._loop.call_later(LEASE_AGAIN_S, self._count_own_log_later)
            return
        self._own_log_is_safe_to(log.flushed_offset if self._flush_before_ack else log.log_end_offset)

    def _count_own_log_later(self) -> None:
        self._later = None
        self._count_own_log()

    def _own_log_is_safe_to(self, end_offset: Offset) -> None:
        """This broker's own log is as safe as `flush` asks, up to here."""
        if self.leadership.holds(end_offset):
            self._committed()
        self._unsafe.answer(end_offset)

    def _committed(self) -> None:
        """The high watermark has moved."""
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


def steady_ms() -> int:
    """What lag is measured with: it neither jumps nor goes back."""
    return time.monotonic_ns() // 1_000_000

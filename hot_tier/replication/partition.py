"""One partition as its leader serves it: what was appended, what is committed, who waits for it.

Owns: the high watermark, the producers that wait for a commit, the fetches that wait for news.
Leaves to: `hot_tier.log` the bytes and their sync; `watermark` the decision; `table` who leads and which
topics there are; callers the validation of batches.

- log start ≤ last stable offset ≤ high watermark ≤ log end; the high watermark never goes back within a
  leader epoch.
- Waiting producers are kept in the order of their end offsets and answered from the front when the high
  watermark moves: a commit costs what it answers, no task per request.
- Once closed (the topic is gone, another broker leads, the disk failed) every waiter has been answered and no
  call adds one.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from hot_tier.cluster.model import PartitionState, Topic
from hot_tier.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    OffsetOutOfRange,
    TierlogError,
    UnknownLeaderEpoch,
)
from hot_tier.ids import NO_EPOCH, LeaderEpoch, NodeId, Offset, TopicPartition
from hot_tier.log.config import TopicConfig
from hot_tier.log.partition_log import Appended, PartitionLog
from hot_tier.record.batch import BatchHeader
from hot_tier.replication.watermark import high_watermark, last_stable_offset

ACKS_ALL: Final = -1

Waiter = Callable[[], None]


class Partition:
    __slots__ = (
        "_ends",
        "_failure",
        "_flush_before_ack",
        "_loop",
        "_min_in_sync",
        "_node",
        "_uncommitted",
        "_waiters",
        "fetched_bytes",
        "high_watermark",
        "in_sync",
        "leader_epoch",
        "log",
        "topic",
        "tp",
    )

    def __init__(
        self,
        tp: TopicPartition,
        topic: Topic,
        log: PartitionLog,
        state: PartitionState,
        node: NodeId,
    ) -> None:
        self.tp = tp
        self.topic = topic
        self.log = log
        self.leader_epoch: LeaderEpoch = state.leader_epoch
        self.in_sync: tuple[NodeId, ...] = state.isr
        self.high_watermark: Offset = log.log_start_offset
        log.committed_offset = self.high_watermark
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._ends: dict[NodeId, Offset] = {}
        self._uncommitted: deque[tuple[Offset, asyncio.Future[None]]] = deque()
        self._waiters: dict[Waiter, None] = {}
        self.fetched_bytes = 0
        """Given to readers, for the metrics."""
        self._failure: TierlogError | None = None
        log.flush_listener = self._flush_settled
        self.configure(topic, log.config)

    @property
    def last_stable_offset(self) -> Offset:
        return last_stable_offset(self.high_watermark, self.log.first_unstable_offset)

    def configure(self, topic: Topic, config: TopicConfig) -> None:
        """The topic has other settings now, or is seen for the first time."""
        self.topic = topic
        self._flush_before_ack = config.flush_before_ack
        self._min_in_sync = config.min_insync_replicas
        if not self._flush_before_ack:
            self.replica_holds(self._node, self.log.log_end_offset)
            return
        self.replica_holds(self._node, self.log.flushed_offset)
        if self.log.flushed_offset < self.log.log_end_offset:
            self.log.request_flush(self.log)

    def lead(self, state: PartitionState) -> None:
        """Lead in this epoch with this in-sync set. A new epoch forgets what other replicas told in the last."""
        if state.leader_epoch != self.leader_epoch:
            self._ends = {self._node: self._ends[self._node]}
            self.leader_epoch = state.leader_epoch
        self.in_sync = state.isr
        self._commit()

    def append(self, batch: memoryview | bytearray, header: BatchHeader, now_ms: int, acks: int = ACKS_ALL) -> Appended:
        """Write a validated batch and set its commit in motion; `when_committed` says when it is done."""
        if self._failure is not None:
            raise _copy(self._failure)
        if len(self.in_sync) < self._min_in_sync and acks == ACKS_ALL:
            raise NotEnoughReplicas(
                f"{len(self.in_sync)} replicas are in sync, min.insync.replicas is {self._min_in_sync}",
                where=str(self.tp),
                hint="bring brokers back, or lower min.insync.replicas to at most the replication factor",
            )
        appended = self.log.append(batch, header, self.leader_epoch, now_ms)
        if not appended.duplicate:
            if self._flush_before_ack:
                self.log.request_flush(self.log)
            else:
                self.replica_holds(self._node, appended.end_offset)
        return appended

    def check_leader_epoch(self, epoch: int) -> None:
        """What the caller believes the epoch to be; -1 when it has no opinion."""
        if epoch == self.leader_epoch or epoch == NO_EPOCH:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(
                f"leader epoch {epoch} is over, it is {self.leader_epoch}", where=str(self.tp), hint="refresh metadata"
            )
        raise UnknownLeaderEpoch(
            f"leader epoch {epoch} has not begun here, it is {self.leader_epoch}", where=str(self.tp), hint="try again"
        )

    def when_committed(self, end_offset: Offset) -> asyncio.Future[None] | None:
        """None when all below `end_offset` is committed already, else what resolves when it is."""
        if self.high_watermark >= end_offset:
            return None
        if self._failure is not None:
            raise _copy(self._failure)
        committed: asyncio.Future[None] = self._loop.create_future()
        waiting = self._uncommitted
        if not waiting or waiting[-1][0] <= end_offset:
            waiting.append((end_offset, committed))
        else:
            # A repeated batch of an idempotent producer: its original may wait in the middle.
            at = len(waiting)
            while at and waiting[at - 1][0] > end_offset:
                at -= 1
            waiting.insert(at, (end_offset, committed))
        return committed

    def replica_holds(self, node: NodeId, durable_end: Offset) -> None:
        """A replica, this one or another, has the log durably up to here in this leader epoch."""
        self._ends[node] = durable_end
        self._commit()

    def add_waiter(self, callback: Waiter) -> None:
        """Call back, every time, when there may be more to read or this partition can no longer be read here."""
        self._waiters[callback] = None

    def remove_waiter(self, callback: Waiter) -> None:
        self._waiters.pop(callback, None)

    def delete_records_before(self, offset: int) -> Offset:
        """Move the log start up to `offset`, -1 for the high watermark. The log start as it is then."""
        target = self.high_watermark if offset == -1 else Offset(offset)
        if not 0 <= target <= self.high_watermark:
            raise OffsetOutOfRange(
                f"cannot delete up to offset {offset}",
                where=str(self.tp),
                hint=f"the high watermark is {self.high_watermark}",
            )
        self.log.delete_records_before(target)
        return self.log.log_start_offset

    def close(self, reason: TierlogError) -> None:
        """Answer everyone who waits with `reason`; nothing is appended here any more."""
        self._failure = reason
        self.log.flush_listener = None
        waiting, self._uncommitted = self._uncommitted, deque()
        for _, committed in waiting:
            if not committed.done():
                committed.set_exception(_copy(reason))
        self._tell_waiters()

    def _flush_settled(self) -> None:
        if self.log.failure is not None:
            self.close(self.log.failure)
        elif self._flush_before_ack:
            self.replica_holds(self._node, self.log.flushed_offset)

    def _commit(self) -> None:
        committed = high_watermark(self.high_watermark, self._ends, self.in_sync)
        if committed == self.high_watermark:
            return
        self.high_watermark = committed
        self.log.committed_offset = committed
        waiting = self._uncommitted
        while waiting and waiting[0][0] <= committed:
            _, future = waiting.popleft()
            if not future.done():
                future.set_result(None)
        if self._waiters:
            self._tell_waiters()

    def _tell_waiters(self) -> None:
        for callback in tuple(self._waiters):
            callback()


def _copy(error: TierlogError) -> TierlogError:
    """Each waiter gets its own: one exception object raised in many places collects all their tracebacks."""
    return type(error)(error.what, where=error.where, hint=error.hint)

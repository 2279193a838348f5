"""One partition at a follower: its log as a copy of the leader's, and what of it is committed.

Owns: what an answer of the leader does to the log. Leaves to: `following` the decision; `fetcher` when to ask and whom;
`table` which role this broker has.

- A position is told only when everything below it is durable here: synced with `flush=commit`.
- No position is told of a log in doubt: it is asked for from the beginning. The old log is forgotten when the leader
  has answered, or, if only the bucket has its records, when the bucket is found to hold them. Until then it may be the
  only copy.
- The high watermark is what leaders said, as far as this log goes. Consumers may read below it here too.
"""

from collections.abc import Callable
from enum import Enum, auto

import structlog

from hot_tier.cluster.model import PartitionState, Topic
from hot_tier.errors import OffsetArchived, OffsetOutOfRange, TierlogError
from hot_tier.ids import NO_EPOCH, NodeId, Offset, TopicPartition
from hot_tier.log.config import TopicConfig
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.producers import ProducerState
from hot_tier.replication.following import (
    Append,
    FetchAnswer,
    FetchFrom,
    FromArchive,
    LeaderMoved,
    ResetTo,
    TruncateTo,
    TryAgain,
    decide,
    follower_high_watermark,
    next_fetch,
)
from hot_tier.replication.link import PartitionKey
from hot_tier.replication.local_partition import LocalPartition
from hot_tier.replication.roles import Event, Role

_log = structlog.get_logger()


class Next(Enum):
    """What is to be done after an answer."""

    WAIT = auto()
    """The position stands: the leader tells when there is more."""
    ASK = auto()
    """Tell the new position as soon as it is durable."""
    LATER = auto()
    """Tell the same position again after a while."""
    FROM_ARCHIVE = auto()
    """The leader's disk no longer has what comes next; the bucket does."""


class FollowedPartition(LocalPartition):
    __slots__ = ("_flush_before_ack", "added", "durable_listener", "key", "leader")

    def __init__(
        self,
        tp: TopicPartition,
        topic: Topic,
        log: PartitionLog,
        state: PartitionState,
        node: NodeId,
        high_watermark: Offset | None = None,
    ) -> None:
        known = log.log_start_offset if high_watermark is None else max(log.log_start_offset, high_watermark)
        super().__init__(tp, topic, log, state.leader_epoch, known)
        self.key: PartitionKey = (topic.id, tp.partition)
        self.leader = state.leader
        self._came(Event.DOUBTED if log.in_doubt else Event.FOLLOWED)
        self.confirm(state, node)
        self.durable_listener: Callable[[FollowedPartition], None] | None = None
        """Called when everything in the log is durable."""
        log.sync.listener = self._flush_settled
        self.configure(topic, log.config)

    def confirm(self, state: PartitionState, node: NodeId) -> None:
        """Takes over what the image says, in this epoch."""
        self.added = node in state.adding and node not in state.isr
        """A reassignment brings it in: its traffic may be limited, until producers wait for it."""

    @property
    def in_doubt(self) -> bool:
        """Returns whether the log is in doubt: the leader has not answered yet, and the log is kept until it has."""
        return self.role is Role.IN_DOUBT

    @property
    def is_durable(self) -> bool:
        """Returns whether the position may be told."""
        log = self.log
        return log.failure is None and (not self._flush_before_ack or log.flushed_offset >= log.log_end_offset)

    def configure(self, topic: Topic, config: TopicConfig) -> None:
        """Takes over the topic's settings, which are new or have changed."""
        self.topic = topic
        self._flush_before_ack = config.flush_before_ack
        if self._flush_before_ack and self.log.flushed_offset < self.log.log_end_offset:
            self.log.request_flush()

    def next_fetch(self) -> FetchFrom:
        if self.in_doubt:
            return FetchFrom(Offset(0), NO_EPOCH, self.leader_epoch, Offset(0))
        return next_fetch(self.log, self.leader_epoch)

    def take(self, answer: FetchAnswer, now_ms: int) -> Next:
        """Does what the leader's answer asks for. An error is logged, and the fetch is tried again."""
        try:
            return self._take(answer, now_ms)
        except (TierlogError, OSError) as error:
            _log.warning("replica not brought forward", partition=str(self.tp), leader=self.leader, error=str(error))
            return Next.LATER

    def _take(self, answer: FetchAnswer, now_ms: int) -> Next:
        log = self.log
        if self.in_doubt:
            if isinstance(answer.error, OffsetArchived):
                return Next.FROM_ARCHIVE  # Kept until the bucket is found to hold it.
            if not isinstance(answer.error, OffsetOutOfRange | None):
                return Next.LATER
            self._begin_anew(Offset(0), now_ms)
            self._came(Event.TRUSTED)
        match decide(log, answer):
            case Append(records, high_watermark, log_start_offset, gaps_below):
                if records:
                    try:
                        log.append_replica(memoryview(records), self.leader_epoch, now_ms, gaps_below)
                    finally:
                        # This includes what came before a bad batch: without a sync the position would never be told
                        # again.
                        if self._flush_before_ack:
                            log.request_flush()
                self._move(high_watermark)
                if log_start_offset > log.log_start_offset:
                    log.delete_records_before(min(log_start_offset, log.log_end_offset))
                return Next.ASK if records else Next.WAIT
            case TruncateTo(offset):
                _log.info("replica truncated", partition=str(self.tp), offset=offset, was=log.log_end_offset)
                log.truncate_to(offset, now_ms)
                self._move(self.high_watermark)
                return Next.ASK
            case ResetTo(offset):
                self._begin_anew(offset, now_ms)
                return Next.ASK
            case FromArchive():
                return Next.FROM_ARCHIVE
            case LeaderMoved():
                return Next.LATER
            case TryAgain(reason):
                _log.debug("replica asks again", partition=str(self.tp), leader=self.leader, reason=reason)
                return Next.LATER

    def _begin_anew(self, offset: Offset, now_ms: int) -> None:
        _log.warning("replica begun anew", partition=str(self.tp), offset=offset, was=self.log.log_end_offset)
        self.log.reset_to(offset, now_ms)
        self._commit(offset)
        self._move(offset)

    def begin_at_archive(
        self, start_offset: Offset, end_offset: Offset, epochs: list[tuple[int, int]], producers: ProducerState
    ) -> None:
        """Forgets the log and continues where the archived history ends. All of that history is committed."""
        _log.info("replica begins at its archive", partition=str(self.tp), offset=end_offset)
        self.log.start_from_archive(start_offset, end_offset, epochs, producers)
        self.log.trust()
        self._came(Event.TRUSTED)
        self._move(end_offset)

    def close(self, reason: TierlogError) -> None:
        """Ends the role, because another begins or the topic is gone. Readers here are told."""
        self._came(Event.CLOSED)
        self.failure = reason
        self.durable_listener = None
        self.log.sync.listener = None
        self._tell_waiters()

    def _move(self, told: Offset) -> None:
        moved = follower_high_watermark(self.high_watermark, told, self.log.log_end_offset)
        if moved != self.high_watermark:
            self._commit(moved)
            self._tell_waiters()

    def _flush_settled(self) -> None:
        if self.durable_listener is not None and self.is_durable:
            self.durable_listener(self)

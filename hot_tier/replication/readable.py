"""One partition as readers see it, at its leader and at its followers alike: what is committed, and who waits for more.

Owns: the high watermark as this broker knows it, and the fetches that wait for it to move. How it moves is the role's:
`led_partition` at the leader, `followed_partition` at a follower.

- log start ≤ last stable offset ≤ high watermark ≤ log end, as far as the log is local.
- Once closed (another role, the topic is gone, the disk failed) everyone who waits has been told.
"""

from collections.abc import Callable

from hot_tier.cluster.model import Topic
from hot_tier.errors import FencedLeaderEpoch, TierlogError, UnknownLeaderEpoch
from hot_tier.ids import NO_EPOCH, LeaderEpoch, Offset, TopicPartition
from hot_tier.log.partition_log import PartitionLog
from hot_tier.replication.watermark import last_stable_offset

Waiter = Callable[[], None]


class ReadablePartition:
    __slots__ = ("_waiters", "failure", "fetched_bytes", "high_watermark", "leader_epoch", "log", "topic", "tp")

    def __init__(
        self, tp: TopicPartition, topic: Topic, log: PartitionLog, leader_epoch: LeaderEpoch, high_watermark: Offset
    ) -> None:
        self.tp = tp
        self.topic = topic
        self.log = log
        self.leader_epoch = leader_epoch
        self._commit(high_watermark)
        self.fetched_bytes = 0
        """Given to readers, for the metrics."""
        self.failure: TierlogError | None = None
        """Why it is closed; None while it is open."""
        self._waiters: dict[Waiter, None] = {}

    @property
    def last_stable_offset(self) -> Offset:
        return last_stable_offset(self.high_watermark, self.log.first_unstable_offset)

    def _commit(self, high_watermark: Offset) -> None:
        self.high_watermark = self.log.committed_offset = high_watermark

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

    def add_waiter(self, callback: Waiter) -> None:
        """Call back, every time, when there may be more to read or this partition can no longer be read here."""
        self._waiters[callback] = None

    def remove_waiter(self, callback: Waiter) -> None:
        self._waiters.pop(callback, None)

    def _tell_waiters(self) -> None:
        for callback in tuple(self._waiters):
            callback()

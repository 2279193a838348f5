"""One partition with a local log, at its leader and at its followers alike: what is committed, and who waits for more.

Owns: the high watermark as this broker knows it, and the fetches that wait for it to move. How it moves is the role's:
`led_partition` at the leader, `followed_partition` at a follower. It is a `readable.ReadablePartition`.

- log start ≤ last stable offset ≤ high watermark ≤ log end, as far as the log is local.
- Once closed (another role, the topic is gone, the disk failed) everyone who waits has been told.
"""

from hot_tier.cluster.model import Topic
from hot_tier.errors import FencedLeaderEpoch, TierlogError, UnknownLeaderEpoch
from hot_tier.ids import NO_EPOCH, LeaderEpoch, Offset, TopicPartition
from hot_tier.log.config import TopicConfig
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.reading import FileSlice, TimestampOffset
from hot_tier.replication.leadership import diverging
from hot_tier.replication.readable import Waiter
from hot_tier.replication.watermark import last_stable_offset


class LocalPartition:
    __slots__ = ("_waiters", "failure", "fetched_bytes", "high_watermark", "leader_epoch", "log", "topic", "tp")

    is_led = False

    def __init__(
        self, tp: TopicPartition, topic: Topic, log: PartitionLog, leader_epoch: LeaderEpoch, high_watermark: Offset
    ) -> None:
        self.tp = tp
        self.topic = topic
        self.log = log
        self.leader_epoch = leader_epoch
        self._commit(high_watermark)
        self.fetched_bytes = 0
        self.failure: TierlogError | None = None
        """Why it is closed; None while it is open."""
        self._waiters: dict[Waiter, None] = {}

    @property
    def config(self) -> TopicConfig:
        return self.log.config

    @property
    def size_bytes(self) -> int:
        """On local disk."""
        return self.log.size_bytes

    # Bounds

    @property
    def log_start_offset(self) -> Offset:
        return self.log.log_start_offset

    @property
    def local_log_start_offset(self) -> Offset:
        return self.log.local_log_start_offset

    @property
    def last_stable_offset(self) -> Offset:
        return last_stable_offset(self.high_watermark, self.log.first_unstable_offset)

    @property
    def log_end_offset(self) -> Offset:
        return self.log.log_end_offset

    def _commit(self, high_watermark: Offset) -> None:
        self.high_watermark = self.log.committed_offset = high_watermark

    # Leader epochs

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

    def diverging(self, offset: int, last_epoch: int) -> tuple[LeaderEpoch, Offset] | None:
        """Returns where the history of a reader parts from ours, if its records end at `offset` in `last_epoch`."""
        return diverging(self.log, self.leader_epoch, Offset(offset), LeaderEpoch(last_epoch))

    # Records of the local log

    def locate(self, offset: int, max_bytes: int, end_offset: int, *, min_one: bool = True) -> FileSlice | None:
        """Where the batch of `offset` and those after it are; never waits for the disk."""
        return self.log.locate(offset, max_bytes, end_offset, min_one=min_one)

    def read_now(self, found: FileSlice) -> memoryview | None:
        """The bytes, if the page cache has them and they have been checked; None means: use `read`."""
        return self.log.read_now(found)

    async def read(self, found: FileSlice) -> memoryview:
        """The bytes, read and checked in a thread."""
        return await self.log.read(found)

    async def offset_for_timestamp(self, timestamp: int, end_offset: int) -> TimestampOffset | None:
        """The earliest record before `end_offset` whose timestamp is `timestamp` or later."""
        return await self.log.offset_for_timestamp(timestamp, end_offset)

    async def max_timestamp_offset(self, end_offset: int) -> TimestampOffset | None:
        """The first record with the greatest timestamp of those before `end_offset`."""
        return await self.log.max_timestamp_offset(end_offset)

    # News

    def add_waiter(self, callback: Waiter) -> None:
        """Call back, every time, when there may be more to read or this partition can no longer be read here."""
        self._waiters[callback] = None

    def remove_waiter(self, callback: Waiter) -> None:
        self._waiters.pop(callback, None)

    def _tell_waiters(self) -> None:
        for callback in tuple(self._waiters):
            callback()

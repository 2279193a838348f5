"""One partition with a local log, at its leader and at its followers alike: what is committed, and who waits for more.

Owns: its role (`roles`), the high watermark as this broker knows it, and the fetches that wait for it to move. How it
moves is the role's: `led_partition` at the leader, `followed_partition` at a follower. It is a
`readable.ReadablePartition`.

- log start ≤ last stable offset ≤ high watermark ≤ log end, as far as the log is local.
- Once closed (another role, the topic is gone, the disk failed) everyone who waits has been told.
"""

from collections.abc import Iterator, Sequence

from hot_tier.cluster.model import Topic
from hot_tier.errors import FencedLeaderEpoch, TierlogError, UnknownLeaderEpoch
from hot_tier.ids import NO_EPOCH, LeaderEpoch, Offset, TopicPartition
from hot_tier.log.config import TopicConfig
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.reading import FileSlice, TimestampOffset
from hot_tier.log.transactions import Aborted, AbortedIndex, OpenTransaction
from hot_tier.replication.leadership import diverging
from hot_tier.replication.readable import Waiter
from hot_tier.replication.roles import OPEN, Event, Role, after
from hot_tier.replication.watermark import last_stable_offset


class LocalPartition:
    __slots__ = ("_waiters", "failure", "fetched_bytes", "high_watermark", "leader_epoch", "log", "role", "topic", "tp")

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
        self.role = Role.ABSENT
        self.failure: TierlogError | None = None
        """What those are told who come when it is not open any more."""
        self._waiters: dict[Waiter, None] = {}

    @property
    def is_open(self) -> bool:
        return self.role in OPEN

    def _came(self, event: Event) -> None:
        self.role = after(self.role, event)

    @property
    def config(self) -> TopicConfig:
        return self.log.config

    @property
    def size_bytes(self) -> int:
        """Returns the bytes on local disk."""
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
        first_unstable = self.log.first_unstable_offset
        if first_unstable is None:
            return self.high_watermark
        return last_stable_offset(self.high_watermark, first_unstable, self.log.log_start_offset)

    @property
    def log_end_offset(self) -> Offset:
        return self.log.log_end_offset

    def _commit(self, high_watermark: Offset) -> None:
        self.high_watermark = high_watermark
        self.log.commit(high_watermark)

    # Transactions

    @property
    def aborted(self) -> AbortedIndex:
        """Returns the aborted transactions whose markers are in the local log, as of now."""
        return self.log.aborted

    def aborted_transactions(self, from_offset: int, end_offset: int) -> Sequence[Aborted]:
        """Returns the aborted transactions that may have batches in the range of the local log, by first offset."""
        return self.log.aborted.overlapping(from_offset, end_offset)

    def open_transactions(self) -> Iterator[OpenTransaction]:
        """Yields the transactions that have no marker in the log yet, by first offset."""
        return self.log.producers.open_transactions()

    @property
    def held_by(self) -> OpenTransaction | None:
        """Returns the transaction that holds the last stable offset back, if one does that has not ended."""
        first = next(self.open_transactions(), None)
        return None if first is None or first.first_offset >= self.high_watermark else first

    # Leader epochs

    def check_leader_epoch(self, epoch: int) -> None:
        """Raises an error if the caller believes in another epoch; -1 means that it does not say."""
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
        """Returns where the batch of `offset` and those after it are. Never waits for the disk."""
        return self.log.locate(offset, max_bytes, end_offset, min_one=min_one)

    def read_now(self, found: FileSlice) -> memoryview | None:
        """Returns the checked bytes if the page cache has them. None means: use `read`."""
        return self.log.read_now(found)

    async def read(self, found: FileSlice) -> memoryview:
        """Returns the bytes, read and checked in a thread."""
        return await self.log.read(found)

    async def offset_for_timestamp(self, timestamp: int, end_offset: int) -> TimestampOffset | None:
        """Returns the earliest record before `end_offset` whose timestamp is `timestamp` or later."""
        return await self.log.offset_for_timestamp(timestamp, end_offset)

    async def max_timestamp_offset(self, end_offset: int) -> TimestampOffset | None:
        """Returns the first record with the greatest timestamp of those before `end_offset`."""
        return await self.log.max_timestamp_offset(end_offset)

    # News

    def add_waiter(self, callback: Waiter) -> None:
        """Calls back each time there may be more to read, or this partition can no longer be read here."""
        self._waiters[callback] = None

    def remove_waiter(self, callback: Waiter) -> None:
        self._waiters.pop(callback, None)

    def _tell_waiters(self) -> None:
        for callback in tuple(self._waiters):
            callback()

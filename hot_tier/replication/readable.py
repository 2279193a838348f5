"""One partition as a reader needs it, in any role, and whether or not this broker has a log of it.

The seam between those who serve readers and those who hold records. `local_partition` is a partition with a local log.
One that is read from the bucket alone has a local log start equal to its log end, and `locate` finds nothing in it.

- log start ≤ local log start ≤ log end, and log start ≤ last stable offset ≤ high watermark ≤ log end.
- What lies below the local log start is in the bucket alone.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from hot_tier.cluster.model import Topic
from hot_tier.ids import LeaderEpoch, Offset, TopicPartition
from hot_tier.log.reading import FileSlice, TimestampOffset
from hot_tier.log.transactions import Aborted, AbortedIndex, OpenTransaction

Waiter = Callable[[], None]


class ReadablePartition(Protocol):
    fetched_bytes: int
    """Given to readers, for the metrics."""

    @property
    def tp(self) -> TopicPartition: ...

    @property
    def topic(self) -> Topic: ...

    @property
    def is_led(self) -> bool:
        """Returns whether this broker leads it. Then nobody has more of it."""
        ...

    # Bounds

    @property
    def log_start_offset(self) -> Offset: ...

    @property
    def local_log_start_offset(self) -> Offset: ...

    @property
    def last_stable_offset(self) -> Offset: ...

    @property
    def high_watermark(self) -> Offset: ...

    @property
    def log_end_offset(self) -> Offset: ...

    # Transactions

    @property
    def aborted(self) -> AbortedIndex:
        """Returns the aborted transactions whose markers are in the local log, as of now."""
        ...

    def aborted_transactions(self, from_offset: int, end_offset: int) -> Sequence[Aborted]:
        """Returns the aborted transactions that may have batches in the range of the local log, by first offset."""
        ...

    @property
    def held_by(self) -> OpenTransaction | None:
        """Returns the transaction that holds the last stable offset back, if one does that has not ended."""
        ...

    # Leader epochs

    def check_leader_epoch(self, epoch: int) -> None: ...

    def diverging(self, offset: int, last_epoch: int) -> tuple[LeaderEpoch, Offset] | None: ...

    # Records of the local log

    def locate(self, offset: int, max_bytes: int, end_offset: int, *, min_one: bool = True) -> FileSlice | None: ...

    def read_now(self, found: FileSlice) -> memoryview | None: ...

    async def read(self, found: FileSlice) -> memoryview: ...

    async def offset_for_timestamp(self, timestamp: int, end_offset: int) -> TimestampOffset | None: ...

    async def max_timestamp_offset(self, end_offset: int) -> TimestampOffset | None: ...

    # News

    def add_waiter(self, callback: Waiter) -> None: ...

    def remove_waiter(self, callback: Waiter) -> None: ...

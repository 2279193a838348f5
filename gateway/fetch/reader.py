"""Reads a partition for whoever asks, Kafka client or HTTP caller, from the tier that holds the offset.

Owns: how far a reader may see, and which offsets are out of range. Leaves to `hot_tier.log` where the bytes lie.

A read is two steps, so that a fetch over many partitions can first see how much there is (`locate`, no I/O) and then
take it (`take_now`, or `take` when the bytes are not in memory). `read_now` and `read` are both steps at once.

Offsets: log start ≤ last stable offset ≤ high watermark ≤ log end. Below the log start or above the log end is out of
range; at or above what the reader may see there is nothing yet.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from hot_tier.errors import OffsetOutOfRange
from hot_tier.ids import Offset
from hot_tier.log.reading import FileSlice, TimestampOffset
from hot_tier.replication.partition import Partition

NOTHING: Final = b""


class Isolation(IntEnum):
    """How far a reader sees; the numbers of the first two are Kafka's."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(slots=True)
class Located:
    """What a read would give: where the bytes are, and the offsets around them as of now."""

    partition: Partition
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    found: FileSlice | None
    size: int
    """Bytes to be read, 0 when there is nothing; all that was asked for when only the disk knows."""


@dataclass(slots=True)
class Fetched:
    records: bytes | bytearray | memoryview
    """Record batches from the one that holds the offset on; the last may be cut off."""
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset


class Reader:
    def locate(
        self, partition: Partition, offset: int, max_bytes: int, isolation: int, *, min_one: bool = True
    ) -> Located:
        """With `min_one`, a first batch larger than `max_bytes` is given whole. OffsetOutOfRange, CorruptLog."""
        log = partition.log
        start = log.log_start_offset
        if not start <= offset <= log.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not there",
                where=str(partition.tp),
                hint=f"the log holds {start} to {log.log_end_offset - 1}"
                if log.log_end_offset > start
                else f"the log is empty, the next offset is {start}",
            )
        high_watermark = partition.high_watermark
        stable = partition.last_stable_offset
        end = stable if isolation == Isolation.READ_COMMITTED else high_watermark
        found = None
        if offset < end and (max_bytes > 0 or min_one):
            found = log.locate(Offset(offset), max_bytes, end, min_one=min_one)
        size = 0
        if found is not None:
            size = found.length or max(max_bytes, 1)
        return Located(partition, high_watermark, stable, start, found, size)

    def take_now(self, located: Located) -> Fetched | None:
        """None when the disk would have to be waited for."""
        records: bytes | memoryview = NOTHING
        if located.found is not None:
            cached = located.partition.log.read_now(located.found)
            if cached is None:
                return None
            records = cached
        return Fetched(records, located.high_watermark, located.last_stable_offset, located.log_start_offset)

    async def take(self, located: Located) -> Fetched:
        assert located.found is not None
        records = await located.partition.log.read(located.found)
        return Fetched(records, located.high_watermark, located.last_stable_offset, located.log_start_offset)

    def read_now(self, partition: Partition, offset: int, max_bytes: int, isolation: int) -> Fetched | None:
        return self.take_now(self.locate(partition, offset, max_bytes, isolation))

    async def read(self, partition: Partition, offset: int, max_bytes: int, isolation: int) -> Fetched:
        located = self.locate(partition, offset, max_bytes, isolation)
        now = self.take_now(located)
        return now if now is not None else await self.take(located)

    async def offset_for_timestamp(
        self, partition: Partition, timestamp_ms: int, isolation: int
    ) -> TimestampOffset | None:
        """The earliest record at or after a time, among those that the reader may see."""
        end = partition.last_stable_offset if isolation == Isolation.READ_COMMITTED else partition.high_watermark
        return await partition.log.offset_for_timestamp(timestamp_ms, end)

    async def max_timestamp_offset(self, partition: Partition) -> TimestampOffset | None:
        """The first record with the greatest timestamp of all that are committed."""
        return await partition.log.max_timestamp_offset(partition.high_watermark)

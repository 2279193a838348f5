"""Reads a partition for whoever asks, Kafka client or HTTP caller, from the tier that holds the offset.

Owns: how far a reader may see, which offsets are out of range, and which tier answers. Leaves to `hot_tier.log` and
`cold_tier.reader` where the bytes lie.

A read is two steps, so that a fetch over many partitions can first see how much there is (`locate`, no I/O) and then
take it (`take_now`, or `take` when the bytes are not in memory). `read_now` and `read` are both steps at once.

Offsets: log start ≤ local log start ≤ last stable offset ≤ high watermark ≤ log end. Below the log start or above the
log end is out of range (above a follower's, it only has not come there); at or above what the reader may see there is
nothing yet. From the local log start on the hot tier answers; below it the archive does, and while the archive cannot
be reached or its manifest is not loaded, that is an error to try again, never "out of range": a client would reset its
position.

One answer may run over several row groups of the archive and on into the local log. It waits for its first bytes alone;
what follows is added as far as it is in memory.

- After its first batch, which may begin below the offset, the batches of an answer have ascending offsets: each begins
  at or behind the end of the one before. No record that can be read lies between two of them.
- Damage behind good records is no error of this answer: it ends before, and the next read begins there.
"""

import asyncio
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from cold_tier.catalog import Catalog
from cold_tier.errors import ArchiveNotLoaded, CorruptManifest
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.reader import Manifest
from cold_tier.reader import ColdReader, ColdRecords
from hot_tier.errors import OffsetNotAvailable, OffsetOutOfRange, TierlogError
from hot_tier.ids import Offset, TopicId
from hot_tier.log.reading import FileSlice, TimestampOffset
from hot_tier.replication.readable import ReadablePartition

NOTHING: Final = b""
MOST_LEFT: Final = 1000
"""Reads of the archive that nobody waits for, and errors that nobody was told yet."""


class Isolation(IntEnum):
    """How far a reader sees; the numbers of the first two are Kafka's."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(slots=True)
class ColdSlice:
    """Archived records from `offset` on; how many bytes they are is known once they are here."""

    manifest: Manifest
    offset: Offset
    max_bytes: int
    min_one: bool
    end_offset: Offset
    """How far the reader may see."""
    length: int = 0


@dataclass(slots=True)
class Located:
    """What a read would give: where the bytes are, and the offsets around them as of now."""

    partition: ReadablePartition
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    found: FileSlice | ColdSlice | None
    size: int
    """Bytes to be read, 0 when there is nothing; all that was asked for when only the disk or the bucket knows."""

    @property
    def available(self) -> int:
        """As much of what was asked for as there is, whole batches or not: what a reader waits for."""
        return max(self.size, self.found.available) if isinstance(self.found, FileSlice) else self.size

    @property
    def is_cold(self) -> bool:
        return isinstance(self.found, ColdSlice)


@dataclass(slots=True)
class Fetched:
    records: bytes | bytearray | memoryview
    """Record batches from the one that holds the offset on; the last may be cut off."""
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset


@dataclass(frozen=True, slots=True)
class Archive:
    """The cold tier as a reader needs it: which manifest, and what it names."""

    catalog: Catalog
    reader: ColdReader


class Reader:
    def __init__(self, archive: Archive | None = None) -> None:
        self._archive = archive
        self._left: dict[tuple[TopicId, int, int], asyncio.Task[Fetched]] = {}

    def locate(
        self, partition: ReadablePartition, offset: int, max_bytes: int, isolation: int, *, min_one: bool = True
    ) -> Located:
        """With `min_one`, a first batch larger than `max_bytes` is given whole. OffsetOutOfRange, CorruptLog."""
        start, log_end = partition.log_start_offset, partition.log_end_offset
        if not start <= offset <= log_end:
            if offset >= start and not partition.is_led:
                raise OffsetNotAvailable(f"offset {offset} has not come to this follower", where=str(partition.tp))
            raise OffsetOutOfRange(
                f"offset {offset} is not there",
                where=str(partition.tp),
                hint=f"the log holds {start} to {log_end - 1}"
                if log_end > start
                else f"the log is empty, the next offset is {start}",
            )
        high_watermark = partition.high_watermark
        stable = partition.last_stable_offset
        end = stable if isolation == Isolation.READ_COMMITTED else high_watermark
        found: FileSlice | ColdSlice | None = None
        if offset < end and (max_bytes > 0 or min_one):
            if offset < partition.local_log_start_offset:
                found = ColdSlice(self._manifest(partition, offset), Offset(offset), max_bytes, min_one, end)
            else:
                found = partition.locate(Offset(offset), max_bytes, end, min_one=min_one)
        size = 0
        if found is not None:
            size = found.length or max(max_bytes, 1)
        return Located(partition, high_watermark, stable, start, found, size)

    def take_now(self, located: Located) -> Fetched | None:
        """None when the disk or the bucket would have to be waited for. Raises what a read that was left ended with."""
        records: bytes | memoryview | None = NOTHING
        if isinstance(located.found, ColdSlice):
            cold = located.found
            assert self._archive is not None
            read = self._archive.reader.read_now(
                cold.manifest,
                cold.offset,
                cold.max_bytes,
                min_one=cold.min_one,
                until=_border(located.partition, cold),
            )
            records = None if read is None else _and_hot(located.partition, cold, read)
            left = self._left.get(_place(located.partition, cold.offset)) if records is None else None
            if left is not None and left.done():
                del self._left[_place(located.partition, cold.offset)]
                left.result()
        elif located.found is not None:
            records = located.partition.read_now(located.found)
        return None if records is None else _fetched(located, records)

    async def take(self, located: Located) -> Fetched:
        assert located.found is not None
        cold = located.found
        if not isinstance(cold, ColdSlice):
            partition, hot = located.partition, cold
            try:
                return _fetched(located, await partition.read(hot))
            except OffsetOutOfRange:
                if not partition.log_start_offset <= hot.offset < partition.local_log_start_offset:
                    raise
                # Its local copy was dropped between the two steps.
                manifest = self._manifest(partition, hot.offset)
                cold = ColdSlice(manifest, Offset(hot.offset), hot.max_bytes, hot.min_one, Offset(hot.end_offset))
        assert self._archive is not None
        read = await self._archive.reader.read(
            cold.manifest, cold.offset, cold.max_bytes, min_one=cold.min_one, until=_border(located.partition, cold)
        )
        if read is None:
            raise _hole(located.partition, cold.offset)
        return _fetched(located, _and_hot(located.partition, cold, read))

    def leave(self, located: Located, read: "asyncio.Task[Fetched]") -> Fetched:
        """For a reader that cannot wait for the archive any longer: nothing now. When it comes again, it finds the
        records in memory, or gets the error that this read ends with."""
        assert located.found is not None
        place = _place(located.partition, located.found.offset)
        if place in self._left:
            read.cancel()
        else:
            if len(self._left) >= MOST_LEFT:
                self._left.pop(next(iter(self._left))).cancel()
            self._left[place] = read
            read.add_done_callback(lambda _: self._ended(place, read))
        return _fetched(located, NOTHING)

    def _ended(self, place: tuple[TopicId, int, int], read: "asyncio.Task[Fetched]") -> None:
        if (read.cancelled() or read.exception() is None) and self._left.get(place) is read:
            del self._left[place]

    def read_now(self, partition: ReadablePartition, offset: int, max_bytes: int, isolation: int) -> Fetched | None:
        return self.take_now(self.locate(partition, offset, max_bytes, isolation))

    async def read(self, partition: ReadablePartition, offset: int, max_bytes: int, isolation: int) -> Fetched:
        located = self.locate(partition, offset, max_bytes, isolation)
        now = self.take_now(located)
        return now if now is not None else await self.take(located)

    async def offset_for_timestamp(
        self, partition: ReadablePartition, timestamp_ms: int, isolation: int
    ) -> TimestampOffset | None:
        """The earliest record at or after a time, over both tiers, among those that the reader may see."""
        end = partition.last_stable_offset if isolation == Isolation.READ_COMMITTED else partition.high_watermark
        start = partition.log_start_offset
        while True:
            seam = partition.local_log_start_offset
            found = await self._first_cold(partition, timestamp_ms, start, seam)
            if found is not None:
                return found
            hot = await partition.offset_for_timestamp(timestamp_ms, end)
            if partition.local_log_start_offset == seam:
                return hot
            # Segments went to the bucket alone meanwhile, and the search may have passed them by.
            start = seam

    async def _first_cold(
        self, partition: ReadablePartition, timestamp_ms: int, start: Offset, end: Offset
    ) -> TimestampOffset | None:
        start = max(start, partition.log_start_offset)
        if start >= end:
            return None
        manifest = self._manifest(partition, start)
        assert self._archive is not None
        found = await self._archive.reader.first_at_or_after(manifest, timestamp_ms, start, end)
        if found is None:
            self._manifest(partition, end - 1)  # It is not further on either, or nobody can say.
            return None
        return TimestampOffset(found.timestamp_ms, found.offset, found.leader_epoch)

    async def max_timestamp_offset(self, partition: ReadablePartition) -> TimestampOffset | None:
        """The first record with the greatest timestamp of all that are committed."""
        hot = await partition.max_timestamp_offset(partition.high_watermark)
        # Looked at after the search: what went to the bucket alone during it is looked for there.
        start, seam = partition.log_start_offset, partition.local_log_start_offset
        if start == seam:
            return hot
        self._manifest(partition, start)
        manifest = self._manifest(partition, seam - 1)
        assert self._archive is not None
        latest = await self._archive.reader.greatest_timestamp(manifest, start, seam)
        if latest is None or (hot is not None and hot.timestamp > latest):
            return hot
        return await self._first_cold(partition, latest, start, seam) or hot

    def archived_end(self, partition: ReadablePartition) -> Offset:
        """Archived through here, exclusive; 0 where nothing is, or nothing is known yet."""
        manifest = None if self._archive is None else self._archive.catalog.get(_layout(partition))
        return Offset(0) if manifest is None or not manifest.snapshot.segments else manifest.snapshot.end_offset

    def _manifest(self, partition: ReadablePartition, offset: int) -> Manifest:
        manifest = None if self._archive is None else self._archive.catalog.get(_layout(partition))
        stopped = None if self._archive is None else self._archive.catalog.stopped(_layout(partition))
        if stopped is not None and (manifest is None or not manifest.snapshot.holds(offset)):
            raise type(stopped)(
                f"offset {offset} is not on the local disk, and the archive is stopped: {stopped.what}",
                where=str(partition.tp),
                hint=stopped.hint,
            )
        if manifest is None:
            if self._archive is not None and not partition.is_led:
                self._archive.catalog.want(_layout(partition))
            health = None if self._archive is None else self._archive.catalog.store.health
            raise ArchiveNotLoaded(
                f"offset {offset} is in the bucket, and this partition's manifest has not been read from there yet"
                + (f": {health.words}" if health is not None and health.words else ""),
                where=str(partition.tp),
                hint="try again; if it stays, check the bucket (`tierlog archive status`)"
                if self._archive is not None
                else "start the broker with the --bucket that holds this topic's history",
            )
        if not manifest.snapshot.holds(offset):
            raise _hole(partition, offset)
        return manifest


def _border(partition: ReadablePartition, cold: ColdSlice) -> Offset:
    """Up to here the archive answers."""
    return min(partition.local_log_start_offset, cold.end_offset)


def _and_hot(partition: ReadablePartition, cold: ColdSlice, read: ColdRecords) -> bytes:
    """Archived records, and behind them what the local log has in memory, as far as it fits."""
    left = cold.max_bytes - len(read.data)
    if left <= 0 or not partition.local_log_start_offset <= read.end_offset < cold.end_offset:
        return read.data
    try:
        found = partition.locate(read.end_offset, left, cold.end_offset, min_one=False)
        hot = None if found is None else partition.read_now(found)
    except TierlogError:
        return read.data  # The read that begins there is told.
    # An archived batch may end in the middle of a local one, where the archive was written anew.
    if found is None or not hot or found.base_offset < read.end_offset:
        return read.data
    return b"".join((read.data, hot))


def _place(partition: ReadablePartition, offset: int) -> tuple[TopicId, int, int]:
    return partition.topic.id, partition.tp.partition, offset


def _layout(partition: ReadablePartition) -> PartitionLayout:
    return PartitionLayout(partition.tp.topic, partition.topic.id, partition.tp.partition)


def _fetched(located: Located, records: bytes | memoryview) -> Fetched:
    located.partition.fetched_bytes += len(records)
    return Fetched(records, located.high_watermark, located.last_stable_offset, located.log_start_offset)


def _hole(partition: ReadablePartition, offset: int) -> CorruptManifest:
    return CorruptManifest(
        f"offset {offset} is neither on the local disk nor named by the archive's manifest",
        where=str(partition.tp),
        hint="`tierlog archive verify` shows what the bucket holds",
    )

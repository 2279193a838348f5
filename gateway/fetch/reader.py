"""Reads a partition, for Kafka clients and for HTTP, from the tier that holds the offset.

It decides how far a reader may see, which offsets are out of range, and which tier answers. `hot_tier.log` and
`cold_tier.reader` know where the bytes are.

A read has two steps, so that a fetch over many partitions can first see how much there is (`locate`, no I/O) and then
take it (`take_now`, or `take` when the bytes are not in memory). `read_now` and `read` do both steps.

Offsets: log start ≤ local log start ≤ last stable offset ≤ high watermark ≤ log end. An offset below the log start or
above the log end is out of range; above the log end of a follower, it is only not available yet. At or above the
reader's limit there is nothing to read yet. The hot tier answers from the local log start on; below it the archive
answers. While the archive cannot be reached, or its manifest is not loaded, the answer is an error to try again, never
"out of range": a client would then reset its position.

One answer may contain several row groups of the archive and continue into the local log. It waits only for its first
bytes; what follows is added if it is in memory.

- The first batch of an answer may begin below the offset. Each later batch begins at or after the end of the batch
  before it. Between two batches there is no record that can be read.
- If damage follows good records, the answer ends before the damage without an error. The next read begins at the
  damage.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from cold_tier.catalog import Catalog
from cold_tier.errors import ArchiveNotLoaded, CorruptManifest
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import Snapshot
from cold_tier.manifest.reader import Manifest
from cold_tier.reader import ColdReader, ColdRecords
from hot_tier.errors import OffsetNotAvailable, OffsetOutOfRange, TierlogError
from hot_tier.ids import Offset, TopicId
from hot_tier.log.reading import FileSlice, TimestampOffset
from hot_tier.log.transactions import Aborted, AbortedIndex
from hot_tier.log.visibility import aborted_among
from hot_tier.replication.readable import ReadablePartition

NOTHING: Final = b""
MOST_LEFT: Final = 1000
"""Limit of archive reads that no reader waits for now, and of errors that no reader has received yet."""


class Isolation(IntEnum):
    """How far a reader sees. The numbers are Kafka's."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(slots=True)
class ColdSlice:
    """Archived records from `offset` on. Their size in bytes is known only after the read."""

    manifest: Manifest
    offset: Offset
    max_bytes: int
    min_one: bool
    end_offset: Offset
    """How far the reader may see, exclusive."""
    length: int = 0


@dataclass(slots=True)
class Located:
    """What a read would return: where the bytes are, and the partition's offsets at this moment."""

    partition: ReadablePartition
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    found: FileSlice | ColdSlice | None
    size: int
    """Bytes to be read; 0 when there is nothing; all that was asked for when only the disk or the bucket knows."""
    committed: bool
    """Whether the reader wants committed records alone. The archive gives it no aborted batches and no markers."""
    aborted: AbortedIndex | None = None
    """Only for such a reader, if the local log has any. It is taken before the read, so it covers all that is read."""

    @property
    def available(self) -> int:
        """Returns how many of the requested bytes exist, in whole batches or not. A reader waits until it grows."""
        return max(self.size, self.found.available) if isinstance(self.found, FileSlice) else self.size

    @property
    def is_cold(self) -> bool:
        return isinstance(self.found, ColdSlice)


@dataclass(slots=True)
class Fetched:
    records: bytes | bytearray | memoryview
    """Record batches, beginning with the one that holds the offset; the last batch may be cut off."""
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    aborted: Sequence[Aborted] = ()
    """For read_committed: the aborted transactions that have batches among these records, by first offset. Archived
    records are all committed, so it speaks of those of the local log."""


@dataclass(frozen=True, slots=True)
class Archive:
    """The parts of the cold tier that a reader needs: the manifests, and a reader for the objects they name."""

    catalog: Catalog
    reader: ColdReader


class Reader:
    def __init__(self, archive: Archive | None = None) -> None:
        self._archive = archive
        self._left: dict[tuple[TopicId, int, int], asyncio.Task[Fetched]] = {}

    def locate(
        self, partition: ReadablePartition, offset: int, max_bytes: int, isolation: int, *, min_one: bool = True
    ) -> Located:
        """Finds what a read would return. Raises OffsetOutOfRange, CorruptLog and others.

        With `min_one`, the first batch is returned whole even if it is larger than `max_bytes`.
        """
        start, log_end = partition.log_start_offset, partition.log_end_offset
        if not start <= offset <= log_end:
            if offset >= start and not partition.is_led:
                raise OffsetNotAvailable(
                    f"offset {offset} has not been replicated to this follower yet", where=str(partition.tp)
                )
            raise OffsetOutOfRange(
                f"offset {offset} is not in the log",
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
        committed = isolation == Isolation.READ_COMMITTED
        aborted = partition.aborted if committed and found is not None else None
        return Located(partition, high_watermark, stable, start, found, size, committed, aborted or None)

    def take_now(self, located: Located) -> Fetched | None:
        """Returns None if the disk or the bucket must be waited for. Raises the error of a read that `leave` took."""
        records: bytes | memoryview | None = NOTHING
        cold_bytes = 0
        if isinstance(located.found, ColdSlice):
            cold = located.found
            assert self._archive is not None
            read = self._archive.reader.read_now(
                cold.manifest,
                cold.offset,
                cold.max_bytes,
                min_one=cold.min_one,
                until=_border(located.partition, cold),
                committed=located.committed,
            )
            records = None if read is None else _and_hot(located.partition, cold, read)
            cold_bytes = 0 if read is None else len(read.data)
            left = self._left.get(_place(located.partition, cold.offset)) if records is None else None
            if left is not None and left.done():
                del self._left[_place(located.partition, cold.offset)]
                left.result()
        elif located.found is not None:
            records = located.partition.read_now(located.found)
        return None if records is None else _fetched(located, records, cold_bytes)

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
                # The local copy was dropped between the two steps.
                manifest = self._manifest(partition, hot.offset)
                cold = ColdSlice(manifest, Offset(hot.offset), hot.max_bytes, hot.min_one, Offset(hot.end_offset))
        assert self._archive is not None
        read = await self._archive.reader.read(
            cold.manifest,
            cold.offset,
            cold.max_bytes,
            min_one=cold.min_one,
            until=_border(located.partition, cold),
            committed=located.committed,
        )
        if read is None:
            raise _hole(located.partition, cold.offset)
        return _fetched(located, _and_hot(located.partition, cold, read), len(read.data))

    def leave(self, located: Located, read: "asyncio.Task[Fetched]") -> Fetched:
        """Returns no records, for a reader that cannot wait for the archive any longer. `read` goes on: when the reader
        comes again, it finds the records in memory or gets the error of this read."""
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
        """Returns the earliest record of both tiers at or after a time that the reader may see."""
        end = partition.last_stable_offset if isolation == Isolation.READ_COMMITTED else partition.high_watermark
        start = partition.log_start_offset
        while True:
            seam = partition.local_log_start_offset
            found = await self._first_cold(partition, timestamp_ms, start, seam, isolation)
            if found is not None:
                return found
            hot = await partition.offset_for_timestamp(timestamp_ms, end)
            if partition.local_log_start_offset == seam:
                return hot
            # Meanwhile local copies of archived segments were dropped, and the search may have missed their records.
            start = seam

    async def _first_cold(
        self, partition: ReadablePartition, timestamp_ms: int, start: Offset, end: Offset, isolation: int
    ) -> TimestampOffset | None:
        start = max(start, partition.log_start_offset)
        if start >= end:
            return None
        manifest = self._manifest(partition, start)
        assert self._archive is not None
        committed = isolation == Isolation.READ_COMMITTED
        found = await self._archive.reader.first_at_or_after(manifest, timestamp_ms, start, end, committed=committed)
        if found is None:
            self._manifest(partition, end - 1)  # Raises if the manifest ends earlier.
            return None
        return TimestampOffset(found.timestamp_ms, found.offset, found.leader_epoch)

    async def max_timestamp_offset(
        self, partition: ReadablePartition, isolation: int = Isolation.READ_UNCOMMITTED
    ) -> TimestampOffset | None:
        """Returns the first record with the greatest timestamp of all that the reader may see."""
        committed = isolation == Isolation.READ_COMMITTED
        end = partition.last_stable_offset if committed else partition.high_watermark
        hot = await partition.max_timestamp_offset(end)
        # Read after the search: segments whose local copies were dropped during it are searched in the bucket.
        start, seam = partition.log_start_offset, partition.local_log_start_offset
        if start == seam:
            return hot
        self._manifest(partition, start)
        manifest = self._manifest(partition, seam - 1)
        assert self._archive is not None
        latest = await self._archive.reader.greatest_timestamp(manifest, start, seam, committed=False)
        if latest is None or (hot is not None and hot.timestamp > latest):
            return hot
        return await self._first_cold(partition, latest, start, seam, Isolation.READ_UNCOMMITTED) or hot

    def archived_end(self, partition: ReadablePartition) -> Offset:
        """Returns the end of what is archived, exclusive; 0 if nothing is archived, or if that is not known yet."""
        manifest = None if self._archive is None else self._archive.catalog.get(_layout(partition))
        return Offset(0) if manifest is None or not manifest.snapshot.segments else manifest.snapshot.end_offset

    def snapshot(self, partition: ReadablePartition) -> Snapshot | None:
        """Returns what is archived, for those who read the bucket themselves; None if that is not known here."""
        manifest = None if self._archive is None else self._archive.catalog.get(_layout(partition))
        return None if manifest is None else manifest.snapshot

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
                hint="try again; if it fails again, check the bucket (`tierlog archive status`)"
                if self._archive is not None
                else "start the broker with the --bucket that holds this topic's history",
            )
        if not manifest.snapshot.holds(offset):
            raise _hole(partition, offset)
        return manifest


def _border(partition: ReadablePartition, cold: ColdSlice) -> Offset:
    """Returns the offset up to which the archive answers."""
    return min(partition.local_log_start_offset, cold.end_offset)


def _and_hot(partition: ReadablePartition, cold: ColdSlice, read: ColdRecords) -> bytes:
    """Returns the archived records, followed by records of the local log that are in memory and fit."""
    left = cold.max_bytes - len(read.data)
    if left <= 0 or not partition.local_log_start_offset <= read.end_offset < cold.end_offset:
        return read.data
    try:
        found = partition.locate(read.end_offset, left, cold.end_offset, min_one=False)
        hot = None if found is None else partition.read_now(found)
    except TierlogError:
        return read.data  # The read that begins there gets the error.
    # If the archive was rewritten, an archived batch may end in the middle of a local batch.
    if found is None or not hot or found.base_offset < read.end_offset:
        return read.data
    return b"".join((read.data, hot))


def _place(partition: ReadablePartition, offset: int) -> tuple[TopicId, int, int]:
    return partition.topic.id, partition.tp.partition, offset


def _layout(partition: ReadablePartition) -> PartitionLayout:
    return PartitionLayout(partition.tp.topic, partition.topic.id, partition.tp.partition)


def _fetched(located: Located, records: bytes | memoryview, cold_bytes: int = 0) -> Fetched:
    """`cold_bytes`: so many of them came from the archive, where nothing was aborted."""
    located.partition.fetched_bytes += len(records)
    aborted: Sequence[Aborted] = ()
    if located.aborted is not None and len(records) > cold_bytes:
        aborted = aborted_among(located.aborted, memoryview(records)[cold_bytes:])
    return Fetched(records, located.high_watermark, located.last_stable_offset, located.log_start_offset, aborted)


def _hole(partition: ReadablePartition, offset: int) -> CorruptManifest:
    return CorruptManifest(
        f"offset {offset} is neither on the local disk nor named by the archive's manifest",
        where=str(partition.tp),
        hint="`tierlog archive verify` shows what the bucket holds",
    )

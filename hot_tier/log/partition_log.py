"""One partition's log, as those use it who append, read, and apply a topic's settings.

Reading is `reading`'s, what is on disk and synced `stored_log`'s. What is committed, who leads and who is in sync is
`hot_tier.replication`'s.

A batch is stored as it came, but for base offset and leader epoch, and what a topic setting asks for (LogAppendTime, a
codec). One batch is one write; everything else about an append is a few microseconds of bookkeeping in memory.
"""

from typing import NamedTuple

from hot_tier.errors import CorruptBatch, DiskFull, OffsetOutOfRange, StorageFailure
from hot_tier.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from hot_tier.log.config import TopicConfig
from hot_tier.log.disk import Disk
from hot_tier.log.reading import FileSlice, LogReader, TimestampOffset
from hot_tier.log.retention import expired, roll_for_write
from hot_tier.log.segment import Segment
from hot_tier.log.state import LogState
from hot_tier.log.stored_log import StoredLog
from hot_tier.record.batch import BatchHeader, assign, check_crc, iter_headers, stamp_append_time
from hot_tier.record.recompression import recompressed


class Appended(NamedTuple):
    base_offset: Offset
    end_offset: Offset
    log_append_time_ms: int
    """-1 where records keep the producer's time."""
    duplicate: bool


class PartitionLog(StoredLog):
    def __init__(
        self,
        disk: Disk,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
        state: LogState | None = None,
    ) -> None:
        super().__init__(disk, topic_partition, topic_id, config, state)
        self._reader = LogReader(str(topic_partition), disk, self._segments, lambda: self.epochs.history())
        self.appended_batches = 0
        self.appended_bytes = 0

    # Appending

    def append(self, batch: memoryview | bytearray, header: BatchHeader, leader_epoch: int, now_ms: int) -> Appended:
        """As leader: gives the batch its offset and epoch, in place. `header` is what validation read."""
        config = self.config
        producer_id = header.producer_id
        if producer_id >= 0:
            stored = self.producers.check(header)
            if stored is not None:
                return Appended(Offset(stored.base_offset), Offset(stored.end_offset), -1, True)
        if config.compression_type != "producer":
            batch, header = recompressed(batch, header, config.compression_type)
        max_timestamp = header.max_timestamp
        append_time = -1
        if config.log_append_time:
            stamp_append_time(batch, now_ms)
            max_timestamp = append_time = now_ms
        segment = self._writable(len(batch), header.last_offset_delta, now_ms)
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        assign(batch, base_offset, leader_epoch)
        if leader_epoch > self.epochs.latest or self._epochs_ahead:
            self._announce_epoch(leader_epoch, base_offset)
        self._write(segment, batch, base_offset, last_offset, max_timestamp)
        self.epochs.assign(leader_epoch, base_offset)
        if producer_id >= 0:
            self.producers.wrote(
                producer_id,
                header.producer_epoch,
                header.base_sequence,
                base_offset,
                last_offset,
                header.attributes,
                now_ms,
            )
        if not self._dirty_since_ms:
            self._dirty_since_ms = now_ms
        self.appended_batches += 1
        self.appended_bytes += len(batch)
        self.log_end_offset = end_offset = Offset(last_offset + 1)
        return Appended(base_offset, end_offset, append_time, False)

    def append_replica(self, batches: memoryview, leader_epoch: int, now_ms: int, gaps_below: int = 0) -> None:
        """As follower: takes the leader's whole batches as they are. Offsets go on from the log end without a gap, but
        for those that compaction has left at the leader, which lie below `gaps_below`.

        Each batch is checked before it is written; those before a bad one are kept.
        """
        for position, header in list(iter_headers(batches)):
            check_crc(batches, header, position)
            if not self.log_end_offset <= header.base_offset <= max(self.log_end_offset, gaps_below) or (
                header.last_offset_delta < 0
            ):
                raise CorruptBatch(
                    f"the leader sent offset {header.base_offset}, the log goes on at {self.log_end_offset}",
                    where=str(self.tp),
                )
            if not self.epochs.latest <= header.leader_epoch <= leader_epoch:
                raise CorruptBatch(
                    f"the leader of epoch {leader_epoch} sent a batch of epoch {header.leader_epoch}, "
                    f"the log is in {self.epochs.latest}",
                    where=str(self.tp),
                )
            span = header.last_offset - self.log_end_offset
            segment = self._writable(header.size, span, now_ms, first_offset=header.base_offset)
            if header.base_offset > self.log_end_offset:
                self._note_gaps(gaps_below)
            batch = batches[position : position + header.size]
            if header.leader_epoch > self.epochs.latest or self._epochs_ahead:
                self._announce_epoch(header.leader_epoch, header.base_offset)
            self._write(segment, batch, header.base_offset, header.last_offset, header.max_timestamp)
            self.epochs.assign(header.leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                self.producers.wrote(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.base_offset,
                    header.last_offset,
                    header.attributes,
                    now_ms,
                )
            self._dirty_since_ms = self._dirty_since_ms or now_ms
            self.appended_batches += 1
            self.appended_bytes += header.size
            self.log_end_offset = Offset(header.last_offset + 1)

    def _writable(self, size: int, offsets: int, now_ms: int, *, first_offset: int | None = None) -> Segment:
        """The segment that the next batch goes to, rolled if need be."""
        if self.failure is not None:
            raise self.failure
        if self._disk.full:
            self._disk.check_room()
        active = self._segments.active
        if active is None:
            active = self._start(self.log_end_offset if first_offset is None else first_offset)
        elif (active.size and now_ms >= self._roll_at_ms) or roll_for_write(
            self.config,
            size=active.size,
            batch_bytes=size,
            offset_span=self.log_end_offset - active.base_offset + offsets,
            index_entries=len(active.index.offsets) if active.index is not None else 0,
        ):
            active = self.roll(now_ms)
        if active.size == 0:
            active.created_ms = now_ms
            self._roll_at_ms = self._roll_time(active)
        return active

    def _write(
        self,
        segment: Segment,
        batch: memoryview | bytearray,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
    ) -> None:
        try:
            segment.append(batch, base_offset, last_offset, max_timestamp)
            self._epochs_ahead = False
        except DiskFull:
            self._disk.full = True
            raise
        except StorageFailure as error:
            self.fail(error)
            raise

    def maybe_roll(self, now_ms: int) -> bool:
        """Rolls by age; the log manager asks regularly, so that an idle log is closed too."""
        active = self._segments.active
        if active is None or not active.size or now_ms < self._roll_at_ms or self.failure is not None:
            return False
        self.roll(now_ms)
        return True

    # Reading

    def locate(self, offset: int, max_bytes: int, end_offset: int, *, min_one: bool = True) -> FileSlice | None:
        """Where the batch of `offset` and those after it are; never waits for the disk."""
        return self._reader.locate(
            offset,
            max_bytes,
            end_offset,
            min_one=min_one,
            start=self.local_log_start_offset,
            end=self.log_end_offset,
        )

    def gaps_below(self, slice_: FileSlice) -> int:
        """Up to where batches may be missing between `slice_.offset` and the end of the slice, because compaction took
        them; 0: nowhere."""
        end = 0
        segment: Segment | None = self._segments.holding(slice_.offset)
        while segment is not None and segment.base_offset <= slice_.segment.base_offset:
            if not segment.dense:
                end = segment.end_offset
            segment = self._segments.after(segment)
        return end

    def read_now(self, slice_: FileSlice) -> memoryview | None:
        """The bytes, if the page cache has them and they have been checked; None means: use `read`."""
        return self._reader.read_now(slice_)

    async def read(self, slice_: FileSlice) -> memoryview:
        """The bytes, read and checked in a thread; up to the first damaged batch, CorruptLog if that is the first."""
        return await self._reader.read(slice_)

    async def offset_for_timestamp(self, timestamp: int, end_offset: int) -> TimestampOffset | None:
        """The earliest record before `end_offset` whose timestamp is `timestamp` or later."""
        return await self._reader.offset_for_timestamp(timestamp, self.local_log_start_offset, end_offset)

    async def max_timestamp_offset(self, end_offset: int | None = None) -> TimestampOffset | None:
        """The first record with the greatest timestamp."""
        end = self.log_end_offset if end_offset is None else end_offset
        return await self._reader.max_timestamp_offset(self.local_log_start_offset, end)

    def end_of_epoch(self, epoch: int) -> tuple[LeaderEpoch, Offset]:
        return self.epochs.end_of(epoch, self.log_end_offset)

    # Deleting

    def delete_records_before(self, offset: int) -> None:
        """Moves the log start up to `offset`; segments wholly below it go. The caller knows that it is committed."""
        if offset > self.log_end_offset:
            raise OffsetOutOfRange(
                f"cannot delete records up to {offset}, the log ends at {self.log_end_offset}", where=str(self.tp)
            )
        if offset > self.log_start_offset:
            self._move_log_start(offset)

    def drop_local_before(self, offset: int, now_ms: int) -> int:
        """Deletes local segments wholly below `offset`, which the bucket holds; the log start stays. How many."""
        count = 0
        if self._swap is not None:
            return count
        for segment in self._segments:
            if not segment.seal_written or segment.end_offset > offset:
                break
            count += 1
        if count:
            self._drop_oldest(count, now_ms)
        return count

    def apply_retention(self, now_ms: int, deletable_end: int | None = None) -> int:
        """Deletes what retention.ms, retention.bytes and the log start leave over; how many segments went.

        Nothing at or above `deletable_end` goes; by default that is what is committed.
        """
        if self.failure is not None or self._swap is not None or not len(self._segments):
            return 0
        if deletable_end is None:
            deletable_end = self.log_end_offset if self.committed_offset is None else self.committed_offset
        count = expired(
            self.config,
            self.segments(),
            log_start_offset=self.log_start_offset,
            deletable_end=deletable_end,
            now_ms=now_ms,
        )
        if count == 0:
            return 0
        if count == len(self._segments):
            self.roll(now_ms)
        # A segment takes the producer state at its end with it, so that must be on the disk first.
        count = next(at for at, segment in enumerate(self._segments) if at == count or not segment.seal_written)
        start = self._segments[count].base_offset
        if start > self.log_start_offset:
            self._move_log_start(start)
        self._drop_oldest(count, now_ms)
        return count

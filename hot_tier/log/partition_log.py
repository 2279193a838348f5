"""One partition's log, for those who append, read, and apply a topic's settings.

Its parts: `log_files` is what is on disk, `log_sync` how far that is durable, `reading` the reads. The log itself keeps
the leader epochs and producers of its batches. `hot_tier.replication` knows what is committed, who leads and who is in
sync. Everything here changes on the event loop's thread only.

A batch is stored as it came, but for base offset and leader epoch, and what a topic setting asks for (LogAppendTime, a
codec). One batch is one write; everything else about an append is a few microseconds of bookkeeping in memory.

Invariant: log_start_offset ≤ local_log_start_offset ≤ flushed_offset ≤ log_end_offset, as far as the log is local.
"""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hot_tier.clock import wall_ms
from hot_tier.errors import DiskFull, OffsetOutOfRange, StorageFailure
from hot_tier.ids import Offset, TopicId, TopicPartition
from hot_tier.log.compaction.swap import Swap
from hot_tier.log.config import TopicConfig
from hot_tier.log.disk import Disk
from hot_tier.log.epochs import LeaderEpochs
from hot_tier.log.index import Seal, SparseIndex
from hot_tier.log.log_view import LogView
from hot_tier.log.producer_snapshots import restore_history, restore_producers
from hot_tier.log.producers import ProducerState
from hot_tier.log.retention import expired, roll_at_ms, roll_for_write
from hot_tier.log.segment import Segment
from hot_tier.log.segment_info import SegmentInfo
from hot_tier.log.state import LogState
from hot_tier.log.transactions import Verification
from hot_tier.record.batch import (
    BatchHeader,
    assign,
    check_crc,
    check_follows,
    iter_headers,
    read_header,
    stamp_append_time,
)
from hot_tier.record.control import Marker, encode_marker, read_marker
from hot_tier.record.recompression import recompressed


class Appended(NamedTuple):
    base_offset: Offset
    end_offset: Offset
    log_append_time_ms: int
    """-1 where records keep the producer's time."""
    duplicate: bool


class PartitionLog(LogView):
    def __init__(
        self,
        disk: Disk,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
        state: LogState | None = None,
    ) -> None:
        super().__init__(disk, topic_partition, topic_id, config, state or LogState())
        self.config = config
        self.request_flush: Callable[[], None] = lambda: None
        """Asks for a sync soon, of `Flusher`. Without one nobody syncs by itself: `flush` does."""
        self.committed_offset: Offset | None = None
        """Replication's high watermark; nothing at or above it is deleted or compacted. None: the log end."""
        self.appended_batches = 0
        self.appended_bytes = 0
        self._set_roll_time()

    # What is known of it

    def note_damage(self, info: SegmentInfo, what: str) -> None:
        """Notes that a segment's file is not what its seal says."""
        self._segments.note_damage(info, what)

    def renew(self, info: SegmentInfo, copy: str | None = None) -> bool:
        if self.sync.failure is not None:
            return False
        unread = any(each.unread for each in self._segments if each.base_offset == info.base_offset)
        renewed = self._files.renew(info, copy)
        if renewed and unread:
            # What ended in it was not known until now. Waits for the disk; seldom needed.
            self.producers = restore_history(self.directory, list(self._segments), self.log_end_offset, wall_ms())
            self._recommit()
        return renewed

    def trust(self) -> None:
        """Ends the doubt: what the log holds is all that there is, or it holds nothing."""
        self._disk.doubts.settle({self._key})

    def flush(self) -> None:
        self.sync.flush()

    def set_config(self, config: TopicConfig) -> None:
        self.config = config
        self._files.set_index_interval(config.index_interval_bytes)
        self._set_roll_time()

    def _recommit(self) -> None:
        """Tells transactions that were learnt anew what is committed."""
        if self.committed_offset is not None:
            self.producers.transactions.committed(self.committed_offset)

    def commit(self, high_watermark: Offset) -> None:
        """Notes how far replication has committed the log."""
        self.committed_offset = high_watermark
        self.producers.transactions.committed(high_watermark)

    # Appending

    def append(
        self,
        batch: memoryview | bytearray,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
        verification: Verification | None = None,
    ) -> Appended:
        """As leader: gives the batch its offset and epoch, in place. `header` is what validation read."""
        config = self.config
        if header.producer_id >= 0:
            stored = self.producers.check(header, verification)
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
        assign(batch, base_offset, leader_epoch)
        self._write(segment, batch, header, base_offset, leader_epoch, max_timestamp, now_ms)
        return Appended(base_offset, self.log_end_offset, append_time, False)

    def append_marker(
        self, producer_id: int, producer_epoch: int, marker: Marker, leader_epoch: int, now_ms: int, version: int
    ) -> Appended:
        """As leader: ends the producer's transaction. `version` is that of transactions, for the rule of epochs. A full
        disk does not stop it: else open transactions would keep the archive from making room."""
        self.producers.check_marker(producer_id, producer_epoch, marker, version)
        batch = encode_marker(producer_id, producer_epoch, marker, now_ms)
        segment = self._writable(len(batch), 0, now_ms, urgent=True)
        base_offset = self.log_end_offset
        assign(batch, base_offset, leader_epoch)
        self._write(segment, batch, read_header(batch), base_offset, leader_epoch, now_ms, now_ms, marker)
        return Appended(base_offset, self.log_end_offset, -1, False)

    def append_replica(self, batches: memoryview, leader_epoch: int, now_ms: int, gaps_below: int = 0) -> None:
        """As follower: takes the leader's whole batches as they are. Offsets go on from the log end without a gap, but
        for those that compaction has left at the leader, which lie below `gaps_below`.

        Each batch is checked before it is written; those before a bad one are kept.
        """
        for position, header in list(iter_headers(batches)):
            check_crc(batches, header, position)
            check_follows(header, self.tp, self.log_end_offset, gaps_below, self.epochs.latest, leader_epoch)
            marker = read_marker(batches, header, position) if header.is_control else None
            base_offset = Offset(header.base_offset)
            span = header.last_offset - self.log_end_offset
            segment = self._writable(header.size, span, now_ms, first_offset=base_offset)
            if base_offset > self.log_end_offset:
                self._files.note_gaps(gaps_below)
            batch = batches[position : position + header.size]
            epoch = header.leader_epoch
            self._write(segment, batch, header, base_offset, epoch, header.max_timestamp, now_ms, marker)

    def _writable(
        self, size: int, offsets: int, now_ms: int, *, first_offset: int | None = None, urgent: bool = False
    ) -> Segment:
        """Returns the segment that the next batch goes to, rolled if need be."""
        if self.sync.failure is not None:
            raise self.sync.failure
        if self._disk.full and not urgent:
            self._disk.check_room()
        active = self._segments.active
        if active is None:
            active = self._files.begin(self.log_end_offset if first_offset is None else first_offset)
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
            self._set_roll_time()
        return active

    def _write(
        self,
        segment: Segment,
        batch: memoryview | bytearray,
        header: BatchHeader,
        base_offset: Offset,
        leader_epoch: int,
        max_timestamp: int,
        now_ms: int,
        marker: Marker | None = None,
    ) -> None:
        files, epochs = self._files, self.epochs
        last_offset = base_offset + header.last_offset_delta
        if leader_epoch > epochs.latest or files.epochs_ahead:
            files.announce_epoch(epochs, leader_epoch, base_offset)
        try:
            segment.append(batch, base_offset, last_offset, max_timestamp)
        except DiskFull:
            self._disk.full = True
            raise
        except StorageFailure as error:
            self.sync.fail(error)
            raise
        files.epochs_ahead = False
        epochs.assign(leader_epoch, base_offset)
        if header.producer_id >= 0:
            epoch, sequence, attributes = header.producer_epoch, header.base_sequence, header.attributes
            self.producers.wrote(
                header.producer_id, epoch, sequence, base_offset, last_offset, attributes, now_ms, marker
            )
        if not self.sync.dirty_since_ms:
            self.sync.dirty_since_ms = now_ms
        self.appended_batches += 1
        self.appended_bytes += len(batch)
        self.log_end_offset = Offset(last_offset + 1)

    def roll(self, now_ms: int) -> Segment:
        """Closes the active segment, unless it is empty, and opens the next one at the log end."""
        active = self._segments.active
        assert active is not None
        if active.size == 0:
            return active
        fresh = self._files.add_segment(self.log_end_offset)
        self._files.close_segment(active, self.producers)
        self.request_flush()
        return fresh

    def maybe_roll(self, now_ms: int) -> bool:
        """Rolls by age; the log manager asks regularly, so that an idle log is closed too. One that is damaged is
        closed at once: only closed segments are mended."""
        active = self._segments.active
        if active is None or not active.size or self.failure is not None:
            return False
        if now_ms < self._roll_at_ms and not active.damage.what:
            return False
        self.roll(now_ms)
        return True

    def _set_roll_time(self) -> None:
        active = self._segments.active
        self._roll_at_ms = 0
        if active is not None:
            self._roll_at_ms = roll_at_ms(self.config, base_offset=active.base_offset, created_ms=active.created_ms)

    # Compaction

    @property
    def compactable_end(self) -> Offset:
        """Returns the end of what may be compacted. The rest is not committed, or a transaction there is undecided."""
        bounds = (self.committed_offset, self.first_unstable_offset, self.flushed_offset)
        return Offset(min(bound for bound in bounds if bound is not None))

    def begin_swap(self, base_offsets: Sequence[int]) -> Swap | None:
        return self._files.begin_swap(base_offsets) if self.failure is None else None

    def finish_swap(self, swap: Swap, seal: Seal, index: SparseIndex) -> bool:
        done = self.failure is None and self._files.finish_swap(swap, seal, index)
        if done:
            self.producers.transactions.forget_aborted(seal.base_offset, seal.end_offset)
        return done

    def cancel_swap(self) -> None:
        self._files.cancel_swap()

    # Cutting

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """As follower: forgets everything from the batch of `offset` on. Waits for the disk; seldom needed."""
        if offset >= self.log_end_offset:
            return
        if offset < self._segments[0].base_offset:
            self.reset_to(offset, now_ms)
            return
        kept = self._segments.holding(offset)
        with self.sync.whole_or_failed():
            self._cut(kept)
            kept.truncate(offset)
            self._after_cut(kept, now_ms)

    def reset_to(self, offset: int, now_ms: int) -> None:
        """Forgets everything and continues, empty, at `offset`. What was known of epochs and producers is forgotten
        too, because it lacks what the leader wrote since. It is removed before the records: recovery finds it again in
        records that are there, and would believe it if they were not."""
        os.makedirs(self.directory, exist_ok=True)
        self._files.write_start(offset)
        with self.sync.whole_or_failed():
            self.flush()
            self._files.remove_history()
            self._cut(None)
            self.epochs, self.producers = LeaderEpochs(), ProducerState()
            self._after_cut(self._files.begin(offset), now_ms)
        self.trust()

    def start_from_archive(
        self, start_offset: int, end_offset: int, epochs: list[tuple[int, int]], producers: ProducerState
    ) -> None:
        """Forgets everything and continues, empty, at `end_offset`, where the archive ends. The history is on disk
        before the segment that continues it. Waits for the disk."""
        os.makedirs(self.directory, exist_ok=True)
        self._files.write_start(start_offset, local=end_offset, synced=True)
        with self.sync.whole_or_failed():
            if len(self._segments):
                self._cut(None)
            self.epochs = LeaderEpochs(epochs)
            self.producers = producers
            self._files.write_history(self.epochs, producers.write(end_offset), end_offset)
            self.log_end_offset = self.sync.flushed_offset = Offset(end_offset)
            self._files.add_segment(end_offset)
            self._set_roll_time()
            self.flush()

    def _cut(self, kept: Segment | None) -> None:
        self._files.cancel_swap()
        self.flush()
        self._files.cut(kept)

    def _after_cut(self, active: Segment, now_ms: int) -> None:
        end = Offset(active.end_offset)
        self.log_end_offset = end
        self.sync.flushed_offset = min(self.flushed_offset, Offset(active.base_offset))
        if self.log_start_offset > end:
            self._files.write_start(end)
        self._set_roll_time()
        self.epochs.truncate_end(end)
        aborted = self.aborted.between(0, end)
        self.producers = restore_producers(self.directory, list(self._segments), end, now_ms)
        self.producers.transactions.aborted = aborted
        self._recommit()
        self._files.write_epochs(self.epochs)
        self.flush()

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
        """Deletes local segments wholly below `offset`, which the bucket holds. Returns how many."""
        if self._files.swapping:
            return 0
        count = self._segments.sealed_below(offset)
        if count:
            self._drop_oldest(count, now_ms)
        return count

    def _drop_oldest(self, count: int, now_ms: int) -> None:
        self._files.drop_oldest(count, now_ms + self.config.file_delete_delay_ms)
        self.producers.transactions.forget_aborted(0, self._segments[0].base_offset)

    def apply_retention(self, now_ms: int, deletable_end: int | None = None) -> int:
        """Deletes what retention.ms, retention.bytes and the log start do not keep. Returns the number of segments
        deleted.

        Nothing at or above `deletable_end` is deleted; by default that is the end of what is committed.
        """
        if self.failure is not None or self._files.swapping or not len(self._segments):
            return 0
        if deletable_end is None:
            deletable_end = self.log_end_offset if self.committed_offset is None else self.committed_offset
        if self.first_unstable_offset is not None:
            # Else readers would get the rest of a transaction without its beginning.
            deletable_end = min(deletable_end, self.first_unstable_offset)
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
        # The producer state at a segment's end goes with the segment, so the later state must be on the disk first.
        count = min(count, self._segments.sealed_below(self.log_end_offset))
        start = self._segments[count].base_offset
        if start > self.log_start_offset:
            self._move_log_start(start)
        self._drop_oldest(count, now_ms)
        return count

    def _move_log_start(self, offset: int) -> None:
        self._files.write_start(offset)
        if self.epochs.truncate_start(offset):
            self._files.write_epochs(self.epochs)

    # Ending

    def state(self) -> LogState:
        """Returns the log as it is written down at a clean stop."""
        segments, start_known = list(self._segments), self._files.start_known
        return LogState(self.directory, segments, self.log_start_offset, self.epochs, self.producers, start_known)

    def close(self) -> None:
        """Closes the files. What was not synced stays in the page cache."""
        for segment in self._segments:
            segment.close()

    def discard(self) -> None:
        """Ends the log because its partition is deleted: none of its files is opened or written again."""
        self.sync.failure = StorageFailure("the partition was deleted", where=str(self.tp))
        for segment in self._segments.drop_from(0):
            segment.retire()

"""What one partition has on disk, and how that changes: segments, leader epochs, producer state, and what is synced.

Everything here changes on the event loop's thread only. The order in which files are written, cut and removed is such
that whatever a crash leaves, `recovery` finds a log that lost nothing synced. The files themselves are `log_files`'s.
When to append, roll or delete is decided by `partition_log`.

Invariants:
- log_start_offset ≤ local_log_start_offset ≤ flushed_offset ≤ log_end_offset, as far as the log is local.
- After a failed sync or a write that could not be undone the log takes no more writes: `failure` says why.
"""

import os
from collections.abc import Callable, Iterator, Sequence

import structlog

from hot_tier.errors import StorageFailure, TierlogError
from hot_tier.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from hot_tier.log import names
from hot_tier.log.compaction.swap import Swap
from hot_tier.log.config import TopicConfig
from hot_tier.log.disk import Disk, remove
from hot_tier.log.epochs import LeaderEpochs
from hot_tier.log.files import check_in_place, replace_synced, write_synced
from hot_tier.log.flush_job import FlushJob
from hot_tier.log.index import Seal, SparseIndex
from hot_tier.log.log_files import LogFiles
from hot_tier.log.producer_snapshots import restore_producers, snapshot_offsets, snapshot_path
from hot_tier.log.producers import ProducerState, ProducerView
from hot_tier.log.recovery_points import RecoveryPoint
from hot_tier.log.retention import roll_at_ms
from hot_tier.log.segment import Segment
from hot_tier.log.segment_info import SegmentInfo
from hot_tier.log.segments import SegmentList
from hot_tier.log.state import LogState

_log = structlog.get_logger()


class StoredLog:
    def __init__(
        self,
        disk: Disk,
        topic_partition: TopicPartition,
        topic_id: TopicId,
        config: TopicConfig,
        state: LogState | None = None,
    ) -> None:
        state = state or LogState()
        self.tp = topic_partition
        self.topic_id = topic_id
        self.config = config
        self.directory = os.path.join(
            disk.logs_directory,
            names.topic_directory(topic_partition.topic, topic_id),
            names.partition_directory(topic_partition.partition),
        )
        self.epochs = state.epochs
        self.producers = state.producers
        self.failure: StorageFailure | None = None
        self.request_flush: Callable[[], None] = _nobody
        """Asks for a sync soon, of `Flusher`."""
        self.flush_listener: Callable[[], None] | None = None
        """Called on the loop when `flushed_offset` moved or `failure` was set."""
        self.committed_offset: Offset | None = None
        """Replication's high watermark; nothing at or above it is deleted or compacted. None: the log end."""
        self.first_unstable_offset: Offset | None = None
        """Where the first open transaction starts."""
        self.flushes = 0
        self._key = (topic_id, int(topic_partition.partition))
        self._disk = disk
        self._segments = SegmentList(state.segments)
        active = self._segments.active
        first = self._segments[0].base_offset if active is not None else 0
        self.log_end_offset = Offset(active.end_offset if active is not None else state.start_offset)
        self.log_start_offset = Offset(
            state.start_offset if config.remote_storage_enable else max(state.start_offset, first)
        )
        self.flushed_offset = self.log_end_offset
        self._roll_at_ms = 0
        if active is not None:
            active.index_interval = config.index_interval_bytes
            self._roll_at_ms = self._roll_time(active)
        self._dirty_since_ms = 0
        self._files = LogFiles(disk, self.directory, new=active is None, start_known=state.start_known)
        self._epochs_ahead = False
        """The file names an epoch of which no batch is written."""
        self._gaps_below = state.gaps_below
        """No batch that starts after it leaves a gap behind the one before it."""
        self._jobs: list[FlushJob] = []
        self._swap: Swap | None = None

    # What it holds

    @property
    def local_log_start_offset(self) -> Offset:
        if not len(self._segments):
            return self.log_start_offset
        return max(self.log_start_offset, Offset(self._segments[0].base_offset))

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.epochs.latest

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    def segments(self) -> list[SegmentInfo]:
        return [segment.info() for segment in self._segments]

    def sealed_segments(self) -> list[SegmentInfo]:
        """Closed and synced segments, oldest first."""
        return [segment.info() for segment in self._segments if segment.seal_written]

    def damaged_segments(self) -> list[SegmentInfo]:
        """Those of the closed and synced segments that are known to be damaged."""
        return [segment.info() for segment in self._segments if segment.damage.what and segment.seal_written]

    def known_damage(self) -> list[str]:
        """What is wrong with its files, the active one too; whether readers have met it or not."""
        return [f"{segment.path}, {segment.damage.what}" for segment in self._segments if segment.damage.what]

    def note_damage(self, info: SegmentInfo, what: str) -> None:
        """Somebody has found that a segment's file is not what its seal says."""
        segment = self._segments.as_it_was(info)
        if segment is not None:
            segment.damage.what = segment.damage.what or what

    def renew(self, info: SegmentInfo, copy: str | None = None) -> bool:
        """A file holds what this segment must hold: its own, or a copy that takes its place. It is taken up as after a
        start. False if the segment is not there any more as it was, or misses more than its file."""
        segment = self._segments.as_it_was(info)
        if segment is None or segment.lost_tail or self.failure is not None:
            return False
        if copy is not None:
            os.replace(copy, segment.path)
        fresh = Segment.from_seal(
            self._disk.files, self.directory, segment.seal(sealed=True), self.config.index_interval_bytes
        )
        fresh.created_ms = segment.created_ms
        segment.retire()
        self._segments.replace([segment], fresh)
        return True

    @property
    def in_doubt(self) -> bool:
        """It misses something that was synced, and nobody counts on it."""
        return self._key in self._disk.doubts.damaged

    def trust(self) -> None:
        """What it holds is all that there is, or it holds nothing."""
        self._disk.doubts.settle({self._key})

    def describe_producers(self) -> Iterator[ProducerView]:
        return self.producers.describe()

    def set_config(self, config: TopicConfig) -> None:
        self.config = config
        active = self._segments.active
        if active is not None:
            active.index_interval = config.index_interval_bytes
            self._roll_at_ms = self._roll_time(active)

    # Segments

    def _start(self, base_offset: int) -> Segment:
        self._files.make_directory()
        self._write_log_start(base_offset)
        return self._add_segment(base_offset)

    def _note_gaps(self, below: int) -> None:
        """Recovery takes offsets that are missing up to here for what compaction left, and others for damage."""
        if below > self._gaps_below:
            self._write_log_start(gaps_below=below)
            self._gaps_below = below

    def _announce_epoch(self, epoch: int, start_offset: int) -> None:
        """Before the first batch of a leader epoch is written: recovery takes an epoch that it does not know for
        damage."""
        epochs = LeaderEpochs(self.epochs.entries())
        epochs.assign(epoch, start_offset)
        self._epochs_ahead = True
        self._files.write_epochs(epochs)

    def _add_segment(self, base_offset: int) -> Segment:
        segment = self._files.add_segment(base_offset, self.config.index_interval_bytes)
        self._segments.append(segment)
        return segment

    def _roll_time(self, active: Segment) -> int:
        return roll_at_ms(self.config, base_offset=active.base_offset, created_ms=active.created_ms)

    def roll(self, now_ms: int) -> Segment:
        """Closes the active segment, unless it is empty, and opens the next one at the log end."""
        active = self._segments.active
        assert active is not None
        if active.size == 0:
            return active
        fresh = self._add_segment(self.log_end_offset)
        self._files.close_segment(active, self.producers.write(self.log_end_offset))
        self.request_flush()
        return fresh

    def look_in_place(self) -> None:
        """Fails if the file that is written is no longer in its directory: a log that is seldom synced would go on
        taking records that nobody finds after a restart."""
        active = self._segments.active
        if active is None or self.failure is not None or not active.is_open:
            return
        try:
            check_in_place(active.path, active.file().fd)
        except OSError as error:
            self.fail(StorageFailure(f"the file that is written is gone: {error}", where=active.path))

    def fail(self, error: StorageFailure) -> None:
        """Takes no more writes: what the disk holds from here on is unknown."""
        if self.failure is None:
            self.failure = error
            _log.error("log failed", partition=str(self.tp), error=str(error))
            if self.flush_listener is not None:
                self.flush_listener()

    # Syncing

    @property
    def needs_flush(self) -> bool:
        return self.failure is None and (self.flushed_offset < self.log_end_offset or self._files.changed)

    def flush_overdue(self, now_ms: int) -> bool:
        """Whether flush.ms or flush.messages asks for a sync, on a log that does not sync before it acknowledges."""
        waiting = self.log_end_offset - self.flushed_offset
        return waiting > 0 and (
            waiting >= self.config.flush_messages or now_ms - self._dirty_since_ms >= self.config.flush_ms
        )

    def prepare_flush(self) -> FlushJob | None:
        """What a thread must do so that everything written until now is durable; then `settle_flush`."""
        active = self._segments.active
        if active is None or not self.needs_flush:
            return None
        if not self._files.start_known:
            try:
                self._write_log_start()
            except StorageFailure as error:
                self.fail(error)
                return None
        try:
            job = self._files.take_changes(active)
        except TierlogError as error:
            self.fail(StorageFailure(f"cannot sync, its file cannot be opened: {error}", where=self.directory))
            return None
        self._dirty_since_ms = 0
        self._jobs.append(job)
        return job

    def settle_flush(self, job: FlushJob) -> None:
        if job.settled:
            return
        job.settled = True
        job.release()
        self._jobs.remove(job)
        if self.failure is not None:
            return
        if job.error is not None:
            self.fail(StorageFailure(f"cannot sync: {job.error}", where=self.directory))
            return
        self.flushes += 1
        for segment, _ in job.sealed:
            segment.seal_written = True
        if job.point.offset > self.flushed_offset:
            self.flushed_offset = Offset(job.point.offset)
        self._disk.recovery_points.put(self._key, job.point)
        if self.flush_listener is not None:
            self.flush_listener()

    def flush(self) -> None:
        """Syncs here and now; the loop waits for the disk. Serving code asks the flusher instead."""
        last = self.prepare_flush()
        for job in [*self._jobs, last] if last is not None else self._jobs:
            job.run()
            self.settle_flush(job)
        if self.failure is not None:
            raise self.failure

    # Compaction

    @property
    def compactable_end(self) -> Offset:
        """Nothing at or above it may be compacted: it is not committed, or belongs to an open transaction."""
        bounds = (self.committed_offset, self.first_unstable_offset, self.flushed_offset)
        return min(bound for bound in bounds if bound is not None)

    def begin_swap(self, base_offsets: Sequence[int]) -> Swap | None:
        """Compacted files for these segments are ready; None if the segments are not all there any more. Until
        `finish_swap` no segment is deleted."""
        present = {segment.base_offset for segment in self.sealed_segments()}
        if self._swap is not None or self.failure is not None or not present.issuperset(base_offsets):
            return None
        self._swap = Swap(self.directory, base_offsets)
        return self._swap

    def finish_swap(self, swap: Swap, seal: Seal, index: SparseIndex) -> bool:
        """Puts the new segment into place; False if the swap was cancelled meanwhile."""
        if swap.cancelled or self.failure is not None:
            return False
        try:
            self._note_gaps(seal.end_offset)
        except StorageFailure:
            self.cancel_swap()
            raise
        self._swap = None
        old = [segment for segment in self._segments if segment.base_offset in swap.replaced]
        fresh = Segment.from_seal(self._disk.files, self.directory, seal, self.config.index_interval_bytes)
        fresh.index = index
        fresh.created_ms = old[0].created_ms
        for segment in old:
            segment.retire()
        swap.exchange()
        self._segments.replace(old, fresh)
        return True

    def cancel_swap(self) -> None:
        if self._swap is not None:
            self._swap.cancel()
            self._swap = None

    # Cutting

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """As follower: forgets everything from the batch of `offset` on. Waits for the disk; seldom needed."""
        if offset >= self.log_end_offset:
            return
        if offset < self._segments[0].base_offset:
            self.reset_to(offset, now_ms)
            return
        kept = self._segments.holding(offset)
        self._cut(kept, [segment for segment in self._segments if segment.base_offset > kept.base_offset])
        kept.truncate(offset)
        self._after_cut(kept, now_ms)

    def reset_to(self, offset: int, now_ms: int) -> None:
        """Forgets everything and goes on, empty, at `offset`. What was known of epochs and producers ends where the
        records did; what the leader wrote since is not in it. It goes before them: recovery finds it again in records
        that are there, and would take it for true where none are."""
        self.log_start_offset = Offset(offset)
        os.makedirs(self.directory, exist_ok=True)
        self._write_log_start()
        self.flush()
        remove(os.path.join(self.directory, names.LEADER_EPOCHS))
        for at in snapshot_offsets(self.directory):
            os.unlink(snapshot_path(self.directory, at))
        self._cut(None, list(self._segments))
        self.epochs = LeaderEpochs()
        self._after_cut(self._add_segment(offset), now_ms)
        self.trust()

    def start_from_archive(
        self, start_offset: int, end_offset: int, epochs: list[tuple[int, int]], producers: ProducerState
    ) -> None:
        """Forgets everything and goes on, empty, at `end_offset`, where the archive ends. What is known of its history
        is there before the segment that goes on from it. Waits for the disk."""
        os.makedirs(self.directory, exist_ok=True)
        self.log_start_offset = Offset(start_offset)
        self._write_log_start(end_offset, synced=True)
        if len(self._segments):
            self._cut(None, list(self._segments))
        self.epochs = LeaderEpochs(epochs)
        self.producers = producers
        replace_synced(os.path.join(self.directory, names.LEADER_EPOCHS), self.epochs.write())
        write_synced(snapshot_path(self.directory, end_offset), producers.write(end_offset))
        self.log_end_offset = self.flushed_offset = Offset(end_offset)
        self._roll_at_ms = self._roll_time(self._add_segment(end_offset))
        self.flush()

    def _cut(self, kept: Segment | None, dropped: list[Segment]) -> None:
        self.cancel_swap()
        self.flush()
        base_offset = 0 if kept is None else kept.base_offset
        self._disk.recovery_points.put(self._key, RecoveryPoint(base_offset, base_offset, 0))
        self._disk.recovery_points.sync()
        self._files.cut(kept, dropped)
        if dropped:
            self._segments.drop_from(dropped[0].base_offset)

    def _after_cut(self, active: Segment, now_ms: int) -> None:
        end = Offset(active.end_offset)
        self.log_end_offset = end
        self.flushed_offset = min(self.flushed_offset, Offset(active.base_offset))
        if self.log_start_offset > end:
            self.log_start_offset = end
            self._write_log_start()
        self._roll_at_ms = self._roll_time(active)
        self.epochs.truncate_end(end)
        self.producers = restore_producers(self.directory, self._segments, end, now_ms)
        self._files.write_epochs(self.epochs)
        self.flush()

    # Dropping

    def _move_log_start(self, offset: int) -> None:
        self._write_log_start(start=offset)
        self.log_start_offset = Offset(offset)
        if self.epochs.truncate_start(offset):
            self._files.write_epochs(self.epochs)

    def _write_log_start(
        self, local: int | None = None, *, start: int | None = None, gaps_below: int | None = None, synced: bool = False
    ) -> None:
        """Writes what is not given as it is now. `local`: where the first segment starts."""
        if local is None:
            local = self._segments[0].base_offset if len(self._segments) else self.log_end_offset
        start = self.log_start_offset if start is None else start
        gaps_below = self._gaps_below if gaps_below is None else gaps_below
        self._files.write_log_start(start, local, gaps_below, synced=synced)

    def _drop_oldest(self, count: int, now_ms: int) -> None:
        self._write_log_start(self._segments[count].base_offset, synced=True)
        due_ms = now_ms + self.config.file_delete_delay_ms
        for segment in self._segments.drop_oldest(count):
            if segment.damage.what:
                _log.error("a damaged segment is past its time and goes", file=segment.path, damage=segment.damage.what)
            self._files.drop(segment, due_ms)

    # Ending

    def state(self) -> LogState:
        """As it is written down at a clean stop."""
        segments, start_known = list(self._segments), self._files.start_known
        return LogState(self.directory, segments, self.log_start_offset, self.epochs, self.producers, start_known)

    def close(self) -> None:
        """Lets go of the files; what was not synced stays in the page cache."""
        for segment in self._segments:
            segment.close()

    def discard(self) -> None:
        """The partition is being deleted: no file of it is opened or written again."""
        self.failure = StorageFailure("the partition was deleted", where=str(self.tp))
        for segment in self._segments.drop_from(0):
            segment.retire()


def _nobody() -> None:
    """Nobody syncs by itself: `flush` does."""

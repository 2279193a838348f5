"""The files in one log's directory: its segments, where it starts, its history; and which of them are not synced yet.

Nothing is on disk before the first segment is added. Files are written, cut and removed in such an order that after any
crash `recovery` finds a log that lost nothing synced. `flush_job` has the order of syncing, `compaction.swap` that of
putting a compacted segment into place.
"""

import os
from collections.abc import Sequence

import structlog

from hot_tier.errors import StorageFailure
from hot_tier.ids import Offset
from hot_tier.log import names
from hot_tier.log.aborted_files import write_aborted
from hot_tier.log.compaction.swap import Swap
from hot_tier.log.config import TopicConfig
from hot_tier.log.disk import Disk, remove
from hot_tier.log.epochs import LeaderEpochs
from hot_tier.log.files import replace_file, replace_synced, sync_directory, write_synced
from hot_tier.log.flush_job import FlushJob
from hot_tier.log.index import Seal, SparseIndex
from hot_tier.log.log_start import write_log_start
from hot_tier.log.producer_snapshots import snapshot_offsets, snapshot_path
from hot_tier.log.producers import ProducerState
from hot_tier.log.recovery_points import Key, RecoveryPoint
from hot_tier.log.segment import Segment
from hot_tier.log.segment_info import SegmentInfo
from hot_tier.log.segments import SegmentList
from hot_tier.log.state import LogState

_log = structlog.get_logger()


class LogFiles:
    def __init__(self, disk: Disk, directory: str, key: Key, config: TopicConfig, state: LogState) -> None:
        self.directory = directory
        self.segments = SegmentList(state.segments)
        first = state.segments[0].base_offset if state.segments else 0
        self.start_offset = Offset(
            state.start_offset if config.remote_storage_enable else max(state.start_offset, first)
        )
        """The log's, which is before its first segment where the bucket holds the rest."""
        self.start_known = state.start_known
        """`log-start` says where the first segment starts."""
        self.epochs_ahead = False
        """`leader-epochs` names an epoch of which no batch is written."""
        self._gaps_below = state.gaps_below
        """No batch that starts after it leaves a gap behind the one before it."""
        self._disk = disk
        self._key = key
        self._swap: Swap | None = None
        self._new_directories = not state.segments
        self._names_changed = False
        self._epochs_changed = False
        self._start_changed = False
        self._unsealed: list[Segment] = []
        """Closed segments; their seals are not written yet."""
        self._history: list[tuple[str, bytes]] = []
        """Of closed segments: files of producers and aborted transactions that are not written yet."""
        self.set_index_interval(config.index_interval_bytes)

    def set_index_interval(self, index_interval: int) -> None:
        self._index_interval = index_interval
        active = self.segments.active
        if active is not None:
            active.index_interval = index_interval

    @property
    def end_offset(self) -> Offset:
        active = self.segments.active
        return self.start_offset if active is None else Offset(active.end_offset)

    @property
    def local_start_offset(self) -> Offset:
        if not len(self.segments):
            return self.start_offset
        return max(self.start_offset, Offset(self.segments[0].base_offset))

    @property
    def changed(self) -> bool:
        """Returns whether something must be synced besides the batches of the active segment."""
        return bool(self._unsealed) or self._epochs_changed or self._names_changed or self._start_changed

    # Segments

    def begin(self, base_offset: int) -> Segment:
        """Makes the directory and the first segment."""
        try:
            os.makedirs(self.directory, exist_ok=True)
        except OSError as error:
            raise StorageFailure(f"cannot make a log's directory: {error}", where=self.directory) from error
        self.write_start(local=base_offset)
        return self.add_segment(base_offset)

    def add_segment(self, base_offset: int) -> Segment:
        segment = Segment(self._disk.files, self.directory, base_offset, self._index_interval)
        try:
            segment.create()
        except OSError as error:
            raise StorageFailure(f"cannot make a segment: {error}", where=segment.path) from error
        self._names_changed = True
        self.segments.append(segment)
        return segment

    def close_segment(self, segment: Segment, producers: ProducerState) -> None:
        """Closes a segment: no batch is added any more. `producers` is their state at its end."""
        segment.sealed = True
        self._unsealed.append(segment)
        aborted = producers.transactions.aborted.between(segment.base_offset, segment.end_offset)
        segment.aborts = len(aborted) > 0
        if segment.aborts:
            content = write_aborted(aborted, segment.base_offset, segment.end_offset)
            self._history.append((segment.stem + names.ABORTED, content))
        path = snapshot_path(self.directory, segment.end_offset)
        self._history.append((path, producers.write(segment.end_offset)))

    def renew(self, info: SegmentInfo, copy: str | None = None) -> bool:
        """Takes a segment up as after a start, because its own file, or a copy that takes its place, is whole. Returns
        False if the segment has changed meanwhile, or misses more than its file."""
        segment = self.segments.as_it_was(info)
        if segment is None or segment.lost_tail:
            return False
        if copy is not None:
            os.replace(copy, segment.path)
        fresh = self._from_seal(segment.seal(sealed=True), segment)
        fresh.renewals = segment.renewals + 1
        segment.retire()
        self.segments.replace([segment], fresh)
        return True

    def cut(self, kept: Segment | None) -> None:
        """Removes the segments after `kept`, which is going to be cut too; all of them if it is None.

        Seals go first and durably, newer logs before older ones. So a crash leaves an unsealed tail beyond the recovery
        point, which recovery cuts off again."""
        base_offset = 0 if kept is None else kept.base_offset
        dropped = [segment for segment in self.segments if kept is None or segment.base_offset > kept.base_offset]
        self._disk.recovery_points.put(self._key, RecoveryPoint(base_offset, base_offset, 0))
        self._disk.recovery_points.sync()
        for segment in dropped if kept is None else [kept, *dropped]:
            segment.unlink(names.INDEX, names.TIME_INDEX, names.ABORTED)
        sync_directory(self.directory)
        for segment in reversed(dropped):
            segment.retire()
            segment.unlink(names.LOG)
        self._names_changed = True
        if dropped:
            self.segments.drop_from(dropped[0].base_offset)

    def drop_oldest(self, count: int, due_ms: int) -> None:
        """Removes segments from the start. Their bytes go after `due_ms`."""
        self.write_start(local=self.segments[count].base_offset, synced=True)
        for segment in self.segments.drop_oldest(count):
            if segment.damage.what:
                _log.error("a damaged segment is past its time and goes", file=segment.path, damage=segment.damage.what)
            try:
                self._drop(segment, due_ms)
            except OSError as error:
                # The log goes on without it; recovery removes what is left.
                _log.error("cannot delete a segment", file=segment.path, error=str(error))

    def _drop(self, segment: Segment, due_ms: int) -> None:
        segment.retire()
        if segment in self._unsealed:
            self._unsealed.remove(segment)
        segment.unlink(names.INDEX, names.TIME_INDEX, names.ABORTED, names.PRODUCERS)
        try:
            os.rename(segment.path, segment.path + names.DELETED)
        except FileNotFoundError:
            return
        self._disk.remove_later(segment.path + names.DELETED, due_ms)

    def _from_seal(self, seal: Seal, first: Segment) -> Segment:
        """Returns the segment that takes the place of `first`, and of those after it that its seal names."""
        fresh = Segment.from_seal(self._disk.files, self.directory, seal, self._index_interval)
        fresh.created_ms = first.created_ms
        return fresh

    # Compacted segments

    @property
    def swapping(self) -> bool:
        """Returns whether a compacted segment is about to be put into place. Until then no segment is deleted."""
        return self._swap is not None

    def begin_swap(self, base_offsets: Sequence[int]) -> Swap | None:
        """Begins to put compacted files in the place of these segments. Returns None if a segment is gone."""
        present = {segment.base_offset for segment in self.segments.sealed()}
        if self._swap is not None or not present.issuperset(base_offsets):
            return None
        self._swap = Swap(self.directory, base_offsets)
        return self._swap

    def finish_swap(self, swap: Swap, seal: Seal, index: SparseIndex) -> bool:
        """Puts the new segment into place. Returns False if the swap was cancelled meanwhile."""
        if swap.cancelled:
            return False
        try:
            self.note_gaps(seal.end_offset)
        except StorageFailure:
            self.cancel_swap()
            raise
        self._swap = None
        old = [segment for segment in self.segments if segment.base_offset in swap.replaced]
        fresh = self._from_seal(seal, old[0])
        fresh.index = index
        for segment in old:
            segment.retire()
        swap.exchange()
        self.segments.replace(old, fresh)
        return True

    def cancel_swap(self) -> None:
        if self._swap is not None:
            self._swap.cancel()
            self._swap = None

    # Where it starts

    def note_gaps(self, below: int) -> None:
        """Notes where gaps may be: recovery takes offsets that are missing up to here for compacted, and others for
        damage."""
        if below > self._gaps_below:
            self.write_start(gaps_below=below)
            self._gaps_below = below

    def write_start(
        self,
        offset: int | None = None,
        *,
        local: int | None = None,
        gaps_below: int | None = None,
        synced: bool = False,
    ) -> None:
        """Writes where the log starts; what is not given stays as it is. `local` is where the first segment starts.
        Without a sync a killed process loses nothing, but after a power loss deleted records may be back until the next
        sync. That is not enough if segments are deleted next: their absence would look like a loss."""
        if local is None:
            local = self.segments[0].base_offset if len(self.segments) else self.end_offset
        offset = self.start_offset if offset is None else offset
        path = os.path.join(self.directory, names.LOG_START)
        content = write_log_start(offset, local, self._gaps_below if gaps_below is None else gaps_below)
        try:
            if synced:
                replace_synced(path, content)
            else:
                replace_file(path, content)
                self._start_changed = True
        except OSError as error:
            raise StorageFailure(f"cannot write the log start: {error}", where=path) from error
        self.start_known = True
        self.start_offset = Offset(offset)

    # Its history

    def announce_epoch(self, epochs: LeaderEpochs, epoch: int, start_offset: int) -> None:
        """Writes a leader epoch down before its first batch is written: recovery takes an unknown epoch for damage."""
        announced = LeaderEpochs(epochs.entries())
        announced.assign(epoch, start_offset)
        self.epochs_ahead = True
        self.write_epochs(announced)

    def write_epochs(self, epochs: LeaderEpochs) -> None:
        path = os.path.join(self.directory, names.LEADER_EPOCHS)
        try:
            replace_file(path, epochs.write())
        except OSError as error:
            raise StorageFailure(f"cannot write the leader epochs: {error}", where=path) from error
        self._epochs_changed = True

    def remove_history(self) -> None:
        """Removes what is known of epochs and producers."""
        remove(os.path.join(self.directory, names.LEADER_EPOCHS))
        for at in snapshot_offsets(self.directory):
            os.unlink(snapshot_path(self.directory, at))

    def write_history(self, epochs: LeaderEpochs, producers: bytes, at: int) -> None:
        """Writes and syncs what is known of the records before `at`."""
        replace_synced(os.path.join(self.directory, names.LEADER_EPOCHS), epochs.write())
        write_synced(snapshot_path(self.directory, at), producers)

    # Syncing

    def take_changes(self, active: Segment) -> FlushJob:
        """Returns the work that makes everything written until now durable, and counts it as under way."""
        job = FlushJob(recovery_point(active))
        if active.size:
            job.active = active.path, active.file().pin()
        if self.changed or self._new_directories or self._history:
            self._take_more(job)
        return job

    def _take_more(self, job: FlushJob) -> None:
        directories: list[str] = []
        if self._new_directories:
            directories += self._disk.logs_directory, os.path.dirname(self.directory)
            job.points = self._disk.recovery_points
        if self._names_changed or self._epochs_changed or self._start_changed or self._history:
            directories.append(self.directory)
        job.directories = directories
        job.sealed = [(segment, segment.file().pin()) for segment in self._unsealed]
        changed = ((self._epochs_changed, names.LEADER_EPOCHS), (self._start_changed, names.LOG_START))
        job.synced = [os.path.join(self.directory, name) for has_changed, name in changed if has_changed]
        job.written = self._history
        self._new_directories = self._names_changed = self._epochs_changed = self._start_changed = False
        self._unsealed = []
        self._history = []

    def synced(self, job: FlushJob) -> None:
        """Notes that the work of `take_changes` is done."""
        for segment, _ in job.sealed:
            segment.seal_written = True
        self._disk.recovery_points.put(self._key, job.point)


def recovery_point(active: Segment) -> RecoveryPoint:
    """Returns the recovery point that holds once everything written until now is synced."""
    return RecoveryPoint(active.end_offset, active.base_offset, active.size, active.batches, active.header_digest)


def after_loss(disk: Disk, directory: str, end_offset: int, config: TopicConfig) -> LogState:
    """Returns a log whose directory (below that of all logs) is gone, with all records below `end_offset`. The log
    continues there. Readers get an error for what is missing; if the log is archived they look in the bucket first."""
    path = os.path.join(disk.logs_directory, directory)
    archived = config.remote_storage_enable
    try:
        os.makedirs(path, exist_ok=True)
        sync_directory(os.path.dirname(path))
        sync_directory(disk.logs_directory)
        # The next recovery finds nothing missing unless this file says so.
        replace_synced(os.path.join(path, names.LOG_START), write_log_start(0, end_offset if archived else 0, 0))
        active = Segment(disk.files, path, end_offset, config.index_interval_bytes)
        active.create()
    except OSError as error:
        raise StorageFailure(f"cannot make a log's directory: {error}", where=path) from error
    lost = [] if archived else [Segment.missing(disk.files, path, 0, end_offset)]
    return LogState(path, [*lost, active], start_known=True)

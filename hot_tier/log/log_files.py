"""The files in one log's directory, and what of them changed since the last round of syncing began.

Nothing is on disk before the first segment is added. The order in which files are synced is `flush_job`'s.
"""

import os

from hot_tier.errors import StorageFailure
from hot_tier.log import names
from hot_tier.log.disk import Disk
from hot_tier.log.epochs import LeaderEpochs
from hot_tier.log.files import replace_file, replace_synced, sync_directory
from hot_tier.log.flush_job import FlushJob
from hot_tier.log.log_start import write_log_start
from hot_tier.log.recovery_points import RecoveryPoint
from hot_tier.log.segment import Segment


class LogFiles:
    def __init__(self, disk: Disk, directory: str, *, new: bool, start_known: bool) -> None:
        self._disk = disk
        self.directory = directory
        self.start_known = start_known
        """`log-start` says where the first segment starts."""
        self._new_directories = new
        self._names_changed = False
        self._epochs_changed = False
        self._start_changed = False
        self._unsealed: list[Segment] = []
        """Closed segments; their seals are not written yet."""
        self._snapshots: list[tuple[int, bytes]] = []
        """Producer states that are not written yet, and the offsets they are of."""

    @property
    def changed(self) -> bool:
        """Whether something must be synced besides the batches of the active segment."""
        return bool(self._unsealed) or self._epochs_changed or self._names_changed or self._start_changed

    def make_directory(self) -> None:
        try:
            os.makedirs(self.directory, exist_ok=True)
        except OSError as error:
            raise StorageFailure(f"cannot make a log's directory: {error}", where=self.directory) from error

    def add_segment(self, base_offset: int, index_interval: int) -> Segment:
        segment = Segment(self._disk.files, self.directory, base_offset, index_interval)
        try:
            segment.create()
        except OSError as error:
            raise StorageFailure(f"cannot make a segment: {error}", where=segment.path) from error
        self._names_changed = True
        return segment

    def close_segment(self, segment: Segment, producers: bytes) -> None:
        """No batch is added any more; `producers` is their state at its end."""
        segment.sealed = True
        self._unsealed.append(segment)
        self._snapshots.append((segment.end_offset, producers))

    def write_epochs(self, epochs: LeaderEpochs) -> None:
        path = os.path.join(self.directory, names.LEADER_EPOCHS)
        try:
            replace_file(path, epochs.write())
        except OSError as error:
            raise StorageFailure(f"cannot write the leader epochs: {error}", where=path) from error
        self._epochs_changed = True

    def write_log_start(self, offset: int, local: int, gaps_below: int, *, synced: bool) -> None:
        """`local`: where the first segment starts. Not synced, a killed process loses nothing, and after a power loss
        deleted records may be back, until the next sync of the log. That is not enough where segments go after it:
        their absence would look like a loss."""
        path = os.path.join(self.directory, names.LOG_START)
        content = write_log_start(offset, local, gaps_below)
        try:
            if synced:
                replace_synced(path, content)
            else:
                replace_file(path, content)
                self._start_changed = True
            self.start_known = True
        except OSError as error:
            raise StorageFailure(f"cannot write the log start: {error}", where=path) from error

    def take_changes(self, active: Segment) -> FlushJob:
        """Returns the work that makes everything written until now durable, and counts it as under way."""
        job = FlushJob(
            recovery_point(active),
            sealed=[(segment, segment.file().pin()) for segment in self._unsealed],
            active=(active.path, active.file().pin()) if active.size else None,
        )
        if self._new_directories:
            job.directories = [self._disk.logs_directory, os.path.dirname(self.directory)]
            job.points = self._disk.recovery_points
        if self._names_changed or self._epochs_changed or self._start_changed or self._snapshots:
            job.directories.append(self.directory)
        if self._epochs_changed:
            job.synced.append(os.path.join(self.directory, names.LEADER_EPOCHS))
        if self._start_changed:
            job.synced.append(os.path.join(self.directory, names.LOG_START))
        job.written = [
            (os.path.join(self.directory, names.offset_file(offset, names.PRODUCERS)), content)
            for offset, content in self._snapshots
        ]
        self._new_directories = self._names_changed = self._epochs_changed = self._start_changed = False
        self._unsealed = []
        self._snapshots = []
        return job

    def cut(self, kept: Segment | None, dropped: list[Segment]) -> None:
        """Takes segments away from the end. Seals go first and for certain, newer logs before older ones: whatever a
        crash leaves is an unsealed tail beyond the recovery point, which recovery cuts off again."""
        for segment in dropped if kept is None else [kept, *dropped]:
            segment.unlink(names.INDEX, names.TIME_INDEX)
        sync_directory(self.directory)
        for segment in reversed(dropped):
            segment.retire()
            segment.unlink(names.LOG)
        self._names_changed = True

    def drop(self, segment: Segment, due_ms: int) -> None:
        """Takes away a segment at the start; its bytes go after `due_ms`."""
        segment.retire()
        if segment in self._unsealed:
            self._unsealed.remove(segment)
        segment.unlink(names.INDEX, names.TIME_INDEX, names.PRODUCERS)
        try:
            os.rename(segment.path, segment.path + names.DELETED)
        except FileNotFoundError:
            return
        self._disk.remove_later(segment.path + names.DELETED, due_ms)


def recovery_point(active: Segment) -> RecoveryPoint:
    """All that is written until now, once it is synced."""
    return RecoveryPoint(active.end_offset, active.base_offset, active.size, active.batches, active.header_digest)

"""One round of syncing a log: what must be on the disk before its records may count as durable, and in which order.

    1. of a log that is new here: the recovery point is gone that an earlier one of the same partition had
    2. leader-epochs and producer snapshots: the history that the batches belong to
    3. the log files, sealed ones first
    4. the index files of sealed segments: a seal says that its log is whole, so it comes after it
    5. the directories, so that new names are there too

At last the log files must still be what their names lead to: in a directory that was removed or replaced under a
running broker writing and syncing go on without an error, and nothing of it is there after a restart.

The loop prepares a job and settles it; a thread runs it. A job that syncs the active file alone is given to
`sync_threads`; then the loop looks at last whether the file is in its place. An error is kept for the loop: after a
failed sync the kernel may have dropped the pages, so a second try would succeed without having written them. It is
never retried.
"""

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hot_tier.log import files
from hot_tier.log.files import OpenFile
from hot_tier.log.recovery_points import RecoveryPoint, RecoveryPoints
from hot_tier.log.segment import Segment


@dataclass(slots=True)
class FlushJob:
    point: RecoveryPoint
    lock: threading.Lock = field(default_factory=threading.Lock)
    sealed: Sequence[tuple[Segment, OpenFile]] = ()
    active: tuple[str, OpenFile] | None = None
    """Its path, and the file."""
    synced: Sequence[str] = ()
    """Small files that are there already."""
    written: Sequence[tuple[str, bytes]] = ()
    directories: Sequence[str] = ()
    points: RecoveryPoints | None = None
    done: bool = False
    settled: bool = False
    error: Exception | None = None
    wait: Callable[[], None] | None = None
    """Waits for what others do. Set if they do this job."""

    @property
    def only_file(self) -> int | None:
        """Returns the descriptor of the active file, if its sync is all that is to do."""
        more = self.sealed or self.synced or self.written or self.directories or self.points
        return None if more or self.active is None else self.active[1].fd

    def synced_by_other(self, errno: int) -> None:
        """Notes that the only file was synced, or why it was not."""
        assert self.active is not None
        try:
            if errno:
                raise OSError(errno, os.strerror(errno))
            files.check_in_place(*self.active)
        except OSError as error:
            self.error = error
        self.done = True

    def run(self) -> None:
        """Runs the job once. A second caller waits until it is done."""
        while self.wait is not None and not self.done:
            self.wait()
        with self.lock:
            if self.done:
                return
            try:
                self._sync()
            except Exception as error:
                # After any error nobody may believe that the sync happened.
                self.error = error
            self.done = True

    def _sync(self) -> None:
        if self.points is not None:
            self.points.sync_removals()
        for path, content in self.written:
            files.write_synced(path, content)
        for path in self.synced:
            files.sync_file(path)
        for _, file in self.sealed:
            files.sync_data(file.fd)
        if self.active is not None:
            files.sync_data(self.active[1].fd)
        for segment, file in self.sealed:
            for path, content in segment.index_files(file.fd, sealed=True):
                files.write_synced(path, content)
        for directory in self.directories:
            files.sync_directory(directory)
        for segment, file in self.sealed:
            files.check_in_place(segment.path, file)
        if self.active is not None:
            files.check_in_place(*self.active)

    def release(self) -> None:
        for _, file in self.sealed:
            file.unpin()
        if self.active is not None:
            self.active[1].unpin()

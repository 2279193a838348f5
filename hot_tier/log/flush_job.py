"""One round of syncing a log: what must be on the disk before its records may count as durable, and in which order.

    1. of a log that is new here: the recovery point is gone that an earlier one of the same partition had
    2. leader-epochs and producer snapshots: the history that the batches belong to
    3. the log files, sealed ones first
    4. the index files of sealed segments: a seal says that its log is whole, so it comes after it
    5. the directories, so that new names are there too

At last the log files must still be what their names lead to: in a directory that was removed or replaced under a
running broker writing and syncing go on without an error, and nothing of it is there after a restart.

The loop prepares a job and settles it; a thread runs it. An error is kept for the loop: after a failed sync the
kernel may have dropped the pages, so a second try would succeed without having written them. It is never retried.
"""

import threading
from dataclasses import dataclass, field

from hot_tier.log import files
from hot_tier.log.files import OpenFile
from hot_tier.log.recovery_points import RecoveryPoint, RecoveryPoints
from hot_tier.log.segment import Segment


@dataclass(slots=True)
class FlushJob:
    point: RecoveryPoint
    lock: threading.Lock = field(default_factory=threading.Lock)
    sealed: list[tuple[Segment, OpenFile]] = field(default_factory=list)
    active: tuple[str, OpenFile] | None = None
    """Its path, and the file."""
    synced: list[str] = field(default_factory=list)
    """Small files that are there already."""
    written: list[tuple[str, bytes]] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)
    points: RecoveryPoints | None = None
    done: bool = False
    settled: bool = False
    error: Exception | None = None

    def run(self) -> None:
        """Runs the job once. A second caller waits until it is done."""
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
            files.check_in_place(segment.path, file.fd)
        if self.active is not None:
            path, file = self.active
            files.check_in_place(path, file.fd)

    def release(self) -> None:
        for _, file in self.sealed:
            file.unpin()
        if self.active is not None:
            self.active[1].unpin()

"""How far one log is durable, the rounds of syncing that are under way, and the failure that ends its writes.

The loop prepares a round and settles it; `flusher` decides who runs it. After a failed sync, or a write that could not
be undone, the log takes no more writes: `failure` says why.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from hot_tier.errors import StorageFailure, TierlogError
from hot_tier.ids import Offset, TopicPartition
from hot_tier.log.config import TopicConfig
from hot_tier.log.files import check_in_place
from hot_tier.log.flush_job import FlushJob
from hot_tier.log.log_files import LogFiles

_log = structlog.get_logger()


class LogSync:
    def __init__(self, topic_partition: TopicPartition, files: LogFiles) -> None:
        self.flushed_offset = files.end_offset
        self.failure: StorageFailure | None = None
        self.listener: Callable[[], None] | None = None
        """Called on the loop when `flushed_offset` moved or `failure` was set."""
        self.dirty_since_ms = 0
        """When the oldest batch was written that is in no round yet; 0: there is none."""
        self.rounds = 0
        self._tp = topic_partition
        self._files = files
        self._jobs: list[FlushJob] = []

    @property
    def needed(self) -> bool:
        return self.failure is None and (self.flushed_offset < self._files.end_offset or self._files.changed)

    def overdue(self, config: TopicConfig, now_ms: int) -> bool:
        """Returns whether flush.ms or flush.messages asks for a sync, on a log that does not sync before it
        acknowledges."""
        waiting = self._files.end_offset - self.flushed_offset
        return waiting > 0 and (waiting >= config.flush_messages or now_ms - self.dirty_since_ms >= config.flush_ms)

    def prepare(self) -> FlushJob | None:
        """Returns what a thread must do so that everything written until now is durable; then `settle`."""
        active = self._files.segments.active
        if active is None or not self.needed:
            return None
        if not self._files.start_known:
            try:
                self._files.write_start()
            except StorageFailure as error:
                self.fail(error)
                return None
        try:
            job = self._files.take_changes(active)
        except TierlogError as error:
            self.fail(StorageFailure(f"cannot sync, its file cannot be opened: {error}", where=self._files.directory))
            return None
        self.dirty_since_ms = 0
        self._jobs.append(job)
        return job

    def settle(self, job: FlushJob) -> None:
        if job.settled:
            return
        job.settled = True
        job.release()
        self._jobs.remove(job)
        if self.failure is not None:
            return
        if job.error is not None:
            self.fail(StorageFailure(f"cannot sync: {job.error}", where=self._files.directory))
            return
        self.rounds += 1
        self._files.synced(job)
        if job.point.offset > self.flushed_offset:
            self.flushed_offset = Offset(job.point.offset)
        if self.listener is not None:
            self.listener()

    def flush(self) -> None:
        """Syncs here and now; the loop waits for the disk. Serving code asks the flusher instead."""
        self.prepare()
        for job in list(self._jobs):
            job.run()
            self.settle(job)
        if self.failure is not None:
            raise self.failure

    def look_in_place(self) -> None:
        """Fails the log if the file that is written is no longer in its directory. Otherwise a log that is seldom
        synced would take records that nobody finds after a restart."""
        active = self._files.segments.active
        if active is None or self.failure is not None or not active.is_open:
            return
        try:
            check_in_place(active.path, active.file())
        except OSError as error:
            self.fail(StorageFailure(f"the file that is written is gone: {error}", where=active.path))

    @contextmanager
    def whole_or_failed(self, errors: tuple[type[Exception], ...] = (OSError, TierlogError)) -> Iterator[None]:
        """Fails the log if what is done to it ends half-way with one of these errors: then memory and disk disagree,
        and nobody may be told what either says."""
        try:
            yield
        except errors as error:
            self.fail(StorageFailure(f"a change of the log ended half-way: {error}", where=self._files.directory))
            raise

    def fail(self, error: StorageFailure) -> None:
        """Ends writes to this log, because nobody knows what the disk holds from here on."""
        if self.failure is None:
            self.failure = error
            _log.error("log failed", partition=str(self._tp), error=str(error))
            if self.listener is not None:
                self.listener()

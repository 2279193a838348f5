"""All logs of one data directory: opening and closing them, their upkeep, their room.

A log costs nothing on disk before its first write. After a clean stop all logs come back from one file; after any
other stop each partition directory is recovered, in threads, before `open` returns.

Upkeep (`tick`) decides with pure functions and takes the time as a value; `open` starts a task that calls it
regularly and in small steps, so that thousands of logs never hold up the loop.
"""

import asyncio
import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from secrets import token_hex
from typing import TypeVar

import structlog

from hot_tier.clock import wall_ms
from hot_tier.errors import SettingsError, StorageFailure
from hot_tier.ids import PartitionId, TopicId, TopicPartition
from hot_tier.log import names
from hot_tier.log.compaction.compactor import Compactor
from hot_tier.log.config import TopicConfig
from hot_tier.log.disk import Disk, remove
from hot_tier.log.files import replace_synced, sync_directory
from hot_tier.log.flusher import Flusher
from hot_tier.log.log_files import after_loss, recovery_point
from hot_tier.log.names import TopicDirectory
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.recovery import Recovered, Recovery
from hot_tier.log.recovery_points import Key
from hot_tier.log.settings import LogSettings
from hot_tier.log.state import LogState, read_clean_shutdown, write_clean_shutdown

_log = structlog.get_logger()

_LOGS_PER_STEP = 100
_STEP_S = 0.005

T = TypeVar("T")


class LogManager:
    def __init__(self, data_dir: str, settings: LogSettings, clock: Callable[[], int] = wall_ms) -> None:
        self.settings = settings
        self.recovered: list[Recovered] = []
        """What recovery found, if the last stop was not clean."""
        self._data_dir = os.path.abspath(data_dir)
        self._clock = clock
        self._logs: dict[Key, PartitionLog] = {}
        self._found: dict[Key, LogState] = {}
        self._background: list[asyncio.Task[None]] = []
        self._compacting: asyncio.Task[bool] | None = None
        self._workers = ThreadPoolExecutor(max(2, settings.recovery_threads), thread_name_prefix="log-work")
        self._lock_fd = -1

    # Opening and closing

    async def open(self, *, background: bool = True) -> None:
        os.makedirs(self._data_dir, exist_ok=True)
        self._lock()
        self.disk = Disk(self._data_dir, self.settings)
        self.flusher = Flusher(self.settings.flush_threads)
        self.compactor = Compactor(self._workers, self.settings.compaction_buffer_bytes, self._clock)
        clean = self._take_clean_shutdown()
        if clean is None:
            await self._recover()
        else:
            self._found = clean
        for name in os.listdir(self.disk.logs_directory):
            if name.endswith(names.DELETED):
                self.disk.remove_later(os.path.join(self.disk.logs_directory, name), 0)
        if background:
            self._background = [asyncio.create_task(self._keep_up()), asyncio.create_task(self._keep_compact())]

    async def close(self) -> None:
        """Syncs everything and writes down that this stop was clean."""
        self.compactor.stop()
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._compacting is not None:
            await self._compacting
        for log in self._logs.values():
            if log.sync.needed:
                self.flusher.request(log.sync)
        await self.flusher.close()
        loop = asyncio.get_running_loop()
        doomed = self.disk.take_doomed(sys.maxsize)
        await asyncio.gather(*(loop.run_in_executor(self._workers, remove, path) for path in doomed))
        states = {
            **self._found,
            **{key: log.state() for key, log in self._logs.items() if log.log_end_offset or log.segment_count},
        }
        if all(log.failure is None for log in self._logs.values()):
            await loop.run_in_executor(self._workers, self._write_clean_shutdown, states)
        for log in self._logs.values():
            log.close()
        self.disk.close()
        self._workers.shutdown()
        os.close(self._lock_fd)

    def _lock(self) -> None:
        path = os.path.join(self._data_dir, names.LOCK)
        self._lock_fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock_fd)
            raise SettingsError(
                "another broker uses this data directory", where=self._data_dir, hint="give each its own data_dir"
            ) from None

    def _take_clean_shutdown(self) -> dict[Key, LogState] | None:
        path = os.path.join(self._data_dir, names.CLEAN_SHUTDOWN)
        try:
            with open(path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return None
        os.unlink(path)
        sync_directory(self._data_dir)
        return read_clean_shutdown(content, self.disk.logs_directory, self.disk.files)

    def _write_clean_shutdown(self, states: dict[Key, LogState]) -> None:
        for state in states.values():
            if state.segments:
                state.segments[-1].save_index()
        replace_synced(
            os.path.join(self._data_dir, names.CLEAN_SHUTDOWN), write_clean_shutdown(states, self.disk.logs_directory)
        )

    async def _recover(self) -> None:
        loop = asyncio.get_running_loop()
        now_ms = self._clock()
        points = self.disk.recovery_points.loaded
        recoveries = {
            key: Recovery(self.disk, directory, points.get(key), now_ms)
            for directory, key in self._partition_directories()
        }

        async def all_of(step: Callable[[Recovery], T]) -> list[T]:
            return await asyncio.gather(
                *(loop.run_in_executor(self._workers, step, recovery) for recovery in recoveries.values())
            )

        self.recovered = await all_of(Recovery.look)
        found = dict(zip(recoveries, self.recovered, strict=True))
        gone = {key for key, point in points.items() if key not in found and point.offset > 0}
        doubtful = {key for key, each in found.items() if each.damaged or each.unsure} | gone
        self.disk.doubts.note(
            cut={key for key, each in found.items() if each.cut_bytes} - doubtful,
            damaged=doubtful,
            emptied={key for key, each in found.items() if each.empty} | gone,
        )
        await all_of(Recovery.repair)
        for key, recovered in found.items():
            state = self._found[key] = recovered.state
            if state.segments:
                active = state.segments[-1]
                self.disk.recovery_points.put(key, recovery_point(active))
        for key in gone:
            # Offsets that were given out are never given out again, whatever became of the files.
            self._found[key] = LogState(start_offset=points[key].offset, lost_end=points[key].offset)
            _log.error(
                "log directory is missing", topic_id=str(key[0]), partition=key[1], end_offset=points[key].offset
            )
        if found:
            _log.info(
                "logs recovered",
                logs=len(found),
                checked_bytes=sum(each.checked_bytes for each in self.recovered),
                cut_bytes=sum(each.cut_bytes for each in self.recovered),
                damaged=[path for each in self.recovered for path in each.damaged],
            )

    def _partition_directories(self) -> Iterator[tuple[str, Key]]:
        for topic_name in sorted(os.listdir(self.disk.logs_directory)):
            topic = names.parse_topic_directory(topic_name)
            if topic is None:
                continue
            topic_path = os.path.join(self.disk.logs_directory, topic_name)
            for partition_name in os.listdir(topic_path):
                partition = names.parse_partition_directory(partition_name)
                path = os.path.join(topic_path, partition_name)
                if partition is not None and os.listdir(path):  # An empty one is no log.
                    yield path, (topic.topic_id, partition)

    # Logs

    def log(self, topic: str, topic_id: TopicId, partition: int, config: TopicConfig) -> PartitionLog:
        """Returns the partition's log, always the same object, with what is on disk or empty."""
        key = (topic_id, int(partition))
        log = self._logs.get(key)
        if log is None:
            state = self._found.pop(key, None)
            if state is not None and state.lost_end:
                directory = names.log_directory(topic, topic_id, partition)
                state = after_loss(self.disk, directory, state.lost_end, config)
            log = PartitionLog(self.disk, TopicPartition(topic, PartitionId(partition)), topic_id, config, state)
            log.request_flush = partial(self.flusher.request, log.sync)
            self._logs[key] = log
        elif log.config != config:
            log.set_config(config)
        return log

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(list(self._logs.values()))

    def topics_on_disk(self) -> set[TopicDirectory]:
        """Returns the topics that have a directory, whether or not their logs are in use. Long names are cut short."""
        found = (names.parse_topic_directory(name) for name in os.listdir(self.disk.logs_directory))
        return {topic for topic in found if topic is not None}

    def delete(self, topic: str, topic_id: TopicId) -> None:
        """Deletes the topic's logs. They are gone when this returns; a thread removes their bytes."""
        for key in [key for key in self._logs if key[0] == topic_id]:
            self._logs.pop(key).discard()
        for key in [key for key in self._found if key[0] == topic_id]:
            del self._found[key]
        self.disk.recovery_points.remove_topic(topic_id)
        self.disk.doubts.settle({key for key in self.disk.doubts.damaged if key[0] == topic_id})
        path = os.path.join(self.disk.logs_directory, names.topic_directory(topic, topic_id))
        try:
            os.rename(path, path + names.DELETED)
        except FileNotFoundError:
            return
        self._workers.submit(_remove_directory, self.disk.logs_directory, path + names.DELETED)

    def delete_partition(self, topic: str, topic_id: TopicId, partition: int) -> None:
        """As `delete`, for one partition of a topic that others go on holding."""
        key = (topic_id, int(partition))
        log = self._logs.pop(key, None)
        if log is not None:
            log.discard()
        self._found.pop(key, None)
        self.disk.recovery_points.remove(key)
        self.disk.doubts.settle({key})
        directory = names.topic_directory(topic, topic_id)
        path = os.path.join(self.disk.logs_directory, directory, names.partition_directory(partition))
        # The partition may come back and be deleted again before its old bytes are gone.
        doomed = os.path.join(self.disk.logs_directory, f"{topic_id}-{partition}-{token_hex(8)}{names.DELETED}")
        try:
            os.rename(path, doomed)
        except FileNotFoundError:
            return
        self._workers.submit(_remove_directory, self.disk.logs_directory, doomed)

    # Upkeep

    async def keep_all(self) -> None:
        """Rolls by age, applies retention, forgets idle producers, syncs what flush.ms asks for.

        A log that retention shortens is synced, which takes milliseconds: others run in between.
        """
        began_s = time.perf_counter()
        for log in list(self):
            self._keep(log, self._clock())
            if time.perf_counter() - began_s >= _STEP_S:
                await asyncio.sleep(0)
                began_s = time.perf_counter()
        for path in self.disk.take_doomed(self._clock()):
            self._workers.submit(remove, path)

    def _keep(self, log: PartitionLog, now_ms: int) -> None:
        if log.failure is not None:
            return
        try:
            log.maybe_roll(now_ms)
            if not log.config.remote_storage_enable:
                log.apply_retention(now_ms)
            log.producers.expire(
                now_ms, self.settings.producer_id_expiration_ms, self.settings.idempotency_key_window_ms
            )
            if log.sync.overdue(log.config, now_ms):
                self.flusher.request(log.sync)
        except (StorageFailure, OSError) as error:
            _log.error("upkeep failed", partition=str(log.tp), error=str(error))

    async def _keep_up(self) -> None:
        loop = asyncio.get_running_loop()
        settings = self.settings
        step_ms = min(settings.free_check_ms, settings.retention_check_ms, settings.checkpoint_ms)
        next_tick = next_checkpoint = next_room = 0
        while True:
            await asyncio.sleep(step_ms / 1000)
            now_ms = self._clock()
            try:
                if now_ms >= next_room:
                    next_room = now_ms + settings.free_check_ms
                    self.disk.look_at_room()
                    await self._look_in_place()
                if now_ms >= next_checkpoint:
                    next_checkpoint = now_ms + settings.checkpoint_ms
                    await loop.run_in_executor(self._workers, self.disk.recovery_points.sync)
                if now_ms >= next_tick:
                    next_tick = now_ms + settings.retention_check_ms
                    await self.keep_all()
            except Exception:
                # If upkeep stopped for good, the disk would fill.
                _log.exception("upkeep failed")

    async def _look_in_place(self) -> None:
        logs = list(self)
        for at in range(0, len(logs), _LOGS_PER_STEP):
            for log in logs[at : at + _LOGS_PER_STEP]:
                log.sync.look_in_place()
            await asyncio.sleep(0)

    async def _keep_compact(self) -> None:
        """Compacts one log at a time, the dirtiest first. A run that has begun is not cancelled with this task: `close`
        waits until its files are in order."""
        while True:
            log = self.compactor.next_log(list(self))
            if log is not None:
                self._compacting = asyncio.create_task(self.compactor.compact(log))
                done = await asyncio.shield(self._compacting)
                self._compacting = None
                if done:
                    continue
            await asyncio.sleep(self.settings.compaction_check_ms / 1000)


def _remove_directory(logs_directory: str, path: str) -> None:
    sync_directory(logs_directory)
    remove(path)

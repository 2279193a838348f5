"""Group commit: logs ask for a sync, threads do it, the loop hears of it.

Each log has at most one sync under way. Whatever is written meanwhile waits for the next one, so the busier a log
is, the more batches share a sync. A sync starts at the end of the loop's step in which it was asked for, so that
all batches of that step are in it. Errors end in the log (`LogSync.fail`); a sync is never tried again.

Most syncs are of one file and nothing else: `sync_threads` do these. The others, after a segment was closed or a
leader epoch began, are done by threads of Python.
"""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from hot_tier.log.flush_job import FlushJob
from hot_tier.log.log_sync import LogSync
from hot_tier.log.sync_threads import SyncThreads


class Flusher:
    def __init__(self, threads: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = max(1, threads)
        self._waiting: dict[LogSync, None] = {}
        self._running: set[LogSync] = set()
        self._scheduled = False
        self.syncs = 0
        self.sync_seconds = 0.0
        self._idle = asyncio.Event()
        self._idle.set()
        self._numbers = count()
        self._of_one_file: dict[int, tuple[LogSync, FlushJob]] = {}
        self._sync_threads = SyncThreads(self._limit)
        self._loop.add_reader(self._sync_threads.answers, self._take)
        self._workers = ThreadPoolExecutor(self._limit, thread_name_prefix="log-flush")

    def request(self, log: LogSync) -> None:
        """Asks for a sync of everything written to `log` until now."""
        if log in self._waiting:
            return
        self._waiting[log] = None
        self._idle.clear()
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._dispatch)

    async def drain(self) -> None:
        """Waits until no sync waits or runs."""
        await self._idle.wait()

    async def close(self) -> None:
        await self.drain()
        self._loop.remove_reader(self._sync_threads.answers)
        self._sync_threads.close()
        self._workers.shutdown()

    def _dispatch(self) -> None:
        self._scheduled = False
        for log in list(self._waiting):
            if len(self._running) >= self._limit:
                break
            if log in self._running:
                continue
            del self._waiting[log]
            job = log.prepare()
            if job is not None:
                self._running.add(log)
                self._begin(log, job)
        if not self._waiting and not self._running:
            self._idle.set()

    def _begin(self, log: LogSync, job: FlushJob) -> None:
        fd = job.only_file
        if fd is None:
            self._workers.submit(self._work, log, job)
            return
        number = next(self._numbers)
        self._of_one_file[number] = log, job
        job.wait = self._wait
        self._sync_threads.sync(number, fd)

    def _work(self, log: LogSync, job: FlushJob) -> None:
        began = time.perf_counter()
        job.run()
        self._loop.call_soon_threadsafe(self._settle, log, job, time.perf_counter() - began)

    def _take(self) -> None:
        answered = self._answered()
        for each in answered[1:]:
            self._loop.call_soon(self._settle, *each)
        if answered:
            self._settle(*answered[0])

    def _wait(self) -> None:
        """Waits for answers. The loop settles these jobs later."""
        for each in self._answered(wait=True):
            self._loop.call_soon(self._settle, *each)

    def _answered(self, *, wait: bool = False) -> list[tuple[LogSync, FlushJob, float]]:
        found = []
        for number, errno, nanoseconds in self._sync_threads.take(wait=wait):
            log, job = self._of_one_file.pop(number)
            job.synced_by_other(errno)
            found.append((log, job, nanoseconds / 1e9))
        return found

    def _settle(self, log: LogSync, job: FlushJob, seconds: float) -> None:
        self.syncs += 1
        self.sync_seconds += seconds
        self._running.discard(log)
        log.settle(job)
        self._dispatch()

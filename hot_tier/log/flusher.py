"""Group commit: logs ask for a sync, threads do it, the loop hears of it.

Each log has at most one sync under way. Whatever is written meanwhile waits for the next one, so the busier a log
is, the more batches share a sync. A sync starts at the end of the loop's step in which it was asked for, so that
all batches of that step are in it. Errors end in the log (`LogSync.fail`); a sync is never tried again.
"""

import asyncio
import threading
import time
from queue import SimpleQueue

from hot_tier.log.flush_job import FlushJob
from hot_tier.log.log_sync import LogSync


class Flusher:
    def __init__(self, threads: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[LogSync, None] = {}
        self._running: set[LogSync] = set()
        self._scheduled = False
        self.syncs = 0
        self.sync_seconds = 0.0
        self._idle = asyncio.Event()
        self._idle.set()
        self._queue: SimpleQueue[tuple[LogSync, FlushJob] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"log-flush-{number}", daemon=True)
            for number in range(max(1, threads))
        ]
        for thread in self._threads:
            thread.start()

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
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _dispatch(self) -> None:
        self._scheduled = False
        for log in list(self._waiting):
            if len(self._running) >= len(self._threads):
                break
            if log in self._running:
                continue
            del self._waiting[log]
            job = log.prepare()
            if job is not None:
                self._running.add(log)
                self._queue.put((log, job))
        if not self._waiting and not self._running:
            self._idle.set()

    def _work(self) -> None:
        while (task := self._queue.get()) is not None:
            log, job = task
            began = time.perf_counter()
            job.run()
            self._loop.call_soon_threadsafe(self._settle, log, job, time.perf_counter() - began)

    def _settle(self, log: LogSync, job: FlushJob, seconds: float) -> None:
        self.syncs += 1
        self.sync_seconds += seconds
        self._running.discard(log)
        log.settle(job)
        self._dispatch()

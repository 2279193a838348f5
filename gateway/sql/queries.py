"""Queries and searches of one broker: how many run, who waits, and that each ends in its time.

At most `sql.queries` queries run, each in a worker process of its own, and one search by key beside them. Others wait
in order; beyond `sql.queue` they are refused.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final
from uuid import uuid4

from cold_tier.objects.open import StoreSettings
from gateway.sql.errors import (
    QueryCancelled,
    QueryIdTaken,
    QueryTooSlow,
    SqlNotInstalled,
    TooManyQueries,
    UnknownQuery,
)
from gateway.sql.jobs import FindJob, Job, Start
from gateway.sql.settings import SqlSettings
from gateway.sql.worker_process import Conversation, Sources, WorkerProcess
from hot_tier.clock import steady_s

SEARCHES: Final = 1


class Running:
    """A job that has a worker."""

    def __init__(self, conversation: Conversation, worker: WorkerProcess, ends: Sequence[asyncio.Event], by_s: float):
        self._conversation = conversation
        self._worker = worker
        self._ends = ends
        self._by_s = by_s
        self._head = asyncio.create_task(conversation.head())
        self.began_s = steady_s()

    @property
    def progress(self) -> dict[str, int]:
        return self._worker.progress

    @property
    def elapsed_ms(self) -> int:
        return int((steady_s() - self.began_s) * 1000)

    async def head(self, wait_s: float | None = None) -> dict[str, Any] | None:
        """Returns what the result is; None if `wait_s` is over first."""
        left = max(0.0, self._by_s - steady_s())
        ends = [asyncio.create_task(each.wait()) for each in self._ends]
        try:
            await asyncio.wait(
                [self._head, *ends],
                timeout=left if wait_s is None else min(wait_s, left),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for each in ends:
                each.cancel()
        if self._head.done():
            try:
                return self._head.result()
            except BaseException as error:
                raise (self._conversation.refusal or error) from None
        if any(each.is_set() for each in self._ends):
            raise QueryCancelled("the query was cancelled")
        if wait_s is None or steady_s() >= self._by_s:
            raise QueryTooSlow("the query did not end within its time")
        return None

    def pieces(self) -> AsyncIterator[bytes]:
        return self._conversation.pieces()

    async def end(self) -> None:
        if not self._head.done():
            self._head.cancel()
            await asyncio.gather(self._head, return_exceptions=True)
        if self._worker.in_job and self._worker.alive:
            await self._conversation.cancel()
        if not self._head.cancelled():
            self._head.exception()
        await self._conversation.close()


class Workers:
    """Processes for one kind of job: started when they are needed, kept for the next job, ended when idle."""

    def __init__(self, start: Start, settings: SqlSettings, most: int) -> None:
        self._start = start
        self._settings = settings
        self._turns = asyncio.Semaphore(most)
        self._waiting = 0
        self._idle: list[tuple[WorkerProcess, asyncio.TimerHandle]] = []
        self._ending: set[asyncio.Task[None]] = set()
        self._all: set[WorkerProcess] = set()

    @asynccontextmanager
    async def take(self, by_s: float) -> AsyncIterator[WorkerProcess]:
        if self._turns.locked() and self._waiting >= self._settings.queue:
            raise TooManyQueries(f"{self._waiting} queries already wait", hint="try again")
        self._waiting += 1
        try:
            async with asyncio.timeout(max(0.0, by_s - steady_s())):
                await self._turns.acquire()
        except TimeoutError:
            raise QueryTooSlow("other queries ran all the time", hint="try again, or ask for more time") from None
        finally:
            self._waiting -= 1
        try:
            worker = await self._worker()
            try:
                yield worker
            finally:
                await self._give_back(worker)
        finally:
            self._turns.release()

    async def close(self) -> None:
        for worker in list(self._all):
            await worker.kill()
        for _, timer in self._idle:
            timer.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _worker(self) -> WorkerProcess:
        while self._idle:
            worker, timer = self._idle.pop()
            timer.cancel()
            if worker.alive:
                return worker
            self._all.discard(worker)
        worker = await WorkerProcess.start(self._start)
        self._all.add(worker)
        return worker

    async def _give_back(self, worker: WorkerProcess) -> None:
        if worker.in_job or not worker.alive:
            self._all.discard(worker)
            await worker.kill()
            return
        timer = asyncio.get_running_loop().call_later(self._settings.idle_ms / 1000, self._retire, worker)
        self._idle.append((worker, timer))

    def _retire(self, worker: WorkerProcess) -> None:
        self._idle = [each for each in self._idle if each[0] is not worker]
        self._all.discard(worker)
        task = asyncio.create_task(worker.kill())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


class Queries:
    def __init__(self, settings: SqlSettings, store: StoreSettings, get_per_1000: float) -> None:
        self.settings = settings
        self.get_per_1000 = get_per_1000
        start = Start(store, settings.memory_bytes, settings.threads)
        self._queries = Workers(start, settings, settings.queries)
        self._searches = Workers(start, settings, SEARCHES)
        self._running: dict[str, tuple[str, asyncio.Event]] = {}

    async def close(self) -> None:
        for _, cancelled in self._running.values():
            cancelled.set()
        await self._queries.close()
        await self._searches.close()

    @asynccontextmanager
    async def run(
        self,
        job: Job,
        sources: Sources,
        *,
        owner: str,
        query_id: str | None = None,
        timeout_ms: int | None = None,
        ends: Sequence[asyncio.Event] = (),
    ) -> AsyncIterator[tuple[str, Running]]:
        """Gives the job's id, and the job as it runs. It ends when the block does, at the latest."""
        if not self.settings.enabled:
            raise SqlNotInstalled("queries are switched off here", hint="the setting sql.enabled is false")
        name = query_id or uuid4().hex
        if name in self._running:
            raise QueryIdTaken(f"a query with the id {name} is running")
        wanted = self.settings.timeout_ms if timeout_ms is None else min(timeout_ms, self.settings.max_timeout_ms)
        by_s = steady_s() + wanted / 1000
        cancelled = asyncio.Event()
        self._running[name] = (owner, cancelled)
        workers = self._searches if isinstance(job, FindJob) else self._queries
        async with AsyncExitStack() as stack:
            stack.callback(self._running.pop, name)
            worker = await stack.enter_async_context(workers.take(by_s))
            running = Running(worker.begin(job, sources), worker, (cancelled, *ends), by_s)
            stack.push_async_callback(running.end)
            yield name, running

    def cancel(self, name: str, owner: str | None) -> None:
        """Cancels a query of `owner`, or of anybody if that is None."""
        found = self._running.get(name)
        if found is None or owner not in (None, found[0]):
            raise UnknownQuery(f"no query {name} of yours runs here")
        found[1].set()

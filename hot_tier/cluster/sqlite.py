"""The metadata store of a single node, in a SQLite file.

Owns: the file (`database` has its rows and its checks), the thread that works on it, the recent history that watches
read, the timers of leases.

- Every commit is synced (WAL, synchronous FULL) before its transaction is answered.
- Operations run in the order they were called. Those that pile up while the thread is busy share one commit:
  a thousand topics made at once cost a handful of syncs. None is answered, and no event is seen, before
  that commit is on disk.
- The file is locked for this process alone; a second broker on the same directory is refused at `open`.
- Leases live in this process. What hung on a lease when the process died is deleted at the next `open`.
- History is kept in memory, `HISTORY_TRANSACTIONS` deep; a watch that wants more gets MetadataCompacted.
"""

import asyncio
import bisect
import secrets
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from hot_tier.cluster.database import Database, Operation
from hot_tier.cluster.store import (
    ABSENT,
    Compare,
    Delete,
    Event,
    KeyValue,
    LeaseId,
    Put,
    Range,
    Revision,
    check_transaction,
)
from hot_tier.errors import CorruptMetadata, LeaseExpired, MetadataCompacted, MetadataUnavailable, StorageFailure

HISTORY_TRANSACTIONS: Final = 4096

T = TypeVar("T")


class SqliteStore:
    """`MetadataStore` over one file. Call `open` first, from the loop that uses it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._database = Database(path)
        self._thread = ThreadPoolExecutor(1, "metadata")
        self._pending: list[tuple[Operation, asyncio.Future[Any]]] = []
        self._working: asyncio.Task[None] | None = None
        self._leases: dict[LeaseId, _Lease] = {}
        self._history: list[tuple[Revision, tuple[Event, ...]]] = []
        self._forgotten = ABSENT
        self._changed = asyncio.Event()
        self._closed = False

    async def open(self) -> None:
        """Raises StorageFailure if the file cannot be used (locked by another process, not writable), CorruptMetadata
        if its content cannot be trusted."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._database.open)
        except CorruptMetadata:
            self._thread.shutdown(wait=False)
            raise
        except sqlite3.Error as error:
            self._thread.shutdown(wait=False)
            raise StorageFailure(
                f"cannot open the metadata store: {error}",
                where=self._path,
                hint="is another tierlog broker running on this data directory?",
            ) from error
        self._forgotten = self._database.revision

    async def get(self, key: str) -> KeyValue | None:
        return await self._run(lambda database: database.get(key))

    async def range(self, prefix: str) -> Range:
        return await self._run(lambda database: database.range(prefix))

    async def transact(self, compares: Sequence[Compare], writes: Sequence[Put | Delete]) -> Revision | None:
        check_transaction(compares, writes)
        for write in writes:
            if isinstance(write, Put) and write.lease is not None and not self._is_alive(write.lease):
                raise LeaseExpired(f"lease {write.lease:x} is gone", where=write.key)
        return await self._run(lambda database: database.transact(compares, writes))

    async def watch(self, prefix: str, from_revision: Revision) -> AsyncIterator[Sequence[Event]]:
        seen = from_revision
        while True:
            if seen < self._forgotten:
                raise MetadataCompacted(
                    f"changes after revision {seen} are no longer known, only after {self._forgotten}",
                    where=prefix,
                )
            start = bisect.bisect_right(self._history, seen, key=_revision_of)
            if start == len(self._history):
                if self._closed:
                    return
                await self._changed.wait()
                continue
            revision, events = self._history[start]
            seen = revision
            matching = tuple(event for event in events if event.key.startswith(prefix))
            if matching:
                yield matching

    async def grant_lease(self, ttl_ms: int) -> LeaseId:
        self._check_open()
        lease = LeaseId(secrets.randbits(62) | 1)
        self._leases[lease] = _Lease(ttl_ms / 1000)
        self._schedule_expiry(lease)
        return lease

    async def keep_alive(self, lease: LeaseId) -> bool:
        self._check_open()
        if not self._is_alive(lease):
            return False
        self._schedule_expiry(lease)
        return True

    async def revoke_lease(self, lease: LeaseId) -> None:
        held = self._leases.pop(lease, None)
        if held is not None:
            held.cancel()
            await self._run(lambda database: database.drop_leased(lease))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for lease in self._leases.values():
            lease.cancel()
        while self._working is not None:
            await self._working
        self._announce()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._database.close)
        self._thread.shutdown(wait=False)

    def _check_open(self) -> None:
        if self._closed:
            raise MetadataUnavailable("the metadata store is closed", where=self._path)

    def _run(self, operation: Callable[[Database], T]) -> asyncio.Future[T]:
        self._check_open()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._pending.append((operation, answer))
        if self._working is None:
            self._working = loop.create_task(self._work())
        return answer

    async def _work(self) -> None:
        """Hands the waiting operations to the thread, one commit per round, until none is left."""
        loop = asyncio.get_running_loop()
        while self._pending:
            round_, self._pending = self._pending, []
            try:
                answers, changes = await loop.run_in_executor(
                    self._thread, self._database.commit, [operation for operation, _ in round_]
                )
            except Exception as error:
                for _, future in round_:
                    if not future.done():
                        future.set_exception(StorageFailure(f"the metadata store failed: {error}", where=self._path))
                continue
            self._remember(changes)
            for (_, future), answer in zip(round_, answers, strict=True):
                if not future.done():
                    future.set_result(answer)
        self._working = None

    def _remember(self, changes: list[tuple[Revision, tuple[Event, ...]]]) -> None:
        if not changes:
            return
        self._history += changes
        excess = len(self._history) - HISTORY_TRANSACTIONS
        if excess > 0:
            self._forgotten = self._history[excess - 1][0]
            del self._history[:excess]
        self._announce()

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _is_alive(self, lease: LeaseId) -> bool:
        """Returns whether the lease is alive, by the clock and not by its timer: a stopped process may run this before
        its timers."""
        held = self._leases.get(lease)
        return held is not None and asyncio.get_running_loop().time() < held.deadline

    def _schedule_expiry(self, lease: LeaseId) -> None:
        loop = asyncio.get_running_loop()
        held = self._leases[lease]
        held.cancel()
        held.deadline = loop.time() + held.ttl_s
        held.timer = loop.call_at(held.deadline, self._expire, lease)

    def _expire(self, lease: LeaseId) -> None:
        if self._leases.pop(lease, None) is not None:
            self._run(lambda database: database.drop_leased(lease))


class _Lease:
    __slots__ = ("deadline", "timer", "ttl_s")

    def __init__(self, ttl_s: float) -> None:
        self.ttl_s = ttl_s
        self.deadline = 0.0
        self.timer: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


def _revision_of(change: tuple[Revision, tuple[Event, ...]]) -> Revision:
    return change[0]

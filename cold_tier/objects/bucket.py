"""Deadlines, retries and resumption around any object store. A bucket is an object store too: they can be stacked.

Every operation ends within its deadline: with an answer, or with the last error. Only `StoreUnavailable` is tried
again. Why each operation is safe to repeat:
- `put`, `put_file`, `delete`: a repetition writes the same bytes under the same key, or deletes nothing more.
- `get`: objects never change, so a body that was cut continues from the byte where it stopped.
- `put_if_absent`: an attempt whose answer was lost may have created the object, and the next attempt then finds it. The
  stored bytes are compared with ours. The caller must put a nonce into them (`cold_tier.manifest` does).
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from cold_tier.errors import ObjectMissing, StoreError, StoreThrottled, StoreUnavailable
from cold_tier.keys.master import MasterKeys
from cold_tier.objects.health import StoreHealth
from cold_tier.objects.store import Buffer, ObjectInfo, ObjectStore
from hot_tier.clock import steady_s

T = TypeVar("T")

_LIST_PAGE = 1000
_DELETE_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    deadline_ms: int = 60_000
    attempt_ms: int = 15_000
    backoff_ms: int = 50
    """The first pause between attempts. It doubles each time."""
    backoff_max_ms: int = 5_000
    slowest_bytes_per_second: int = 1 << 20
    """Both time limits grow at this rate with the size of an upload or a range."""

    def within(self, deadline_ms: int) -> "RetryPolicy":
        """Returns the same policy with a shorter deadline that leaves time for a second attempt."""
        deadline_ms = min(deadline_ms, self.deadline_ms)
        return replace(self, deadline_ms=deadline_ms, attempt_ms=min(self.attempt_ms, max(1, deadline_ms // 2)))


@dataclass(slots=True)
class StoreCounters:
    """Counts of attempts, shown in the metrics. A store bills by them."""

    puts: int = 0
    gets: int = 0
    heads: int = 0
    lists: int = 0
    deletes: int = 0
    retries: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def __add__(self, other: "StoreCounters") -> "StoreCounters":
        return StoreCounters(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))


class Bucket:
    def __init__(
        self,
        store: ObjectStore,
        policy: RetryPolicy | None = None,
        *,
        keys: MasterKeys | None = None,
        clock: Callable[[], float] = steady_s,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.url = store.url
        self.counters = StoreCounters()
        self.health = StoreHealth(store.url)
        self.keys = keys or MasterKeys()
        """What opens the encrypted objects in it."""
        self._store = store
        self._policy = policy or RetryPolicy()
        self._clock = clock
        self._pause = pause

    def within(self, deadline_ms: int) -> "Bucket":
        """Returns the same store with a shorter deadline, for callers that have a client waiting."""
        hurried = Bucket(
            self._store, self._policy.within(deadline_ms), keys=self.keys, clock=self._clock, pause=self._pause
        )
        hurried.counters, hurried.health = self.counters, self.health
        return hurried

    async def put(self, key: str, data: Buffer) -> None:
        async def attempt() -> None:
            self.counters.puts += 1
            await self._store.put(key, data)

        await self._repeat(attempt, key, len(data))
        self.counters.bytes_out += len(data)

    async def put_if_absent(self, key: str, data: Buffer) -> bool:
        unanswered = False

        async def attempt() -> bool:
            nonlocal unanswered
            self.counters.puts += 1
            before, unanswered = unanswered, True
            created = await self._store.put_if_absent(key, data)
            return created or (before and await self._holds(key, data))

        created = await self._repeat(attempt, key, len(data))
        self.counters.bytes_out += len(data)
        return created

    async def put_file(self, key: str, path: str) -> None:
        size = os.path.getsize(path)

        async def attempt() -> None:
            self.counters.puts += 1
            await self._store.put_file(key, path)

        await self._repeat(attempt, key, size)
        self.counters.bytes_out += size

    async def get(self, key: str, start: int = 0, length: int | None = None) -> Buffer:
        """Returns the bytes from `start`: exactly `length` of them, unless the object ends earlier."""
        parts: list[Buffer] = []
        received = 0

        async def attempt() -> None:
            nonlocal received
            self.counters.gets += 1
            rest = None if length is None else length - received
            async for part in self._store.stream(key, start + received, rest):
                parts.append(part)
                received += len(part)

        await self._repeat(attempt, key, length or 0)
        self.counters.bytes_in += received
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def stream(self, key: str, start: int = 0, length: int | None = None) -> AsyncIterator[Buffer]:
        """As `get`, in one part."""
        yield await self.get(key, start, length)

    async def head(self, key: str) -> ObjectInfo | None:
        async def attempt() -> ObjectInfo | None:
            self.counters.heads += 1
            return await self._store.head(key)

        return await self._repeat(attempt, key, 0)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Yields every object once. A listing that fails is started again and skips what it has already given."""
        given: set[str] = set()
        listing: AsyncIterator[ObjectInfo] | None = None

        async def attempt() -> list[ObjectInfo]:
            nonlocal listing
            if listing is None:
                self.counters.lists += 1
                listing = self._store.list(prefix, start_after)
            page: list[ObjectInfo] = []
            try:
                async for info in listing:
                    if info.key not in given:
                        page.append(info)
                        if len(page) == _LIST_PAGE:
                            break
            except BaseException:
                listing = None
                raise
            return page

        while page := await self._repeat(attempt, prefix, 0):
            for info in page:
                given.add(info.key)
                yield info

    async def folders(self, prefix: str) -> Sequence[str]:
        async def attempt() -> Sequence[str]:
            self.counters.lists += 1
            return await self._store.folders(prefix)

        return await self._repeat(attempt, prefix, 0)

    async def delete(self, keys: Sequence[str]) -> None:
        """Deletes in groups as large as one S3 request takes. Each group has its own deadline."""
        for first in range(0, len(keys), _DELETE_AT_ONCE):
            some = keys[first : first + _DELETE_AT_ONCE]

            async def attempt(some: Sequence[str] = some) -> None:
                self.counters.deletes += 1
                await self._store.delete(some)

            await self._repeat(attempt, some[0], 0)

    async def close(self) -> None:
        await self._store.close()

    async def _holds(self, key: str, data: Buffer) -> bool:
        try:
            stored = [part async for part in self._store.stream(key)]
        except ObjectMissing:
            return False
        return b"".join(stored) == data

    async def _repeat(self, attempt: Callable[[], Awaitable[T]], key: str, size: int) -> T:
        policy = self._policy
        grace_ms = size * 1000 // policy.slowest_bytes_per_second
        deadline = self._clock() + (policy.deadline_ms + grace_ms) / 1000
        backoff_ms = policy.backoff_ms
        while True:
            left = deadline - self._clock()
            try:
                async with asyncio.timeout(min(left, (policy.attempt_ms + grace_ms) / 1000)):
                    answer = await attempt()
            except TimeoutError:
                failure: StoreUnavailable = StoreUnavailable(
                    f"no answer within {policy.attempt_ms + grace_ms} ms",
                    where=f"{self.url}{key}",
                    hint="check the store and the network",
                )
            except StoreUnavailable as error:
                failure = error
            except ObjectMissing:
                self.health.answered()
                raise
            except StoreError as error:
                self.health.failed(error)
                raise
            else:
                self.health.answered()
                return answer
            self.health.failed(failure)
            if isinstance(failure, StoreThrottled):
                backoff_ms = max(backoff_ms, min(20 * policy.backoff_ms, policy.backoff_max_ms))
            pause = backoff_ms * (0.5 + random.random() / 2) / 1000
            if self._clock() + pause >= deadline:
                raise self.health.since(failure)
            self.counters.retries += 1
            await self._pause(pause)
            backoff_ms = min(2 * backoff_ms, policy.backoff_max_ms)

"""Deadlines, retries, resumption and lost answers, against a store that fails by a script."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from cold_tier.errors import ObjectMissing, StoreDenied, StoreThrottled, StoreUnavailable
from cold_tier.objects.bucket import Bucket, RetryPolicy
from cold_tier.objects.memory import MemoryStore
from cold_tier.objects.store import Buffer, ObjectInfo, ObjectStore

DOWN = StoreUnavailable("500")


class Scripted(MemoryStore):
    """Takes one fault from the script per attempt: an error, "lost" (done, then no answer), "cut n", "hang"."""

    def __init__(self, *faults: Exception | str | None) -> None:
        super().__init__()
        self.faults = deque(faults)
        self.attempts = 0
        self.ranges: list[tuple[int, int | None]] = []

    async def _before(self) -> str | None:
        self.attempts += 1
        fault = self.faults.popleft() if self.faults else None
        if isinstance(fault, Exception):
            raise fault
        if fault == "hang":
            await asyncio.Event().wait()
        return fault

    async def put(self, key: str, data: Buffer) -> None:
        await self._before()
        await super().put(key, data)

    async def put_if_absent(self, key: str, data: Buffer) -> bool:
        fault = await self._before()
        created = key not in self.objects
        if created:
            self.objects[key] = (bytes(data), 0)
        if fault == "lost":
            raise DOWN
        return created

    async def stream(self, key: str, start: int = 0, length: int | None = None) -> AsyncIterator[Buffer]:
        self.ranges.append((start, length))
        fault = await self._before()
        async for data in super().stream(key, start, length):
            if fault and fault.startswith("cut"):
                yield data[: int(fault.split()[1])]
                raise DOWN
            yield data

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        fault = await self._before()
        count = 0
        async for info in super().list(prefix, start_after):
            if fault and fault.startswith("cut") and count == int(fault.split()[1]):
                raise DOWN
            count += 1
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        await self._before()
        await super().delete(keys)


class Clock:
    """Pauses take no time; they move the clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def retrying(store: ObjectStore, clock: Clock | None = None, **policy: int) -> Bucket:
    clock = clock or Clock()
    return Bucket(store, RetryPolicy(**policy), clock=lambda: clock.now, pause=clock.pause)


async def test_an_unavailable_store_is_tried_again_until_it_answers() -> None:
    store = Scripted(DOWN, DOWN, DOWN)
    await retrying(store).put("k", b"v")
    assert store.attempts == 4
    assert store.objects["k"][0] == b"v"


async def test_the_deadline_ends_it_with_the_last_error() -> None:
    store, clock = Scripted(*[DOWN] * 1000), Clock()
    with pytest.raises(StoreUnavailable, match="500"):
        await retrying(store, clock, deadline_ms=3_000).put("k", b"v")
    assert clock.now <= 3
    assert 5 < store.attempts < 30


@pytest.mark.parametrize("error", [StoreDenied("403"), ObjectMissing("404")])
async def test_what_will_not_change_is_not_tried_again(error: Exception) -> None:
    store = Scripted(error)
    with pytest.raises(type(error)):
        await retrying(store).put("k", b"v")
    assert store.attempts == 1


async def test_a_hanging_attempt_is_abandoned() -> None:
    store = Scripted("hang")
    await retrying(store, attempt_ms=20).put("k", b"v")
    assert store.attempts == 2


async def test_throttling_waits_longer_at_once() -> None:
    quick, slow = Clock(), Clock()
    await retrying(Scripted(DOWN), quick).put("k", b"v")
    await retrying(Scripted(StoreThrottled("503 SlowDown")), slow).put("k", b"v")
    assert slow.pauses[0] > 5 * quick.pauses[0]


async def test_a_cut_body_goes_on_where_it_stopped() -> None:
    store = Scripted(None, "cut 100", "cut 50")
    data = bytes(range(250)) * 4
    retries = retrying(store)
    await retries.put("k", data)
    assert bytes(await retries.get("k", 10, 900)) == data[10:910]
    assert store.ranges == [(10, 900), (110, 800), (160, 750)]


async def test_a_lost_answer_of_put_if_absent_is_still_a_win() -> None:
    store = Scripted("lost")
    assert await retrying(store).put_if_absent("k", b"mine, with a nonce")


async def test_a_lost_answer_is_no_win_over_someone_else() -> None:
    store = Scripted("lost")
    store.objects["k"] = (b"theirs", 0)
    assert not await retrying(store).put_if_absent("k", b"mine")


async def test_a_listing_that_breaks_off_gives_every_key_once() -> None:
    store = Scripted("cut 2", "cut 4")
    for n in range(6):
        store.objects[f"p/{n}"] = (b"", 0)
    assert [info.key async for info in retrying(store).list("p/")] == [f"p/{n}" for n in range(6)]


async def test_a_long_listing_is_given_once() -> None:
    store = Scripted()
    for n in range(2500):
        store.objects[f"p/{n:05}"] = (b"", 0)
    retries = retrying(store)
    assert [info.key async for info in retries.list("p/")] == [f"p/{n:05}" for n in range(2500)]
    assert retries.counters.lists == 1


class Slow(MemoryStore):
    async def delete(self, keys: Sequence[str]) -> None:
        await asyncio.sleep(len(keys) / 25_000)
        await super().delete(keys)


async def test_however_much_is_deleted_each_part_has_its_own_time() -> None:
    store = Slow()
    keys = [str(n) for n in range(20_000)]
    store.objects = dict.fromkeys(keys, (b"", 0))
    await Bucket(store, RetryPolicy(attempt_ms=400, deadline_ms=1500)).delete(keys)
    assert not store.objects


async def test_a_large_upload_is_given_more_time() -> None:
    store, clock = Scripted(*[DOWN] * 40), Clock()
    await retrying(store, clock, deadline_ms=1_000, slowest_bytes_per_second=1000).put("k", b"x" * 200_000)
    assert clock.now > 1


async def test_a_bucket_is_an_object_store_that_another_can_be_put_around(tmp_path: Path) -> None:
    """The outer one finds every operation that it asks of a store."""
    file = tmp_path / "file"
    file.write_bytes(b"from a file")
    store = Scripted(DOWN)
    outer = retrying(retrying(store))
    await outer.put("d/a", b"0123456789")
    assert store.attempts == 2
    await outer.put_file("d/b", str(file))
    assert not await outer.put_if_absent("d/a", b"another")
    assert (bytes(await outer.get("d/a", 2, 3)), bytes(await outer.get("d/b"))) == (b"234", b"from a file")
    assert [info.key async for info in outer.list("d/")] == ["d/a", "d/b"]
    assert list(await outer.folders("")) == ["d"]
    await outer.delete(["d/a"])
    assert await outer.head("d/a") is None
    with pytest.raises(ObjectMissing):
        await outer.get("d/a")
    await outer.close()

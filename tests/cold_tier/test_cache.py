"""The caches keep to their bounds, and the one on disk to what the log needs of it."""

import os
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from cold_tier.cache import DiskCache, MemoryCache


def test_memory_keeps_what_was_used_last_within_its_bound() -> None:
    cache: MemoryCache[bytes] = MemoryCache(30)
    for key in "abc":
        cache.put(key, bytes(10))
    assert cache.get("a") is not None
    cache.put("d", bytes(10))
    assert ("a" in cache, "b" in cache, cache.bytes) == (True, False, 30)
    cache.put("large", bytes(100))
    assert (cache.bytes, "d" in cache) == (100, False), "one that is larger than all the room is the only one"


async def test_the_disk_keeps_to_its_bound_over_a_restart(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), 25)
    for key in "abc":
        await cache.put(key, key.encode() * 10)
    assert sorted(os.listdir(tmp_path)) == ["b", "c"]
    (tmp_path / "x.part").write_bytes(b"cut off")
    again = DiskCache(str(tmp_path), 25)
    assert await again.get("c") == b"c" * 10 and again.bytes == 20
    assert sorted(os.listdir(tmp_path)) == ["b", "c"]


async def test_a_disk_that_runs_full_is_left_to_the_log(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), 1000)
    for key in "abc":
        await cache.put(key, bytes(10))
    with mock.patch("os.statvfs", lambda _: SimpleNamespace(f_bavail=9, f_blocks=100)):
        for key in "de":
            await cache.put(key, bytes(10))
    assert os.listdir(tmp_path) == ["c"] and cache.bytes == 10
    await cache.put("f", bytes(10))
    assert sorted(os.listdir(tmp_path)) == ["c", "f"]

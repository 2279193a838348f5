"""Syncs of one file, which are done by threads without the interpreter."""

import asyncio
import errno
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from hot_tier.errors import StorageFailure
from hot_tier.log.config import TopicConfig
from hot_tier.log.manager import LogManager
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.settings import LogSettings
from hot_tier.log.sync_threads import Synced, SyncThreads
from tests.hot_tier.log.support import NOW, TOPIC_ID, append, batch, sync_each_with

SETTINGS = LogSettings(min_free_bytes=0, flush_threads=2)


@pytest.fixture
def threads() -> Iterator[SyncThreads]:
    threads = SyncThreads(2)
    yield threads
    threads.close()
    assert not any(thread.is_alive() for thread in threads._threads)


def answers(threads: SyncThreads, count: int) -> list[Synced]:
    found: list[Synced] = []
    while len(found) < count:
        found += threads.take(wait=True)
    return sorted(found)


def test_each_file_is_synced_and_answered_once(threads: SyncThreads, tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as a, (tmp_path / "b").open("wb") as b:
        for number in range(500):
            threads.sync(number, (a if number % 2 else b).fileno())
        found = answers(threads, 500)
    assert [(each.number, each.errno) for each in found] == [(number, 0) for number in range(500)]
    assert all(each.nanoseconds > 0 for each in found)
    assert threads.take() == []


def test_why_a_file_cannot_be_synced_is_told(threads: SyncThreads) -> None:
    reading, writing = os.pipe()
    threads.sync(1, reading)
    threads.sync(2, 1 << 20)
    found = answers(threads, 2)
    os.close(reading)
    os.close(writing)
    assert [(each.number, each.errno) for each in found] == [(1, errno.EINVAL), (2, errno.EBADF)]


def test_a_signal_does_not_end_a_thread(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    threads = SyncThreads(2)
    for thread in threads._threads:
        assert thread.ident is not None
        for _ in range(20):
            signal.pthread_kill(thread.ident, signal.SIGUSR1)
    with (tmp_path / "a").open("wb") as file:
        for number in range(50):
            threads.sync(number, file.fileno())
        assert [each.errno for each in answers(threads, 50)] == [0] * 50
    assert all(thread.is_alive() for thread in threads._threads)
    threads.close()
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[LogManager]:
    manager = LogManager(str(tmp_path), SETTINGS, lambda: NOW)
    await manager.open(background=False)
    yield manager
    await manager.close()


async def synced_once(manager: LogManager, partition: int = 0) -> PartitionLog:
    """A log of which the next sync is one of its file alone."""
    log = manager.log("orders", TOPIC_ID, partition, TopicConfig())
    append(log, batch(b"a"))
    manager.flusher.request(log.sync)
    await manager.flusher.drain()
    assert log.flushed_offset == 1
    return log


def begun(manager: LogManager, log: PartitionLog) -> None:
    """Begins a sync at once, of one more batch."""
    append(log, batch(b"b"))
    manager.flusher.request(log.sync)
    manager.flusher._dispatch()


async def test_syncs_of_many_logs_are_settled(manager: LogManager) -> None:
    logs = [await synced_once(manager, partition) for partition in range(20)]
    for log in logs:
        append(log, batch(b"b"))
        manager.flusher.request(log.sync)
    await manager.flusher.drain()
    assert [log.flushed_offset for log in logs] == [2] * 20
    assert manager.flusher.syncs == 40
    assert manager.flusher.sync_seconds > 0


async def test_a_failed_sync_ends_the_log(manager: LogManager) -> None:
    log = await synced_once(manager)
    reading, writing = os.pipe()
    active = log._segments.active
    assert active is not None
    begun_with = os.dup(active.file().fd)
    append(log, batch(b"b"))
    os.dup2(reading, active.file().fd)  # What cannot be synced takes the place of the file.
    manager.flusher.request(log.sync)
    await manager.flusher.drain()
    for fd in (reading, writing, begun_with):
        os.close(fd)
    assert log.failure is not None and "Invalid argument" in str(log.failure)
    assert log.flushed_offset == 1


async def test_records_in_a_directory_that_was_replaced_are_not_acknowledged(manager: LogManager) -> None:
    log = await synced_once(manager)
    append(log, batch(b"b"))
    os.rename(log.directory, log.directory + ".away")
    os.mkdir(log.directory)
    manager.flusher.request(log.sync)
    await manager.flusher.drain()
    assert log.failure is not None and log.flushed_offset == 1


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Call it with the error that syncs end with. Until then they wait."""
    goes_on = threading.Event()
    outcome = [0]

    def sync(fd: int) -> None:
        goes_on.wait(10)
        if outcome[0]:
            raise OSError(outcome[0], "as told")

    def go_on(error: int) -> None:
        outcome[0] = error
        goes_on.set()

    monkeypatch.setattr("hot_tier.log.sync_threads.sync_each", sync_each_with(sync))
    yield go_on
    goes_on.set()


async def test_who_syncs_here_and_now_waits_for_the_sync_under_way(
    slow: Callable[[int], None], manager: LogManager
) -> None:
    log, other = await synced_once(manager), await synced_once(manager, 1)
    begun(manager, log)
    begun(manager, other)
    asyncio.get_running_loop().run_in_executor(None, lambda: slow(0))
    log.flush()
    assert log.flushed_offset == 2
    await manager.flusher.drain()
    assert other.flushed_offset == 2


async def test_who_syncs_here_and_now_hears_of_the_error_of_the_sync_under_way(
    slow: Callable[[int], None], manager: LogManager
) -> None:
    """A second sync of the same file would succeed."""
    log = await synced_once(manager)
    begun(manager, log)
    slow(errno.EIO)
    with pytest.raises(StorageFailure, match="Input/output error"):
        log.flush()
    await manager.flusher.drain()
    assert log.failure is not None and log.flushed_offset == 1

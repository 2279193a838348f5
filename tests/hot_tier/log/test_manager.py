import asyncio
import errno
import os
import random
import shutil
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from hot_tier.clock import wall_ms
from hot_tier.errors import CorruptLog, SettingsError, StorageFailure
from hot_tier.log.config import TopicConfig
from hot_tier.log.manager import LogManager
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.settings import LogSettings
from hot_tier.record.records import decode_records
from tests.hot_tier.log.power_loss import PowerLoss
from tests.hot_tier.log.support import NOW, TOPIC_ID, append, batch
from tests.support.waiting import until

SETTINGS = LogSettings(min_free_bytes=0, max_open_files=64)


async def opened(path: Path, *, now_ms: int = NOW, settings: LogSettings = SETTINGS) -> LogManager:
    manager = LogManager(str(path), settings, lambda: now_ms)
    await manager.open(background=False)
    return manager


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[LogManager]:
    manager = await opened(tmp_path)
    yield manager
    await manager.close()


async def values(manager: LogManager, topic_id: UUID = TOPIC_ID, partition: int = 0) -> list[bytes | None]:
    log = manager.log("orders", topic_id, partition, TopicConfig())
    return [record.value for record in decode_records(await read(log, log.log_start_offset))]


async def read(log: PartitionLog, offset: int) -> bytes | memoryview:
    slice_ = log.locate(offset, 1 << 20, log.log_end_offset)
    if slice_ is None:
        return b""
    data = log.read_now(slice_)
    return await log.read(slice_) if data is None else data


async def test_a_log_is_one_object_and_takes_a_new_config(manager: LogManager) -> None:
    log = manager.log("orders", TOPIC_ID, 0, TopicConfig())
    assert manager.log("orders", TOPIC_ID, 0, TopicConfig(segment_ms=5)) is log
    assert log.config.segment_ms == 5
    assert list(manager) == [log]


async def test_the_flusher_tells_the_listener(manager: LogManager) -> None:
    log = manager.log("orders", TOPIC_ID, 0, TopicConfig())
    moved = asyncio.Event()
    log.sync.listener = moved.set
    append(log, batch(b"a"))
    append(log, batch(b"b"))
    manager.flusher.request(log.sync)
    manager.flusher.request(log.sync)
    await asyncio.wait_for(moved.wait(), 10)
    assert log.flushed_offset == 2
    assert log.sync.rounds == 1


async def test_a_clean_restart_brings_back_everything_and_reads_no_log(tmp_path: Path) -> None:
    manager = await opened(tmp_path)
    log = manager.log("orders", TOPIC_ID, 3, TopicConfig(segment_bytes=1024))
    for number in range(50):
        append(log, batch(b"%d" % number, producer=1, epoch=0, sequence=number), epoch=number // 10)
    log.delete_records_before(7)
    await manager.close()
    assert os.path.exists(tmp_path / "clean-shutdown")

    again = await opened(tmp_path)
    assert not os.path.exists(tmp_path / "clean-shutdown")
    assert again.recovered == []
    assert len(again.disk.files) == 0
    found = again.log("orders", TOPIC_ID, 3, TopicConfig(segment_bytes=1024))
    assert len(again.disk.files) == 0
    assert (found.log_start_offset, found.log_end_offset, found.flushed_offset) == (7, 50, 50)
    assert found.end_of_epoch(2) == (2, 30)
    assert append(found, batch(b"47", producer=1, epoch=0, sequence=47)).duplicate
    assert append(found, batch(b"50", producer=1, epoch=0, sequence=50)).base_offset == 50
    assert (await values(again, partition=3))[0] == b"7"
    await again.close()


async def test_after_an_unclean_stop_logs_are_recovered(tmp_path: Path) -> None:
    manager = await opened(tmp_path)
    log = manager.log("orders", TOPIC_ID, 0, TopicConfig())
    append(log, batch(b"a"))
    append(log, batch(b"b"))
    os.close(manager._lock_fd)
    again = await opened(tmp_path)
    assert len(again.recovered) == 1
    assert again.recovered[0].cut_bytes == 0
    assert await values(again) == [b"a", b"b"]
    await again.close()


async def test_logs_that_lost_something_are_named(tmp_path: Path) -> None:
    manager = await opened(tmp_path)
    logs = {partition: manager.log("orders", TOPIC_ID, partition, TopicConfig()) for partition in range(5)}
    for log in logs.values():
        append(log, batch(b"synced"))
        log.flush()
        append(log, batch(b"not synced"))
    os.close(manager._lock_fd)
    files = {partition: next(Path(log.directory).glob("*.log")) for partition, log in logs.items()}
    os.truncate(files[1], files[1].stat().st_size - 1)
    os.truncate(files[2], 10)
    shutil.rmtree(logs[3].directory)
    files[4].unlink()
    again = await opened(tmp_path)
    doubts = again.disk.doubts
    assert doubts.cut == {(TOPIC_ID, 1)}
    assert doubts.damaged == {(TOPIC_ID, 2), (TOPIC_ID, 3), (TOPIC_ID, 4)}
    assert doubts.emptied == {(TOPIC_ID, 3), (TOPIC_ID, 4)}
    await again.close()


async def test_two_brokers_cannot_share_a_directory(manager: LogManager, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="another broker"):
        await opened(tmp_path)


async def test_a_deleted_topic_is_gone_and_may_come_back_empty(manager: LogManager) -> None:
    log = manager.log("orders", TOPIC_ID, 0, TopicConfig())
    append(log, batch(b"a"))
    log.flush()
    assert {topic.topic_id for topic in manager.topics_on_disk()} == {TOPIC_ID}
    manager.delete("orders", TOPIC_ID)
    assert manager.topics_on_disk() == set()
    assert await values(manager, topic_id=uuid4()) == []


async def test_opening_a_thousand_logs(tmp_path: Path) -> None:
    """Many times as many as may be open."""
    manager = await opened(tmp_path)
    ids = [uuid4() for _ in range(250)]
    for topic_id in ids:
        for partition in range(4):
            append(manager.log("orders", topic_id, partition, TopicConfig()), batch(b"a"))
    assert len(manager.disk.files) <= SETTINGS.max_open_files
    await manager.close()
    again = await opened(tmp_path)
    logs = [again.log("orders", topic_id, partition, TopicConfig()) for topic_id in ids for partition in range(4)]
    assert all(log.log_end_offset == 1 for log in logs)
    assert await values(again, ids[125], 2) == [b"a"]
    os.close(again._lock_fd)
    recovered = await opened(tmp_path)
    assert len(recovered.recovered) == 1000
    await recovered.close()


async def test_upkeep_goes_on_by_itself(tmp_path: Path) -> None:
    """Segments roll by age and are deleted, a flush=os log is synced by flush.ms, a compacted log is compacted."""
    quick = LogSettings(min_free_bytes=0, free_check_ms=5, retention_check_ms=5, compaction_check_ms=5, checkpoint_ms=5)
    manager = LogManager(str(tmp_path), quick)
    await manager.open()
    now = wall_ms()
    old = manager.log("old", uuid4(), 0, TopicConfig(segment_ms=10, retention_ms=10, file_delete_delay_ms=0))
    append(old, batch(b"a", timestamp=now), now_ms=now)
    lazy = manager.log("lazy", uuid4(), 0, TopicConfig(flush="os", flush_ms=10))
    append(lazy, batch(b"a", timestamp=now), now_ms=now)
    compacted = TopicConfig(cleanup_policy=frozenset({"compact"}), segment_ms=10, segment_bytes=1024)
    keys = manager.log("keys", uuid4(), 0, compacted)
    for number in range(50):
        append(keys, batch((b"k", b"%d" % number), timestamp=now), now_ms=now)
    size = keys.size_bytes
    await until(lambda: old.log_start_offset == 1 and old.size_bytes == 0)
    await until(lambda: lazy.flushed_offset == 1)
    await until(lambda: keys.size_bytes < size / 10)
    await until(lambda: not list(Path(old.directory).glob("*.deleted")))
    await manager.close()
    again = LogManager(str(tmp_path), quick)
    await again.open(background=False)
    assert again.recovered == []
    await again.close()


async def test_a_log_of_a_deleted_topic_takes_nothing_more(manager: LogManager) -> None:
    log = manager.log("orders", TOPIC_ID, 0, TopicConfig())
    append(log, batch(b"a"))
    manager.flusher.request(log.sync)
    manager.delete("orders", TOPIC_ID)
    await manager.flusher.drain()
    with pytest.raises(StorageFailure, match="deleted"):
        append(log, batch(b"b"))
    assert list(manager) == []


async def test_a_failed_log_is_recovered_at_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = await opened(tmp_path)
    log = manager.log("orders", TOPIC_ID, 0, TopicConfig())
    append(log, batch(b"a"))

    def refuse(fd: int) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", refuse)
        manager.flusher.request(log.sync)
        await manager.flusher.drain()
    assert log.failure is not None
    await manager.close()
    assert not os.path.exists(tmp_path / "clean-shutdown")
    again = await opened(tmp_path)
    assert await values(again) == [b"a"]
    await again.close()


@pytest.mark.parametrize("lost", ["*/0/*.log", "*/0/*", "*/0"])
async def test_offsets_of_lost_files_are_not_given_out_again(tmp_path: Path, lost: str) -> None:
    manager = await opened(tmp_path)
    log = manager.log("orders", TOPIC_ID, 0, TopicConfig())
    for _ in range(3):
        append(log, batch(b"a"))
    log.flush()
    os.close(manager._lock_fd)
    for path in (tmp_path / "logs").glob(lost):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    for ask, killed in ((False, False), (True, False), (True, True)):
        again = await opened(tmp_path)
        if ask:
            assert again.log("orders", TOPIC_ID, 0, TopicConfig()).log_end_offset == 3
        if killed:
            os.close(again._lock_fd)
        else:
            await again.close()
    again = await opened(tmp_path)
    found = again.log("orders", TOPIC_ID, 0, TopicConfig())
    assert append(found, batch(b"b")).base_offset == 3
    assert found.log_start_offset == 0
    for offset in range(3):
        with pytest.raises(CorruptLog):
            await read(found, offset)
    assert decode_records(await read(found, 3))[0].value == b"b"
    await again.close()


async def test_a_partition_may_come_and_go_faster_than_its_bytes(tmp_path: Path) -> None:
    """Moved away and back and away again while every thread is busy: nothing of one life is there in the next."""
    manager = await opened(tmp_path)
    free = threading.Event()
    for _ in range(SETTINGS.recovery_threads + 2):
        manager._workers.submit(free.wait)
    try:
        for round_ in range(3):
            log = manager.log("orders", TOPIC_ID, 0, TopicConfig())
            assert log.log_end_offset == 0
            append(log, batch(b"life %d" % round_))
            log.flush()
            assert await values(manager) == [b"life %d" % round_]
            manager.delete_partition("orders", TOPIC_ID, 0)
    finally:
        free.set()
        await manager.close()
    assert [name for name in os.listdir(manager.disk.logs_directory) if name.endswith(".deleted")] == []


async def test_a_clean_stop_leaves_no_deleted_files(tmp_path: Path) -> None:
    """The next start opens no log directory: nobody would find them."""
    manager = await opened(tmp_path)
    log = manager.log("orders", TOPIC_ID, 0, TopicConfig(segment_bytes=1024, retention_bytes=0))
    for _ in range(5):
        append(log, batch(b"x" * 900))
    manager.flusher.request(log.sync)
    await manager.flusher.drain()
    await manager.keep_all()
    assert len(list(Path(log.directory).glob("*.deleted"))) == 4
    await manager.close()
    assert not list(Path(log.directory).glob("*.deleted"))


async def test_others_run_between_the_logs_that_retention_shortens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = await opened(tmp_path)
    logs = [manager.log("orders", TOPIC_ID, number, TopicConfig()) for number in range(20)]
    monkeypatch.setattr(PartitionLog, "apply_retention", lambda *_: time.sleep(0.006))
    rounds = 0

    async def others() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    running = asyncio.create_task(others())
    await manager.keep_all()
    running.cancel()
    assert rounds >= len(logs) - 1
    await manager.close()


async def test_a_partition_that_comes_back_is_not_measured_by_its_last_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    disk = PowerLoss(str(tmp_path / "run"), monkeypatch)
    manager = await opened(tmp_path / "run")
    for records in (50, 3):
        log = manager.log("orders", TOPIC_ID, 0, TopicConfig())
        for _ in range(records):
            append(log, batch(b"x"))
        manager.flusher.request(log.sync)
        await manager.flusher.drain()
        if records == 50:
            manager.disk.recovery_points.sync()
            manager.delete_partition("orders", TOPIC_ID, 0)
    for seed in range(10):
        disk.crash(str(tmp_path / str(seed)), random.Random(seed))
    disk.close()
    monkeypatch.undo()
    await manager.close()
    for seed in range(10):
        found = await opened(tmp_path / str(seed))
        assert found.disk.doubts.damaged == set()
        assert found.log("orders", TOPIC_ID, 0, TopicConfig()).log_end_offset == 3
        await found.close()


async def test_a_log_that_is_not_synced_misses_its_directory_too(tmp_path: Path) -> None:
    manager = LogManager(str(tmp_path), LogSettings(min_free_bytes=0, free_check_ms=20))
    await manager.open()
    log = manager.log("orders", TOPIC_ID, 0, TopicConfig())
    # Of today: upkeep rolls a segment whose first batch is old, and a roll is synced.
    append(log, batch(b"not synced", timestamp=wall_ms()), now_ms=wall_ms())
    await asyncio.sleep(0.1)
    assert log.failure is None
    assert log.sync.rounds == 0
    shutil.rmtree(log.directory)
    await until(lambda: log.failure is not None)
    with pytest.raises(StorageFailure, match="is gone"):
        append(log, batch(b"refused"))
    await manager.close()

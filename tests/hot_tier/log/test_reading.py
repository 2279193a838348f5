"""Reads that race with deletion, compaction and cutting; reads that would wait; lookups by time."""

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hot_tier.errors import CorruptLog, OffsetOutOfRange
from hot_tier.log.config import TopicConfig
from hot_tier.log.epochs import NO_HISTORY
from hot_tier.log.manager import LogManager
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.reading import FileSlice
from hot_tier.log.segment_reading import read_checked
from hot_tier.record.records import decode_records
from tests.damage.harms import flip
from tests.hot_tier.log.support import (
    NOW,
    SETTINGS,
    TOPIC_ID,
    append,
    batch,
    open_log,
    read_bytes,
    release,
    reopen_after_kill,
)
from tests.hot_tier.log.test_compaction import COMPACT, close_active, compact, write

SMALL = TopicConfig(segment_bytes=1024, index_interval_bytes=100, retention_bytes=0)


def filled(tmp_path: Path) -> PartitionLog:
    log = open_log(tmp_path, SMALL)
    for number in range(60):
        append(log, batch(b"%03d" % number))
    log.flush()
    return log


@pytest.fixture
def small(tmp_path: Path) -> Iterator[PartitionLog]:
    log = filled(tmp_path)
    yield log
    release(log)


def test_a_read_that_has_begun_outlives_the_deletion(small: PartitionLog) -> None:
    slice_ = small.locate(0, 1 << 20, 60)
    assert slice_ is not None
    file = slice_.segment.file().pin()
    assert small.apply_retention(NOW) > 2
    assert slice_.segment.retired
    data = read_checked(slice_.segment, file.fd, slice_.position, slice_.length, 0, NO_HISTORY)
    assert decode_records(data)[0].value == b"000"
    file.unpin()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file.fd)


def test_a_read_that_comes_after_the_deletion_says_so(small: PartitionLog) -> None:
    slice_ = small.locate(0, 1 << 20, 60)
    assert slice_ is not None
    small.apply_retention(NOW)
    assert small.read_now(slice_) is None
    with pytest.raises(OffsetOutOfRange):
        asyncio.run(small.read(slice_))


def test_a_read_that_comes_after_compaction_gets_the_new_bytes(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    for number in range(30):
        write(log, (b"k", b"%d" % number), (b"k%d" % number, b"x"))
    close_active(log)
    slice_ = log.locate(20, 1 << 20, 60)
    assert slice_ is not None
    compact(log)
    assert log.read_now(slice_) is None
    found = decode_records(asyncio.run(log.read(slice_)), from_offset=20)
    assert found[0].offset == 21
    release(log)


def test_a_cut_forgets_what_it_cut(small: PartitionLog) -> None:
    small.truncate_to(30, NOW)
    assert small.log_end_offset == small.flushed_offset == 30
    assert read_bytes(small, 30) == b""
    append(small, batch(b"new"))
    assert decode_records(read_bytes(small, 30))[0].value == b"new"
    small.truncate_to(0, NOW)
    assert small.log_end_offset == 0
    assert append(small, batch(b"first")).base_offset == 0


def test_a_log_can_start_anew_at_any_offset(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.reset_to(500, NOW)
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)
    assert append(log, batch(b"a")).base_offset == 500
    log, _ = reopen_after_kill(log)
    assert (log.log_start_offset, log.log_end_offset) == (500, 501)
    release(log)


def test_what_would_wait_for_the_disk_is_left_to_a_thread(small: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    preadv = os.preadv

    def cold(fd: int, buffers: list[memoryview], position: int, flags: int = 0) -> int:
        if flags & os.RWF_NOWAIT:
            raise BlockingIOError
        return preadv(fd, buffers, position, flags)

    monkeypatch.setattr(os, "preadv", cold)
    for offset in range(60):
        slice_ = small.locate(offset, 1, 60)
        assert slice_ is not None
        assert small.read_now(slice_) is None
        assert decode_records(asyncio.run(small.read(slice_)))[0].offset == offset


def test_a_file_system_without_nowait_is_read_all_the_same(
    small: PartitionLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    preadv = os.preadv

    def tmpfs(fd: int, buffers: list[memoryview], position: int, flags: int = 0) -> int:
        if flags & os.RWF_NOWAIT:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return preadv(fd, buffers, position, flags)

    monkeypatch.setattr(os, "preadv", tmpfs)
    slice_ = small.locate(31, 1, 60)
    assert slice_ is not None
    found = small.read_now(slice_)
    assert found is not None
    assert decode_records(found)[0].offset == 31


def test_what_another_process_wrote_is_checked_once(tmp_path: Path) -> None:
    log, _ = reopen_after_kill(filled(tmp_path))
    slice_ = log.locate(0, 1 << 20, 60)
    assert slice_ is not None
    assert log.read_now(slice_) is None
    asyncio.run(log.read(slice_))
    assert log.read_now(slice_) is not None
    release(log)


def test_readers_of_the_same_batches_share_them_while_one_of_them_is_not_done(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(8):
        append(log, batch(b"x" * 1000))
    first = located(log, 0)
    held = log.read_now(first)
    assert held is not None
    assert log.read_now(located(log, 0)) is held
    flip(Path(first.segment.path), 500)
    assert bytes(log.read_now(located(log, 0)) or b"") == bytes(held), (
        "the bytes that were checked, whatever came after"
    )
    del held
    with pytest.raises(CorruptLog):
        log.read_now(located(log, 0))
    release(log)


def test_what_was_cut_is_not_shared(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"before"))
    append(log, batch(b"old"))
    held = log.read_now(located(log, 0))
    assert held is not None
    log.truncate_to(1, NOW)
    append(log, batch(b"new"), epoch=1)
    now = log.read_now(located(log, 0))
    assert now is not None and len(now) == len(held)
    assert [record.value for record in decode_records(now)] == [b"before", b"new"]
    release(log)


def located(log: PartitionLog, offset: int) -> FileSlice:
    found = log.locate(offset, 1 << 20, log.log_end_offset)
    assert found is not None
    return found


def test_open_files_are_bounded(small: PartitionLog) -> None:
    pool = small._disk.files
    for offset in [*range(60), *range(59, -1, -1)]:
        read_bytes(small, offset, max_bytes=1)
        assert len(pool) <= 8
    append(small, batch(b"goes on"))
    small.flush()


def times(log: PartitionLog, *batches: list[int]) -> None:
    for timestamps in batches:
        append(log, batch(*[b"x"] * len(timestamps), timestamps=timestamps))


def found(log: PartitionLog, timestamp: int, end_offset: int | None = None) -> tuple[int, int] | None:
    end = log.log_end_offset if end_offset is None else end_offset
    result = asyncio.run(log.offset_for_timestamp(timestamp, end))
    return None if result is None else (result.offset, result.timestamp)


def test_a_time_leads_to_the_earliest_record_as_late(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    times(log, [10, 30, 20], [20, 20], [5, 40], [40])
    assert found(log, 0) == (0, 10)
    assert found(log, 10) == (0, 10)
    assert found(log, 11) == (1, 30)
    assert found(log, 30) == (1, 30)
    assert found(log, 31) == (6, 40)
    assert found(log, 40) == (6, 40)
    assert found(log, 41) is None
    assert found(log, 31, end_offset=5) is None
    log.delete_records_before(2)
    assert found(log, 11) == (2, 20)
    assert found(log, 21) == (6, 40)
    release(log)


def test_the_latest_record_is_the_first_with_the_greatest_time(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    assert asyncio.run(log.max_timestamp_offset()) is None
    times(log, [10, 30], [50, 20], [50, 40])
    result = asyncio.run(log.max_timestamp_offset())
    assert result is not None
    assert (result.offset, result.timestamp, result.leader_epoch) == (2, 50, 0)
    result = asyncio.run(log.max_timestamp_offset(2))
    assert result is not None
    assert (result.offset, result.timestamp) == (1, 30)
    release(log)


async def test_a_cancelled_readers_file_stays_open_until_its_thread_is_done(tmp_path: Path) -> None:
    log = filled(tmp_path)
    segment = log.locate(0, 1, 60).segment  # type: ignore[union-attr]
    file = segment.file()
    begun, go_on = threading.Event(), threading.Event()

    def slow(fd: int) -> os.stat_result:
        begun.set()
        assert go_on.wait(20)
        return os.fstat(fd)

    reading = asyncio.ensure_future(log._reader._in_thread(segment, slow))
    assert await asyncio.to_thread(begun.wait, 20)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    segment.close()
    os.fstat(file.fd)
    go_on.set()
    deadline = asyncio.get_running_loop().time() + 20
    while file.pins:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.001)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(file.fd)
    release(log)


async def test_a_segment_that_two_processes_wrote_is_whole(tmp_path: Path) -> None:
    """The first one's end is no end for the second, which goes on in the same file and then closes it."""

    async def opened() -> tuple[LogManager, PartitionLog]:
        manager = LogManager(str(tmp_path), SETTINGS, lambda: NOW)
        await manager.open(background=False)
        return manager, manager.log("orders", TOPIC_ID, 0, SMALL)

    manager, log = await opened()
    append(log, batch(b"first"))
    log.flush()
    await manager.close()
    manager, log = await opened()
    values = [b"%03d" % number for number in range(20)]
    for value in values:
        append(log, batch(value))
    log.flush()
    assert log.segments()[0].end_offset > 1, "the first segment was gone on with"
    found = []
    while len(found) < log.log_end_offset:
        slice_ = log.locate(len(found), 1, log.log_end_offset)
        assert slice_ is not None
        found += [record.value for record in decode_records(bytes(await log.read(slice_)))]
    assert found == [b"first", *values]
    assert not any(segment.damage for segment in log.segments())
    await manager.close()

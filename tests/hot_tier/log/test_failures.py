"""A disk that refuses: no torn batch stays, nothing is acknowledged that is not there, a failed sync is final."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from hot_tier.errors import CorruptLog, DiskFull, StorageFailure
from hot_tier.log.config import TopicConfig
from hot_tier.log.log_start import read_log_start
from hot_tier.log.partition_log import PartitionLog
from hot_tier.record.batch import assign
from hot_tier.record.records import Record, decode_records
from tests.hot_tier.log.support import (
    NOW,
    Kill,
    append,
    batch,
    open_log,
    read_all,
    read_bytes,
    release,
    reopen_after_kill,
    sync_nothing,
)


def fail(monkeypatch: pytest.MonkeyPatch, name: str, code: int, *, written: int = 0) -> None:
    """`os.<name>` fails from now on; `pwrite` takes `written` bytes first."""
    pwrite = os.pwrite
    taken = False

    def refuse(fd: int, *arguments: object) -> int:
        nonlocal taken
        if name == "pwrite" and written and not taken:
            taken = True
            data, position = arguments
            return pwrite(fd, memoryview(data)[:written], position)  # type: ignore[arg-type]
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, name, refuse)


def values(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in read_all(log)]


@pytest.mark.parametrize("written", [0, 1, 30, 61, 65])
def test_a_write_without_room_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"before"))
    with monkeypatch.context() as patch:
        fail(patch, "pwrite", errno.ENOSPC, written=written)
        with pytest.raises(DiskFull):
            append(log, batch(b"refused"))
    assert os.path.getsize(log.segments()[0].path) == log.size_bytes
    with pytest.raises(DiskFull):
        append(log, batch(b"still refused"))
    log._disk.look_at_room()
    assert append(log, batch(b"after")).base_offset == 1
    assert values(log) == [b"before", b"after"]
    log, recovered = reopen_after_kill(log)
    assert recovered.cut_bytes == 0
    assert values(log) == [b"before", b"after"]
    release(log)


def test_a_short_write_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    pwrite = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, memoryview(data)[:7], position))
        append(log, batch(b"in many parts"))
    append(log, batch(b"whole"))
    assert values(log) == [b"in many parts", b"whole"]
    release(log)


def test_a_refused_write_keeps_the_sequence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"0", producer=1, epoch=0, sequence=0))
    with monkeypatch.context() as patch:
        fail(patch, "pwrite", errno.ENOSPC)
        with pytest.raises(DiskFull):
            append(log, batch(b"1", producer=1, epoch=0, sequence=1))
    log._disk.look_at_room()
    again = append(log, batch(b"1", producer=1, epoch=0, sequence=1))
    assert (again.base_offset, again.duplicate) == (1, False)
    release(log)


def test_a_write_that_cannot_be_undone_ends_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"before"))
    with monkeypatch.context() as patch:
        fail(patch, "pwrite", errno.EIO, written=10)
        fail(patch, "ftruncate", errno.EIO)
        with pytest.raises(StorageFailure):
            append(log, batch(b"refused"))
    with pytest.raises(StorageFailure):
        append(log, batch(b"also refused"))
    assert values(log) == [b"before"]
    log, recovered = reopen_after_kill(log)
    assert recovered.cut_bytes == 10
    assert values(log) == [b"before"]
    release(log)


def test_a_failed_sync_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"synced"))
    log.flush()
    append(log, batch(b"lost?"))
    told: list[object] = []
    log.sync.listener = lambda: told.append(log.failure)
    with monkeypatch.context() as patch:
        fail(patch, "fdatasync", errno.EIO)
        with pytest.raises(StorageFailure):
            log.flush()
    assert told == [log.failure]
    assert log.flushed_offset == 1
    assert not log.sync.needed
    with pytest.raises(StorageFailure):
        log.flush()
    with pytest.raises(StorageFailure):
        append(log, batch(b"refused"))
    assert values(log) == [b"synced", b"lost?"]
    release(log)


def test_below_the_reserve_writes_are_refused_and_reads_go_on(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"before"))
    disk = log._disk
    disk.settings = type(disk.settings)(min_free_bytes=1 << 62)
    disk.look_at_room()
    with pytest.raises(DiskFull) as caught:
        append(log, batch(b"refused"))
    assert "reserve" in caught.value.what
    assert values(log) == [b"before"]
    disk.settings = type(disk.settings)(min_free_bytes=0)
    disk.look_at_room()
    append(log, batch(b"after"))
    release(log)


def test_a_segment_that_cannot_be_made_refuses_the_write_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path, TopicConfig(segment_bytes=1024))
    append(log, batch(b"x" * 900))
    with monkeypatch.context() as patch:
        fail(patch, "open", errno.EMFILE)
        with pytest.raises(StorageFailure):
            append(log, batch(b"y" * 900))
    assert append(log, batch(b"y" * 900)).base_offset == 1
    assert values(log) == [b"x" * 900, b"y" * 900]
    release(log)


def test_a_directory_that_cannot_be_made_refuses_the_write_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(log._files, "directory", str(tmp_path / "partition"))
        (tmp_path / "partition").write_text("in the way")
        with pytest.raises(StorageFailure, match="cannot make a log's directory"):
            append(log, batch(b"refused"))
    assert append(log, batch(b"taken")).base_offset == 0
    release(log)


def test_a_read_error_is_a_storage_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"a"))
    slice_ = log.locate(0, 100, 1)
    assert slice_ is not None
    with monkeypatch.context() as patch:
        fail(patch, "preadv", errno.EIO)
        with pytest.raises(StorageFailure):
            log.read_now(slice_)
    release(log)


@pytest.mark.parametrize("lost", ["what was in a file", "the last file"])
def test_a_hole_is_known_after_every_recovery(tmp_path: Path, lost: str) -> None:
    """The files around it are put in order by the first; nobody may jump over it after the second."""
    log = open_log(tmp_path, TopicConfig(segment_bytes=1024))
    for _ in range(5):
        append(log, batch(b"x" * 900))
    log.flush()
    paths = [Path(segment.path) for segment in log.segments()]
    if lost == "what was in a file":
        paths[2].with_suffix(".index").unlink()
        os.truncate(paths[2], 0)
        missing = 2
    else:
        paths[3].with_suffix(".index").unlink()
        paths[4].unlink()
        missing = 4
    for _ in range(3):
        log, recovered = reopen_after_kill(log)
        assert len(recovered.damaged) == 1
        assert [record.offset for record in read_all_up_to(log, missing)] == list(range(missing))
        with pytest.raises(CorruptLog):
            read_bytes(log, missing)
        append(log, batch(b"after"))
        log.flush()
    release(log)


def read_all_up_to(log: PartitionLog, end_offset: int) -> list[Record]:
    return [record for at in range(end_offset) for record in decode_records(read_bytes(log, at, max_bytes=1))]


@pytest.mark.parametrize("gone", ["removed", "renamed", "replaced by a copy"])
def test_a_directory_that_goes_under_a_running_broker_ends_the_log(tmp_path: Path, gone: str) -> None:
    """Writing and syncing go on without an error; nothing of it would be there after a restart."""
    log = open_log(tmp_path)
    append(log, batch(b"there"))
    log.flush()
    directory = Path(log.directory)
    if gone == "removed":
        shutil.rmtree(directory)
    else:
        directory.rename(tmp_path / "elsewhere")
        if gone == "replaced by a copy":
            shutil.copytree(tmp_path / "elsewhere", directory)
    append(log, batch(b"not there"))
    with pytest.raises(StorageFailure, match="cannot sync"):
        log.flush()
    assert log.flushed_offset == 1
    with pytest.raises(StorageFailure):
        append(log, batch(b"refused"))
    release(log)


@pytest.mark.parametrize("number", [0, 1])
def test_a_segment_that_is_removed_under_a_running_broker_is_missed(tmp_path: Path, number: int) -> None:
    """The sealed one is missed by readers once its file is closed, the active one by the next sync."""
    log = open_log(tmp_path, TopicConfig(segment_bytes=1024))
    for _ in range(2):
        append(log, batch(b"x" * 900))
    log.flush()
    Path(log.segments()[number].path).unlink()
    append(log, batch(b"y"))
    if number == 1:
        with pytest.raises(StorageFailure, match="cannot sync"):
            log.flush()
    else:
        log.flush()
        log._disk.files.close_all()
        with pytest.raises(CorruptLog, match="missing"):
            read_bytes(log, 0)
        assert [info.base_offset for info in log.damaged_segments()] == [0]
    release(log)


def test_an_epoch_whose_first_batch_was_refused_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else recovery would take the batches of the epoch before, which come next from another leader, for damaged."""
    log = open_log(tmp_path)
    append(log, batch(b"0"), epoch=4)
    log.flush()
    with monkeypatch.context() as patch:
        fail(patch, "pwrite", errno.ENOSPC)
        with pytest.raises(DiskFull):
            append(log, batch(b"refused"), epoch=5)
    log._disk.look_at_room()
    theirs = batch(b"1")
    assign(theirs, 1, 4)
    log.append_replica(memoryview(theirs), 6, NOW)
    log.flush()
    log, recovered = reopen_after_kill(log)
    assert (recovered.damaged, recovered.cut_bytes) == ([], 0)
    assert values(log) == [b"0", b"1"]
    assert log.epochs.entries() == [(4, 0)]
    release(log)


def test_a_log_start_that_cannot_be_written_does_not_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    for number in range(4):
        append(log, batch(b"%d" % number))
    log.flush()
    with monkeypatch.context() as patch:
        fail(patch, "replace", errno.ENOSPC)
        for _ in range(2):
            with pytest.raises(StorageFailure):
                log.delete_records_before(2)
    assert log.log_start_offset == 0
    log.delete_records_before(2)
    log, _ = reopen_after_kill(log)
    assert log.log_start_offset == 2
    release(log)


def test_segments_that_the_disk_refuses_to_delete_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync_nothing(monkeypatch)
    step, refused = 0, True
    while refused:
        log = open_log(tmp_path / str(step), TopicConfig(segment_bytes=1024, retention_bytes=2000))
        for _ in range(3):
            for number in range(6):
                append(log, batch(b"%d" % number * 300))
            log.flush()
            with monkeypatch.context() as patch:
                disk = Kill(step, patch, OSError(errno.EIO, os.strerror(errno.EIO)))
                try:
                    log.apply_retention(NOW)
                except (OSError, StorageFailure):
                    pass
                refused = disk.steps_left < 0
        before = read_all(log)
        log, recovered = reopen_after_kill(log)
        assert recovered.damaged == [], f"refused change {step}"
        assert read_all(log) == before
        on_disk = {int(path.stem) for path in Path(log.directory).glob("*.log")}
        assert on_disk == {info.base_offset for info in log.segments()}
        release(log)
        step += 1
    assert step > 10


def test_a_log_that_begins_anew_below_its_first_segment_says_where(tmp_path: Path) -> None:
    log = open_log(tmp_path, TopicConfig(segment_bytes=1024, remote_storage_enable=True))
    for number in range(6):
        append(log, batch(b"%d" % number * 300))
    log.flush()
    log.drop_local_before(4, NOW)
    log.truncate_to(2, NOW)
    log.flush()
    start = read_log_start((Path(log.directory) / "log-start").read_bytes())
    assert (start.local, log.local_log_start_offset, log.log_end_offset) == (2, 2, 2)
    log, recovered = reopen_after_kill(log)
    assert (recovered.damaged, log.log_end_offset) == ([], 2)
    release(log)

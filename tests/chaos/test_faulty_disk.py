"""The faulty disk keeps what it must and loses what it may."""

import os
import random
import sqlite3

import pytest

from .faulty_disk import Directory, Disk, File, Truncate, Write, sectors
from .faulty_mount import FaultyMount


def cuts(disk_after, seeds: int = 40) -> list[dict[str, bytes | None]]:
    return [disk_after().power_cut(random.Random(seed)) for seed in range(seeds)]


def test_synced_contents_and_names_survive():
    def disk_after() -> Disk:
        disk, file = Disk(), File()
        disk.add("/d", Directory())
        disk.add("/d/f", file)
        file.change(Write(0, b"kept"))
        file.sync()
        disk.sync_names()
        return disk

    assert all(found == {"/d": None, "/d/f": b"kept"} for found in cuts(disk_after))


def test_a_name_without_a_directory_sync_may_be_lost_though_the_file_was_synced():
    def disk_after() -> Disk:
        disk, file = Disk(), File()
        disk.add("/f", file)
        file.change(Write(0, b"kept"))
        file.sync()
        return disk

    found = cuts(disk_after)
    assert {} in found and {"/f": b"kept"} in found


def test_unsynced_writes_are_kept_lost_or_torn():
    def disk_after() -> Disk:
        disk, file = Disk(), File()
        disk.add("/f", file)
        disk.sync_names()
        file.change(Write(0, b"a" * 2000))
        file.sync()
        file.change(Write(2000, b"b" * 2000))
        return disk

    contents = [found["/f"] for found in cuts(disk_after, 200)]
    assert all(content.startswith(b"a" * 2000) for content in contents)
    assert b"a" * 2000 in contents and b"a" * 2000 + b"b" * 2000 in contents
    assert any(b"b" in content and b"\0" in content for content in contents), "never torn"


def test_a_rename_is_whole_or_not_at_all():
    def disk_after() -> Disk:
        disk = Disk()
        disk.add("/old", File(b"1"))
        disk.add("/new", File(b"2"))
        disk.sync_names()
        disk.rename("/old", "/new")
        return disk

    found = cuts(disk_after)
    assert all(state in ({"/old": b"1", "/new": b"2"}, {"/new": b"1"}) for state in found)
    assert {"/new": b"1"} in found and {"/old": b"1", "/new": b"2"} in found


def test_sectors_and_truncation():
    assert [(part.offset, len(part.data)) for part in sectors(Write(500, b"x" * 600))] == [
        (500, 12),
        (512, 512),
        (1024, 76),
    ]
    file = File(b"12345")
    file.change(Truncate(2))
    file.change(Write(4, b"x"))
    assert file.content == b"12\0\0x"


@pytest.mark.skipif(FaultyMount.why_not() is not None, reason=str(FaultyMount.why_not()))
def test_the_mount_serves_files_and_a_database_and_comes_back_after_a_cut(tmp_path):
    disk = FaultyMount(tmp_path, random.Random(1))
    disk.mount()
    try:
        descriptor = os.open(disk.path / "log", os.O_CREAT | os.O_RDWR)
        os.write(descriptor, b"synced")
        os.fdatasync(descriptor)
        directory = os.open(disk.path, os.O_RDONLY)
        os.fsync(directory)
        os.write(descriptor, b"not synced" * 1000)
        with sqlite3.connect(disk.path / "db") as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            database.execute("CREATE TABLE t (n)")
            database.execute("INSERT INTO t VALUES (7)")
        disk.cut_power()
        with pytest.raises(OSError):
            os.fdatasync(descriptor)
        os.close(descriptor)
        os.close(directory)
        database.close()
        disk.unmount()
        disk.mount()
        assert (disk.path / "log").read_bytes().startswith(b"synced")
        with sqlite3.connect(disk.path / "db") as database:
            assert database.execute("SELECT n FROM t").fetchall() == [(7,)]
        database.close()
    finally:
        disk.unmount()

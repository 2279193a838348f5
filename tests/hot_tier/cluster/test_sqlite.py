"""What only the SQLite store promises: one process per file, leases that die with it, commits that survive a kill."""

import asyncio
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path

import pytest

from hot_tier.cluster import model, sqlite
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.cluster.store import Put, Revision
from hot_tier.errors import CorruptMetadata, MetadataCompacted, StorageFailure


async def opened(path: Path) -> SqliteStore:
    store = SqliteStore(str(path))
    await store.open()
    return store


async def test_a_second_broker_is_refused(tmp_path: Path) -> None:
    first = await opened(tmp_path / "m.db")
    with pytest.raises(StorageFailure, match="another tierlog broker"):
        await opened(tmp_path / "m.db")
    await first.transact([], [Put("a", b"1")])
    await first.close()
    second = await opened(tmp_path / "m.db")
    assert await second.get("a") is not None
    await second.close()


async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    path.write_bytes(b"these are not the pages you are looking for" * 100)
    before = path.read_bytes()
    with pytest.raises(CorruptMetadata, match="not a database"):
        await opened(path)
    assert path.read_bytes() == before


async def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageFailure, match="nowhere"):
        await opened(tmp_path / "nowhere" / "m.db")


async def test_leased_keys_of_the_last_run_are_gone(tmp_path: Path) -> None:
    store = await opened(tmp_path / "m.db")
    lease = await store.grant_lease(60_000)
    last = await store.transact([], [Put("leased", b"", lease), Put("kept", b"")])
    await store.close()
    store = await opened(tmp_path / "m.db")
    found = await store.range("")
    assert [item.key for item in found.items] == ["kept"]
    assert last is not None and found.revision > last
    assert await store.keep_alive(lease) is False
    await store.close()


async def test_history_of_the_last_run_is_not_known(tmp_path: Path) -> None:
    store = await opened(tmp_path / "m.db")
    await store.transact([], [Put("a", b"1")])
    await store.close()
    store = await opened(tmp_path / "m.db")
    with pytest.raises(MetadataCompacted):
        await anext(store.watch("", Revision(0)))
    await store.close()


async def test_a_watch_too_far_back_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "HISTORY_TRANSACTIONS", 3)
    store = await opened(tmp_path / "m.db")
    revisions = []
    for n in range(5):
        revision = await store.transact([], [Put("a", str(n).encode())])
        assert revision is not None
        revisions.append(revision)
    with pytest.raises(MetadataCompacted):
        await anext(store.watch("", revisions[0]))
    watch = store.watch("", revisions[1])
    assert [(await anext(watch))[0].value for _ in range(3)] == [b"2", b"3", b"4"]
    await store.close()


async def test_a_full_disk_fails_the_write_and_nothing_else(tmp_path: Path) -> None:
    store = await opened(tmp_path / "m.db")
    before = await store.transact([], [Put("a", b"1")])
    store._database._connection.execute("PRAGMA max_page_count = 1")
    with pytest.raises(StorageFailure, match="full"):
        await store.transact([], [Put("a", bytes(1 << 20))])
    item = await store.get("a")
    assert item is not None and (item.value, item.revision) == (b"1", before)
    store._database._connection.execute("PRAGMA max_page_count = 1000000")
    after = await store.transact([], [Put("a", b"2")])
    assert before is not None and after == before + 1
    watch = store.watch("", before)
    assert [event.value for event in await anext(watch)] == [b"2"]
    await store.close()


async def test_what_shared_a_failed_commit_did_not_happen(tmp_path: Path) -> None:
    store = await opened(tmp_path / "m.db")
    before = await store.transact([], [Put("a", b"1")])
    store._database._connection.execute("PRAGMA max_page_count = 1")
    results = await asyncio.gather(
        store.transact([], [Put("a", b"2")]),
        store.transact([], [Put("b", bytes(1 << 20))]),
        store.get("a"),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [StorageFailure] * 3
    store._database._connection.execute("PRAGMA max_page_count = 1000000")
    found = await store.range("")
    assert [(item.key, item.value, item.revision) for item in found.items] == [("a", b"1", before)]
    assert found.revision == before
    await store.close()


WRITER = textwrap.dedent(
    """
    import asyncio, sys
    from hot_tier.cluster.sqlite import SqliteStore
    from hot_tier.cluster.store import Put

    async def write(store, lane):
        n = 0
        while True:
            await store.transact([], [Put(f"lane{lane}/a", b"%d" % n), Put(f"lane{lane}/b", b"%d" % n)])
            print(lane, n, flush=True)
            n += 1

    async def main():
        store = SqliteStore(sys.argv[1])
        await store.open()
        await asyncio.gather(*(write(store, lane) for lane in range(4)))

    asyncio.run(main())
    """
)


def acknowledged_before_a_kill(path: Path) -> dict[int, int]:
    """Lane → the last number that its writer was told is written."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(400)]
        writer.kill()
        lines += writer.stdout.readlines()
    whole = [line.split() for line in lines if line.endswith("\n")]
    return {int(lane): int(n) for lane, n in whole}


async def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    acknowledged = acknowledged_before_a_kill(path)
    assert set(acknowledged) == {0, 1, 2, 3}
    store = await opened(path)
    for lane, n in acknowledged.items():
        a, b = (await store.range(f"lane{lane}/")).items
        assert a.value == b.value and a.revision == b.revision
        assert int(a.value) >= n
    await store.close()


async def test_the_history_takes_no_more_memory_than_its_values(tmp_path: Path) -> None:
    """orjson writes each value into 4 KB and gives out all of them."""
    store = await opened(tmp_path / "m.db")
    tracemalloc.start()
    try:
        for number in range(300):
            await store.transact([], [Put("a", model.encode({"id": str(number)}))])
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 300 * 1_500
    await store.close()

"""Damage to a node's metadata: a start has everything that was acknowledged, or is refused with an error of ours."""

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.cluster.standalone import check_knows, topics_on_disk
from hot_tier.cluster.store import Delete, KeyValue, Put
from hot_tier.errors import CorruptMetadata, StorageFailure

Files = dict[str, bytes]


async def contents(path: Path, *, used: bool = False) -> tuple[KeyValue, ...]:
    """`used`: a broker ran on this directory before."""
    store = SqliteStore(str(path))
    await store.open()
    try:
        if used:
            await check_knows(store, str(path.parent), {})
        return (await store.range("")).items
    finally:
        await store.close()


def files_of(directory: Path) -> Files:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


async def written(directory: Path, *, killed: bool) -> tuple[Files, tuple[KeyValue, ...]]:
    """The files after a history of some changes, and what they hold. `killed`: as they are while the store runs."""
    store = SqliteStore(str(directory / "metadata.db"))
    await store.open()
    for number in range(120):
        await store.transact([], [Put(f"quotas/t{number:03d}", b'{"name": "t%d", "x": "%s"}' % (number, b"v" * 90))])
    lease = await store.grant_lease(60_000)
    await store.transact([], [Put("brokers/1", b"{}", lease)])
    for number in range(0, 120, 7):
        await store.transact([], [Delete(f"quotas/t{number:03d}"), Put("cluster", b'{"id": "%d"}' % number)])
    right = tuple(item for item in (await store.range("")).items if item.key != "brokers/1")
    files = files_of(directory)
    await store.close()
    return (files if killed else files_of(directory)), right


async def outcome(path: Path, right: tuple[KeyValue, ...]) -> str:
    try:
        found = await contents(path, used=True)
    except CorruptMetadata as error:
        assert str(path.parent) in str(error) and "metadata" in error.what and "copy of this directory" in error.hint
        return "refused"
    assert found == right, "something is missing or changed, and nobody said so"
    assert await contents(path) == right, "the next start differs"
    return "right"


def damages(content: bytes, seed: int) -> Iterator[tuple[str, bytes]]:
    """Bits of the file's head, of every page's head, and every n-th of all the rest; pages lost, the end cut off."""
    source = random.Random(seed)
    bits = set(source.sample(range(100 * 8), 60))
    for page in range(0, len(content), 4096):
        bits |= set(source.sample(range(page * 8, (page + 40) * 8), 8))
    bits |= set(range(source.randrange(4000), len(content) * 8, 4000))
    for bit in sorted(bits):
        if bit < len(content) * 8:
            changed = bytearray(content)
            changed[bit // 8] ^= 1 << bit % 8
            yield f"bit {bit % 8} of byte {bit // 8}", bytes(changed)
    for length in (0, 1, 100, 512, 4096, len(content) // 2, len(content) - 4096, len(content) - 1):
        if 0 <= length < len(content):
            yield f"cut to {length}", content[:length]
    for page in range(0, len(content), 4096):
        yield f"zeros at {page}", content[:page] + bytes(4096) + content[page + 4096 :]


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
async def test_every_start_is_right_or_refused(tmp_path: Path, killed: bool) -> None:
    (tmp_path / "whole").mkdir()
    files, right = await written(tmp_path / "whole", killed=killed)
    outcomes = []
    for name, content in files.items():
        for number, (what, damaged) in enumerate(damages(content, seed=7)):
            directory = tmp_path / f"{name}.{number}"
            directory.mkdir()
            for each, whole in files.items():
                (directory / each).write_bytes(damaged if each == name else whole)
            try:
                outcomes.append(await outcome(directory / "metadata.db", right))
            except BaseException as error:
                raise AssertionError(f"{name}, {what}: {error!r}") from error
    assert outcomes.count("refused") > 50 and outcomes.count("right") > 20


async def test_what_was_answered_does_not_hang_on_the_write_ahead_log(tmp_path: Path) -> None:
    files, right = await written(tmp_path, killed=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metadata.db").write_bytes(files["metadata.db"])
    assert await contents(tmp_path / "other" / "metadata.db") == right


async def test_a_refused_start_changes_nothing(tmp_path: Path) -> None:
    files, right = await written(tmp_path, killed=False)
    path = tmp_path / "metadata.db"
    damaged = bytearray(files["metadata.db"])
    damaged[damaged.index(b"vvvvv")] ^= 1
    path.write_bytes(damaged)
    assert await outcome(path, right) == await outcome(path, right) == "refused"
    assert path.read_bytes() == damaged


async def test_damage_under_a_running_store_is_an_error(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "metadata.db"))
    await store.open()
    await store.transact([], [Put("a", b"1")])
    store._database._connection.execute("UPDATE entries SET value = x'32'")
    with pytest.raises(StorageFailure, match="the checksum of 'a' is wrong"):
        await store.get("a")
    await store.close()


def version_1(path: Path) -> None:
    """As the first version wrote it."""
    with sqlite3.connect(path) as connection:
        connection.executescript(
            """
            PRAGMA journal_mode = WAL;
            CREATE TABLE entries (
                key TEXT PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL, lease INTEGER
            ) WITHOUT ROWID;
            CREATE INDEX entries_by_lease ON entries (lease) WHERE lease IS NOT NULL;
            CREATE TABLE counter (id INTEGER PRIMARY KEY CHECK (id = 0), revision INTEGER NOT NULL);
            INSERT INTO counter VALUES (0, 9);
            INSERT INTO entries VALUES ('a', x'31', 4, NULL), ('b', x'32', 9, NULL), ('leased', x'7b7d', 5, 77);
            """
        )
    connection.close()


async def test_a_database_of_version_1_gets_checksums(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    version_1(path)
    right = await contents(path)
    assert [(item.key, item.value, item.revision) for item in right] == [("a", b"1", 4), ("b", b"2", 9)]
    assert await contents(path) == right
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE entries SET value = x'33' WHERE key = 'b'")
    connection.close()
    assert await outcome(path, right) == "refused"


async def test_a_value_of_version_1_that_is_no_json(tmp_path: Path) -> None:
    path = tmp_path / "metadata.db"
    version_1(path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE entries SET value = x'7b7b' WHERE key = 'b'")
    connection.close()
    with pytest.raises(CorruptMetadata, match="the value of 'b' is not JSON"):
        await contents(path)


async def test_any_bit_of_a_database_of_version_1(tmp_path: Path) -> None:
    """It has no checksums, so a changed value cannot be told; but a start ends well or with an error of ours."""
    version_1(tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    for at in random.Random(3).sample(range(len(content)), 60):
        changed = bytearray(content)
        changed[at] ^= 1 << at % 8
        path = tmp_path / f"{at}.db"
        path.write_bytes(changed)
        try:
            await contents(path)
        except CorruptMetadata as error:
            assert str(path) in str(error)


def version_1_killed(directory: Path) -> Files:
    """Its last changes are in the write-ahead log alone."""
    path = directory / "metadata.db"
    version_1(path)
    connection = sqlite3.connect(path, isolation_level=None)
    for number in range(12):
        connection.execute("INSERT INTO entries VALUES (?, ?, ?, NULL)", (f"c{number:02d}", b"%d" % number, number))
    files = {name: content for name, content in files_of(directory).items() if not name.endswith("-shm")}
    connection.close()
    return files


async def test_a_log_of_version_1_is_read_to_its_end_or_refused(tmp_path: Path) -> None:
    """All but its last transaction: that one may have been under way."""
    (tmp_path / "whole").mkdir()
    files = version_1_killed(tmp_path / "whole")
    log = files["metadata.db-wal"]
    keys = ["a", "b", *(f"c{number:02d}" for number in range(12))]
    last = len(log) - (24 + 4096)
    bits = [*range(32 * 8), *range(32 * 8, (32 + 24) * 8), *random.Random(5).sample(range(56 * 8, last * 8), 60)]
    outcomes = []
    for bit in [None, *bits]:
        directory = tmp_path / f"bit-{bit}"
        directory.mkdir()
        damaged = bytearray(log)
        if bit is not None:
            damaged[bit // 8] ^= 1 << bit % 8
        for name, content in {**files, "metadata.db-wal": damaged}.items():
            (directory / name).write_bytes(content)
        try:
            found = await contents(directory / "metadata.db")
        except CorruptMetadata as error:
            assert "write-ahead log" in error.what and "version 0.1" in error.hint
            assert files_of(directory) == {**files, "metadata.db-wal": bytes(damaged)}
            outcomes.append("refused")
        else:
            assert [item.key for item in found] == keys, bit
            outcomes.append("right")
    assert outcomes[0] == "right" and outcomes.count("refused") > 250, outcomes


async def test_metadata_that_does_not_know_the_topics_on_disk(tmp_path: Path) -> None:
    assert topics_on_disk(str(tmp_path)) is None
    (tmp_path / "logs").mkdir()
    store = SqliteStore(str(tmp_path / "metadata.db"))
    await store.open()
    with pytest.raises(CorruptMetadata, match=r"metadata\.db is missing or empty"):
        await check_knows(store, str(tmp_path), topics_on_disk(str(tmp_path)) or {})
    await store.transact([], [Put("cluster", b'{"id": "c"}')])
    await check_knows(store, str(tmp_path), topics_on_disk(str(tmp_path)) or {})
    (tmp_path / "logs" / "orders.3f2f33f4-93a4-4a4b-a9a2-0d3b71c1a3ee").mkdir()
    (tmp_path / "logs" / "orders.4f2f33f4-93a4-4a4b-a9a2-0d3b71c1a3ee.deleted").mkdir()
    with pytest.raises(CorruptMetadata, match=r"1 of the topics .* orders.3f2f33f4-93a4-4a4b-a9a2-0d3b71c1a3ee"):
        await check_knows(store, str(tmp_path), topics_on_disk(str(tmp_path)) or {})
    await store.close()

"""Two who write to one archive: a copy of a data directory, a second cluster, an older copy. One of them stops, for
good, before it takes the other's records for its own."""

import os
import shutil
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from cold_tier.errors import ArchiveNotStopped, ForeignManifest, ManifestWentBack
from cold_tier.manifest.codec import write_snapshot
from cold_tier.manifest.reader import load_newest
from hot_tier.cluster.model import archived_key
from hot_tier.cluster.store import Put
from hot_tier.errors import CorruptLog
from hot_tier.ids import LeaderEpoch
from offloader.restore import Restorer, restore_all
from offloader.settings import OffloadSettings
from tests.gateway.kafka.node import running_node
from tests.offloader.harness import TOPIC, Archived, Clock, archived_node
from tests.offloader.test_bucket_went_back import control, read, rounds
from tests.offloader.test_offloader import DROPPING, KEEPING, without_worker

EAGER = OffloadSettings(orphan_age_ms=0, delete_grace_ms=0, garbage_check_ms=0)


def clone(folder: Path, name: str) -> Path:
    """A copy of the data directory `folder`/a, on the same bucket."""
    os.makedirs(folder / name)
    shutil.copytree(folder / "a" / "node", folder / name / "node")
    os.symlink(folder / "a" / "bucket", folder / name / "bucket")
    return folder / name


@asynccontextmanager
async def node_at(folder: Path, clock: Clock, config: dict[str, str] = KEEPING, settings: OffloadSettings = EAGER):
    async with archived_node(str(folder), settings, config, clock=clock) as node:
        without_worker(node, folder)
        yield node


async def archived_node_stopped(folder: Path, clock: Clock, config: dict[str, str] = KEEPING) -> None:
    async with node_at(folder / "a", clock, config) as node:
        await node.produce(60)
        await rounds(node, 12)


async def assert_stopped(node: Archived, before: set[str]) -> None:
    [archive] = node.offloader
    assert isinstance(archive.stopped, ForeignManifest), archive.last_failure
    assert "tierlog archive take-over" in str(archive.stopped)
    assert set(await node.keys()) == before, "nothing is written, nothing deleted"
    assert control(node).stopped() and control(node).status(archive.partition.topic, 0).stopped


@pytest.mark.parametrize("config", [KEEPING, DROPPING], ids=["all local", "dropped"])
async def test_of_two_copies_the_first_goes_on_and_the_other_stops_for_good(tmp_path: Path, config) -> None:
    clock = Clock()
    clock.now_ms = 4_000_000_000_000
    await archived_node_stopped(tmp_path, clock, config)
    other = clone(tmp_path, "b")
    async with node_at(tmp_path / "a", clock, config) as first:
        await first.produce(60)
        await rounds(first, 12)
        taken = first.catalog.get(first.layout).snapshot.end_offset
        for _ in range(2):  # It stays stopped also when it starts anew.
            async with node_at(other, clock, config) as second:
                before, local = set(await first.keys()), second.partition.log.local_log_start_offset
                end = second.partition.log.log_end_offset
                await second.produce(90)
                await rounds(second, 6)
                await second.offloader.collect_garbage()
                await assert_stopped(second, before)
                assert second.partition.log.local_log_start_offset == local
                assert (await read(second, end))[0] == end, "its own records, and from its own disk"
                if local > 0:
                    with pytest.raises(ForeignManifest):
                        await read(second, local - 1)
        await first.produce(60)
        await rounds(first, 12)
        [archive] = first.offloader
        assert archive.stopped is None
        end = first.catalog.get(first.layout).snapshot.end_offset
        assert end > taken
        assert [record.offset for record in await first.read_cold(0, end)] == list(range(end))


async def test_two_copies_that_run_at_once(tmp_path: Path) -> None:
    clock = Clock()
    await archived_node_stopped(tmp_path, clock)
    other = clone(tmp_path, "b")
    async with node_at(tmp_path / "a", clock) as first, node_at(other, clock) as second:
        for node in (first, second):
            await node.produce(30)
        for _ in range(6):
            for node in (first, second):
                await node.produce(30)
                await rounds(node, 1)
        [one], [two] = first.offloader, second.offloader
        assert (one.stopped is None) != (two.stopped is None)


async def test_a_data_directory_that_moved_needs_nothing(tmp_path: Path) -> None:
    clock = Clock()
    await archived_node_stopped(tmp_path, clock)
    moved = clone(tmp_path, "b")
    shutil.rmtree(tmp_path / "a" / "node")
    async with node_at(moved, clock) as node:
        await node.produce(60)
        await rounds(node, 12)
        [archive] = node.offloader
        assert archive.stopped is None and archive.backlog_bytes == 0


async def test_a_copy_that_ran_by_mistake_is_taken_over(tmp_path: Path) -> None:
    """It started, took the archive over, and archived nothing of its own. More often than the other has started."""
    clock = Clock()
    await archived_node_stopped(tmp_path, clock, DROPPING)
    other = clone(tmp_path, "b")
    for _ in range(3):
        async with node_at(other, clock, DROPPING) as node:
            await rounds(node)
    async with node_at(tmp_path / "a", clock, DROPPING) as node:
        await node.produce(60)
        await rounds(node)
        [archive] = node.offloader
        assert isinstance(archive.stopped, ForeignManifest)
        with pytest.raises(ArchiveNotStopped):
            await node.offloader.repair(archive, "recover")
        await node.offloader.repair(archive, "take-over")
        await rounds(node, 12)
        [archive] = node.offloader
        assert archive.stopped is None and archive.backlog_bytes == 0, archive.last_failure
        end = node.catalog.get(node.layout).snapshot.end_offset
        assert [record.offset for record in await node.read_cold(0, end)] == list(range(end))
        before = set(await node.keys())
        async with node_at(other, clock, DROPPING) as node:
            await rounds(node)
            await assert_stopped(node, before)


async def test_a_prefix_of_its_own_ends_it_too(tmp_path: Path) -> None:
    """As docs/ARCHIVE_REPAIR.md says: all objects but the manifests, which are the other's."""
    clock = Clock()
    await archived_node_stopped(tmp_path, clock, DROPPING)
    other = clone(tmp_path, "b")
    async with node_at(tmp_path / "a", clock, DROPPING) as node:
        await node.produce(60)
        await rounds(node, 12)
        manifests = node.layout.manifest_folder
    async with node_at(other, clock, DROPPING) as node:
        await rounds(node)
        [archive] = node.offloader
        assert isinstance(archive.stopped, ForeignManifest)
    os.unlink(other / "bucket")
    shutil.copytree(tmp_path / "a" / "bucket", other / "bucket")
    shutil.rmtree(other / "bucket" / manifests)
    async with node_at(other, clock, DROPPING) as node:
        own = node.partition.log.log_end_offset
        clock.now_ms += 1
        await node.produce(60)
        await rounds(node)
        [archive] = node.offloader
        assert isinstance(archive.stopped, ForeignManifest), "it stays, until somebody says so"
        with pytest.raises(ManifestWentBack):
            await node.offloader.repair(archive, "take-over")
        assert (await node.offloader.repair(archive, "recover")).lost == ()
        await rounds(node, 12)
        assert archive.stopped is None and archive.backlog_bytes == 0
        records = await node.read_cold(0, node.catalog.get(node.layout).snapshot.end_offset)
        assert [record.offset for record in records] == list(range(len(records))) and len(records) > own
        sent = [each.timestamp for each in node.sent[: len(records) - own]]
        assert [record.timestamp for record in records[own:]] == sent, "its own, not those the other has there"


async def test_records_of_another_are_not_taken_over(tmp_path: Path) -> None:
    clock = Clock()
    await archived_node_stopped(tmp_path, clock)
    other = clone(tmp_path, "b")
    async with node_at(other, clock) as node:
        clock.now_ms += 1  # Its records have other timestamps.
        await node.produce(60)
        await rounds(node, 12)
    async with node_at(tmp_path / "a", clock) as node:
        await node.produce(90)
        await rounds(node)
        [archive] = node.offloader
        with pytest.raises(CorruptLog, match="another record in the archive"):
            await node.offloader.repair(archive, "take-over")
        await rounds(node)
        assert isinstance(archive.stopped, ForeignManifest)


async def test_a_cluster_that_restored_the_topic_is_the_owner(tmp_path: Path) -> None:
    clock = Clock()
    await archived_node_stopped(tmp_path, clock)
    os.makedirs(tmp_path / "b")
    os.symlink(tmp_path / "a" / "bucket", tmp_path / "b" / "bucket")
    async with node_at(tmp_path / "a", clock) as first:
        async with running_node(str(tmp_path / "b" / "node"), clock=clock) as running:
            parts = running.node
            restorer = Restorer(
                parts.image, parts.store, parts.admin, parts.logs, parts.producer_ids, parts.node_id, clock()
            )
            restored = [topic async for topic in restore_all(first.store, restorer, [TOPIC], {})]
            assert [topic.restored for topic in restored] == [True]
        async with node_at(tmp_path / "b", clock) as second:
            await second.produce(60)
            await rounds(second, 12)
            [archive] = second.offloader
            assert archive.stopped is None
            before = set(await second.keys())
            await first.produce(60)
            await rounds(first, 6)
            [archive] = first.offloader
            assert isinstance(archive.stopped, ForeignManifest)
            assert second.running.node.cluster_id in str(archive.stopped)
            extra = set(await second.keys()) - before
            assert before <= set(await second.keys()) and len(extra) <= 2, "at most an upload that was under way"
            end = second.catalog.get(second.layout).snapshot.end_offset
            assert [record.offset for record in await second.read_cold(0, end)] == list(range(end))


async def test_an_archive_without_owner_gets_one(tmp_path: Path) -> None:
    """As version 0.1 wrote both, bucket and metadata."""
    async with archived_node(str(tmp_path), config=DROPPING) as node:
        without_worker(node, tmp_path)
        await node.produce(60)
        await rounds(node, 12)
        snapshot = node.catalog.get(node.layout).snapshot
        for path in (tmp_path / "bucket" / node.layout.manifest_folder).iterdir():
            path.unlink()
        plain = snapshot.__class__(
            snapshot.topic, snapshot.topic_id, snapshot.partition, snapshot.version, snapshot.nonce,
            snapshot.published_ms, snapshot.log_start_offset, snapshot.pages, snapshot.tail, snapshot.removed,
        )  # fmt: skip
        await node.store.put(node.layout.manifest(plain.version), write_snapshot(plain))
        said = {"end_offset": snapshot.end_offset, "log_start": 0, "leader_epoch": 0, "uploading": None}
        await node.running.node.store.transact([], [Put(archived_key(node.layout.topic_id, 0), orjson.dumps(said))])
    async with archived_node(str(tmp_path), config=DROPPING) as node:
        without_worker(node, tmp_path)
        await node.produce(60)
        await rounds(node, 12)
        [archive] = node.offloader
        newest = await load_newest(node.store, node.layout)
        assert archive.stopped is None and newest.owner.cluster == node.running.node.cluster_id
        assert newest.version.leader_epoch > LeaderEpoch(0)
        assert [record.offset for record in await node.read_cold(0, newest.end_offset)] == list(
            range(newest.end_offset)
        )

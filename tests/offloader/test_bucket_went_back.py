"""A bucket that was put back to an older state, wholly or in part: nothing more is lost, readers are told, and a person
decides. tests/offloader/test_bucket_model.py tries it in every order."""

import os
import shutil
from pathlib import Path

import pytest

from cold_tier import proposals
from cold_tier.cache import ColdReadSettings
from cold_tier.checking.garbage import find_garbage
from cold_tier.checking.verify import verify
from cold_tier.errors import ArchiveNotStopped, ArchiveStopped, ManifestFenced, ManifestWentBack, RecordsMissing
from cold_tier.inventory import find_topics
from cold_tier.layout import SegmentName
from cold_tier.manifest.model import SegmentEntry
from cold_tier.manifest.reader import load_newest
from cold_tier.objects.bucket import StoreCounters
from cold_tier.reader import ColdReader
from cold_tier.reports import Finding
from gateway.fetch.reader import Archive, Reader
from hot_tier.ids import LeaderEpoch, Offset
from hot_tier.record.records import decode_records
from offloader.archive import archive_segment
from offloader.control import Control
from offloader.settings import OffloadSettings
from tests.offloader.harness import Archived, archived_node
from tests.offloader.test_offloader import DROPPING, HOUR, KEEPING, without_worker
from tests.offloader.test_proposals import consider, merge

EAGER = OffloadSettings(orphan_age_ms=0, delete_grace_ms=0, garbage_check_ms=0, manifest_history_ms=0)


def control(node: Archived) -> Control:
    parts = node.running.node
    return Control(
        parts.node_id, parts.image, parts.store, parts.admin, parts.partitions, parts.logs, parts.producer_ids,
        node.catalog, ColdReader(node.store, ColdReadSettings()), node.offloader, node.clock,
    )  # fmt: skip


async def rounds(node: Archived, count: int = 3) -> None:
    for _ in range(count):
        node.clock.now_ms += HOUR
        await node.offloader.round()


async def read(node: Archived, offset: int) -> list[int]:
    cold = ColdReader(node.store, ColdReadSettings())
    try:
        fetched = await Reader(Archive(node.catalog, cold)).read(node.partition, offset, 1 << 20, 1)
        return [record.offset for record in decode_records(fetched.records) if record.offset >= offset]
    finally:
        await cold.close()


async def archived_twice(node: Archived, folder: Path) -> tuple[int, int]:
    """Archived and dropped, copied, and then more of both: where the copy ends, where the archive ends."""
    without_worker(node, folder)
    await node.produce(60)
    await rounds(node, 12)
    middle = node.catalog.get(node.layout).snapshot.end_offset
    shutil.copytree(folder / "bucket", folder / "copy")
    await node.produce(60)
    await rounds(node, 12)
    end = node.catalog.get(node.layout).snapshot.end_offset
    assert 0 < middle < end == node.partition.log.local_log_start_offset
    return middle, end


def put_back(folder: Path, node: Archived, what: str) -> None:
    bucket, copy, manifests = folder / "bucket", folder / "copy", node.layout.manifest_folder
    if what == "newest manifest":
        min((bucket / manifests).iterdir()).unlink()
    elif what == "all manifests":
        shutil.rmtree(bucket / manifests)
    elif what == "manifests":
        shutil.rmtree(bucket / manifests)
        shutil.copytree(copy / manifests, bucket / manifests)
    elif what == "everything":
        shutil.rmtree(bucket)
        shutil.copytree(copy, bucket)
    elif what == "emptied":
        shutil.rmtree(bucket)
        os.mkdir(bucket)


HARM = ["newest manifest", "all manifests", "manifests", "everything", "emptied"]


@pytest.mark.parametrize("running", [True, False], ids=["running", "restarted"])
@pytest.mark.parametrize("what", HARM)
async def test_nothing_more_is_lost_and_everybody_is_told(what: str, running: bool, tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), OffloadSettings(manifest_history_ms=10**15), config=DROPPING) as node:
        _, end = await archived_twice(node, tmp_path)
        now_ms = node.clock.now_ms
        put_back(tmp_path, node, what)
        before = set(await node.keys())
        if running:
            await node.produce(60)
            await rounds(node)
            assert isinstance(next(iter(node.offloader)).stopped, ManifestWentBack)
    async with archived_node(str(tmp_path), EAGER, config=DROPPING) as node:
        without_worker(node, tmp_path)
        node.clock.now_ms = max(now_ms, 4_000_000_000_000)
        await node.produce(60)
        await rounds(node)
        await node.offloader.collect_garbage()
        [archive] = node.offloader
        assert isinstance(archive.stopped, ManifestWentBack) and "tierlog archive recover" in str(archive.stopped)
        after = set(await node.keys())
        assert before <= after, "nothing is deleted"
        assert len(after - before) <= (2 if running else 0), "at most the upload that was under way is there too"
        assert {key for key in after if key.endswith(".manifest")} <= before, "nothing is published"
        assert node.partition.log.local_log_start_offset == end, "nothing is dropped"
        with pytest.raises(ManifestWentBack, match="is stopped"):
            await read(node, end - 1)
        assert (await read(node, end))[0] == end
        of_node = control(node)
        found = [event async for event in of_node.verify([]) if isinstance(event, Finding) and event.is_problem]
        assert "went-back" in {finding.kind for finding in found}
        assert of_node.stopped() and of_node.status(archive.partition.topic, 0).stopped == str(archive.stopped)
        await of_node.reader.close()


@pytest.mark.parametrize("what", HARM)
async def test_a_leader_without_work_notices_within_two_minutes(what: str, tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), OffloadSettings(manifest_history_ms=10**15), config=DROPPING) as node:
        await archived_twice(node, tmp_path)
        [archive] = node.offloader
        assert archive.next_segment(node.clock.now_ms) is None, "nothing to do"
        put_back(tmp_path, node, what)
        for _ in range(3):
            node.clock.now_ms += 60_000
            await node.offloader.round()
        assert isinstance(archive.stopped, ManifestWentBack)


async def archived_here(node: Archived, folder: Path) -> SegmentEntry:
    """The rows and the index of the next segment are in the bucket, and nobody names them yet."""
    [archive] = node.offloader
    following = archive.next_segment(node.clock.now_ms)
    assert following is not None
    return await archive_segment(node.store, await archive.begin(following, node.clock.now_ms), str(folder))


@pytest.mark.parametrize("act", ["publish", "expire", "drop", "collect removed", "collect orphans"])
@pytest.mark.parametrize("what", HARM)
async def test_nothing_is_published_dropped_or_deleted_before_the_bucket_is_asked(
    what: str, act: str, tmp_path: Path
) -> None:
    """In the very moment before, and not only when somebody looks next."""
    async with archived_node(str(tmp_path), EAGER, config=DROPPING) as node:
        await archived_twice(node, tmp_path)
        [archive] = node.offloader
        log, now_ms = node.partition.log, node.clock.now_ms
        await node.produce(60)
        segment = await archived_here(node, tmp_path)
        if act != "publish":
            await archive.publish(segment, now_ms)
        if act == "collect removed":
            await archive.writer.expire(log.local_log_start_offset, now_ms)
            assert archive.writer.current.removed
        put_back(tmp_path, node, what)
        before, local_start = set(await node.keys()), log.local_log_start_offset
        later_ms = 4_000_000_000_000
        with pytest.raises(ManifestFenced):
            if act == "publish":
                await archive.publish(segment, now_ms)
            elif act == "expire":
                await archive.writer.expire(local_start, now_ms)
            elif act == "drop":
                await archive.apply_retention(later_ms)
            elif act == "collect removed":
                await archive.collect_removed(later_ms)
            else:
                await archive.collect_orphans(later_ms)
        assert set(await node.keys()) == before
        assert log.local_log_start_offset == local_start


async def test_looking_costs_a_request_in_two_minutes(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), OffloadSettings(garbage_check_ms=10 * HOUR), config=DROPPING) as node:
        await archived_twice(node, tmp_path)
        node.store.counters = StoreCounters()
        for _ in range(120):
            node.clock.now_ms += 5_000
            await node.offloader.round()
        asked = node.store.counters
        assert 4 <= asked.gets <= 6 and asked.lists == asked.heads == asked.puts == 0, "10 minutes"


async def test_what_is_still_in_the_bucket_is_taken_up_again(tmp_path: Path) -> None:
    for what in ("newest manifest", "manifests", "all manifests"):
        folder = tmp_path / what.replace(" ", "-")
        async with archived_node(str(folder), OffloadSettings(manifest_history_ms=10**15), config=DROPPING) as node:
            _, end = await archived_twice(node, folder)
            names = {segment.name for segment in node.catalog.get(node.layout).snapshot.tail}
            put_back(folder, node, what)
            await rounds(node)
            [archive] = node.offloader
            assert archive.stopped is not None
            repaired = await node.offloader.repair(archive, "recover")
            assert (repaired.end_offset, repaired.lost) == (end, ())
            assert archive.stopped is None
            snapshot = await load_newest(node.store, node.layout)
            assert {segment.name for segment in snapshot.tail} == names
            assert [record.offset for record in await node.read_cold(0, end)] == list(range(end))
            await node.produce(60)
            await rounds(node, 12)
            assert node.partition.log.local_log_start_offset > end, "archiving goes on"
            assert (await read(node, end - 1))[0] == end - 1
            with pytest.raises(ArchiveNotStopped):
                await node.offloader.repair(archive, "recover")


@pytest.mark.parametrize("what", ["everything", "emptied"])
async def test_what_is_gone_is_given_up_only_by_name(what: str, tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), EAGER, config=DROPPING) as node:
        middle, end = await archived_twice(node, tmp_path)
        put_back(tmp_path, node, what)
        await rounds(node)
        [archive] = node.offloader
        kept = middle if what == "everything" else 0
        with pytest.raises(RecordsMissing, match=f"offsets {kept} to {end - 1} are neither"):
            await node.offloader.repair(archive, "recover")
        assert archive.stopped is not None
        repaired = await node.offloader.repair(archive, "accept-loss")
        assert (repaired.end_offset, repaired.lost) == (end, ((kept, end),))
        await node.produce(60)
        await rounds(node, 12)
        snapshot = node.catalog.get(node.layout).snapshot
        assert [(each.start_offset, each.end_offset) for each in snapshot.lost] == [(kept, end)]
        assert [record.offset for record in await node.read_cold(0, snapshot.end_offset)] == [
            *range(kept),
            *range(end, snapshot.end_offset),
        ]
        status = control(node).status(archive.partition.topic, 0)
        assert status.archived.lost == ((kept, end),)


async def test_rewritten_segments_are_taken_up_where_the_old_are_gone(tmp_path: Path) -> None:
    """The manifest went back to before a compaction: what it names was deleted since."""
    async with archived_node(str(tmp_path), OffloadSettings(delete_grace_ms=0), config=DROPPING) as node:
        without_worker(node, tmp_path)
        await node.produce(100)
        await rounds(node, 12)
        end = node.catalog.get(node.layout).snapshot.end_offset
        shutil.copytree(tmp_path / "bucket", tmp_path / "copy")
        proposal = await merge(node, tmp_path, 1, 4)
        await proposals.place(node.store, proposal)
        assert await consider(node) == [("published", "")]
        await rounds(node)
        names = {segment.name for segment in node.catalog.get(node.layout).snapshot.tail}
        put_back(tmp_path, node, "manifests")
        await rounds(node)
        [archive] = node.offloader
        assert isinstance(archive.stopped, ManifestWentBack)
        repaired = await node.offloader.repair(archive, "recover")
        assert (repaired.taken_up, repaired.lost) == (1, ())
        assert {segment.name for segment in node.catalog.get(node.layout).snapshot.tail} == names
        await rounds(node)
        assert [record.offset for record in await node.read_cold(0, end)] == list(range(end))


async def test_newer_manifests_that_come_back_end_it(tmp_path: Path) -> None:
    """As a replica of a bucket does that lags behind."""
    async with archived_node(str(tmp_path), OffloadSettings(manifest_history_ms=10**15), config=DROPPING) as node:
        _, end = await archived_twice(node, tmp_path)
        shutil.copytree(tmp_path / "bucket", tmp_path / "newest")
        put_back(tmp_path, node, "everything")
        await rounds(node)
        [archive] = node.offloader
        assert archive.stopped is not None
        shutil.rmtree(tmp_path / "bucket")
        os.rename(tmp_path / "newest", tmp_path / "bucket")
        await rounds(node)
        assert archive.stopped is None
        assert [record.offset for record in await node.read_cold(0, end)] == list(range(end))


async def test_a_bucket_that_was_emptied_is_filled_again_when_somebody_says_so(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        without_worker(node, tmp_path)
        await node.produce(60)
        await node.settle()
        shutil.rmtree(tmp_path / "bucket")
        os.mkdir(tmp_path / "bucket")
        await rounds(node)
        [archive] = node.offloader
        assert archive.stopped is not None and await node.keys() == []
        repaired = await node.offloader.repair(archive, "recover")
        assert repaired.lost == (), "all of it is on the local disk"
        await node.settle()
        end = node.catalog.get(node.layout).snapshot.end_offset
        assert end > 0 and [record.offset for record in await node.read_cold(0, end)] == list(range(end))


async def test_one_segment_that_several_leaders_uploaded_is_no_manifest_that_went_back(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), EAGER, config=DROPPING) as node:
        _, end = await archived_twice(node, tmp_path)

        async def uploaded(base_offset: int, leader_epoch: int) -> set[str]:
            name = SegmentName(Offset(base_offset), LeaderEpoch(leader_epoch), "0" * 32)
            for key in (node.layout.rows(name), node.layout.index(name)):
                await node.store.put(key, b"what a leader left when it died")
            found = [event async for event in verify(node.store, await find_topics(node.store), all_topics=True)]
            return {event.kind for event in found if isinstance(event, Finding) and event.is_problem}

        assert await uploaded(end, 3) == set()
        assert await uploaded(end, 4) == set(), "the leader after it has begun the same segment again"
        assert await uploaded(end + 10, 4) == {"went-back"}


async def test_a_bucket_alone_says_that_manifests_are_missing_or_behind(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), OffloadSettings(manifest_history_ms=10**15), config=DROPPING) as node:
        await archived_twice(node, tmp_path)

        async def problems() -> set[str]:
            topics = await find_topics(node.store)
            events = [event async for event in verify(node.store, topics, all_topics=True)]
            return {event.kind for event in events if isinstance(event, Finding) and event.is_problem}

        async def garbage() -> list[str]:
            [topic] = await find_topics(node.store)
            layouts = [*topic.layouts, *topic.bare]
            found = await find_garbage(node.store, layouts, EAGER, 4_000_000_000_000)
            return [each.key for each in found if each.kind == "orphan"]

        assert await problems() == set()
        put_back(tmp_path, node, "manifests")
        assert await problems() == {"went-back"}
        assert await garbage() == [], "what is newer than the manifest is the only copy"
        put_back(tmp_path, node, "all manifests")
        assert await problems() == {"manifest"}
        assert await garbage() == []
        shutil.rmtree(tmp_path / "bucket" / "_tierlog")
        assert await problems() == {"manifest"}


async def test_a_stopped_archive_ends_reads_of_times_too(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config=DROPPING) as node:
        await archived_twice(node, tmp_path)
        put_back(tmp_path, node, "emptied")
    async with archived_node(str(tmp_path), config=DROPPING) as node:
        await rounds(node)
        cold = ColdReader(node.store, ColdReadSettings())
        reader = Reader(Archive(node.catalog, cold))
        with pytest.raises(ArchiveStopped):
            await reader.max_timestamp_offset(node.partition)
        with pytest.raises(ArchiveStopped):
            await reader.offset_for_timestamp(node.partition, 0, 0)
        await cold.close()

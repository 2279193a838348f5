"""The offloader when something is wrong around it: lost manifests, two histories, shared buckets, clocks, mistakes."""

import asyncio
import io
import os
import shutil
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cold_tier.errors import StoreUnavailable
from cold_tier.layout import PartitionLayout, topic_descriptions
from cold_tier.manifest.reader import load_newest
from hot_tier.cluster.configs import ConfigChange, ConfigOperation
from hot_tier.errors import InvalidConfig
from hot_tier.record.batch import read_header
from hot_tier.record.columns import NewRecord, encode_records
from offloader import failpoints
from offloader.archive import archive_segment
from offloader.settings import OffloadSettings
from tests.offloader.harness import SMALL, TOPIC, Archived, archived_node
from tests.support.waiting import until

HOUR = 3_600_000
DROPPING = {"local.retention.ms": "1000", "retention.ms": "-1"}
KEEPING = {"local.retention.ms": "-1", "retention.ms": "-1"}


def without_worker(node: Archived, folder: Path) -> None:
    for worker in node.offloader._workers:
        worker.archive = lambda job: archive_segment(node.store, job, str(folder))


async def drop_all(node: Archived) -> None:
    node.clock.now_ms += HOUR
    await node.settle()
    await node.offloader.round()
    assert node.partition.log.local_log_start_offset > 0


async def produce_to(node: Archived, topic: str, count: int) -> None:
    partition = node.running.node.partitions.get(topic, 0)
    for _ in range(count):
        batch = encode_records([NewRecord(node.clock(), b"key", b"value" * 60, ())])
        appended = partition.append(batch, read_header(batch), node.clock())
        waiting = partition.when_committed(appended.end_offset)
        if waiting is not None:
            await waiting


@pytest.mark.parametrize("harm", ["missing", "damaged"])
async def test_no_new_archive_is_begun_where_one_should_be(harm: str, tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config=DROPPING) as node:
        without_worker(node, tmp_path)
        await node.produce(60)
        await drop_all(node)
        folder = tmp_path / "bucket" / node.layout.manifest_folder
        local = node.partition.log.local_log_start_offset
    if harm == "missing":
        shutil.rmtree(folder)
    else:
        newest = min(folder.iterdir())
        newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    async with archived_node(str(tmp_path), config=DROPPING) as node:
        without_worker(node, tmp_path)
        before = set(await node.keys())
        await node.produce(60)
        for _ in range(3):
            node.clock.now_ms += HOUR
            await node.offloader.round()
        [archive] = node.offloader
        assert archive.failures == 3 and str(folder) in archive.last_failure
        assert ("no manifest" if harm == "missing" else "damaged") in archive.last_failure
        assert set(await node.keys()) == before, "nothing is written, nothing deleted"
        assert node.partition.log.log_start_offset == 0
        assert node.partition.log.local_log_start_offset == local


@pytest.mark.parametrize("count", [20, 200])
async def test_a_log_that_began_anew_is_not_taken_for_the_archived_one(count: int, tmp_path: Path) -> None:
    """The disk was lost and the topic written to again: fewer offsets than the archive has, or more."""
    async with archived_node(str(tmp_path), config=DROPPING) as node:
        without_worker(node, tmp_path)
        await node.produce(100)
        await drop_all(node)
        archived = node.catalog.get(node.layout).snapshot
    shutil.rmtree(tmp_path / "node" / "logs")
    for name in os.listdir(tmp_path / "node"):
        if "clean" in name or "recovery" in name:
            os.unlink(tmp_path / "node" / name)
    async with archived_node(str(tmp_path), config=DROPPING) as node:
        without_worker(node, tmp_path)
        await node.produce(count)
        for _ in range(3):
            node.clock.now_ms += HOUR
            await node.offloader.round()
        [archive] = node.offloader
        assert archive.failures == 3 and "archive" in archive.last_failure
        assert node.partition.log.local_log_start_offset == 0, "new records are only here"
        assert (await load_newest(node.store, node.layout)).tail == archived.tail


async def test_rows_of_a_topic_of_that_name_in_another_cluster_are_no_orphans(tmp_path: Path) -> None:
    settings = OffloadSettings(orphan_age_ms=0, garbage_check_ms=0)
    os.makedirs(tmp_path / "a")
    os.makedirs(tmp_path / "b")
    os.symlink(tmp_path / "a" / "bucket", tmp_path / "b" / "bucket")
    os.makedirs(tmp_path / "a" / "bucket")
    async with archived_node(str(tmp_path / "a"), settings, KEEPING) as first:
        without_worker(first, tmp_path)
        await first.produce(60)
        await first.settle()
        first.clock.now_ms = 10**13
        async with archived_node(str(tmp_path / "b"), settings, KEEPING, clock=first.clock) as second:
            without_worker(second, tmp_path)
            await second.produce(90)
            await second.settle()
            await second.offloader.round()
            await first.offloader.round()
            for node in (first, second):
                end = node.catalog.get(node.layout).snapshot.end_offset
                assert [record.offset for record in await node.read_cold(0, end)] == list(range(end))


async def test_an_upload_under_way_is_no_orphan_whatever_the_clock_says(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), OffloadSettings(orphan_age_ms=0), KEEPING) as node:
        await node.produce(60)
        [worker] = node.offloader._workers

        async def collected_before_it_is_published(job):
            segment = await archive_segment(node.store, job, str(tmp_path))
            node.clock.now_ms = 10**13
            await node.offloader.collect_garbage()
            return segment

        worker.archive = collected_before_it_is_published
        await node.settle()
        end = node.catalog.get(node.layout).snapshot.end_offset
        assert len(await node.read_cold(0, end)) == end > 40


async def rows_in_the_bucket(node: Archived) -> int:
    """As someone counts them who lists the Parquet files and knows of no manifest."""
    keys = await node.keys(node.layout.rows_folder)
    return sum([pq.read_metadata(io.BytesIO(await node.store.get(key))).num_rows for key in keys])


@pytest.mark.parametrize(
    "place",
    [
        "archive.rows_uploaded",
        "archive.index_uploaded",
        "archive.verified",
        "archive.before_publish",
        "archive.published",
    ],
)
@pytest.mark.parametrize("then", ["tried again", "by the next leader"])
async def test_an_upload_that_came_to_nothing_is_not_counted_by_who_reads_plain_parquet(
    place: str, then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        without_worker(node, tmp_path)
        await node.produce(60)
        monkeypatch.setitem(failpoints._chosen, place, ("fail", 2))
        await node.offloader.round()
        assert any(archive.failures for archive in node.offloader)
        if then == "tried again":
            node.clock.now_ms += HOUR
            await node.settle()
            assert await rows_in_the_bucket(node) == node.catalog.get(node.layout).snapshot.end_offset > 40
            return
    async with archived_node(str(tmp_path), config=KEEPING, clock=node.clock) as node:
        without_worker(node, tmp_path)
        await node.settle()
        assert await rows_in_the_bucket(node) == node.catalog.get(node.layout).snapshot.end_offset > 40


async def test_a_lost_answer_to_a_manifest_is_not_another_leader(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        without_worker(node, tmp_path)
        await node.produce(60)
        await node.offloader.round()
        await node.produce(60)
        put, left = node.store.put_if_absent, 1

        async def unanswered(key, data):
            nonlocal left
            created = await put(key, data)
            if left:
                left = 0
                raise StoreUnavailable("no answer")
            return created

        node.store.put_if_absent = unanswered
        await node.offloader.round()
        node.clock.now_ms += HOUR
        await node.settle()
        [archive] = node.offloader
        assert archive.failures == 1 and archive.last_failure == "no answer"
        snapshot = node.catalog.get(node.layout).snapshot
        assert len({segment.base_offset for segment in snapshot.tail}) == len(snapshot.tail)
        assert len(await node.read_cold(0, snapshot.end_offset)) == snapshot.end_offset > 100


async def test_a_manifest_that_arrives_after_its_writer_gave_up_names_nothing_that_is_gone(tmp_path: Path) -> None:
    """A store that hangs takes a request when its sender has long given up, and has begun to clear away behind it."""
    async with archived_node(str(tmp_path), config=DROPPING) as node:
        without_worker(node, tmp_path)
        await node.produce(60)
        await node.offloader.round()
        await node.produce(60)
        put, delete, late = node.store.put_if_absent, node.store.delete, []

        async def given_up(key, data):
            if late:
                return await put(key, data)
            late.append((key, data))
            raise StoreUnavailable("no answer")

        async def deleted(keys):
            await delete(keys)
            await put(*late[0])

        node.store.put_if_absent, node.store.delete = given_up, deleted
        for _ in range(4):
            await node.offloader.round()
            node.clock.now_ms += HOUR
        await node.settle()
        end = (await load_newest(node.store, node.layout)).end_offset
        assert [record.offset for record in await node.read_cold(0, end)] == list(range(end))
        assert node.partition.log.local_log_start_offset > 60


async def test_a_mistake_of_ours_does_not_end_archiving(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        without_worker(node, tmp_path)
        await node.running.node.admin.create_topic("other", 1, 1, {**SMALL, **KEEPING})
        await node.produce(60)
        await produce_to(node, "other", 20)
        await node.offloader.round()
        archive = node.offloader.archive_of((TOPIC, 0))

        def mistaken() -> None:
            raise ZeroDivisionError

        archive.next_segment = mistaken
        await produce_to(node, "other", 20)
        node.offloader.start()
        before = node.offloader.rounds
        await until(lambda: node.offloader.rounds > before + 1)
        assert archive.failures > 0
        assert node.offloader.archive_of(("other", 0)).backlog_bytes == 0


async def test_a_long_backlog_holds_up_neither_reads_nor_retention(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config=DROPPING) as node:
        names = [TOPIC, "a", "b"]
        for name in names[1:]:
            await node.running.node.admin.create_topic(name, 1, 1, {**SMALL, **DROPPING})
        for name in names:
            await produce_to(node, name, 60)
        node.clock.now_ms += HOUR
        seen = []

        async def watched(job):
            loaded = [node.catalog.get(PartitionLayout(n, node.running.node.image.topic(n).id, 0)) for n in names]
            assert None not in loaded, "manifests come before uploads"
            local = node.running.node.partitions.get(job.layout.topic, 0).log.local_log_start_offset
            assert local == job.base_offset, "what is archived is dropped before the next is"
            seen.append(job.layout.topic)
            return await archive_segment(node.store, job, str(tmp_path))

        [worker] = node.offloader._workers
        worker.archive = watched
        await node.offloader.round()
        assert [archive.last_failure for archive in node.offloader] == [""] * 3
        assert sorted(seen[:3]) == sorted(seen[3:6]) == sorted(names)


async def test_a_long_backlog_is_no_long_round(tmp_path: Path) -> None:
    """What is led here only since then waits for the segment under way, and for no more."""
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        await node.produce(200)
        seen = []

        async def slowly(job):
            seen.append(job.layout.topic)
            node.clock.now_ms += 1000
            if len(seen) == 1:
                await node.running.node.admin.create_topic("late", 1, 1, {**SMALL, **KEEPING})
                await produce_to(node, "late", 20)
            return await archive_segment(node.store, job, str(tmp_path))

        [worker] = node.offloader._workers
        worker.archive = slowly
        node.offloader.start()
        await until(lambda: len(seen) > 6)
        assert sorted(set(seen[1:3])) == sorted(set(seen[3:5])) == ["late", TOPIC]


async def test_a_clock_that_goes_back_pauses_nothing(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        without_worker(node, tmp_path)
        await node.produce(60)
        blocked = tmp_path / "bucket" / f"topic={TOPIC}"
        blocked.write_text("in the way")
        await node.offloader.round()
        blocked.unlink()
        node.clock.now_ms -= 1000 * HOUR
        await node.settle()
        assert node.catalog.get(node.layout).snapshot.end_offset > 40


async def test_a_topic_is_described_once_and_the_newest_description_wins(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        without_worker(node, tmp_path)
        await node.produce(60)
        await node.settle()
        folder = topic_descriptions(TOPIC, node.layout.topic_id)
        assert len(await node.keys(folder)) == 1
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        without_worker(node, tmp_path)
        await node.produce(5)
        await node.settle()
        assert len(await node.keys(folder)) == 1, "a restart has nothing new to say"
        node.clock.now_ms -= 1000 * HOUR
        await node.running.node.admin.alter_config(
            TOPIC, [ConfigChange("retention.bytes", ConfigOperation.SET, "123456789")]
        )
        await node.offloader.round()
        newest, older = sorted(await node.keys(folder))
        assert b"123456789" in bytes(await node.store.get(newest))
        assert b"123456789" not in bytes(await node.store.get(older))


async def test_a_topic_deleted_and_made_again_while_it_is_archived(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), OffloadSettings(delete_grace_ms=0, garbage_check_ms=0), KEEPING) as node:
        await node.produce(60)
        [worker] = node.offloader._workers
        old, admin = node.layout, node.running.node.admin

        async def deleted_meanwhile(job):
            segment = await archive_segment(node.store, job, str(tmp_path))
            if job.layout == old and node.layout == old:
                await admin.delete_topic(TOPIC)
                await admin.create_topic(TOPIC, 1, 1, {**SMALL, **KEEPING})
            return segment

        worker.archive = deleted_meanwhile
        await node.offloader.round()
        assert node.layout != old
        node.sent.clear()
        await node.produce(40)
        node.clock.now_ms += HOUR
        await node.settle()
        await node.offloader.round()
        assert node.catalog.get(old) is None, "nothing is kept of what is gone"
        end = node.catalog.get(node.layout).snapshot.end_offset
        found = await node.read_cold(0, end)
        assert [record[1:] for record in found] == [record[1:] for record in node.sent[:end]]
        assert not any(str(old.topic_id) in key for key in await node.keys("_tierlog/"))


async def test_archiving_cannot_be_switched_off_under_records_that_are_in_the_bucket_only(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config=DROPPING) as node:
        without_worker(node, tmp_path)
        await node.produce(60)
        await drop_all(node)
        change = ConfigChange("remote.storage.enable", ConfigOperation.SET, "false")
        with pytest.raises(InvalidConfig, match="cannot be switched off"):
            await node.running.node.admin.alter_config(TOPIC, [change])
        with pytest.raises(InvalidConfig, match="cannot be switched off"):
            await node.running.node.admin.replace_config(TOPIC, {})


async def test_a_worker_that_dies_is_started_again(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        await node.produce(60)
        [worker] = node.offloader._workers
        first = asyncio.create_task(node.offloader.round())
        await until(lambda: worker._process is not None)
        os.kill(worker._process.pid, signal.SIGKILL)
        await first
        [archive] = node.offloader
        assert archive.failures == 1 and "worker ended" in archive.last_failure
        node.clock.now_ms += HOUR
        await node.settle()
        end = node.catalog.get(node.layout).snapshot.end_offset
        assert len(await node.read_cold(0, end)) == end > 40

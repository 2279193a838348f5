"""Verification says exactly what is wrong with a bucket, and garbage is exactly what nobody needs."""

import dataclasses
import os
from contextlib import asynccontextmanager
from pathlib import Path

from cold_tier.checking.garbage import find_garbage
from cold_tier.checking.verify import verify
from cold_tier.format.write import COMPLETE, write_segment
from cold_tier.inventory import find_topics
from cold_tier.layout import Version
from cold_tier.manifest.codec import write_snapshot
from cold_tier.manifest.reader import load_newest
from cold_tier.objects.bucket import Bucket
from cold_tier.reports import Checked, Finding, Planned
from cold_tier.upload import upload_segment
from hot_tier.record.batch import assign
from hot_tier.record.columns import NewRecord, decode_batches, encode_records
from offloader.settings import OffloadSettings
from tests.offloader.harness import SMALL, TOPIC, archived_node

HOUR = 3_600_000


@asynccontextmanager
async def archived(folder: Path):
    async with archived_node(str(folder), config={"retention.ms": "-1"}) as node:
        await node.produce(60)
        await node.settle()
        yield node


async def findings(store: Bucket) -> list[Finding]:
    return [event async for event in verify(store, await find_topics(store)) if isinstance(event, Finding)]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


async def test_a_whole_archive_has_no_findings_and_all_of_it_is_read(tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        snapshot = node.catalog.get(node.layout).snapshot
        before = node.store.counters.bytes_in
        events = [event async for event in verify(node.store, await find_topics(node.store))]
        assert [event for event in events if isinstance(event, Finding)] == []
        assert [event.segments for event in events if isinstance(event, Planned)] == [len(snapshot.tail)]
        read = sum(event.bytes for event in events if isinstance(event, Checked))
        assert read == sum(s.rows_bytes + s.index_bytes for s in snapshot.tail) <= node.store.counters.bytes_in - before


async def test_damage_and_missing_objects_are_named(tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        first, second, third, *_ = node.catalog.get(node.layout).snapshot.tail
        layout, bucket = node.layout, tmp_path / "bucket"
        flip(bucket / layout.rows(first.name))
        flip(bucket / layout.index(second.name))
        (bucket / layout.rows(third.name)).unlink()
        found = await findings(node.store)
        assert {(finding.kind, finding.where) for finding in found} == {
            ("damaged", f"{node.store.url}{layout.rows(first.name)}"),
            ("damaged", f"{node.store.url}{layout.index(second.name)}"),
            ("missing", f"{node.store.url}{layout.rows(third.name)}"),
        }
        assert all(finding.is_problem for finding in found)


async def test_an_object_that_is_longer_than_it_should_be_is_damaged(tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        segment = node.catalog.get(node.layout).snapshot.tail[0]
        with (tmp_path / "bucket" / node.layout.rows(segment.name)).open("ab") as file:
            file.write(b"x")
        [finding] = await findings(node.store)
        assert finding.kind == "damaged"


async def test_gaps_and_overlaps_of_a_manifest(tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        snapshot = node.catalog.get(node.layout).snapshot
        first, left_out, *rest = snapshot.tail
        version = Version(snapshot.version.leader_epoch, snapshot.version.sequence + 1)
        holed = dataclasses.replace(snapshot, version=version, tail=(first, *rest))
        await node.store.put(node.layout.manifest(version), write_snapshot(holed))
        gap, *orphans = await findings(node.store)
        assert (gap.kind, gap.where) == ("gap", f"{node.store.url}{node.layout.manifest(version)}")
        assert gap.what == f"offsets {left_out.base_offset} to {left_out.end_offset - 1} are in no segment"
        assert {finding.kind for finding in orphans} == {"orphan"}
        doubled = dataclasses.replace(left_out, end_offset=left_out.end_offset + 1)
        version = version._replace(sequence=version.sequence + 1)
        overlapping = dataclasses.replace(snapshot, version=version, tail=(first, doubled, *rest))
        await node.store.put(node.layout.manifest(version), write_snapshot(overlapping))
        overlap, index = await findings(node.store)
        assert (overlap.kind, index.kind) == ("overlap", "damaged")
        assert f"offsets {left_out.end_offset} to {left_out.end_offset} are in two segments" in overlap.what


async def test_a_damaged_manifest_or_description_is_a_problem(tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        version = node.catalog.get(node.layout).snapshot.version
        flip(tmp_path / "bucket" / node.layout.manifest(version))
        [description] = (tmp_path / "bucket" / "_tierlog").glob("*/topic/*.json")
        description.write_bytes(b"[]")
        assert sorted(finding.kind for finding in await findings(node.store)) == ["damaged", "manifest"]


async def test_orphans_are_found_and_are_no_problem(tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        stem = "00000000000000000005-0-" + "ab" * 16
        left = [f"{node.layout.rows_folder}{stem}.parquet", f"{node.layout.index_folder}{stem}.index"]
        for key in left:
            await node.store.put(key, b"left over")
        await node.store.put(f"{node.layout.rows_folder}of-somebody-else.parquet", b"not ours")
        found = await findings(node.store)
        assert sorted(finding.where.removeprefix(node.store.url) for finding in found) == sorted(left)
        assert not any(finding.is_problem for finding in found)


async def test_two_lives_of_a_name_do_not_take_each_others_rows_for_orphans(tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        first = node.layout
        await node.running.node.admin.delete_topic(TOPIC)
        await node.running.node.admin.create_topic(TOPIC, 1, 1, SMALL)
        await node.produce(60)
        await node.settle()
        assert await findings(node.store) == []
        now = node.clock.now_ms + 10**15
        none_kept = OffloadSettings(delete_grace_ms=0, orphan_age_ms=0, manifest_history_ms=0)
        garbage = await find_garbage(node.store, [first, node.layout], none_kept, now)
        assert {each.kind for each in garbage} == {"manifest"}


async def test_garbage_is_found_by_its_age_and_changes_nothing(tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        node.partition.delete_records_before(37)
        await node.offloader.round()
        snapshot = await load_newest(node.store, node.layout)
        removed = {gone.key for gone in snapshot.removed}
        assert removed
        stem = "00000000000000000005-0-" + "cd" * 16
        orphan = f"{node.layout.rows_folder}{stem}.parquet"
        await node.store.put(orphan, b"left over")
        modified = snapshot.published_ms - 1
        settings = OffloadSettings(delete_grace_ms=HOUR, orphan_age_ms=HOUR, manifest_history_ms=10 * HOUR)

        async def kinds(now_ms: int) -> dict[str, set[str]]:
            found: dict[str, set[str]] = {}
            for each in await find_garbage(node.store, [node.layout], settings, now_ms):
                found.setdefault(each.kind, set()).add(each.key)
            return found

        before = await node.keys()
        assert await kinds(snapshot.published_ms) == {}
        assert await kinds(snapshot.published_ms + HOUR) == {"removed": removed}
        assert "orphan" not in await kinds(4_000_000_000_000), "it was stored after the manifest was published"
        os.utime(tmp_path / "bucket" / orphan, (modified / 1000, modified / 1000))
        later = await kinds(modified + HOUR + 1)
        assert later == {"removed": removed, "orphan": {orphan}}
        assert set(await kinds(4_000_000_000_000)) == {"removed", "orphan", "manifest"}
        assert await node.keys() == before


async def test_rows_that_are_missing_inside_an_object_are_named(tmp_path: Path) -> None:
    """As an earlier version archived a damaged segment: the bytes are what was uploaded, without some records."""
    async with archived(tmp_path) as node:
        snapshot = node.catalog.get(node.layout).snapshot
        harmed = snapshot.tail[1]
        first = harmed.base_offset
        lost = {first, first + 4, first + 5, harmed.end_offset - 1}
        await lose_rows(node, harmed, sorted(set(range(first, harmed.end_offset)) - lost), "")
        [finding] = await findings(node.store)
        assert (finding.kind, finding.where) == ("rows", f"{node.store.url}{node.layout.rows(harmed.name)}")
        shown = f"{first} to {first}, {first + 4} to {first + 5}, {harmed.end_offset - 1} to {harmed.end_offset - 1}"
        assert f"4 offsets have no rows: {shown};" in finding.what and finding.is_problem
        await lose_rows(node, harmed, [], "")
        [finding] = await findings(node.store)
        assert f"{first} to {harmed.end_offset - 1}" in finding.what


async def test_rows_may_be_missing_where_the_writer_has_proven_it_or_the_topic_is_compacted(tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        harmed = node.catalog.get(node.layout).snapshot.tail[1]
        rows = list(range(harmed.base_offset + 2, harmed.end_offset))
        await lose_rows(node, harmed, rows, "true")
        assert await findings(node.store) == []
        await lose_rows(node, harmed, rows, "")
        assert [finding.kind for finding in await findings(node.store)] == ["rows"]
        await node.running.node.admin.replace_config(TOPIC, {**SMALL, "cleanup.policy": "compact"})
        await node.offloader.round()
        assert await findings(node.store) == []


async def lose_rows(node, segment, keep: list[int], complete: str) -> None:
    """In the place of an archived segment one with fewer rows, and a manifest that says so."""
    path = str(node.running.node.logs.disk.logs_directory) + "/fewer.parquet"
    columns = [decode_batches(batch_of(node.sent[offset])) for offset in keep]
    written = write_segment(
        path, columns, segment.base_offset, segment.end_offset, segment.epochs, b"", {COMPLETE: complete}, zstd_level=1
    )
    fewer = await upload_segment(
        node.store, node.layout, segment.name, path, written, log_bytes=segment.log_bytes, archived_ms=1
    )
    snapshot = await load_newest(node.store, node.layout)
    tail = tuple(fewer if each.name == segment.name else each for each in snapshot.tail)
    version = Version(snapshot.version.leader_epoch, snapshot.version.sequence + 1)
    changed = dataclasses.replace(snapshot, version=version, tail=tail)
    await node.store.put(node.layout.manifest(version), write_snapshot(changed))


def batch_of(record):
    batch = encode_records([NewRecord(record.timestamp, record.key, record.value, record.headers)])
    assign(batch, record.offset, 0)
    return batch

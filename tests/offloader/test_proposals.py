"""What a compaction proposes and the leader makes of it: published whole, or refused with a reason and no trace."""

import asyncio
import dataclasses
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import zstandard

from cold_tier import proposals
from cold_tier.checking.garbage import find_garbage
from cold_tier.checking.verify import verify
from cold_tier.format import write
from cold_tier.inventory import find_topics
from cold_tier.manifest.codec import MAX_BODY_BYTES
from cold_tier.manifest.model import SegmentEntry
from cold_tier.manifest.reader import load_newest
from cold_tier.manifest.replacement import Proposal, Replacement
from cold_tier.manifest.writer import ManifestWriter
from cold_tier.objects.open import StoreSettings
from cold_tier.reports import Checked, Finding, Planned
from cold_tier.rewrite import Rewrite, rewrite
from hot_tier.record.crc import crc32c
from offloader.archive import archive_segment
from offloader.settings import OffloadSettings
from tests.offloader.harness import Archived, archived_node

KEEPING = {"local.retention.ms": "-1", "retention.ms": "-1"}


def without_worker(node: Archived, folder: Path) -> None:
    for worker in node.offloader._workers:
        worker.archive = lambda job: archive_segment(node.store, job, str(folder))


async def fill(node: Archived, folder: Path, count: int = 100) -> None:
    without_worker(node, folder)
    await node.produce(count)
    await node.settle()


def segments(node: Archived) -> tuple[SegmentEntry, ...]:
    manifest = node.catalog.get(node.layout)
    assert manifest is not None
    return manifest.snapshot.tail


async def merge(node: Archived, folder: Path, start: int, end: int) -> Proposal:
    """The segments from `start` to `end` as one, uploaded."""
    old = segments(node)[start:end]
    store = StoreSettings(bucket=f"file://{folder}/bucket")
    new = await asyncio.to_thread(rewrite, store, Rewrite(node.layout, old))
    replacement = Replacement(tuple(segment.name for segment in old), (new,))
    return Proposal(node.layout, node.clock(), (replacement,))


async def consider(node: Archived) -> list[tuple[str, str]]:
    [archive] = node.offloader
    return [(each.outcome, each.reason) for each in await node.offloader.consider_proposals(archive)]


async def test_rewritten_segments_are_read_in_the_place_of_the_old(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        await fill(node, tmp_path)
        before = segments(node)
        end = before[-1].end_offset
        records = await node.read_cold(0, end)
        proposal = await merge(node, tmp_path, 1, 5)
        name = await proposals.place(node.store, proposal)
        assert (await proposals.answer(node.store, node.layout, name, proposal)).outcome == "waiting"
        assert await consider(node) == [("published", "")]
        assert (await proposals.answer(node.store, node.layout, name, proposal)).outcome == "published"
        assert await node.keys(node.layout.proposals_folder) == []
        assert segments(node) == (before[0], *proposal.replacements[0].new, *before[5:])
        assert await node.read_cold(0, end) == records
        for old in before[1:5]:
            assert await node.store.head(node.layout.rows(old.name)) is not None, "readers in flight go on"
        await node.offloader.round()
        node.clock.now_ms += OffloadSettings().delete_grace_ms
        await node.offloader.round()
        for old in before[1:5]:
            assert await node.store.head(node.layout.rows(old.name)) is None
        events = [event async for event in verify(node.store, await find_topics(node.store))]
        assert all(isinstance(event, Planned | Checked) for event in events), events


async def test_the_leader_looks_by_itself_when_it_looks_for_garbage(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        await fill(node, tmp_path)
        proposal = await merge(node, tmp_path, 0, 3)
        await proposals.place(node.store, proposal)
        lists = node.store.counters.lists
        await node.offloader.round()
        assert node.store.counters.lists == lists, "a round in between costs no LIST"
        node.clock.now_ms += OffloadSettings().garbage_check_ms
        await node.offloader.round()
        await asyncio.gather(*node.offloader._considering.values())
        assert segments(node)[0] == proposal.replacements[0].new[0]


async def test_the_grace_of_the_old_begins_when_they_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Examining a proposal may take longer than the grace period."""
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        await fill(node, tmp_path)
        old = segments(node)[:3]
        await proposals.place(node.store, await merge(node, tmp_path, 0, 3))
        examine = proposals.examine

        async def slowly(*given: object, **options: bool) -> None:
            await examine(*given, **options)
            node.clock.now_ms += OffloadSettings().delete_grace_ms

        monkeypatch.setattr(proposals, "examine", slowly)
        assert await consider(node) == [("published", "")]
        await node.offloader.round()
        for each in old:
            assert await node.store.head(node.layout.rows(each.name)) is not None, "readers in flight go on"


async def test_what_expired_meanwhile_is_refused(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        await fill(node, tmp_path)
        proposal = await merge(node, tmp_path, 0, 3)
        [archive] = node.offloader
        node.partition.log.delete_records_before(segments(node)[0].end_offset)
        await archive.apply_retention(node.clock())
        before = segments(node)
        name = await proposals.place(node.store, proposal)
        [(outcome, reason)] = await consider(node)
        assert outcome == "refused" and "no longer holds" in reason
        answer = await proposals.answer(node.store, node.layout, name, proposal)
        assert (answer.outcome, answer.reason) == (outcome, reason)
        assert segments(node) == before
        assert archive.failures == 0


@pytest.mark.parametrize("harm", ["damaged", "missing", "fewer rows", "other offsets", "not its own"])
async def test_what_is_not_what_it_says_is_refused(harm: str, tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        await fill(node, tmp_path)
        before = segments(node)
        proposal = await merge(node, tmp_path, 0, 3)
        [replacement] = proposal.replacements
        [new] = replacement.new
        rows = tmp_path / "bucket" / node.layout.rows(new.name)
        match harm:
            case "damaged":
                data = bytearray(rows.read_bytes())
                data[len(data) // 3] ^= 4
                rows.write_bytes(data)
            case "missing":
                rows.unlink()
            case "fewer rows":
                new = dataclasses.replace(new, rows=new.rows - 1)
            case "other offsets":
                # The rows of another segment under a manifest entry that lines up.
                other = before[3]
                new = dataclasses.replace(
                    other, name=dataclasses.replace(other.name, base_offset=new.base_offset), end_offset=new.end_offset
                )
                for key in (node.layout.rows, node.layout.index):
                    data = (tmp_path / "bucket" / key(other.name)).read_bytes()
                    (tmp_path / "bucket" / key(new.name)).write_bytes(data)
                new = dataclasses.replace(new, rows=sum(old.rows for old in before[:3]))
                new = dataclasses.replace(new, max_timestamp_ms=before[2].max_timestamp_ms, epochs=before[0].epochs)
            case "not its own":
                layout = dataclasses.replace(node.layout, partition=7)
                proposal = dataclasses.replace(proposal, layout=layout)
        if harm == "not its own":
            await proposals.place(node.store, proposal)
            key = proposal.layout.proposals_folder
            [placed] = await node.keys(key)
            await node.store.put(node.layout.proposal("a" * 32), await node.store.get(placed))
        else:
            changed = dataclasses.replace(replacement, new=(new,))
            await proposals.place(node.store, dataclasses.replace(proposal, replacements=(changed,)))
        [(outcome, reason)] = await consider(node)
        assert outcome == "refused" and reason
        assert segments(node) == before
        assert await consider(node) == []


async def test_rows_with_other_columns_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        await fill(node, tmp_path)
        before = segments(node)
        with monkeypatch.context() as patched:
            other = write.row_schema().set(0, write.row_schema().field(0).with_name("position"))
            patched.setattr(write, "row_schema", lambda: other)
            proposal = await merge(node, tmp_path, 0, 3)
        await proposals.place(node.store, proposal)
        [(outcome, reason)] = await consider(node)
        assert outcome == "refused" and "other columns" in reason
        assert segments(node) == before


async def test_a_proposal_that_unpacks_to_more_than_any_is_refused(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        await fill(node, tmp_path)
        body = zstandard.compress(bytes(MAX_BODY_BYTES + 1))
        header = struct.pack(">4sHHII", b"TLPR", 1, 0, len(body), crc32c(body))
        await node.store.put(node.layout.proposal("a" * 32), header + body)
        [(outcome, reason)] = await consider(node)
        assert outcome == "refused" and "larger than any" in reason


async def test_a_proposal_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        await fill(node, tmp_path)
        await node.store.put(node.layout.proposal("a" * 32), b"not one")
        [(outcome, _)] = await consider(node)
        assert outcome == "refused"
        assert await node.keys(node.layout.proposals_folder) == [node.layout.refusal("a" * 32)]


async def test_an_object_larger_than_any_proposal_is_refused_unread(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        await fill(node, tmp_path)
        path = tmp_path / "bucket" / node.layout.proposal("a" * 32)
        path.parent.mkdir(parents=True)
        with path.open("wb") as file:
            file.truncate(MAX_BODY_BYTES + 1)
        bytes_in = node.store.counters.bytes_in
        [(outcome, reason)] = await consider(node)
        assert outcome == "refused" and "larger than any proposal" in reason
        assert node.store.counters.bytes_in - bytes_in < 100_000


async def test_a_second_look_finds_it_done(tmp_path: Path) -> None:
    """As after a crash between the publish and the answer."""
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        await fill(node, tmp_path)
        proposal = await merge(node, tmp_path, 0, 3)
        await proposals.place(node.store, proposal)
        await consider(node)
        after = node.catalog.get(node.layout).snapshot
        await proposals.place(node.store, proposal)
        assert await consider(node) == [("published", "")]
        assert node.catalog.get(node.layout).snapshot == after


async def test_a_deposed_leader_answers_nothing(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        await fill(node, tmp_path)
        [archive] = node.offloader
        proposal = await merge(node, tmp_path, 0, 3)
        await proposals.place(node.store, proposal)
        newer = await ManifestWriter.open(node.store, node.layout, archive.leader_epoch + 1, 0, node.clock())
        assert await consider(node) == []
        assert "newest manifest" in archive.last_failure
        assert len(await node.keys(node.layout.proposals_folder)) == 1, "its successor will look at it"
        assert await load_newest(node.store, node.layout) == newer.current


async def test_objects_of_a_proposal_that_waits_are_not_orphans(tmp_path: Path) -> None:
    settings = OffloadSettings(orphan_age_ms=0)
    async with archived_node(str(tmp_path), settings, KEEPING) as node:
        await fill(node, tmp_path)
        # By its own clock the node lives in the past: make it older than the objects are.
        node.clock.now_ms = 4_000_000_000_000
        [archive] = node.offloader
        proposal = await merge(node, tmp_path, 0, 3)
        name = await proposals.place(node.store, proposal)
        rows = node.layout.rows(proposal.replacements[0].new[0].name)
        await archive.collect_orphans(node.clock())
        assert rows not in [each.key for each in await find_garbage(node.store, [node.layout], settings, node.clock())]
        events = [event async for event in verify(node.store, await find_topics(node.store))]
        assert not any(isinstance(event, Finding) for event in events), events
        assert await node.store.head(rows) is not None
        await proposals.refuse(node.store, node.layout, name, "no")
        os.utime(tmp_path / "bucket" / rows, (0, 0))  # Stored before the manifest was published, by its clock.
        assert rows in [each.key for each in await find_garbage(node.store, [node.layout], settings, node.clock())]
        await archive.collect_orphans(node.clock())
        assert await node.store.head(rows) is None
        assert await node.keys(node.layout.proposals_folder) == [], "the refusal went with it"


async def test_a_topic_keeps_its_rows_unless_it_is_compacted(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config={**KEEPING, "cleanup.policy": "compact"}) as node:
        await fill(node, tmp_path)
        old = segments(node)[:3]
        store = StoreSettings(bucket=f"file://{tmp_path}/bucket")
        keep = np.arange(0, old[-1].end_offset, 7, dtype=np.int64)
        new = await asyncio.to_thread(rewrite, store, Rewrite(node.layout, old), keep)
        assert new.rows == len(keep) < sum(each.rows for each in old)
        replacement = Replacement(tuple(each.name for each in old), (new,))
        await proposals.place(node.store, Proposal(node.layout, 1, (replacement,)))
        assert await consider(node) == [("published", "")]
        records = await node.read_cold(0, old[-1].end_offset)
        assert [record.offset for record in records] == keep.tolist()

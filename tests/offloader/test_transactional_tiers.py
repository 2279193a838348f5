"""Transactions through a running node: archived up to the last stable offset, held by what is open, and read back over
both tiers as each isolation asks."""

import dataclasses
import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from cold_tier.cache import ColdReadSettings
from cold_tier.checking.segment_check import check_segment
from cold_tier.checking.verify import verify
from cold_tier.inventory import find_topics
from cold_tier.manifest.reader import load_newest
from cold_tier.objects.open import StoreSettings
from cold_tier.reader import ColdReader
from cold_tier.reports import Finding
from gateway.fetch.reader import Archive, Isolation, Reader
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.settings import LogSettings
from hot_tier.record.batch import iter_headers
from hot_tier.record.columns import Record, decode_records
from hot_tier.replication.led_partition import LedPartition
from offloader import failpoints
from offloader.held import LONG_MS, holding_transaction
from offloader.restore import load_history
from offloader.settings import OffloadSettings
from tests.offloader.harness import TOPIC, Archived, archived_node
from tests.offloader.test_offloader import DROPPING, HOUR, KEEPING, rows_in_the_bucket, without_worker
from tierlog.restore import restore_offline
from tierlog.settings import Settings

NEVER = OffloadSettings(garbage_check_ms=10**12)


class Books:
    """What was written, and what became of it."""

    def __init__(self, node: Archived) -> None:
        self.node = node
        self.committed: list[int] = []
        self.epochs = 0

    async def plain(self, count: int = 5) -> None:
        first = self.node.partition.log.log_end_offset
        await self.node.produce(count)
        self.committed += range(first, first + count)

    async def transaction(self, counts: list[int], commit: bool) -> None:
        self.epochs += 1
        first = self.node.partition.log.log_end_offset
        await self.node.transaction(counts, commit=commit, producer_id=self.epochs % 3, epoch=self.epochs)
        if commit:
            self.committed += range(first, first + sum(counts))


async def read(node: Archived, isolation: Isolation, max_bytes: int = 4000) -> list[Record]:
    """As a client reads: for committed records it leaves out the batches that the answers call aborted."""
    cold = ColdReader(node.store, ColdReadSettings())
    reader = Reader(Archive(node.catalog, cold))
    partition = node.partition
    end = partition.last_stable_offset if isolation == Isolation.READ_COMMITTED else partition.high_watermark
    at, found = partition.log_start_offset, []
    while at < end:
        fetched = await reader.read(partition, at, max_bytes, isolation)
        aborted = fetched.aborted
        for position, header in iter_headers(fetched.records):
            inside = any(
                each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
                for each in aborted
            )
            batch = fetched.records[position : position + header.size]
            if not (inside and header.is_transactional and isolation == Isolation.READ_COMMITTED):
                found += [record for record in decode_records(batch) if record.offset >= at]
            at = max(at, header.end_offset)
    await cold.close()
    return found


async def rounds(node: Archived, count: int = 6) -> None:
    for _ in range(count):
        node.clock.now_ms += 60_000
        await node.offloader.round()


async def faults(node: Archived) -> list[Finding]:
    events = [event async for event in verify(node.store, await find_topics(node.store))]
    return [event for event in events if isinstance(event, Finding)]


@pytest.mark.parametrize("seed", range(6))
async def test_both_isolations_read_both_tiers_as_one_log(seed: int, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    async with archived_node(str(tmp_path), NEVER, DROPPING) as node:
        without_worker(node, tmp_path)
        books = Books(node)
        for _ in range(25):
            match chosen.randrange(4):
                case 0:
                    await books.plain(chosen.choice([1, 5, 15]) * 5)
                case 1 | 2:
                    counts = [chosen.randint(1, 12) for _ in range(chosen.randint(1, 5))]
                    await books.transaction(counts, chosen.random() < 0.5)
                case 3:
                    await rounds(node, chosen.choice([1, 2]))
        await rounds(node)
        log = node.partition.log
        assert 0 < log.local_log_start_offset < log.log_end_offset, "there is something in each tier"
        everything = {record.offset: record.value for record in await read(node, Isolation.READ_UNCOMMITTED)}
        assert everything == offsets_of(node)
        assert [record.offset for record in await read(node, Isolation.READ_COMMITTED)] == books.committed
        end = node.catalog.get(node.layout).snapshot.end_offset
        table = pq.read_table(tmp_path / "bucket" / f"topic={TOPIC}")
        assert sorted(table["offset"].to_pylist()) == [offset for offset in books.committed if offset < end]
        assert not await faults(node)
        snapshot = await load_newest(node.store, node.layout)
        for segment in snapshot.tail:
            assert not (await check_segment(node.store, node.layout, segment)).findings


def offsets_of(node: Archived) -> dict[int, bytes]:
    return {record.offset: record.value for record in node.sent}


async def test_the_archive_waits_for_an_open_transaction_and_says_so(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), NEVER, KEEPING) as node:
        without_worker(node, tmp_path)
        await node.produce(10)
        opened = node.partition.log.log_end_offset
        since_ms = node.clock.now_ms
        await node.transaction([3], commit=None, producer_id=9)
        await node.produce(60)
        with capture_logs() as lines:
            await rounds(node, 3)
        end = node.catalog.get(node.layout).snapshot.end_offset
        assert end <= opened, "nothing undecided is archived"
        held = holding_transaction(node.partition, end)
        assert (held.transactional_id, held.producer_id, held.first_offset) == ("id-9", 9, opened)
        assert held.since_ms == since_ms and "tierlog txn abort id-9" in held.hint
        told = [line for line in lines if "waits for an open transaction" in line["event"]]
        assert len(told) == 1 and "'id-9'" in told[0]["held_by"] and told[0]["open_for_seconds"] >= LONG_MS // 1000
        await node.end_transaction(commit=False, producer_id=9)
        await rounds(node, 8)
        end = node.catalog.get(node.layout).snapshot.end_offset
        assert end > opened + 3 and holding_transaction(node.partition, end) is None
        table = pq.read_table(tmp_path / "bucket" / f"topic={TOPIC}")
        assert not set(table["offset"].to_pylist()) & set(range(opened, opened + 3))


async def test_a_short_transaction_is_not_told(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), NEVER, KEEPING) as node:
        without_worker(node, tmp_path)
        await node.transaction([3], commit=None, producer_id=9)
        await node.produce(60)
        with capture_logs() as lines:
            await node.offloader.round()
        assert not [line for line in lines if "waits for" in line["event"]]


@pytest.mark.parametrize(
    "place", ["archive.aside_uploaded", "archive.verified", "archive.before_publish", "archive.published"]
)
@pytest.mark.parametrize("then", ["tried again", "by the next leader"])
async def test_what_a_failed_upload_put_aside_does_not_stay(
    place: str, then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        without_worker(node, tmp_path)
        for number in range(6):
            await node.transaction([5, 5], commit=bool(number % 2), epoch=number)
        monkeypatch.setitem(failpoints._chosen, place, ("fail", 2))
        await node.offloader.round()
        assert any(archive.failures for archive in node.offloader)
        if then == "tried again":
            node.clock.now_ms += HOUR
            await node.settle()
            await nothing_is_left_over(node)
            return
    async with archived_node(str(tmp_path), config=KEEPING, clock=node.clock) as node:
        without_worker(node, tmp_path)
        await node.settle()
        await nothing_is_left_over(node)


async def nothing_is_left_over(node: Archived) -> None:
    snapshot = node.catalog.get(node.layout).snapshot
    aside = await node.keys(node.layout.aside_folder)
    assert aside == sorted(node.layout.aside(each.name) for each in snapshot.tail if each.aside) != []
    assert await rows_in_the_bucket(node) == sum(each.rows for each in snapshot.tail) > 0
    assert not await faults(node)


async def test_expired_segments_take_along_what_is_aside(tmp_path: Path) -> None:
    settings = OffloadSettings(delete_grace_ms=1000, garbage_check_ms=10**12)
    async with archived_node(str(tmp_path), settings, {"retention.ms": str(HOUR)}) as node:
        without_worker(node, tmp_path)
        for number in range(8):
            await node.transaction([5, 5], commit=bool(number % 2), epoch=number)
        await node.settle()
        assert await node.keys(node.layout.aside_folder)
        node.clock.now_ms += 10 * HOUR
        await rounds(node, 5)
        snapshot = node.catalog.get(node.layout).snapshot
        assert snapshot.segments == 0 and snapshot.log_start_offset > 0
        assert not await node.keys(node.layout.aside_folder) and not await node.keys(node.layout.rows_folder)


async def test_a_sibling_that_nobody_names_is_garbage_and_a_named_one_is_not(tmp_path: Path) -> None:
    settings = OffloadSettings(orphan_age_ms=0, garbage_check_ms=10**12)
    async with archived_node(str(tmp_path), settings, KEEPING) as node:
        without_worker(node, tmp_path)
        node.clock.now_ms = 4_000_000_000_000
        for number in range(4):
            await node.transaction([5, 5], commit=bool(number % 2), epoch=number)
        await node.settle()
        named = await node.keys(node.layout.aside_folder)
        [first, *_] = node.catalog.get(node.layout).snapshot.tail
        orphan = node.layout.aside(dataclasses.replace(first.name, uuid="ab" * 16))
        await node.store.put(orphan, b"left over")
        assert [(each.kind, each.where.endswith(orphan)) for each in await faults(node)] == [("orphan", True)]
        await node.offloader.collect_garbage()
        assert await node.keys(node.layout.aside_folder) == named


async def test_a_local_segment_stays_while_what_is_aside_is_gone_from_the_bucket(tmp_path: Path) -> None:
    config = {"local.retention.ms": str(HOUR), "retention.ms": "-1"}
    async with archived_node(str(tmp_path), NEVER, config) as node:
        without_worker(node, tmp_path)
        for number in range(6):
            await node.transaction([5, 5], commit=bool(number % 2), epoch=number)
        await node.settle()
        snapshot = node.catalog.get(node.layout).snapshot
        gone = next(each for each in snapshot.tail if each.aside)
        await node.store.delete([node.layout.aside(gone.name)])
        node.clock.now_ms += 10 * HOUR
        await rounds(node)
        assert node.partition.log.local_log_start_offset == gone.base_offset
        [archive] = node.offloader
        assert archive.kept is not None and "aside" in archive.kept.why
        [finding] = await faults(node)
        assert finding.kind == "missing" and finding.where.endswith(".aside")


async def test_a_topic_comes_back_from_the_bucket_alone_with_its_transactions_decided(tmp_path: Path) -> None:
    """The marker of the last archived transaction lies behind the archive's end, and is lost."""
    async with archived_node(str(tmp_path), NEVER, {**KEEPING, "segment.bytes": "1200"}) as node:
        without_worker(node, tmp_path)
        books = Books(node)
        await books.plain(5)
        await books.transaction([4, 4], False)
        await books.plain(5)
        await books.transaction([4, 4, 4, 4, 4], True)
        await node.settle()
        end = node.catalog.get(node.layout).snapshot.end_offset
        assert books.committed[-1] >= end, "the last transaction reaches over the end of the archive"
        layout, sent = node.layout, offsets_of(node)
    second = tmp_path / "second"
    settings = Settings(
        log=LogSettings(data_dir=str(second / "node"), min_free_bytes=0),
        store=StoreSettings(bucket=f"file://{tmp_path}/bucket"),
    )
    [restored] = [topic async for topic in restore_offline(settings, [], {})]
    assert restored.restored
    (second / "bucket").symlink_to(tmp_path / "bucket")
    async with archived_node(str(second), NEVER) as node:
        without_worker(node, second)
        await node.offloader.round()
        partition = node.partition
        assert node.layout == layout
        assert partition.last_stable_offset == partition.high_watermark == end
        assert partition.held_by is None and not list(partition.open_transactions())
        assert {r.offset: r.value for r in await read(node, Isolation.READ_UNCOMMITTED)} == {
            offset: value for offset, value in sent.items() if offset < end
        }
        committed = [offset for offset in books.committed if offset < end]
        assert [record.offset for record in await read(node, Isolation.READ_COMMITTED)] == committed
        await node.end_transaction(commit=True, producer_id=2, epoch=9)
        await node.produce(40)
        await node.transaction([5, 5, 5], commit=False, producer_id=4, epoch=1)
        await node.settle()
        now = node.catalog.get(node.layout).snapshot.end_offset
        assert now > end and not await faults(node)


async def test_a_replica_that_begins_at_the_archive_knows_who_was_in_a_transaction(tmp_path: Path) -> None:
    """What it copies from the leader begins inside a transaction, whose marker it gets later."""
    async with archived_node(str(tmp_path), NEVER, {**KEEPING, "segment.bytes": "1200"}) as node:
        without_worker(node, tmp_path)
        await node.transaction([6] * 6, commit=False, producer_id=5)
        await node.settle()
        leader = node.partition.log
        history = await load_history(node.store, node.layout)
        end = history.snapshot.end_offset
        [(_, first, marker, _)] = node.partition.aborted_transactions(0, leader.log_end_offset)
        assert first == 0 < end < marker
        copy = PartitionLog(leader._disk, leader.tp._replace(partition=1), leader.topic_id, leader.config)
        copy.start_from_archive(0, end, list(history.epochs), history.producers)
        found = leader.locate(end, 1 << 20, leader.log_end_offset)
        copy.append_replica(memoryview(bytearray(await leader.read(found))), node.partition.leader_epoch, node.clock())
        copy.commit(copy.log_end_offset)
        [aborted] = copy.aborted.overlapping(end, copy.log_end_offset)
        assert aborted[:3] == (5, 0, marker)
        assert copy.first_unstable_offset is None
        assert copy.producers.write(0) == leader.producers.write(0)


async def test_a_deleted_topic_takes_along_what_is_aside(tmp_path: Path) -> None:
    settings = OffloadSettings(delete_grace_ms=1000, garbage_check_ms=0)
    async with archived_node(str(tmp_path), settings, KEEPING) as node:
        without_worker(node, tmp_path)
        for number in range(4):
            await node.transaction([5, 5], commit=bool(number % 2), epoch=number)
        await node.settle()
        assert await node.keys(node.layout.aside_folder)
        layout = node.layout
        await node.running.node.admin.delete_topic(TOPIC)
        await rounds(node, 4)
        assert not await node.keys(layout.folder) and not await node.keys(layout.rows_folder)


async def test_a_log_whose_list_of_aborted_transactions_is_wrong_is_held_and_not_archived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with archived_node(str(tmp_path), NEVER, KEEPING) as node:
        without_worker(node, tmp_path)
        for number in range(4):
            await node.transaction([5, 5], commit=False, epoch=number)
        monkeypatch.setattr(LedPartition, "aborted_transactions", lambda self, start, end: [])
        await node.offloader.round()
        [archive] = node.offloader
        assert archive.held is not None and "the marker at offset" in archive.held.why
        assert not await node.keys("topic=")

"""A compacted topic in both tiers: whoever reads it from the start builds the right table."""

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cold_tier.cache import ColdReadSettings
from cold_tier.checking.verify import verify
from cold_tier.inventory import find_topics
from cold_tier.reader import ColdReader
from cold_tier.reports import Finding
from gateway.fetch.reader import Archive, Isolation, Reader
from hot_tier.record.batch import iter_headers, read_header
from hot_tier.record.columns import NewRecord, decode_records, encode_records
from offloader.archive import archive_segment
from tests.offloader.harness import TOPIC, Archived, archived_node

HOUR = 3_600_000
CONFIG = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "0",
    "min.cleanable.dirty.ratio": "0",
    "local.retention.ms": str(HOUR),
}


async def write(node: Archived, *pairs: tuple[bytes, bytes | None]) -> None:
    batch = encode_records([NewRecord(node.clock(), key, value, ()) for key, value in pairs])
    appended = node.partition.append(batch, read_header(batch), node.clock())
    waiting = node.partition.when_committed(appended.end_offset)
    if waiting is not None:
        await waiting


async def roll_and_compact(node: Archived) -> None:
    log = node.partition.log
    log.roll(node.clock())
    log.flush()
    await node.running.node.logs.compactor.compact(log)


async def table(node: Archived, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> dict[bytes, bytes]:
    reader = ColdReader(node.store, ColdReadSettings())
    stitched, partition = Reader(Archive(node.catalog, reader)), node.partition
    offset, found = partition.log.log_start_offset, {}
    while offset < partition.log.log_end_offset:
        fetched = await stitched.read(partition, offset, 1 << 16, isolation)
        hidden = [(each.producer_id, each.first_offset, each.last_offset) for each in fetched.aborted]
        for position, header in iter_headers(fetched.records):
            if any(each == header.producer_id and low <= header.base_offset <= high for each, low, high in hidden):
                continue
            for record in decode_records(fetched.records[position : position + header.size], from_offset=offset):
                found[record.key] = None if record.value is None else bytes(record.value)
        offset = max(header.end_offset for _, header in iter_headers(fetched.records))
    await reader.close()
    return {key: value for key, value in found.items() if value is not None}


def without_worker(node: Archived, folder: Path) -> None:
    [worker] = node.offloader._workers
    worker.archive = lambda job: archive_segment(node.store, job, str(folder))


async def test_a_deleted_key_stays_deleted(tmp_path: Path) -> None:
    """The value is in the bucket, its delete marker is compacted locally before it gets there."""
    async with archived_node(str(tmp_path), config=CONFIG) as node:
        without_worker(node, tmp_path)
        await write(node, (b"a", b"1"), (b"b", b"1"))
        node.partition.log.roll(node.clock())
        node.partition.log.flush()
        await node.settle()
        await write(node, (b"a", None))
        for number in range(3):
            node.clock.now_ms += HOUR
            await write(node, (b"b", b"%d" % number))
            await roll_and_compact(node)
        await node.settle()
        node.clock.now_ms += 2 * HOUR
        await node.offloader.round()
        assert node.partition.log.local_log_start_offset > 0
        assert await table(node) == {b"b": b"2"}


async def test_a_segment_that_lost_all_its_records_is_archived(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config=CONFIG) as node:
        await write(node, (b"a", b"1"))
        await roll_and_compact(node)
        await write(node, (b"a", b"2"))
        node.clock.now_ms += HOUR
        await roll_and_compact(node)
        await write(node, (b"c", b"active"))
        assert 0 in [info.size for info in node.partition.log.sealed_segments()]
        await node.settle()
        assert [archive.failures for archive in node.offloader] == [0]
        node.clock.now_ms += 2 * HOUR
        await node.offloader.round()
        assert node.partition.log.local_log_start_offset == 2
        assert await table(node) == {b"a": b"2", b"c": b"active"}


async def test_any_order_of_compaction_and_archiving_gives_the_right_table(tmp_path: Path) -> None:
    chance = random.Random(5)
    async with archived_node(str(tmp_path), config=CONFIG) as node:
        without_worker(node, tmp_path)
        expected: dict[bytes, bytes] = {}
        for step in range(120):
            key = b"k%d" % chance.randrange(12)
            value = None if chance.random() < 0.3 else b"%d " % step * 30
            await write(node, (key, value))
            expected.pop(key, None)
            if value is not None:
                expected[key] = value
            match chance.randrange(12):
                case 0:
                    await roll_and_compact(node)
                case 1:
                    await node.offloader.round()
                case 2:
                    node.clock.now_ms += 40 * 60_000
                case 3 if step > 10:
                    assert await table(node) == expected, step
        assert node.partition.log.local_log_start_offset > 0
        assert await table(node) == expected
        assert [archive.failures for archive in node.offloader] == [0]


@pytest.mark.parametrize("seed", range(4))
async def test_aborted_values_are_in_no_table(seed: int, tmp_path: Path) -> None:
    """Segments are archived before and after they are compacted, with transactions that reach over their borders."""
    chosen = random.Random(seed)
    expected: dict[bytes, bytes] = {}
    rows: set[bytes] = set()
    async with archived_node(str(tmp_path), config=CONFIG) as node:
        without_worker(node, tmp_path)
        for epoch in range(30):
            first = node.partition.log.log_end_offset
            commit = chosen.random() < 0.5
            await node.transaction(
                [chosen.randint(1, 9) for _ in range(chosen.randint(1, 3))],
                commit=commit,
                producer_id=epoch % 2,
                epoch=epoch,
            )
            written = [record for record in node.sent if record.offset >= first]
            if commit:
                expected |= {record.key: record.value for record in written}
                rows |= {record.value for record in written}
            match chosen.randrange(4):
                case 0:
                    await roll_and_compact(node)
                case 1:
                    node.clock.now_ms += chosen.choice([1000, HOUR])
                    await node.offloader.round()
        for _ in range(6):
            node.clock.now_ms += HOUR
            await node.offloader.round()
        [archive] = node.offloader
        assert archive.held is None and not archive.failures, archive.last_failure
        assert await table(node, Isolation.READ_COMMITTED) == expected
        found = pq.read_table(tmp_path / "bucket" / f"topic={TOPIC}")
        assert found.num_rows > 0 and set(found["value"].to_pylist()) <= rows, "no aborted row"
        events = [event async for event in verify(node.store, await find_topics(node.store))]
        assert not [event for event in events if isinstance(event, Finding)]

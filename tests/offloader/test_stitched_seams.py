"""Reads and time lookups while a segment leaves the local disk, at the very moment that it hurts most."""

import random
from contextlib import asynccontextmanager
from pathlib import Path

from cold_tier.cache import ColdReadSettings
from cold_tier.reader import ColdReader
from gateway.fetch.reader import Archive, Reader
from hot_tier.log.reading import FileSlice
from hot_tier.record.batch import read_header
from hot_tier.record.columns import NewRecord, decode_records, encode_records
from hot_tier.replication.led_partition import LedPartition
from offloader.archive import archive_segment
from tests.offloader.harness import Archived, archived_node

CONFIG = {"segment.bytes": "1024", "local.retention.ms": "-1", "retention.ms": "-1"}


@asynccontextmanager
async def archived(folder: Path):
    async with archived_node(str(folder), config=CONFIG) as node:
        [worker] = node.offloader._workers
        worker.archive = lambda job: archive_segment(node.store, job, str(folder))
        cold = ColdReader(node.store, ColdReadSettings())
        yield node, Reader(Archive(node.catalog, cold))
        await cold.close()


async def write(node: Archived, *timestamps: int, partition: LedPartition | None = None) -> None:
    partition = partition or node.partition
    for at in timestamps:
        batch = encode_records([NewRecord(at, b"key", b"value" * 50, ())])
        appended = partition.append(batch, read_header(batch), node.clock())
        waiting = partition.when_committed(appended.end_offset)
        if waiting is not None:
            await waiting


def drop_all(node: Archived) -> None:
    log = node.partition.log
    log.drop_local_before(node.catalog.get(node.layout).snapshot.end_offset, node.clock())


async def test_a_slice_whose_segment_went_is_read_from_the_bucket(tmp_path: Path) -> None:
    async with archived(tmp_path) as (node, reader):
        await node.produce(60)
        await node.settle()
        located = reader.locate(node.partition, 7, 1000, 0)
        assert isinstance(located.found, FileSlice)
        drop_all(node)
        assert node.partition.log.local_log_start_offset > 7
        assert reader.take_now(located) is None
        records = decode_records((await reader.take(located)).records)
        assert next(record for record in records if record.offset == 7).value == node.sent[7].value


async def test_a_time_search_finds_what_left_the_disk_under_it(tmp_path: Path) -> None:
    async with archived(tmp_path) as (node, reader):
        await write(node, *range(1000, 1012))
        await node.settle()
        first = node.partition.log.sealed_segments()[0].end_offset
        node.partition.log.drop_local_before(first, node.clock())
        search = reader._archive.reader.first_at_or_after

        async def and_then_drop(*args, **how):
            found = await search(*args, **how)
            drop_all(node)
            return found

        reader._archive.reader.first_at_or_after = and_then_drop
        found = await reader.offset_for_timestamp(node.partition, 1000 + first, 0)
        assert (found.offset, found.timestamp) == (first, 1000 + first)


async def test_the_greatest_timestamp_is_that_of_a_record_one_can_read(tmp_path: Path) -> None:
    """Greater ones are deleted, below the log start, in the same segment or in another."""
    async with archived(tmp_path) as (node, reader):
        await write(node, 900, 10, 800, 20, 700, 30, 30, 30, 30, 25, 5, 5)
        await node.settle()
        drop_all(node)
        seam = node.partition.log.local_log_start_offset
        assert seam >= 9
        for start, expected in ((0, 0), (1, 2), (3, 4), (5, 5), (6, 6), (7, 7), (9, 9)):
            node.partition.delete_records_before(start)
            found = await reader.max_timestamp_offset(node.partition)
            assert found.offset == expected, start


async def test_the_greatest_timestamp_is_found_while_the_disk_lets_go(tmp_path: Path) -> None:
    async with archived(tmp_path) as (node, reader):
        await write(node, 10, 20, 990, 30, 40, 50, 60, 70, 80, 90)
        await node.settle()
        search = node.partition.log.max_timestamp_offset

        async def dropped_first(*args):
            drop_all(node)
            return await search(*args)

        node.partition.log.max_timestamp_offset = dropped_first
        assert (await reader.max_timestamp_offset(node.partition)).offset == 2


async def test_time_lookups_over_both_tiers(tmp_path: Path) -> None:
    """Many equal timestamps in no order; any seam, any log start, inside segments and out."""
    async with archived(tmp_path) as (node, reader):
        admin, partitions = node.running.node.admin, node.running.node.partitions
        for seed in range(30):
            chance = random.Random(seed)
            await admin.create_topic(f"times-{seed}", 1, 1, {**CONFIG, "remote.storage.enable": "true"})
            partition = partitions.get(f"times-{seed}", 0)
            stamps = [chance.randrange(chance.choice((3, 12))) for _ in range(chance.randrange(4, 25))]
            await write(node, *stamps, partition=partition)
            await node.offloader.round()
            log = partition.log
            sealed = log.sealed_segments()
            if sealed:
                log.drop_local_before(chance.choice(sealed).end_offset, node.clock())
            for start in sorted(chance.randrange(len(stamps) + 1) for _ in range(4)):
                partition.delete_records_before(start)
                if chance.random() < 0.5:
                    await node.offloader.round()
                visible = list(enumerate(stamps))[start:]
                for asked in range(14):
                    found = await reader.offset_for_timestamp(partition, asked, 0)
                    expected = next(((offset, at) for offset, at in visible if at >= asked), None)
                    assert (found and (found.offset, found.timestamp)) == expected, (seed, start, asked)
                found = await reader.max_timestamp_offset(partition)
                expected = max(visible, key=lambda pair: pair[1], default=None)
                assert (found and (found.offset, found.timestamp)) == expected, (seed, start)
        assert [archive.last_failure for archive in node.offloader if archive.failures] == []

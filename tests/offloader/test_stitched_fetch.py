"""One answer over both tiers: several row groups, then the local log, within `max_bytes`.

The invariant, for every answer to a read at `offset`:
- It is whole batches: the first holds `offset` or is the next one there is, each of the others begins at or behind the
  end of the one before.
- The records from `offset` to the end of its last batch are exactly those that were written and not compacted away.
- It is at most `max_bytes` long, or one batch.
- High watermark and log start are the partition's.
"""

import random
from collections.abc import Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from unittest import mock

import pytest

from cold_tier.cache import ColdReadSettings
from cold_tier.errors import CorruptObject
from cold_tier.reader import ColdReader
from gateway.fetch.reader import Archive, Fetched, Reader
from hot_tier.errors import CorruptLog
from hot_tier.record.batch import iter_headers, read_header
from hot_tier.record.columns import NewRecord, Record, decode_records, encode_records
from offloader.archive import archive_segment
from tests.offloader.harness import Archived, archived_node
from tests.support.waiting import until

HOUR = 3_600_000
CONFIG = {"segment.bytes": "3000", "index.interval.bytes": "200", "local.retention.ms": "-1", "retention.ms": "-1"}
COMPACTED = {
    **CONFIG,
    "cleanup.policy": "compact",
    "delete.retention.ms": "0",
    "min.cleanable.dirty.ratio": "0",
}
ALL = 1 << 20


@asynccontextmanager
async def archived(folder: Path, config: dict[str, str] = CONFIG, **settings: int):
    with mock.patch("offloader.archive.ROW_GROUP_BYTES", 600):
        async with archived_node(str(folder), config=config) as node:
            [worker] = node.offloader._workers
            worker.archive = lambda job: archive_segment(node.store, job, str(folder))
            cold = ColdReader(node.store, ColdReadSettings(**settings))
            yield node, Reader(Archive(node.catalog, cold)), cold
            await cold.close()


async def write(node: Archived, chance: random.Random, batches: int) -> list[Record]:
    written: list[Record] = []
    for _ in range(batches):
        count = chance.randrange(1, 5)
        new = [
            NewRecord(node.clock(), b"%d" % chance.randrange(30), b"v" * chance.randrange(200), ())
            for _ in range(count)
        ]
        batch = encode_records(new)
        appended = node.partition.append(batch, read_header(batch), node.clock())
        committed = node.partition.when_committed(appended.end_offset)
        if committed is not None:
            await committed
        written += decode_records(batch)
    return written


def place_border(node: Archived, chance: random.Random) -> int:
    """Drops some of the segments that the bucket holds. Returns where the local log starts then."""
    log, sealed = node.partition.log, node.partition.log.sealed_segments()
    if sealed:
        log.drop_local_before(chance.choice(sealed).end_offset, node.clock())
    return log.local_log_start_offset


async def read_forward(reader: Reader, cold: ColdReader, node: Archived, max_bytes: int) -> None:
    """So that some row groups are in memory."""
    offset = node.partition.log_start_offset
    while offset < node.partition.local_log_start_offset:
        offset = end_of(await reader.read(node.partition, offset, max_bytes, 0))
    await until(lambda: not cold._fills and not cold._ahead)


def end_of(fetched: Fetched) -> int:
    return max(header.end_offset for _, header in iter_headers(fetched.records))


def check(fetched: Fetched, node: Archived, offset: int, max_bytes: int, records: Sequence[Record]) -> None:
    headers = [header for _, header in iter_headers(fetched.records)]
    assert headers and headers[0].last_offset >= offset
    assert all(before.end_offset <= after.base_offset for before, after in pairwise(headers))
    assert len(fetched.records) <= max_bytes or len(headers) == 1
    assert sum(header.size for header in headers) == len(fetched.records), "whole batches"
    got = [record for record in decode_records(fetched.records) if record.offset >= offset]
    assert got == [record for record in records if offset <= record.offset < headers[-1].end_offset]
    partition = node.partition
    assert (fetched.high_watermark, fetched.log_start_offset) == (partition.high_watermark, partition.log_start_offset)


async def test_one_answer_runs_over_row_groups_and_across_the_border(tmp_path: Path) -> None:
    async with archived(tmp_path) as (node, reader, cold):
        records = await write(node, random.Random(1), 100)
        await node.settle()
        border = place_border(node, random.Random(2))
        assert 0 < border < len(records)
        await read_forward(reader, cold, node, 1)
        fetched = await reader.read(node.partition, 0, ALL, 0)
        check(fetched, node, 0, ALL, records)
        assert end_of(fetched) > border, "one answer has both tiers"
        manifest = node.catalog.get(node.layout)
        first = await cold.open_segment(node.layout, await manifest.segment_at(0))
        assert len(first.index.row_groups) > 2 and manifest.snapshot.end_offset > first.index.end_offset


@pytest.mark.parametrize("seed", range(12))
async def test_any_border_any_size(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    settings = {"read_ahead": chance.choice((0, 1, 8)), "memory_bytes": chance.choice((1500, 6000, ALL))}
    async with archived(tmp_path, **settings) as (node, reader, cold):
        records = await write(node, chance, 80)
        await node.settle()
        for _ in range(3):
            place_border(node, chance)
            await read_forward(reader, cold, node, chance.choice((1, 500, ALL)))
            for _ in range(60):
                offset, max_bytes = chance.randrange(len(records)), chance.choice((1, 300, 1000, 4000, ALL))
                check(await reader.read(node.partition, offset, max_bytes, 0), node, offset, max_bytes, records)


@pytest.mark.parametrize("seed", range(6))
async def test_gaps_of_compaction_on_both_sides_of_the_border(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with archived(tmp_path, COMPACTED) as (node, reader, cold):
        await write(node, chance, 60)
        log = node.partition.log
        for _ in range(2):
            node.clock.now_ms += HOUR
            log.roll(node.clock())
            log.flush()
            await node.running.node.logs.compactor.compact(log)
            await write(node, chance, 10)
        await node.settle()
        records = await everything(reader, node)
        assert len(records) < log.log_end_offset, "compaction left gaps"
        place_border(node, chance)
        await read_forward(reader, cold, node, chance.choice((1, 500)))
        for _ in range(60):
            offset, max_bytes = chance.randrange(log.log_end_offset), chance.choice((1, 300, 1000, ALL))
            check(await reader.read(node.partition, offset, max_bytes, 0), node, offset, max_bytes, records)


async def everything(reader: Reader, node: Archived) -> list[Record]:
    """As the local log has it, before anything is dropped."""
    records, offset = [], 0
    while offset < node.partition.log_end_offset:
        fetched = await reader.read(node.partition, offset, ALL, 0)
        records += [record for record in decode_records(fetched.records) if record.offset >= offset]
        offset = end_of(fetched)
    return records


async def test_damage_behind_good_row_groups_is_met_by_the_next_read(tmp_path: Path) -> None:
    async with archived(tmp_path, read_ahead=8) as (node, reader, cold):
        records = await write(node, random.Random(3), 100)
        await node.settle()
        log = node.partition.log
        log.drop_local_before(log.sealed_segments()[-1].end_offset, node.clock())
        manifest = node.catalog.get(node.layout)
        bad = await manifest.segment_at((await manifest.segment_at(0)).end_offset)
        stream = node.store._store.stream

        async def damaged(key, *args):
            async for part in stream(key, *args):
                data = bytearray(part)
                if key == node.layout.rows(bad.name):
                    data[len(data) // 2] ^= 1
                yield bytes(data)

        node.store._store.stream = damaged
        offset = 0
        while offset < bad.base_offset:
            fetched = await reader.read(node.partition, offset, ALL, 0)
            check(fetched, node, offset, ALL, records)
            offset = end_of(fetched)
            await until(lambda: not cold._fills and not cold._ahead)
        assert offset == bad.base_offset, "all that is good was given"
        with pytest.raises(CorruptObject):
            await reader.read(node.partition, offset, ALL, 0)


async def test_damage_behind_the_border_is_met_by_the_next_read(tmp_path: Path) -> None:
    async with archived(tmp_path) as (node, reader, cold):
        records = await write(node, random.Random(4), 100)
        await node.settle()
        border = place_border(node, random.Random(2))
        await read_forward(reader, cold, node, 1)

        def corrupt(*args, **options):
            raise CorruptLog("damaged", where="here")

        with mock.patch.object(node.partition.log, "read_now", corrupt):
            fetched = await reader.read(node.partition, 0, ALL, 0)
            check(fetched, node, 0, ALL, records)
            assert end_of(fetched) == border
            with pytest.raises(CorruptLog):
                await reader.read(node.partition, border, ALL, 0)


async def test_a_reader_sees_no_further_than_it_may(tmp_path: Path) -> None:
    """Behind the border the answer ends at the last stable offset."""
    async with archived(tmp_path) as (node, reader, cold):
        records = await write(node, random.Random(5), 100)
        await node.settle()
        border = place_border(node, random.Random(2))
        await read_forward(reader, cold, node, 1)
        stable = next(
            h.end_offset for _, h in iter_headers((await reader.read(node.partition, border, ALL, 0)).records)
        )
        node.partition.log.producers.transactions.begin(7, stable)
        fetched = await reader.read(node.partition, 0, ALL, 1)
        check(fetched, node, 0, ALL, records)
        assert end_of(fetched) == stable


async def test_an_archived_batch_that_ends_inside_a_local_one_ends_the_answer(tmp_path: Path) -> None:
    """Where the archive was written anew its batches end elsewhere than those of the local log."""
    async with archived(tmp_path) as (node, reader, cold):
        records = await write(node, random.Random(6), 100)
        await node.settle()
        border = place_border(node, random.Random(2))
        await read_forward(reader, cold, node, 1)
        locate = node.partition.log.locate

        def beginning_before(*args, **options):
            found = locate(*args, **options)
            if found is not None:
                found.base_offset -= 1
            return found

        with mock.patch.object(node.partition.log, "locate", beginning_before):
            fetched = await reader.read(node.partition, 0, ALL, 0)
        check(fetched, node, 0, ALL, records)
        assert end_of(fetched) == border

"""What a cold read costs and how it behaves when the store is slow: requests, sharing, convergence, memory."""

import asyncio
import time
from contextlib import asynccontextmanager
from pathlib import Path
from unittest import mock

import pytest

from cold_tier.cache import ColdReadSettings, DiskCache
from cold_tier.errors import CorruptObject, StoreThrottled
from cold_tier.manifest.writer import ManifestWriter
from cold_tier.reader import ColdReader
from gateway.fetch.reader import Archive, Reader
from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from hot_tier.record.batch import iter_headers, read_header
from hot_tier.record.columns import NewRecord, decode_records, encode_records
from offloader.archive import archive_segment
from tests.offloader.harness import TOPIC, Archived, archived_node
from tests.support.waiting import until

HOUR = 3_600_000
GROUPS = 8
"""Row groups per segment, about."""


class SmallPages(ManifestWriter):
    @classmethod
    async def open(cls, *args, **options):
        return await super().open(*args, page_segments=4, **options)


@asynccontextmanager
async def cold_node(folder: Path):
    """All but the end of the log is in the bucket only: many small row groups, in manifest pages."""
    config = {"local.retention.ms": "1000", "retention.ms": "-1", "segment.bytes": "20000"}
    with (
        mock.patch("offloader.archive.ROW_GROUP_BYTES", 2000),
        mock.patch("offloader.partition_archive.ManifestWriter", SmallPages),
    ):
        async with archived_node(str(folder), config=config) as node:
            [worker] = node.offloader._workers
            worker.archive = lambda job: archive_segment(node.store, job, str(folder))
            await node.produce(1000)
            node.clock.now_ms += HOUR
            await node.settle()
            await node.offloader.round()
            manifest = node.catalog.get(node.layout)
            assert manifest.snapshot.pages and node.partition.log.local_log_start_offset > 700
            node.catalog._pages._pages.clear()
            yield node


@asynccontextmanager
async def cold_reader(node: Archived, **settings: int):
    reader = ColdReader(node.store, ColdReadSettings(**{"read_ahead": 0, **settings}))
    yield reader
    await reader.close()


def end_of(data) -> int:
    return max(header.end_offset for _, header in iter_headers(data))


def slow(node: Archived, seconds: float) -> None:
    stream = node.store._store.stream

    async def late(*args):
        await asyncio.sleep(seconds)
        async for part in stream(*args):
            yield part

    node.store._store.stream = late


def damage_rows(node: Archived) -> None:
    """One byte in the middle of what is read of a Parquet object."""
    stream = node.store._store.stream

    async def damaged(key, *args):
        async for part in stream(key, *args):
            data = bytearray(part)
            if key.endswith(".parquet"):
                data[len(data) // 2] ^= 1
            yield bytes(data)

    node.store._store.stream = damaged


async def test_three_requests_before_the_first_byte_then_one_per_row_group(tmp_path: Path) -> None:
    async with cold_node(tmp_path) as node, cold_reader(node) as reader:
        manifest = node.catalog.get(node.layout)
        segment = (await node.catalog._pages.get(node.layout, manifest.snapshot.pages[0]))[0]
        node.catalog._pages._pages.clear()
        before, heads = node.store.counters.gets, node.store.counters.heads
        data = (await reader.read(manifest, 0, 1 << 20)).data
        assert node.store.counters.gets - before == 3, "page, index, row group"
        offset, groups = end_of(data), 1
        while offset < segment.end_offset:
            data = (await reader.read(manifest, offset, 1 << 20)).data
            offset, groups = end_of(data), groups + 1
        assert groups >= GROUPS and node.store.counters.gets - before == 2 + groups
        total = node.store.counters
        assert (total.heads, total.retries) == (heads, 0)


async def test_many_readers_of_one_row_group_make_one_fill(tmp_path: Path) -> None:
    async with cold_node(tmp_path) as node, cold_reader(node) as reader:
        manifest, before = node.catalog.get(node.layout), node.store.counters.gets
        answers = await asyncio.gather(*(reader.read(manifest, 0, 1 << 20) for _ in range(100)))
        assert node.store.counters.gets - before == 3
        assert len(set(answers)) == 1


@pytest.mark.parametrize("max_wait_ms", [0, 50, 5000])
async def test_a_hot_partition_does_not_wait_for_a_cold_one(tmp_path: Path, max_wait_ms: int) -> None:
    """However long the client would wait. The cold one gets there in a later answer."""
    async with cold_node(tmp_path) as node, cold_reader(node) as reader:
        running = node.running
        running.node.reader = Reader(Archive(node.catalog, reader))
        await running.node.admin.create_topic("hot", 1, 1, {})
        batch = encode_records([NewRecord(node.clock(), None, b"hot", ())])
        hot = running.node.partitions.get("hot", 0)
        appended = hot.append(batch, read_header(batch), node.clock())
        committed = hot.when_committed(appended.end_offset)
        if committed is not None:
            await committed
        slow(node, 0.3)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[
                FetchTopic(
                    topic=TOPIC, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 19)]
                ),
                FetchTopic(
                    topic="hot", partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 19)]
                ),
            ],
        )
        before = node.store.counters.gets
        rounds, longest = 0, 0.0
        async with asyncio.timeout(30), running.connect() as wire:
            while True:
                rounds += 1
                began = time.monotonic()
                response = await wire.ask(request, 11)
                longest = max(longest, time.monotonic() - began)
                answers = {topic.topic: topic.partitions[0] for topic in response.responses}
                assert [answer.error_code for answer in answers.values()] == [0, 0]
                assert decode_records(answers["hot"].records)[0].value == b"hot"
                if answers[TOPIC].records:
                    break
                await asyncio.sleep(0.02)
        assert rounds > 3, "the store was slower than the client"
        assert longest < 0.3, "the hot partition waited for the cold one"
        assert decode_records(answers[TOPIC].records)[0].value == node.sent[0].value
        assert node.store.counters.gets - before == 3, "no request was made twice"


async def test_a_client_that_wants_more_than_the_hot_partition_has_waits_for_the_cold_one(tmp_path: Path) -> None:
    async with cold_node(tmp_path) as node, cold_reader(node) as reader:
        running = node.running
        running.node.reader = Reader(Archive(node.catalog, reader))
        await running.node.admin.create_topic("hot", 1, 1, {})
        batch = encode_records([NewRecord(node.clock(), None, b"hot", ())])
        hot = running.node.partitions.get("hot", 0)
        hot.append(batch, read_header(batch), node.clock())
        await until(lambda: hot.high_watermark == 1)
        slow(node, 0.1)
        wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 19)]
        topics = [FetchTopic(topic=TOPIC, partitions=wanted), FetchTopic(topic="hot", partitions=wanted)]
        request = FetchRequest(max_wait_ms=10_000, min_bytes=len(batch) + 1, max_bytes=1 << 20, topics=topics)
        async with asyncio.timeout(30), running.connect() as wire:
            response = await wire.ask(request, 11)
        assert all(topic.partitions[0].records for topic in response.responses)


@pytest.mark.parametrize("max_wait_ms", [0, 50])
@pytest.mark.parametrize("with_hot", [False, True])
async def test_damage_is_told_to_a_client_that_does_not_wait(tmp_path: Path, max_wait_ms: int, with_hot: bool) -> None:
    """At once where there is nothing else to tell, else when it asks again."""
    async with cold_node(tmp_path) as node, cold_reader(node) as reader:
        running = node.running
        running.node.reader = Reader(Archive(node.catalog, reader))
        damage_rows(node)
        wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 19)]
        topics = [FetchTopic(topic=TOPIC, partitions=wanted)]
        if with_hot:
            slow(node, 0.1)
            await running.node.admin.create_topic("hot", 1, 1, {})
            batch = encode_records([NewRecord(node.clock(), None, b"hot", ())])
            hot = running.node.partitions.get("hot", 0)
            hot.append(batch, read_header(batch), node.clock())
            await until(lambda: hot.high_watermark == 1)
            topics.append(FetchTopic(topic="hot", partitions=wanted))
        request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics)
        told = 0
        async with running.connect() as wire:
            for _ in range(100 if with_hot else 3):
                response = await wire.ask(request, 11)
                cold = response.responses[0].partitions[0]
                assert not cold.records
                told += cold.error_code == ErrorCode.CORRUPT_MESSAGE
                if with_hot:
                    assert decode_records(response.responses[1].partitions[0].records)[0].value == b"hot"
                    if told == 3:
                        break
                    await asyncio.sleep(0.02)
        assert told == 3


async def test_a_small_answer_takes_no_batch_that_does_not_fit(tmp_path: Path) -> None:
    async with cold_node(tmp_path) as node, cold_reader(node) as reader:
        partition, stitched = node.partition, Reader(Archive(node.catalog, reader))
        whole = stitched.locate(partition, 0, 10, 0)
        assert len((await stitched.take(whole)).records) > 10
        rest = stitched.locate(partition, 0, 10, 0, min_one=False)
        assert (await stitched.take(rest)).records == b""
        assert stitched.take_now(rest).records == b""


async def test_no_reader_waits_for_the_local_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes nothing gets no more than is fetched at a time; the rest of what was fetched is let go."""
    most = at_work = 0

    async def stuck(*_: object) -> None:
        nonlocal most, at_work
        at_work += 1
        most = max(most, at_work)
        await asyncio.Event().wait()

    monkeypatch.setattr(DiskCache, "put", stuck)
    async with cold_node(tmp_path) as node:
        reader = ColdReader(node.store, ColdReadSettings(read_ahead=4, fills=2), str(tmp_path / "cache"))
        offset, end = 0, node.partition.local_log_start_offset
        manifest = node.catalog.get(node.layout)
        async with asyncio.timeout(30):
            while offset < end:
                offset = end_of((await reader.read(manifest, offset, 1 << 20)).data)
        assert most == 2
        await reader.close()


async def test_memory_is_bounded_whatever_the_readers_hold(tmp_path: Path) -> None:
    """Slices that slow clients still hold do not keep the runs they are of."""
    async with cold_node(tmp_path) as node, cold_reader(node, memory_bytes=10_000, read_ahead=4, fills=4) as reader:
        manifest = node.catalog.get(node.layout)
        end = node.partition.log.local_log_start_offset
        peak = 0

        async def consume(start: int) -> list[bytes]:
            nonlocal peak
            held, offset = [], start
            for _ in range(10):
                data = (await reader.read(manifest, offset, 600)).data
                peak = max(peak, reader.memory_bytes)
                held.append(data)
                offset = end_of(data)
                if offset >= end:
                    break
            return held

        slices = await asyncio.gather(*(consume(start) for start in range(0, end, end // 40)))
        assert peak <= 10_000
        assert all(type(data) is bytes for held in slices for data in held), "a view would keep its run"


async def test_reading_ahead_stops_with_the_reader_and_is_bounded_over_all(tmp_path: Path) -> None:
    async with cold_node(tmp_path) as node, cold_reader(node, memory_bytes=1 << 20, read_ahead=4) as reader:
        reader._most_unread = 6
        manifest = node.catalog.get(node.layout)
        end = node.partition.log.local_log_start_offset
        await asyncio.gather(*(reader.read(manifest, start, 600) for start in range(0, end, end // 12)))
        await until(lambda: not reader._fills and not reader._ahead)
        assert len(reader._unread) <= 6
        settled = node.store.counters.gets
        await asyncio.sleep(0.1)
        assert node.store.counters.gets == settled, "nobody reads, nothing is fetched"
        offset, misses = 0, reader.misses
        while offset < end:
            offset = end_of((await reader.read(manifest, offset, 1 << 20)).data)
            await until(lambda: not reader._fills and not reader._ahead)
        # 0 to 14, as turns happen to be taken; 29 if nothing were fetched ahead any more.
        assert reader.misses - misses < 20, "what others left unread does not end reading ahead for good"


async def test_damage_on_the_way_is_an_error_once_and_then_forgotten(tmp_path: Path) -> None:
    async with cold_node(tmp_path) as node, cold_reader(node) as reader:
        manifest, store = node.catalog.get(node.layout), node.store._store
        await reader.read(manifest, 500, 10)
        stream, left = store.stream, 1

        async def flipped(*args):
            nonlocal left
            async for part in stream(*args):
                data = bytearray(part)
                if left:
                    left, data[len(data) // 2] = 0, data[len(data) // 2] ^ 1
                yield bytes(data)

        store.stream = flipped
        with pytest.raises(CorruptObject):
            await reader.read(manifest, 0, 1 << 20)
        assert decode_records((await reader.read(manifest, 0, 1 << 20)).data)[0].value == node.sent[0].value


async def test_a_client_that_jumps_about_queues_no_end_of_reads(tmp_path: Path) -> None:
    async with cold_node(tmp_path) as node, cold_reader(node, fills=1) as reader:
        manifest, end = node.catalog.get(node.layout), node.partition.log.local_log_start_offset
        with mock.patch("cold_tier.reader._MOST_FILLS", 5):
            answers = await asyncio.gather(
                *(reader.read(manifest, offset, 10) for offset in range(0, end, 20)), return_exceptions=True
            )
        refused = [answer for answer in answers if isinstance(answer, StoreThrottled)]
        assert refused and len(answers) > len(refused) >= len(answers) // 2
        for offset in range(0, end, 20):
            assert (await reader.read(manifest, offset, 10)).data, "later there is room again"

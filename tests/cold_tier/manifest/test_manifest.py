"""Manifests: round trips, invariants that refuse, takeover and fencing, planning among very many segments."""

import asyncio
import dataclasses
import random
import uuid
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cold_tier.errors import CorruptManifest, ManifestFenced, ManifestInvalid
from cold_tier.layout import PartitionLayout, SegmentName, Version
from cold_tier.manifest import invariants
from cold_tier.manifest.codec import read_page, read_snapshot, write_page, write_snapshot
from cold_tier.manifest.model import EpochStart, SegmentEntry, Snapshot
from cold_tier.manifest.reader import Manifest, PageCache, load_newest
from cold_tier.manifest.writer import ManifestWriter
from cold_tier.objects.bucket import Bucket
from cold_tier.objects.memory import MemoryStore
from cold_tier.objects.store import Buffer

LAYOUT = PartitionLayout("orders", UUID("0b0e9d6c-6a5f-4d9c-9f70-2c8f6f0a1b2c"), 3)

FIRST = Version(0, 0)


def segment(base: int, end: int, *, epoch: int = 0, min_ms: int = -1, max_ms: int = -1) -> SegmentEntry:
    return SegmentEntry(
        name=SegmentName(base, epoch, uuid.uuid4().hex),
        end_offset=end,
        rows=end - base,
        min_timestamp_ms=min_ms if min_ms >= 0 else base,
        max_timestamp_ms=max_ms if max_ms >= 0 else end - 1,
        rows_bytes=1000,
        rows_crc32c=1,
        index_bytes=10,
        index_crc32c=2,
        log_bytes=4000,
        archived_ms=5,
        epochs=(EpochStart(epoch, base),),
    )


def run(start: int, end: int, step: int) -> list[SegmentEntry]:
    return [segment(base, min(base + step, end)) for base in range(start, end, step)]


def snapshot(*tail: SegmentEntry, version: Version = FIRST, log_start: int | None = None) -> Snapshot:
    start = log_start if log_start is not None else (tail[0].base_offset if tail else 0)
    return Snapshot(LAYOUT.topic, LAYOUT.topic_id, LAYOUT.partition, version, "nonce", 7, start, (), tail)


@pytest.fixture
def store() -> Bucket:
    return Bucket(MemoryStore())


async def take_over(store: Bucket, epoch: int, **options: int) -> ManifestWriter:
    return await ManifestWriter.open(store, LAYOUT, epoch, 0, now_ms=100, **options)


async def newest(store: Bucket) -> Snapshot:
    found = await load_newest(store, LAYOUT)
    assert found is not None
    return found


names = st.builds(
    SegmentName, st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1), st.uuids().map(lambda value: value.hex)
)


@given(names)
def test_object_names_round_trip(name: SegmentName) -> None:
    assert LAYOUT.parse_rows(LAYOUT.rows(name)) == name
    assert LAYOUT.parse_index(LAYOUT.index(name)) == name


versions = st.builds(Version, st.integers(0, 2**31 - 1), st.integers(0, 2**63))


@given(versions, versions)
def test_the_newest_manifest_is_listed_first(one: Version, other: Version) -> None:
    assert LAYOUT.parse_manifest(LAYOUT.manifest(one)) == one
    assert (one > other) == (LAYOUT.manifest(one) < LAYOUT.manifest(other))


def test_a_snapshot_round_trips() -> None:
    original = snapshot(*run(0, 50, 7))
    assert read_snapshot(write_snapshot(original), "here") == original
    assert read_page(write_page(original.tail), "here") == original.tail


def test_a_flipped_bit_is_never_believed() -> None:
    intact = write_snapshot(snapshot(*run(0, 20, 7)))
    for bit in range(8 * len(intact)):
        damaged = bytearray(intact)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptManifest, match="here"):
            read_snapshot(bytes(damaged), "here")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_corrupt_manifest(data: bytes) -> None:
    with pytest.raises(CorruptManifest):
        read_snapshot(data, "here")


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        ([segment(0, 10), segment(11, 20)], "leaves a hole"),
        ([segment(0, 10), segment(9, 20)], "overlaps"),
        ([segment(0, 10), segment(10, 10)], "empty"),
    ],
)
def test_ranges_that_do_not_line_up_are_refused(tail: list[SegmentEntry], said: str) -> None:
    with pytest.raises(ManifestInvalid, match=said):
        invariants.check(snapshot(*tail), None)


def test_history_does_not_shrink_or_go_back() -> None:
    segments = run(0, 30, 10)
    current = snapshot(*segments)
    later = Version(0, 1)
    with pytest.raises(ManifestInvalid, match="before it was 30"):
        invariants.check(snapshot(*segments[:2], version=later), current)
    with pytest.raises(ManifestInvalid, match="not above"):
        invariants.check(current, current)
    with pytest.raises(ManifestInvalid, match="goes back"):
        invariants.check(snapshot(*segments, version=later), dataclasses.replace(current, log_start_offset=5))
    with pytest.raises(ManifestInvalid, match="without being listed"):
        invariants.check(snapshot(segment(0, 10), *segments[1:], version=later), current)
    with pytest.raises(ManifestInvalid, match="outside the archived range"):
        invariants.check(snapshot(*segments[1:], version=later, log_start=0), current)


async def test_append_expire_and_take_over(store: Bucket) -> None:
    first = await take_over(store, 0)
    segments = run(0, 100, 10)
    for one in segments:
        await first.append([one], 101)
    await first.expire(35, 102)
    assert (await newest(store)).start_offset == 30

    second = await take_over(store, 1)
    assert second.current.tail == tuple(segments[3:])
    assert second.current.log_start_offset == 35
    assert [gone.key for gone in second.current.removed if gone.key.endswith(".parquet")] == [
        LAYOUT.rows(one.name) for one in segments[:3]
    ]
    await second.append(run(100, 120, 10), 103)
    assert await second.still_newest()
    assert (await newest(store)).end_offset == 120


async def test_a_deposed_leader_changes_nothing_and_learns_of_it(store: Bucket) -> None:
    old = await take_over(store, 4)
    await old.append([segment(0, 10)], 101)
    new = await take_over(store, 5)
    with pytest.raises(ManifestFenced):
        await old.append([segment(10, 20)], 102)
    # It looked before its successor came, and publishes after.
    await old._publish(dataclasses.replace(old.current, tail=(*old.current.tail, segment(10, 20))), 102, looked=True)
    assert not await old.still_newest()
    assert (await newest(store)) == new.current
    assert (await newest(store)).end_offset == 10
    with pytest.raises(ManifestFenced, match="deposed"):
        await take_over(store, 4)


async def test_two_writers_of_one_epoch_cannot_both_publish(store: Bucket) -> None:
    one = await take_over(store, 7)
    other = ManifestWriter(store, LAYOUT, 7, one.current, PageCache(store), 1000)
    await one.append([segment(0, 10)], 101)
    with pytest.raises(ManifestFenced):
        await other.append([segment(0, 12)], 101)
    assert (await newest(store)).end_offset == 10


async def test_a_snapshot_without_an_answer_comes_too_late_once_its_writer_has_looked_again(
    store: Bucket,
) -> None:
    before = await take_over(store, 3)
    on_its_way = ManifestWriter(store, LAYOUT, 3, before.current, PageCache(store), 1000)
    again = await take_over(store, 3)
    with pytest.raises(ManifestFenced):
        await on_its_way.append([segment(0, 10)], 101)
    assert (await newest(store)) == again.current


async def test_expiry_inside_a_page_keeps_the_rest(store: Bucket) -> None:
    writer = await take_over(store, 0, page_segments=4)
    segments = run(0, 100, 10)
    for one in segments:
        await writer.append([one], 101)
    assert [page.segments for page in writer.current.pages] == [4, 4]
    await writer.expire(55, 102)
    manifest = Manifest(await newest(store), PageCache(store))
    assert [s async for s in manifest.segments(0, 1000)] == segments[5:]
    removed = {gone.key for gone in manifest.snapshot.removed}
    assert {LAYOUT.rows(one.name) for one in segments[:5]} <= removed
    assert len([key for key in removed if key.endswith(".page")]) == 2
    for gone in removed:
        await store.delete([gone])
    await writer.forget(sorted(removed), 103)
    assert writer.current.removed == ()
    assert [s async for s in Manifest(await newest(store), PageCache(store)).segments(0, 1000)] == segments[5:]


async def test_everything_expires_and_the_log_goes_on(store: Bucket) -> None:
    writer = await take_over(store, 0, page_segments=4)
    for one in run(0, 70, 10):
        await writer.append([one], 101)
    await writer.expire(75, 102)
    assert (writer.current.start_offset, writer.current.end_offset, writer.current.segments) == (75, 75, 0)
    await writer.append([segment(70, 80)], 103)
    assert writer.current.end_offset == 80


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 9))
async def test_a_random_history_finds_every_segment(seed: int, page_segments: int) -> None:
    """Against a plain list: appends, expiry and takeovers in any order; every offset finds its segment."""
    rng, store = random.Random(seed), Bucket(MemoryStore())
    model: list[SegmentEntry] = []
    end = log_start = epoch = 0
    writer = await take_over(store, 0, page_segments=page_segments)
    for now in range(40):
        match rng.randrange(6):
            case 0:
                epoch += 1
                writer = await take_over(store, epoch, page_segments=page_segments)
            case 1 if end > log_start:
                log_start = rng.randint(log_start, end)
                model = [s for s in model if s.end_offset > log_start]
                await writer.expire(log_start, now)
            case _:
                size = rng.randint(1, 20)
                model.append(segment(end, end + size, epoch=epoch))
                await writer.append([model[-1]], now)
                end += size
    manifest = Manifest(await newest(store), PageCache(store))
    assert [s async for s in manifest.segments(0, end + 1)] == model
    for offset in range(end + 2):
        expected = next((s for s in model if s.base_offset <= offset < s.end_offset), None)
        assert await manifest.segment_at(offset) == expected
    live = {LAYOUT.rows(s.name) for s in model}
    assert live.isdisjoint(gone.key for gone in manifest.snapshot.removed)


async def test_time_prunes_pages_and_segments(store: Bucket) -> None:
    writer = await take_over(store, 0, page_segments=4)
    segments = [segment(n * 10, n * 10 + 10, min_ms=n * 100, max_ms=n * 100 + 99) for n in range(10)]
    for one in segments:
        await writer.append([one], 101)
    manifest = Manifest(await newest(store), PageCache(store))
    gets = store.counters.gets
    assert [s async for s in manifest.segments(0, 1000, from_ms=850)] == segments[8:]
    assert store.counters.gets == gets, "no page is read for a time that none of them holds"
    assert [s async for s in manifest.segments(0, 1000, from_ms=150, to_ms=300)] == segments[1:3]


async def test_a_plan_among_100_000_segments_costs_what_it_costs_among_100(store: Bucket) -> None:
    """Counted in requests, not in seconds: one LIST, one snapshot, one page; and small ones."""
    writer = await take_over(store, 0)
    for first in range(0, 100_000, 1000):
        await writer.append([segment(n * 10, n * 10 + 10) for n in range(first, first + 1000)], 101)
    before = dataclasses.replace(store.counters)
    manifest = Manifest(await newest(store), PageCache(store))
    found = await manifest.segment_at(654_321)
    assert found is not None and found.base_offset == 654_320
    assert (store.counters.lists - before.lists, store.counters.gets - before.gets) == (1, 2)
    assert store.counters.bytes_in - before.bytes_in < 200_000


async def test_who_reads_more_pages_than_are_kept_finds_every_segment(store: Bucket) -> None:
    writer = await take_over(store, 0, page_segments=4)
    for one in run(0, 100, 10):
        await writer.append([one], 101)
    manifest = Manifest(await newest(store), PageCache(store, capacity=1))
    found = await asyncio.gather(*(manifest.segment_at(offset) for offset in (5, 45, 95)))
    assert [each and each.base_offset for each in found] == [0, 40, 90]


async def test_damage_is_told_from_absence(store: Bucket) -> None:
    assert await load_newest(store, LAYOUT) is None
    writer = await take_over(store, 0, page_segments=2)
    for one in run(0, 40, 10):
        await writer.append([one], 101)
    page = next(key for key in [info.key async for info in store.list(LAYOUT.pages_folder)])
    await store.delete([page])
    with pytest.raises(CorruptManifest, match="missing"):
        await Manifest(await newest(store), PageCache(store)).segment_at(5)
    await store.put(page, write_page(run(0, 20, 5)))
    with pytest.raises(CorruptManifest, match="not the one"):
        await Manifest(await newest(store), PageCache(store)).segment_at(5)


class Interrupted(MemoryStore):
    """Before the next manifest that is not there yet is put, somebody else gets in between."""

    def __init__(self) -> None:
        super().__init__()
        self.before_next: Callable[[], Awaitable[None]] | None = None

    async def put_if_absent(self, key: str, data: Buffer) -> bool:
        between, self.before_next = self.before_next, None
        if between is not None:
            await between()
        return await super().put_if_absent(key, data)


@pytest.mark.parametrize("archived_before", [False, True])
async def test_what_a_deposed_leader_publishes_at_the_last_moment_is_taken_over(archived_before: bool) -> None:
    """It may drop local segments for it before it learns of its successor."""
    inner = Interrupted()
    store = Bucket(inner)
    deposed = await take_over(store, 1)
    if archived_before:
        await deposed.append(run(0, 20, 10), now_ms=1)
    late = run(deposed.current.end_offset, deposed.current.end_offset + 10, 10)

    async def publish() -> None:
        changed = dataclasses.replace(deposed.current, tail=(*deposed.current.tail, *late))
        await deposed._publish(changed, 2, looked=True)
        assert await deposed.still_newest()

    inner.before_next = publish
    successor = await take_over(store, 2)
    assert successor.current.tail[-1] == late[-1]
    assert (await newest(store)) == successor.current
    assert successor.current.version == Version(2, 1)
    assert not await deposed.still_newest()
    later = run(late[-1].end_offset, late[-1].end_offset + 5, 5)
    await deposed._publish(dataclasses.replace(deposed.current, tail=(*deposed.current.tail, *later)), 3, looked=True)
    again = await take_over(store, 2)
    assert again.current.tail == successor.current.tail, "what comes later is nobody's"

"""Rewritten segments in the place of others: all of it or nothing, with every old object listed, in tail and pages."""

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cold_tier.errors import CorruptManifest, ManifestInvalid, ReplacementRefused
from cold_tier.manifest import invariants
from cold_tier.manifest.codec import read_proposal, write_proposal
from cold_tier.manifest.model import EpochStart, Removed, SegmentEntry, epoch_at
from cold_tier.manifest.reader import Manifest, PageCache
from cold_tier.manifest.replacement import Proposal, Replacement, judge, merge_epochs
from cold_tier.objects.bucket import Bucket
from cold_tier.objects.memory import MemoryStore
from hot_tier.ids import NO_EPOCH
from tests.cold_tier.manifest.test_manifest import LAYOUT, newest, run, segment, snapshot, take_over


@pytest.fixture
def store() -> Bucket:
    return Bucket(MemoryStore())


def merged(old: list[SegmentEntry]) -> Replacement:
    new = dataclasses.replace(
        segment(old[0].base_offset, old[-1].end_offset), epochs=merge_epochs(old), log_bytes=4000 * len(old)
    )
    return Replacement(tuple(each.name for each in old), (new,))


async def held(store: Bucket) -> list[SegmentEntry]:
    current = await newest(store)
    manifest = Manifest(current, PageCache(store))
    return [each async for each in manifest.segments(current.start_offset, current.end_offset)]


async def test_old_objects_are_listed_and_live_on(store: Bucket) -> None:
    writer = await take_over(store, 0)
    segments = run(0, 50, 10)
    await writer.append(segments, 1)
    replacement = merged(segments[1:4])
    await writer.replace([replacement], 7)
    assert await held(store) == [segments[0], *replacement.new, segments[4]]
    assert (await newest(store)).removed == tuple(
        Removed(key, 7) for old in segments[1:4] for key in (LAYOUT.rows(old.name), LAYOUT.index(old.name))
    )


@pytest.mark.parametrize("seed", range(20))
async def test_anywhere_in_pages_and_tail(store: Bucket, seed: int) -> None:
    """Against a plain list: any runs at once, across pages, and further appends and replacements after them."""
    chance = random.Random(seed)
    writer = await take_over(store, 0, page_segments=4)
    expected: list[SegmentEntry] = []
    for _ in range(6):
        for _ in range(chance.randrange(1, 9)):
            end = expected[-1].end_offset if expected else 0
            expected.append(segment(end, end + chance.randrange(1, 5)))
            await writer.append([expected[-1]], 1)
        replacements, after, at = [], [], 0
        while at < len(expected):
            count = min(chance.choice([1, 1, 2, 3, 7]), len(expected) - at)
            if chance.random() < 0.5:
                replacements.append(merged(expected[at : at + count]))
                after += replacements[-1].new
            else:
                after += expected[at : at + count]
            at += count
        before = await newest(store)
        chance.shuffle(replacements)
        await writer.replace(replacements, 2)
        expected = after
        current = await newest(store)
        assert await held(store) == expected
        assert current.segments == len(expected)
        assert len(current.tail) < 4
        gone = {LAYOUT.rows(name) for each in replacements for name in each.old}
        gone |= {LAYOUT.page(page.base_offset, page.uuid) for page in before.pages if page not in current.pages}
        assert gone <= {each.key for each in current.removed}


async def test_pages_that_shrink_are_joined(store: Bucket) -> None:
    writer = await take_over(store, 0, page_segments=10)
    segments = run(0, 1000, 10)
    for each in segments:
        await writer.append([each], 1)
    await writer.replace([merged(segments[at : at + 10]) for at in range(0, 50, 10)], 2)
    current = await newest(store)
    assert [page.segments for page in current.pages] == [5, *[10] * 5]


async def test_what_is_no_longer_there_is_not_replaced(store: Bucket) -> None:
    writer = await take_over(store, 0)
    segments = run(0, 50, 10)
    await writer.append(segments, 1)
    replacement = merged(segments[:3])
    await writer.expire(10, 2)
    before = await newest(store)
    with pytest.raises(ReplacementRefused, match="offset 0"):
        await writer.replace([replacement, merged(segments[3:5])], 3)
    assert await newest(store) == before


async def test_a_hole_is_never_published(store: Bucket) -> None:
    writer = await take_over(store, 0)
    segments = run(0, 50, 10)
    await writer.append(segments, 1)
    short = Replacement(tuple(each.name for each in segments[:3]), (segment(0, 29),))
    with pytest.raises(ManifestInvalid, match="hole"):
        await writer.replace([short], 2)


def test_what_is_needed_cannot_be_listed_for_deletion() -> None:
    [kept] = run(0, 10, 10)
    bad = dataclasses.replace(snapshot(kept), removed=(Removed(LAYOUT.index(kept.name), 1),))
    with pytest.raises(ManifestInvalid, match="is needed"):
        invariants.check(bad, None)


def test_a_merge_is_judged() -> None:
    old = run(0, 30, 10)
    fine = merged(old)
    assert judge(fine, old, by_key=False) == []

    def wrong(**changes: object) -> list[str]:
        return judge(Replacement(fine.old, (dataclasses.replace(fine.new[0], **changes),)), old, by_key=False)

    assert "rows" in wrong(rows=29)[0]
    assert "covers" in wrong(end_offset=29)[0]
    assert "epochs" in wrong(epochs=(EpochStart(3, 0),))[0]
    assert "log" in wrong(log_bytes=12_001)[0]
    assert "timestamp" in wrong(max_timestamp_ms=30)[0]
    assert "no longer" in judge(fine, old[:2], by_key=False)[0]
    assert "no longer" in judge(fine, [old[0], segment(10, 20), old[2]], by_key=False)[0]


def test_fewer_rows_only_where_keys_are_compacted() -> None:
    old = run(0, 30, 10)
    fine = merged(old)
    fewer = Replacement(fine.old, (dataclasses.replace(fine.new[0], rows=3, max_timestamp_ms=20),))
    assert judge(fewer, old, by_key=True) == []
    assert len(judge(fewer, old, by_key=False)) == 2
    more = Replacement(fine.old, (dataclasses.replace(fine.new[0], rows=31),))
    assert "31 rows" in judge(more, old, by_key=True)[0]


def test_epochs_of_neighbours_are_joined() -> None:
    def of(base: int, *epochs: tuple[int, int]) -> SegmentEntry:
        return dataclasses.replace(segment(base, base + 10), epochs=tuple(EpochStart(*each) for each in epochs))

    found = merge_epochs([of(0, (1, 0)), of(10, (1, 0), (2, 15)), of(20, (2, 15)), of(30, (5, 30))])
    assert found == (EpochStart(1, 0), EpochStart(2, 15), EpochStart(5, 30))


def test_the_epoch_of_an_offset_inside_a_merged_segment() -> None:
    merged_ = dataclasses.replace(segment(0, 40), epochs=(EpochStart(1, 0), EpochStart(2, 15), EpochStart(5, 30)))
    assert [epoch_at(merged_, end) for end in (1, 15, 16, 30, 31, 40)] == [1, 1, 2, 2, 5, 5]
    assert epoch_at(dataclasses.replace(merged_, epochs=()), 40) == NO_EPOCH


def proposal() -> Proposal:
    segments = run(0, 50, 10)
    return Proposal(LAYOUT, 12, (merged(segments[:2]), merged(segments[3:])))


def test_a_proposal_round_trips() -> None:
    original = proposal()
    assert read_proposal(write_proposal(original), "here") == original


def test_a_flipped_bit_in_a_proposal_is_never_believed() -> None:
    intact = write_proposal(proposal())
    for bit in range(8 * len(intact)):
        damaged = bytearray(intact)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptManifest, match="here"):
            read_proposal(bytes(damaged), "here")


@given(st.binary(max_size=200))
def test_any_bytes_are_no_proposal(data: bytes) -> None:
    with pytest.raises(CorruptManifest):
        read_proposal(data, "here")


def test_a_proposal_of_nothing_is_refused() -> None:
    with pytest.raises(CorruptManifest, match="no old or no new segments"):
        read_proposal(write_proposal(Proposal(LAYOUT, 1, (Replacement((), (segment(0, 1),)),))), "here")

"""Plans a read, once, on the driver: which archived segments and which offsets of the hot tail it needs.

The plan depends only on the manifests. A manifest is one snapshot of a partition without hole or overlap, so the files
of a plan hold each of its rows once. That stays so when segments are archived, compacted or expired during the read:
objects that a manifest has removed stay through the grace period, or as long as a pin holds (`cold_tier.pins`). No
Parquet footer is opened here.

The hot tail begins where the manifest ends, and the manifest is read first. A record that is archived in between is
read through the gateway, which reads both tiers, and not from a file as well.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar
from uuid import UUID

from cold_tier.inventory import ArchivedTopic, find_topics, newest_lives
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import SegmentEntry, Snapshot
from cold_tier.manifest.reader import Manifest, PageCache, load, load_newest
from cold_tier.objects.bucket import Bucket
from cold_tier.objects.open import StoreSettings, open_store
from hot_tier.errors import OffsetOutOfRange, UnknownPartition, UnknownTopic
from hot_tier.ids import Offset
from spark.gateway import HotTopic, hot_topic
from spark.options import EARLIEST, LATEST, ReadOptions

T = TypeVar("T")

Place = tuple[str, int]
"""A topic and a partition number."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What can be read of a partition now: [start, end). The archive has [start, archived_end) of it."""

    start: int
    end: int
    archived_end: int
    snapshot: Snapshot | None


@dataclass(frozen=True, slots=True)
class Range:
    """What will be read of a partition: [start, archived_end) from `segments`, then [archived_end, end) from the hot
    tail."""

    topic: str
    partition: int
    start: int
    end: int
    archived_end: int
    layout: PartitionLayout | None
    segments: tuple[SegmentEntry, ...]
    among: int = 0
    """The number of segments that the partition has in the archive."""

    @property
    def cut_start(self) -> bool:
        """Returns whether the first segment holds rows below the range."""
        return bool(self.segments) and self.segments[0].base_offset < self.start

    @property
    def cut_end(self) -> bool:
        return bool(self.segments) and self.segments[-1].end_offset > min(self.end, self.archived_end)


@dataclass(frozen=True, slots=True)
class Plan:
    ranges: tuple[Range, ...]

    @property
    def encrypted(self) -> bool:
        """Returns whether a segment of it is encrypted."""
        return any(segment.master_key for each in self.ranges for segment in each.segments)

    @property
    def files(self) -> list[str]:
        """Returns the keys of the archived rows, each partition in offset order."""
        return [each.layout.rows(s.name) for each in self.ranges if each.layout for s in each.segments]

    @property
    def hot(self) -> list[Range]:
        return [each for each in self.ranges if max(each.start, each.archived_end) < each.end]


def plan_read(options: ReadOptions) -> Plan:
    """Plans everything that `options` ask for, as it is now."""

    async def work(store: Bucket) -> Plan:
        bounds = await _bounds(store, options)
        return await _select(store, options, bounds, resolve(options, bounds))

    return with_store(options.store, work)


def plan_ranges(options: ReadOptions, ranges: Mapping[Place, tuple[int, int]]) -> Plan:
    """Plans exactly these offsets. A start of EARLIEST is where the partition begins now."""

    async def work(store: Bucket) -> Plan:
        bounds = await _bounds(store, options)
        checked = {
            place: _within(options, place, _known(place, bounds), start, end) for place, (start, end) in ranges.items()
        }
        return await _select(store, options, bounds, checked)

    return with_store(options.store, work)


def read_bounds(options: ReadOptions) -> dict[Place, Bounds]:
    async def work(store: Bucket) -> dict[Place, Bounds]:
        return await _bounds(store, options)

    return with_store(options.store, work)


def resolve(options: ReadOptions, bounds: Mapping[Place, Bounds]) -> dict[Place, tuple[int, int]]:
    """Returns the offsets that `options` ask for, within those that exist."""
    for place in {*options.starting.given, *options.ending.given} - set(bounds):
        if options.fail_on_data_loss:
            _known(place, bounds)
    return {
        place: _within(options, place, known, options.starting.of(*place), options.ending.of(*place))
        for place, known in sorted(bounds.items())
    }


def _known(place: Place, bounds: Mapping[Place, Bounds]) -> Bounds:
    if place not in bounds:
        raise UnknownPartition(
            f"{place[0]} has no partition {place[1]}", hint="check startingOffsets and endingOffsets"
        )
    return bounds[place]


def _within(options: ReadOptions, place: Place, known: Bounds, start: int, end: int) -> tuple[int, int]:
    words = {EARLIEST: known.start, LATEST: known.end}
    start, end = words.get(start, start), words.get(end, end)
    if options.fail_on_data_loss:
        for offset in (start, end):
            if offset < known.start and start < end:
                raise OffsetOutOfRange(
                    f"offset {offset} is no longer there: retention has moved on to {known.start}",
                    where=f"{place[0]}-{place[1]}",
                    hint="ask for earliest, or set failOnDataLoss=false to read what is left",
                )
            if offset > known.end:
                missing = "not archived yet: the archive" if options.gateway is None else "not there yet: the log"
                raise OffsetOutOfRange(
                    f"offset {offset} is {missing} ends at {known.end}",
                    where=f"{place[0]}-{place[1]}",
                    hint="ask for latest, set includeHot=true, or failOnDataLoss=false to read what there is",
                )
    start, end = max(start, known.start), min(end, known.end)
    return start, max(start, end)


async def _bounds(store: Bucket, options: ReadOptions) -> dict[Place, Bounds]:
    found: dict[Place, Bounds] = {}
    for topic in options.topics:
        # The manifests are read before the gateway is asked. A record archived in between is then read as hot, not
        # twice.
        lives = await find_topics(store, topic)
        snapshots = {life.id: await _snapshots(store, life, options) for life in lives}
        hot: HotTopic | None = None
        if options.gateway is not None:
            hot = await asyncio.to_thread(hot_topic, options.gateway, topic)
            archived = snapshots.get(hot.id, {})
        else:
            if not any(snapshots.values()):
                raise UnknownTopic(
                    f"the archive has no topic {topic!r}",
                    where=store.url,
                    hint="check the bucket and the name; a topic is here once its first segment is archived",
                )
            archived = snapshots[await _newest(store, lives)]
        for partition in sorted({*archived, *(hot.ranges if hot else ())}):
            snapshot = archived.get(partition)
            tail = hot.ranges.get(partition) if hot else None
            start = snapshot.log_start_offset if snapshot else Offset(0)
            archived_end = snapshot.end_offset if snapshot else start
            if tail is not None:
                start = Offset(max(start, tail.start_offset))
            end = max(archived_end, tail.end_offset) if tail is not None else archived_end
            found[topic, partition] = Bounds(start, end, archived_end, snapshot)
    return found


async def _newest(store: Bucket, lives: Sequence[ArchivedTopic]) -> UUID:
    """Returns the id of the topic that was made last, among all that had this name."""
    held = [life for life in lives if life.layouts]
    if len(held) == 1:
        return held[0].id
    newest = await anext(aiter(newest_lives(store, held)))
    return newest.id


async def _snapshots(store: Bucket, life: ArchivedTopic, options: ReadOptions) -> dict[int, Snapshot]:
    if options.as_of_ms is None:
        found = await asyncio.gather(*(load_newest(store, layout) for layout in life.layouts))
    else:
        found = await asyncio.gather(*(_load_as_of(store, layout, options) for layout in life.layouts))
    return {snapshot.partition: snapshot for snapshot in found if snapshot is not None}


async def _load_as_of(store: Bucket, layout: PartitionLayout, options: ReadOptions) -> Snapshot | None:
    """Returns the greatest version that was published at or before `asOf`. A LIST gives the greatest version first.

    Publishing times rise within a leader epoch. They may not rise from one epoch to the next: another broker has
    another clock.
    """
    assert options.as_of_ms is not None
    listed = [layout.parse_manifest(info.key) async for info in store.list(layout.manifest_folder)]
    chosen: Snapshot | None = None
    oldest = None
    for _, epoch in groupby(filter(None, listed), lambda version: version.leader_epoch):
        versions = list(epoch)
        low, high = 0, len(versions)
        while low < high:
            middle = (low + high) // 2
            snapshot = await load(store, layout, layout.manifest(versions[middle]))
            oldest = snapshot.published_ms
            if snapshot.published_ms <= options.as_of_ms:
                chosen, high = snapshot, middle
            else:
                low = middle + 1
        if chosen is not None:
            break
    if chosen is None and options.fail_on_data_loss:
        raise OffsetOutOfRange(
            f"no manifest is left of asOf={options.as_of_ms}: the oldest is of {oldest}",
            where=f"{layout.topic}-{layout.partition}",
            hint="superseded manifests are kept for archive.manifest_history_ms, or while a pin holds",
        )
    return chosen


async def _select(
    store: Bucket, options: ReadOptions, bounds: Mapping[Place, Bounds], ranges: Mapping[Place, tuple[int, int]]
) -> Plan:
    async def one(place: Place, start: int, end: int) -> Range:
        known = bounds[place]
        segments: tuple[SegmentEntry, ...] = ()
        layout, among = None, 0
        if known.snapshot is not None and start < min(end, known.archived_end):
            layout, among = known.snapshot.layout, known.snapshot.segments
            segments = await _segments(store, options, known.snapshot, start, min(end, known.archived_end))
        return Range(*place, start, end, known.archived_end, layout, segments, among)

    found = await asyncio.gather(*(one(place, start, end) for place, (start, end) in ranges.items()))
    return Plan(tuple(found))


async def _segments(
    store: Bucket, options: ReadOptions, snapshot: Snapshot, start: int, end: int
) -> tuple[SegmentEntry, ...]:
    pages = PageCache(store, max(1, len(snapshot.pages)))
    wanted = [
        page
        for page in snapshot.pages
        if page.base_offset < end
        and start < page.end_offset
        and (options.from_ms is None or page.max_timestamp_ms >= options.from_ms)
        and (options.to_ms is None or page.min_timestamp_ms < options.to_ms)
    ]
    await asyncio.gather(*(pages.get(snapshot.layout, page) for page in wanted))
    manifest = Manifest(snapshot, pages)
    chosen = manifest.segments(Offset(start), Offset(end), options.from_ms, options.to_ms)
    segments = [segment async for segment in chosen if segment.rows]
    if options.as_of_ms is not None:
        segments = await _still_there(store, options, snapshot, segments)
    return tuple(segments)


async def _still_there(
    store: Bucket, options: ReadOptions, snapshot: Snapshot, segments: list[SegmentEntry]
) -> list[SegmentEntry]:
    """Returns the segments of an earlier manifest that are not deleted yet: those that the newest manifest names or
    lists as removed."""
    layout = snapshot.layout
    newest = await load_newest(store, layout)
    assert newest is not None
    manifest = Manifest(newest, PageCache(store, max(1, len(newest.pages))))
    kept = {segment.name async for segment in manifest.segments(newest.start_offset, newest.end_offset)}
    removed = {gone.key for gone in newest.removed}
    left = [segment for segment in segments if segment.name in kept or layout.rows(segment.name) in removed]
    if len(left) < len(segments) and options.fail_on_data_loss:
        raise OffsetOutOfRange(
            f"{len(segments) - len(left)} of {len(segments)} segments of that time are deleted",
            where=f"{layout.topic}-{layout.partition}",
            hint="place a pin before retention moves on, or set failOnDataLoss=false to read what is left",
        )
    return left


def with_store(settings: StoreSettings, work: Callable[[Bucket], Awaitable[T]]) -> T:
    """Runs `work` in a thread with its own event loop, because a notebook already runs one."""

    async def opened() -> T:
        store = open_store(settings)
        try:
            return await work(store)
        finally:
            await store.close()

    return run_apart(opened())


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()

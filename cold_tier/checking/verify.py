"""Checks every object of a bucket against its manifest: what is missing, damaged, in the way, or left over.

It reads completely everything that a manifest names, and changes nothing. A broker may work at the same time. So an
object that is gone counts as missing only if the manifest still names it then, and an object that is new counts as left
over only if the manifest does not name it by then.

Manifests that went back to an older state can be recognized by what lies beyond them: objects without any manifest, or
whole segments after the end of the newest one. A bucket alone cannot show more. `offloader.control` compares it with
what a node's metadata knows.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from itertools import groupby, pairwise

import numpy as np

from cold_tier import proposals
from cold_tier.checking.garbage import indexed_rows, named_keys, unnamed_objects
from cold_tier.errors import CorruptObject, ObjectMissing
from cold_tier.format.index import read_index
from cold_tier.format.open import check_aside
from cold_tier.format.read import SegmentReader
from cold_tier.inventory import ArchivedTopic, describe, find_topics, unclaimed_rows
from cold_tier.layout import PartitionLayout
from cold_tier.manifest import invariants
from cold_tier.manifest.model import Lost, SegmentEntry
from cold_tier.manifest.reader import Manifest, PageCache, load_newest
from cold_tier.objects.bucket import Bucket
from cold_tier.reports import Checked, Finding, Planned, VerifyEvent
from cold_tier.upload import verify_segment

_AT_ONCE = 8
_MOST_RANGES = 5


async def verify(
    store: Bucket, topics: Sequence[ArchivedTopic], *, all_topics: bool = False
) -> AsyncGenerator[VerifyEvent, None]:
    """Verifies whole topics, with all topic ids of each name. A store that does not answer is an error, not a finding.

    `all_topics` says that `topics` are all there are. Then rows that belong to none of them are findings too.
    """
    for folder in await unclaimed_rows(store, topics) if all_topics else []:
        yield Finding("manifest", f"{store.url}{folder}", "rows of a topic that has neither manifest nor description")
    for _, lives in groupby(sorted(topics, key=lambda topic: topic.name), key=lambda topic: topic.name):
        by_partition: dict[int, list[PartitionLayout]] = {}
        lost: set[int] = set()
        for topic in lives:
            for layout in topic.layouts:
                by_partition.setdefault(layout.partition, []).append(layout)
            for layout in topic.bare:
                lost.add(layout.partition)
                yield Finding("manifest", f"{store.url}{layout.folder}", await _without_manifest(store, layout))
            for finding in await _check_description(store, topic):
                yield finding
        for partition, layouts in by_partition.items():
            readable = partition not in lost
            for layout in layouts:
                # It has reads under way. If the caller stops listening, they are cancelled at once.
                async with aclosing(_verify_partition(store, layout)) as events:
                    async for event in events:
                        readable &= not (isinstance(event, Finding) and event.kind == "manifest")
                        yield event
            if readable:
                # Without its manifest, every object would look left over.
                for finding in await _orphans(store, layouts):
                    yield finding


async def _without_manifest(store: Bucket, layout: PartitionLayout) -> str:
    rows, there = await indexed_rows(store, layout), {info.key async for info in store.list(layout.rows_folder)}
    return f"there is no manifest, but there are {len(rows)} indexes, and {len(rows & there)} of them with their rows"


async def _check_description(store: Bucket, topic: ArchivedTopic) -> list[Finding]:
    try:
        await describe(store, topic)
    except CorruptObject as error:
        return [Finding("missing" if topic.description_key is None else "damaged", error.where, error.what)]
    return []


async def _verify_partition(store: Bucket, layout: PartitionLayout) -> AsyncGenerator[VerifyEvent, None]:
    try:
        snapshot = await load_newest(store, layout)
        if snapshot is None:
            return
        manifest = Manifest(snapshot, PageCache(store))
        segments = [segment async for segment in manifest.segments(snapshot.start_offset, snapshot.end_offset)]
    except CorruptObject as error:
        yield Finding("manifest", error.where, error.what)
        return
    yield Planned(layout.topic, layout.partition, len(segments))
    where = f"{store.url}{layout.manifest(snapshot.version)}"
    for what in invariants.seam(snapshot):
        yield Finding("manifest", where, what)
    for left, right in pairwise(segments):
        if left.end_offset < right.base_offset:
            yield Finding("gap", where, f"offsets {left.end_offset} to {right.base_offset - 1} are in no segment")
        elif left.end_offset > right.base_offset:
            yield Finding("overlap", where, f"offsets {right.base_offset} to {left.end_offset - 1} are in two segments")
    sparse = any(segment.rows < segment.end_offset - segment.base_offset for segment in segments)
    compacted = sparse and await _is_compacted(store, layout)
    running: set[asyncio.Task[list[VerifyEvent]]] = set()
    waiting = iter(segments)
    try:
        while True:
            while len(running) < _AT_ONCE and (segment := next(waiting, None)) is not None:
                running.add(asyncio.create_task(_check_segment(store, layout, segment, compacted, snapshot.lost)))
            if not running:
                return
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                for event in task.result():
                    yield event
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _is_compacted(store: Bucket, layout: PartitionLayout) -> bool:
    """Returns whether the topic's description says that it is compacted by key. Then records may be missing."""
    for topic in await find_topics(store, layout.topic):
        if topic.id == layout.topic_id:
            try:
                return "compact" in (await describe(store, topic)).config.get("cleanup.policy", "")
            except CorruptObject:
                break
    return False


async def _check_segment(
    store: Bucket, layout: PartitionLayout, segment: SegmentEntry, compacted: bool, lost: Sequence[Lost]
) -> list[VerifyEvent]:
    events: list[VerifyEvent] = [Checked(sum(segment.objects(layout).values()))]
    where = f"{store.url}{layout.rows(segment.name)}"
    key = layout.index(segment.name)
    try:
        await verify_segment(store, layout, segment)
        index = read_index(await store.get(key), f"{store.url}{key}")
        reader = await asyncio.to_thread(SegmentReader.open, index, where, store.keys)
        check_aside(index, segment, where)
        missing = segment.end_offset - segment.base_offset - segment.rows
        given_up = [
            max(0, min(each.end_offset, segment.end_offset) - max(each.start_offset, segment.base_offset))
            for each in lost
        ]
        if missing > sum(given_up) and not (compacted or reader.complete):
            events.append(Finding("rows", where, await _missing_rows(store, layout, segment, reader)))
    except ObjectMissing as error:
        if await _still_named(store, layout, segment):
            events.append(Finding("missing", error.where, "the manifest names this object, but it is not there"))
        return events
    except CorruptObject as error:
        events.append(Finding("damaged", error.where, error.what))
        return events
    events += [Finding("damaged", f"{store.url}{key}", what) for what in proposals.disagreements(segment, reader)]
    return events


async def _missing_rows(store: Bucket, layout: PartitionLayout, segment: SegmentEntry, reader: SegmentReader) -> str:
    """Says which offsets of an object have no rows, although nothing says that they may be missing."""
    ranges: list[tuple[int, int]] = []
    following: int = segment.base_offset
    for number, group in enumerate(reader.index.row_groups):
        data = await store.get(layout.rows(segment.name), group.start, group.length)
        offsets = (await asyncio.to_thread(reader.decode_plain, number, data)).offsets
        befores = np.concatenate(([following - 1], offsets[:-1]))
        gaps = np.flatnonzero(offsets - befores > 1)
        ranges += [(int(befores[at]) + 1, int(offsets[at]) - 1) for at in gaps]
        following = int(offsets[-1]) + 1
    if following < segment.end_offset:
        ranges.append((following, segment.end_offset - 1))
    shown = ", ".join(f"{first} to {last}" for first, last in ranges[:_MOST_RANGES])
    more = f" and {len(ranges) - _MOST_RANGES} more ranges" if len(ranges) > _MOST_RANGES else ""
    missing = sum(last - first + 1 for first, last in ranges)
    return f"{missing} offsets have no rows: {shown}{more}; the topic is not compacted, so records may be missing"


async def _still_named(store: Bucket, layout: PartitionLayout, segment: SegmentEntry) -> bool:
    newest = await load_newest(store, layout)
    if newest is None:
        return False
    found = await Manifest(newest, PageCache(store)).segment_at(segment.base_offset)
    return found is not None and found.name == segment.name


async def _orphans(store: Bucket, layouts: Sequence[PartitionLayout]) -> list[Finding]:
    found = await unnamed_objects(store, layouts, set())
    # The manifests are read after the listing, so that they name what was archived meanwhile.
    beyond: list[Finding] = []
    for layout in layouts:
        newest = await load_newest(store, layout)
        if newest is not None:
            named = await named_keys(Manifest(newest, PageCache(store))) | await proposals.named(store, layout)
            for key in named:
                found.pop(key, None)
            whole = [name for key in found if (name := layout.parse_index(key)) and layout.rows(name) in found]
            # One may be an upload under way. Leaders that died before they published have uploaded the same one.
            behind = {name.base_offset for name in whole if name.base_offset >= newest.end_offset}
            if len(behind) > 1:
                what = f"it ends at offset {newest.end_offset}, and {len(behind)} whole segments lie behind its end"
                beyond.append(Finding("went-back", f"{store.url}{layout.manifest(newest.version)}", what))
    return beyond + [
        Finding("orphan", f"{store.url}{info.key}", f"{info.size} bytes that no manifest names")
        for info in found.values()
    ]

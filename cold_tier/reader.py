"""Archived records as record batches, from any offset: the cold half of a stitched fetch.

A read waits for the row group of its offset alone. What follows is in the answer too, over row groups and segments, as
far as it is in memory; damage there is met by the read that begins there.

A read costs at most three requests before its first byte (a manifest page, the index, a row group) and one per row
group after. What is fetched is shared: readers of the same row group wait for one fill, and a fill goes on when those
who asked for it have given up, so that a client which retries finds it done. A reader that goes forward is kept ahead
of, by more the longer it does. What was fetched ahead and not read yet takes at most half of the memory, however many
readers there are: beyond that it would push itself out before anyone came to it.

Decoding runs in threads; pyarrow and the kernels release the interpreter lock.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cold_tier.cache import ColdReadSettings, DiskCache, MemoryCache
from cold_tier.damage_log import DamageLog
from cold_tier.decoded_row_group import Run, TimedOffset, make_run
from cold_tier.errors import CorruptObject, ObjectMissing, StoreThrottled
from cold_tier.format.open import open_segment
from cold_tier.format.read import SegmentReader
from cold_tier.format.write import ROW_GROUP_BYTES
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import Segment, epoch_at
from cold_tier.manifest.reader import Manifest
from cold_tier.objects.retrying import RetryingStore
from cold_tier.objects.store import Buffer
from hot_tier.errors import TierlogError
from hot_tier.ids import Offset

_OPEN_SEGMENTS = 256
_STREAMS = 4096
_MOST_FILLS = 1024
"""Under way and waiting. A fill outlives those who asked for it: a client that jumps about could queue any number."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A row group of a segment; a segment without rows has the one place 0."""

    layout: PartitionLayout
    segment: Segment
    reader: SegmentReader
    number: int

    @property
    def key(self) -> str:
        return f"{self.segment.name.stem}.{self.number}"


class ColdRecords(NamedTuple):
    data: bytes
    """Whole batches in offset order, none of them twice."""
    end_offset: Offset
    """Behind the last batch: all that the archive holds from the asked offset up to here is in `data`."""


class ColdReader:
    def __init__(self, store: RetryingStore, settings: ColdReadSettings, disk_folder: str | None = None) -> None:
        self._store = store
        self._settings = settings
        self._runs: MemoryCache[Run] = MemoryCache(settings.memory_bytes)
        self._disk = DiskCache(disk_folder, settings.disk_bytes) if disk_folder and settings.disk_bytes else None
        self._segments: OrderedDict[str, SegmentReader] = OrderedDict()
        self._fills: dict[str, asyncio.Task[Run]] = {}
        self._opening: dict[str, asyncio.Task[SegmentReader]] = {}
        self._ahead: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(settings.fills)
        self._streams: OrderedDict[str, int] = OrderedDict()
        """How far ahead the reader that comes to this row group next is to be kept."""
        self._unread: set[str] = set()
        """Row groups fetched ahead that nobody has come to yet."""
        self._most_unread = max(1, settings.memory_bytes // 2 // ROW_GROUP_BYTES)
        self._damage = DamageLog()
        self.hits = 0
        self.misses = 0

    @property
    def memory_bytes(self) -> int:
        """Of archived records that are kept ready."""
        return self._runs.bytes

    async def read(
        self, manifest: Manifest, offset: Offset, max_bytes: int, *, min_one: bool = True, until: Offset | None = None
    ) -> ColdRecords | None:
        """Whole batches from the one that holds `offset`; None where the archive does not hold it.

        With `min_one` the first is given even if it is larger than `max_bytes`. No row group is begun at or behind
        `until`.
        """
        segment = await manifest.segment_at(offset)
        if segment is None:
            return None
        layout = manifest.snapshot.layout
        reader = await self.open_segment(layout, segment)
        place = _Place(layout, segment, reader, max(reader.index.row_group_at(offset), 0))
        run = self._runs.get(place.key)
        fill = self._fill(place) if run is None else None
        if fill is not None:
            self._keep_ahead(manifest, [place], waited=True)
            self.misses += 1
            run = await asyncio.shield(fill)
        else:
            self.hits += 1
        assert run is not None
        return self._from_memory(manifest, place, run, offset, max_bytes, min_one, until)

    def read_now(
        self, manifest: Manifest, offset: Offset, max_bytes: int, *, min_one: bool = True, until: Offset | None = None
    ) -> ColdRecords | None:
        """The same if it is in memory; None: it takes a wait, or the archive does not hold it."""
        segment = manifest.segment_at_once(offset)
        reader = None if segment is None else self._segments.get(segment.name.uuid)
        if segment is None or reader is None:
            return None
        place = _Place(manifest.snapshot.layout, segment, reader, max(reader.index.row_group_at(offset), 0))
        run = self._runs.get(place.key)
        if run is None:
            return None
        self.hits += 1
        return self._from_memory(manifest, place, run, offset, max_bytes, min_one, until)

    def _from_memory(
        self,
        manifest: Manifest,
        place: _Place,
        run: Run,
        offset: Offset,
        max_bytes: int,
        min_one: bool,
        until: Offset | None,
    ) -> ColdRecords:
        """From `offset` in this run on, and over the runs that follow it while they are in memory."""
        taken, end_offset = run.slice(offset, max_bytes, min_one)
        parts, places = [taken], [place]
        left = max_bytes - len(taken)
        while end_offset == run.end_offset and left > 0 and (until is None or end_offset < until):
            following = self._following_now(manifest, places[-1])
            found = None if following is None else self._runs.get(following.key)
            if following is None or found is None:
                break
            run = found
            taken, end_offset = run.slice(end_offset, left, min_one=False)
            if not taken:
                break
            self.hits += 1
            parts.append(taken)
            places.append(following)
            left -= len(taken)
        self._keep_ahead(manifest, places, waited=False)
        return ColdRecords(b"".join(parts), end_offset)

    async def first_at_or_after(
        self, manifest: Manifest, timestamp_ms: int, start: Offset, end: Offset
    ) -> TimedOffset | None:
        """The earliest offset in [start, end) whose record is not older; records need not be in time order."""
        async for segment in manifest.segments(start, end, from_ms=timestamp_ms):
            reader = await self.open_segment(manifest.snapshot.layout, segment)
            for number, group in enumerate(reader.index.row_groups):
                if group.max_timestamp_ms < timestamp_ms or group.end_offset <= start or end <= group.first_offset:
                    continue
                run = await self._run(_Place(manifest.snapshot.layout, segment, reader, number))
                found = await asyncio.to_thread(run.first_at_or_after, timestamp_ms, start, end)
                if found is not None:
                    return found
        return None

    async def greatest_timestamp(self, manifest: Manifest, start: Offset, end: Offset) -> int | None:
        """Of the records in [start, end); None where there are none.

        What lies wholly inside answers by what is written of it: a page, a segment, a row group. Only where the range
        begins and where it ends is looked into.
        """
        layout = manifest.snapshot.layout

        def inside(first: int, beyond: int) -> bool:
            return start <= first and beyond <= end

        stamps = [p.max_timestamp_ms for p in manifest.snapshot.parts if p.rows and inside(p.base_offset, p.end_offset)]
        async for segment in manifest.edges(start, end):
            if segment.rows and inside(segment.base_offset, segment.end_offset):
                stamps.append(segment.max_timestamp_ms)
                continue
            reader = await self.open_segment(layout, segment)
            for number, group in enumerate(reader.index.row_groups):
                if group.end_offset <= start or end <= group.first_offset:
                    continue
                if inside(group.first_offset, group.end_offset):
                    stamps.append(group.max_timestamp_ms)
                    continue
                run = await self._run(_Place(layout, segment, reader, number))
                found = await asyncio.to_thread(run.greatest_timestamp, start, end)
                if found is not None:
                    stamps.append(found)
        return max(stamps, default=None)

    async def _run(self, place: _Place) -> Run:
        run = self._runs.get(place.key)
        return run if run is not None else await asyncio.shield(self._fill(place))

    async def close(self) -> None:
        tasks = [*self._ahead, *self._fills.values(), *self._opening.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def open_segment(self, layout: PartitionLayout, segment: Segment) -> SegmentReader:
        """A segment's index, checked against the manifest."""
        uuid = segment.name.uuid
        reader = self._segments.get(uuid)
        if reader is not None:
            self._segments.move_to_end(uuid)
            return reader
        task = self._opening.get(uuid)
        if task is None:
            task = self._opening[uuid] = asyncio.create_task(self._load_index(layout, segment))
            task.add_done_callback(lambda done: self._opened(uuid, done))
        return await asyncio.shield(task)

    def _opened(self, uuid: str, task: asyncio.Task[SegmentReader]) -> None:
        self._opening.pop(uuid, None)
        self._damage.tell(task)

    async def _load_index(self, layout: PartitionLayout, segment: Segment) -> SegmentReader:
        reader = await open_segment(self._store, layout, segment)
        self._segments[segment.name.uuid] = reader
        if len(self._segments) > _OPEN_SEGMENTS:
            self._segments.popitem(last=False)
        return reader

    def _fill(self, place: _Place) -> asyncio.Task[Run]:
        task = self._fills.get(place.key)
        if task is None:
            if len(self._fills) >= _MOST_FILLS:
                raise StoreThrottled(f"{_MOST_FILLS} reads wait for the bucket already", where=place.reader.where)
            task = self._fills[place.key] = asyncio.create_task(self._load_run(place))
            task.add_done_callback(lambda done: self._filled(place.key, done))
        return task

    def _filled(self, key: str, task: asyncio.Task[Run]) -> None:
        self._fills.pop(key, None)
        self._damage.tell(task)
        if not task.cancelled() and task.exception() is None:
            self._runs.put(key, task.result())

    async def _load_run(self, place: _Place) -> Run:
        index, segment = place.reader.index, place.segment
        if not index.row_groups:
            return make_run(None, index.base_offset, index.end_offset, epoch_at(segment, index.end_offset))
        group = index.row_groups[place.number]
        epoch = epoch_at(segment, group.end_offset)

        def decode(data: Buffer) -> Run:
            return make_run(place.reader.decode(place.number, data), group.first_offset, group.end_offset, epoch)

        async with self._room:
            if self._disk is not None and (kept := await self._disk.get(place.key)) is not None:
                try:
                    return await asyncio.to_thread(decode, kept)
                except CorruptObject:
                    self._disk.drop(place.key)
            try:
                data = await self._store.get(place.layout.rows(segment.name), group.start, group.length)
            except ObjectMissing as error:
                raise CorruptObject(
                    "the manifest names this object, but it is not there", where=place.reader.where
                ) from error
            run = await asyncio.to_thread(decode, data)
        if self._disk is not None:
            await self._disk.put(place.key, data)
        return run

    def _keep_ahead(self, manifest: Manifest, places: Sequence[_Place], waited: bool) -> None:
        """Fetch what a forward reader needs after `places`: one row group after its first, twice as many at each step.

        A reader is known by the row group that it was kept ahead to; one that waits for a row group is a new one.
        """
        window = min(1, self._settings.read_ahead) if waited else 0
        for place in places:
            self._unread.discard(place.key)
            window = max(window, self._streams.pop(place.key, 0))
        if window:
            task = asyncio.create_task(self._fill_following(manifest, places[-1], window))
            self._ahead.add(task)
            task.add_done_callback(self._ahead.discard)

    async def _fill_following(self, manifest: Manifest, place: _Place, window: int) -> None:
        for step in range(window):
            try:
                following = await self._following(manifest, place)
            except TierlogError:
                return  # Whoever reads there is told.
            if following is None:
                return
            place = following
            if step == 0:
                self._streams[following.key] = min(2 * window, self._settings.read_ahead)
                if len(self._streams) > _STREAMS:
                    self._streams.popitem(last=False)
            if following.key not in self._runs and following.key not in self._fills:
                if not self._may_fetch_ahead():
                    return
                self._unread.add(following.key)
                self._fill(following)

    def _may_fetch_ahead(self) -> bool:
        if len(self._unread) >= self._most_unread:
            self._unread = {key for key in self._unread if key in self._runs or key in self._fills}
        return len(self._unread) < self._most_unread and len(self._fills) < _MOST_FILLS

    def _following_now(self, manifest: Manifest, place: _Place) -> _Place | None:
        """None: there is none, or it takes a wait to know."""
        if place.number + 1 < len(place.reader.index.row_groups):
            return _Place(place.layout, place.segment, place.reader, place.number + 1)
        segment = manifest.segment_at_once(place.segment.end_offset)
        reader = None if segment is None else self._segments.get(segment.name.uuid)
        return None if segment is None or reader is None else _Place(place.layout, segment, reader, 0)

    async def _following(self, manifest: Manifest, place: _Place) -> _Place | None:
        if place.number + 1 < len(place.reader.index.row_groups):
            return _Place(place.layout, place.segment, place.reader, place.number + 1)
        segment = await manifest.segment_at(place.segment.end_offset)
        if segment is None:
            return None
        return _Place(place.layout, segment, await self.open_segment(place.layout, segment), 0)

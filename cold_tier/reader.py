"""Reads archived records as record batches, from any offset: the cold half of a stitched fetch.

A read waits only for the row group of its offset. The answer continues over the following row groups and segments as
far as they are in memory. If one of these is damaged, the read that begins there gets the error.

Readers of committed records get the rows of the archive. All others also get what was put aside, aborted batches and
markers, in its place and as it was (`committed=False`). So no reader of the archive needs a list of aborted
transactions.

A read needs at most three requests before its first byte (a manifest page, the index, a row group) and one for each
further row group; with batches aside one more each. Fetches are shared: readers of the same row group wait for one
fill. A fill continues when its readers have given up, so that a client that retries finds it done. For a reader that
goes forward, row groups are fetched ahead: the longer it goes forward, the more. Row groups that were fetched ahead and
not read yet take at most half of the memory, for any number of readers. With more, they would evict each other before a
reader came to them.

`cold_tier.run_loader` fetches and decodes.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from cold_tier.cache import ColdReadSettings, MemoryCache
from cold_tier.damage_log import DamageLog
from cold_tier.decoded_row_group import Run, TimedOffset
from cold_tier.errors import KeyMissing, StoreThrottled
from cold_tier.format.encryption import Demand
from cold_tier.format.open import open_segment
from cold_tier.format.read import SegmentReader
from cold_tier.format.write import ROW_GROUP_BYTES
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import NO_TIMESTAMP, Part, SegmentEntry
from cold_tier.manifest.reader import Manifest
from cold_tier.objects.bucket import Bucket
from cold_tier.run_loader import Place, RunLoader
from hot_tier.errors import TierlogError
from hot_tier.ids import Offset

T = TypeVar("T")

_OPEN_SEGMENTS = 256
_STREAMS = 4096
_MOST_FILLS = 1024
"""The most fills that run or wait. A fill outlives its readers, so a client that jumps between offsets could queue any
number of them.
"""


class ColdRecords(NamedTuple):
    data: bytes
    """Whole batches in offset order, each of them once."""
    end_offset: Offset
    """The offset after the last batch. `data` has all that the archive holds from the asked offset up to here."""


class ColdReader:
    def __init__(
        self,
        store: Bucket,
        settings: ColdReadSettings,
        disk_folder: str | None = None,
        demanded: Callable[[PartitionLayout], Demand | None] = lambda layout: None,
    ) -> None:
        self._store = store
        self._demanded = demanded
        self._keys_epoch = store.keys.epoch
        self._settings = settings
        self._runs: MemoryCache[Run] = MemoryCache(settings.memory_bytes)
        self._loader = RunLoader(store, settings, disk_folder)
        self._segments: OrderedDict[str, SegmentReader] = OrderedDict()
        self._fills: dict[str, asyncio.Task[Run]] = {}
        self._opening: dict[str, asyncio.Task[SegmentReader]] = {}
        self._ahead: set[asyncio.Task[None]] = set()
        self._streams: OrderedDict[str, int] = OrderedDict()
        """By row group: how many row groups to fetch ahead for the reader that comes to it next."""
        self._unread: set[str] = set()
        """Row groups that were fetched ahead and not read yet."""
        self._most_unread = max(1, settings.memory_bytes // 2 // ROW_GROUP_BYTES)
        self._damage = DamageLog()
        self.hits = 0
        self.misses = 0

    @property
    def memory_bytes(self) -> int:
        """Returns the bytes of archived records that are kept in memory."""
        return self._runs.bytes

    async def read(
        self,
        manifest: Manifest,
        offset: Offset,
        max_bytes: int,
        *,
        min_one: bool = True,
        until: Offset | None = None,
        committed: bool = True,
    ) -> ColdRecords | None:
        """Returns whole batches from the one that holds `offset`, or None if the archive does not hold it.

        With `min_one` the first batch is returned even if it is larger than `max_bytes`. The answer does not continue
        into a row group that begins at or after `until`. With `committed` it has no aborted batches and no markers.
        """
        self._follow_keys()
        segment = await manifest.segment_at(offset)
        if segment is None:
            return None
        layout = manifest.snapshot.layout
        reader = await self.open_segment(layout, segment)
        place = Place.at(layout, segment, reader, offset, committed)
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
        self,
        manifest: Manifest,
        offset: Offset,
        max_bytes: int,
        *,
        min_one: bool = True,
        until: Offset | None = None,
        committed: bool = True,
    ) -> ColdRecords | None:
        """Like `read`, from memory only. Returns None if it would have to wait, or if `offset` is not archived."""
        self._follow_keys()
        segment = manifest.segment_at_once(offset)
        reader = None if segment is None else self._segments.get(segment.name.uuid)
        if segment is None or reader is None:
            return None
        place = Place.at(manifest.snapshot.layout, segment, reader, offset, committed)
        run = self._runs.get(place.key)
        if run is None:
            return None
        self.hits += 1
        return self._from_memory(manifest, place, run, offset, max_bytes, min_one, until)

    def _from_memory(
        self,
        manifest: Manifest,
        place: Place,
        run: Run,
        offset: Offset,
        max_bytes: int,
        min_one: bool,
        until: Offset | None,
    ) -> ColdRecords:
        """Returns batches from `offset` in this run, and from the runs that follow it while they are in memory."""
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
        self, manifest: Manifest, timestamp_ms: int, start: Offset, end: Offset, *, committed: bool = True
    ) -> TimedOffset | None:
        """Returns the earliest offset in [start, end) whose record is not older. Records may be in any time order.
        With `committed` no aborted record counts."""
        async for segment in manifest.segments(start, end, from_ms=timestamp_ms, committed=committed):
            reader = await self.open_segment(manifest.snapshot.layout, segment)
            for number, piece in enumerate(reader.pieces(committed=committed)):
                if piece.max_timestamp_ms < timestamp_ms or piece.end_offset <= start or end <= piece.first_offset:
                    continue
                run = await self._timed_run(Place(manifest.snapshot.layout, segment, reader, number, committed))
                found = await asyncio.to_thread(run.first_at_or_after, timestamp_ms, start, end)
                if found is not None:
                    return found
        return None

    async def greatest_timestamp(
        self, manifest: Manifest, start: Offset, end: Offset, *, committed: bool = True
    ) -> int | None:
        """Returns the greatest timestamp of the records in [start, end), or None if there are none.

        For a page, a segment or a row group that lies wholly inside the range, the stored maximum is enough. Records
        are read only where the range begins or ends inside a row group. With `committed` no aborted record counts.
        """
        layout = manifest.snapshot.layout
        stamps: list[int] = []

        def known(part: Part) -> bool:
            """Takes the stored maximum, if all records of the part count."""
            if part.base_offset < start or end < part.end_offset:
                return False
            stamps.extend([part.max_timestamp_ms] if part.rows else [])
            if not committed and part.aside_max_timestamp_ms != NO_TIMESTAMP:
                stamps.append(part.aside_max_timestamp_ms)
            return True

        for part in manifest.snapshot.parts:
            known(part)
        async for segment in manifest.edges(start, end):
            if known(segment):
                continue
            reader = await self.open_segment(layout, segment)
            exact = committed or reader.aside is None
            for number, piece in enumerate(reader.pieces(committed=committed)):
                if (
                    piece.end_offset <= start
                    or end <= piece.first_offset
                    or piece.max_timestamp_ms < max(stamps, default=0)
                ):
                    continue
                if exact and start <= piece.first_offset and piece.end_offset <= end:
                    stamps.append(piece.max_timestamp_ms)
                    continue
                run = await self._timed_run(Place(layout, segment, reader, number, committed))
                found = await asyncio.to_thread(run.greatest_timestamp, start, end)
                stamps.extend([] if found is None else [found])
        return max(stamps, default=None)

    def _follow_keys(self) -> None:
        """Forgets what was decrypted if the keys have changed: one of them may be destroyed."""
        epoch = self._store.keys.epoch
        if epoch != self._keys_epoch:
            self._keys_epoch = epoch
            self._runs = MemoryCache(self._settings.memory_bytes)
            self._segments.clear()

    async def _timed_run(self, place: Place) -> Run:
        """Returns a run for its offsets and times alone. It needs no key; without it, its records have no values."""
        try:
            return await self._run(place)
        except KeyMissing:
            if place.piece.portion is not None:
                raise
            return await self._loader.load(place, times_only=True)

    async def _run(self, place: Place) -> Run:
        run = self._runs.get(place.key)
        return run if run is not None else await asyncio.shield(self._fill(place))

    async def close(self) -> None:
        tasks = [*self._ahead, *self._fills.values(), *self._opening.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loader.close()

    async def open_segment(self, layout: PartitionLayout, segment: SegmentEntry) -> SegmentReader:
        """Returns the reader of a segment, with its index checked against the manifest."""
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

    async def _load_index(self, layout: PartitionLayout, segment: SegmentEntry) -> SegmentReader:
        reader = await open_segment(self._store, layout, segment)
        demand = self._demanded(layout)
        if demand is not None:
            demand.check(segment, reader.where)
        self._segments[segment.name.uuid] = reader
        if len(self._segments) > _OPEN_SEGMENTS:
            self._segments.popitem(last=False)
        return reader

    def _fill(self, place: Place) -> asyncio.Task[Run]:
        task = self._fills.get(place.key)
        if task is None:
            if len(self._fills) >= _MOST_FILLS:
                raise StoreThrottled(f"{_MOST_FILLS} reads already wait for the bucket", where=place.reader.where)
            task = self._fills[place.key] = asyncio.create_task(self._loader.load(place))
            epoch = self._keys_epoch
            task.add_done_callback(lambda done: self._filled(place.key, done, epoch))
        return task

    def _filled(self, key: str, task: asyncio.Task[Run], keys_epoch: int) -> None:
        self._fills.pop(key, None)
        self._damage.tell(task)
        if not task.cancelled() and task.exception() is None and keys_epoch == self._keys_epoch:
            self._runs.put(key, task.result())

    def _keep_ahead(self, manifest: Manifest, places: Sequence[Place], waited: bool) -> None:
        """Starts to fetch what a forward reader needs after `places`: one row group after its first, then twice as many
        each time.

        A reader is recognized when it comes to the first row group that was fetched ahead for it. A reader that had to
        wait for its row group is a new one.
        """
        window = min(1, self._settings.read_ahead) if waited else 0
        for place in places:
            self._unread.discard(place.key)
            window = max(window, self._streams.pop(place.key, 0))
        if window:
            task = asyncio.create_task(self._fill_following(manifest, places[-1], window))
            self._ahead.add(task)
            task.add_done_callback(self._ahead.discard)

    async def _fill_following(self, manifest: Manifest, place: Place, window: int) -> None:
        for step in range(window):
            try:
                following = await self._following(manifest, place)
            except TierlogError:
                return  # The read that begins there gets the error.
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

    def _following_now(self, manifest: Manifest, place: Place) -> Place | None:
        """Returns the row group after `place`, or None if there is none or if finding it would have to wait."""
        if place.number + 1 < len(place.pieces):
            return replace(place, number=place.number + 1)
        segment = manifest.segment_at_once(place.segment.end_offset)
        reader = None if segment is None else self._segments.get(segment.name.uuid)
        return None if segment is None or reader is None else Place(place.layout, segment, reader, 0, place.committed)

    async def _following(self, manifest: Manifest, place: Place) -> Place | None:
        if place.number + 1 < len(place.pieces):
            return replace(place, number=place.number + 1)
        segment = await manifest.segment_at(place.segment.end_offset)
        if segment is None:
            return None
        return Place(place.layout, segment, await self.open_segment(place.layout, segment), 0, place.committed)

"""A worker's way to archived files: manifests, indexes and row groups, read on a loop in a thread of its own.

Everything is checked as in a consumer's read: manifests and indexes by their checksums, row groups by theirs or by
those of their pages, and files against what the topic demands. Indexes are kept between jobs, since objects never
change.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Collection, Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from cold_tier.errors import CorruptObject, ObjectMissing
from cold_tier.format.columns import Span, spans
from cold_tier.format.key_filter import Filters, load_filters, may_hold
from cold_tier.format.open import open_segment
from cold_tier.format.read import SegmentReader
from cold_tier.manifest.model import SegmentEntry, Snapshot
from cold_tier.manifest.reader import Manifest, PageCache, load_newest
from cold_tier.objects.bucket import Bucket
from cold_tier.objects.store import Buffer
from gateway.sql.extents import Extent, border, counts
from hot_tier.ids import Offset

T = TypeVar("T")

_OPEN_BYTES: Final = 64 << 20
"""Indexes that are kept, by their size in the bucket."""
_FILTER_BYTES: Final = 32 << 20


class ArchiveFiles:
    def __init__(self, store: Bucket) -> None:
        self.store = store
        self._pages = PageCache(store)
        self._open: OrderedDict[str, tuple[SegmentReader, int]] = OrderedDict()
        self._open_bytes = 0
        self._filters: OrderedDict[str, Filters | None] = OrderedDict()
        self._filter_bytes = 0
        self._keys_epoch = store.keys.epoch
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="bucket", daemon=True).start()

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Runs it on the loop. May be called from any thread but the loop's."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def manifest(self, extent: Extent) -> Manifest | None:
        """Returns the manifest to read by; None if all is read from the leader."""
        snapshot: Snapshot | None = extent.snapshot
        if snapshot is None and extent.owner:
            snapshot = await load_newest(self.store, extent.layout)
            if snapshot is not None and not counts(extent, snapshot):
                snapshot = None
        if snapshot is None or border(extent, snapshot) == extent.start_offset:
            return None
        return Manifest(snapshot, self._pages)

    async def segments(self, manifest: Manifest, start: int, end: int) -> list[SegmentEntry]:
        return [each async for each in manifest.segments(Offset(start), Offset(end)) if each.rows]

    async def open(self, extent: Extent, segment: SegmentEntry) -> SegmentReader:
        if self.store.keys.epoch != self._keys_epoch:
            self._keys_epoch = self.store.keys.epoch
            self._open.clear()
            self._open_bytes = 0
        known = self._open.get(segment.name.uuid)
        if known is not None:
            self._open.move_to_end(segment.name.uuid)
            return known[0]
        reader = await open_segment(self.store, extent.layout, segment)
        if extent.demand is not None:
            extent.demand.check(segment, reader.where)
        if segment.name.uuid not in self._open:
            self._open[segment.name.uuid] = (reader, segment.index_bytes)
            self._open_bytes += segment.index_bytes
        while self._open_bytes > _OPEN_BYTES:
            self._open_bytes -= self._open.popitem(last=False)[1][1]
        return reader

    async def key_groups(
        self, extent: Extent, segment: SegmentEntry, reader: SegmentReader, key: bytes
    ) -> list[int] | None:
        """Returns the row groups that may hold the key; None if the file has no filters."""
        name = segment.name.uuid
        if name not in self._filters:
            filters = await load_filters(self.store, extent.layout, segment, reader)
            self._filters[name] = filters
            self._filter_bytes += 0 if filters is None else len(filters.data)
            while self._filter_bytes > _FILTER_BYTES:
                dropped = self._filters.popitem(last=False)[1]
                self._filter_bytes -= 0 if dropped is None else len(dropped.data)
        else:
            self._filters.move_to_end(name)
            filters = self._filters[name]
        return None if filters is None else may_hold(reader, filters, key)

    async def read(
        self, extent: Extent, segment: SegmentEntry, reader: SegmentReader, number: int, names: Collection[str]
    ) -> list[tuple[Span, Buffer]]:
        key = extent.layout.rows(segment.name)
        wanted = spans(reader, number, names)
        try:
            return [(span, await self.store.get(key, span.start, span.length)) for span in wanted]
        except ObjectMissing as error:
            raise CorruptObject("the manifest names this object, but it is not there", where=reader.where) from error

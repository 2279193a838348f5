"""Finds archived segments: the newest snapshot with one LIST, any segment of it in O(log n).

A `Manifest` is one snapshot together with those of its pages that were needed so far. Pages are immutable, so one cache
of them serves all snapshots of a partition. A fetch among 100,000 segments reads one page of 1,000, once.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence

from cold_tier.errors import CorruptManifest, ObjectMissing
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.codec import read_page, read_snapshot
from cold_tier.manifest.model import Page, Part, SegmentEntry, Snapshot, covering
from cold_tier.objects.bucket import Bucket
from hot_tier.ids import Offset
from hot_tier.record.crc import crc32c

_ATTEMPTS = 5


async def load_newest(store: Bucket, layout: PartitionLayout) -> Snapshot | None:
    """Returns the snapshot with the highest version, or None if nothing was ever published."""
    for _ in range(_ATTEMPTS):
        newest = await anext(aiter(store.list(layout.manifest_folder)), None)
        if newest is None:
            return None
        try:
            return await load(store, layout, newest.key)
        except ObjectMissing:
            continue  # It was superseded and collected between the LIST and the GET: look again.
    raise CorruptManifest(
        "the newest manifest is listed but cannot be read", where=f"{store.url}{layout.manifest_folder}"
    )


async def load(store: Bucket, layout: PartitionLayout, key: str) -> Snapshot:
    where = f"{store.url}{key}"
    snapshot = read_snapshot(await store.get(key), where)
    if snapshot.layout != layout or layout.parse_manifest(key) != snapshot.version:
        raise CorruptManifest(f"is not what its name says: {snapshot.layout}, {snapshot.version}", where=where)
    return snapshot


class PageCache:
    """Caches pages by uuid and evicts the least recently used first.

    Callers that need the same page wait for one GET. It continues when they give up, so that a caller that tries again
    finds the page.
    """

    def __init__(self, store: Bucket, capacity: int = 256) -> None:
        self._store = store
        self._capacity = capacity
        self._pages: OrderedDict[str, tuple[SegmentEntry, ...]] = OrderedDict()
        self._loading: dict[str, asyncio.Task[tuple[SegmentEntry, ...]]] = {}

    def cached(self, page: Page) -> tuple[SegmentEntry, ...] | None:
        if page.uuid in self._pages:
            self._pages.move_to_end(page.uuid)
        return self._pages.get(page.uuid)

    async def get(self, layout: PartitionLayout, page: Page) -> tuple[SegmentEntry, ...]:
        known = self.cached(page)
        if known is not None:
            return known
        task = self._loading.get(page.uuid)
        if task is None:
            task = self._loading[page.uuid] = asyncio.create_task(self._load(layout, page))
            task.add_done_callback(lambda done: self._loaded(page.uuid, done))
        return await asyncio.shield(task)

    def _loaded(self, uuid: str, task: asyncio.Task[tuple[SegmentEntry, ...]]) -> None:
        self._loading.pop(uuid, None)
        if not task.cancelled():
            task.exception()  # The waiting callers get the error. If there are none, the next caller asks again.

    async def _load(self, layout: PartitionLayout, page: Page) -> tuple[SegmentEntry, ...]:
        key = layout.page(page.base_offset, page.uuid)
        where = f"{self._store.url}{key}"
        try:
            data = await self._store.get(key)
        except ObjectMissing as error:
            raise CorruptManifest("a page that the manifest names is missing", where=where) from error
        if len(data) != page.size or crc32c(data) != page.crc32c:
            raise CorruptManifest("this page is not the one that the manifest names", where=where)
        segments = read_page(data, where)
        self._pages[page.uuid] = segments
        if len(self._pages) > self._capacity:
            self._pages.popitem(last=False)
        return segments


class Manifest:
    def __init__(self, snapshot: Snapshot, pages: PageCache) -> None:
        self.snapshot = snapshot
        self._pages = pages

    async def segment_at(self, offset: Offset) -> SegmentEntry | None:
        """Returns the segment that holds `offset`, or None if it is below the first segment or not below the end."""
        page = self._page_at(offset)
        segments = self.snapshot.tail if page is None else await self._pages.get(self.snapshot.layout, page)
        return _holding(segments, offset)

    def segment_at_once(self, offset: Offset) -> SegmentEntry | None:
        """Like `segment_at`, without waiting. Also returns None if the segment's page is not in memory."""
        page = self._page_at(offset)
        return _holding(self.snapshot.tail if page is None else self._pages.cached(page) or (), offset)

    def _page_at(self, offset: Offset) -> Page | None:
        found = covering(self.snapshot.pages, offset)
        return None if found is None else self.snapshot.pages[found]

    async def segments(
        self,
        start: Offset,
        end: Offset,
        from_ms: int | None = None,
        to_ms: int | None = None,
        *,
        committed: bool = True,
    ) -> AsyncIterator[SegmentEntry]:
        """Yields the segments that touch [start, end) and may hold timestamps in [from_ms, to_ms), in offset order.

        Without `committed`, timestamps of aborted records from `from_ms` on count too.
        """

        def newest(part: Part) -> int:
            return part.max_timestamp_ms if committed else max(part.max_timestamp_ms, part.aside_max_timestamp_ms)

        def wanted(part: Part) -> bool:
            return (
                part.base_offset < end
                and start < part.end_offset
                and (from_ms is None or newest(part) >= from_ms)
                and (to_ms is None or part.min_timestamp_ms < to_ms)
            )

        for page in filter(wanted, self.snapshot.pages):
            for segment in filter(wanted, await self._pages.get(self.snapshot.layout, page)):
                yield segment
        for segment in filter(wanted, self.snapshot.tail):
            yield segment

    async def edges(self, start: Offset, end: Offset) -> AsyncIterator[SegmentEntry]:
        """Yields the segments that touch [start, end), of pages and tail segments that are partly outside of it."""
        for part in self.snapshot.parts:
            touches = part.base_offset < end and start < part.end_offset
            if touches and not (start <= part.base_offset and part.end_offset <= end):
                low, high = max(start, part.base_offset), min(end, part.end_offset)
                async for segment in self.segments(Offset(low), Offset(high)):
                    yield segment


def _holding(segments: Sequence[SegmentEntry], offset: Offset) -> SegmentEntry | None:
    found = covering(segments, offset)
    return None if found is None else segments[found]

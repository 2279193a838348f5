"""The leader's hand on a partition's manifest: load, take over, publish.

Only the partition's leader has one, and it does nothing before `open` has loaded the newest snapshot and published its
own epoch's first. Every publish runs the invariants first, writes with put-if-absent, and is lost to a higher version:
- another writer of the same version loses or wins the put-if-absent; the loser is fenced;
- a deposed leader's snapshot has a lower epoch than its successor's first, so no reader takes it. `still_newest`
  tells it so, and whatever cannot be undone (deleting an object or a local segment) asks that first.
"""

import dataclasses
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from cold_tier.errors import ManifestFenced, ReplacementRefused
from cold_tier.layout import PartitionLayout, SegmentName, Version
from cold_tier.manifest import invariants
from cold_tier.manifest.codec import write_page, write_snapshot
from cold_tier.manifest.model import PAGE_SEGMENTS, Page, Removed, Segment, Snapshot, summarize
from cold_tier.manifest.reader import PageCache, load, load_newest
from cold_tier.manifest.replacement import Replacement, exchange
from cold_tier.objects.retrying import RetryingStore
from hot_tier.ids import LeaderEpoch, Offset
from hot_tier.record.crc import crc32c

_NOTHING: Final = Version(LeaderEpoch(-1), -1)


class ManifestWriter:
    def __init__(
        self,
        store: RetryingStore,
        layout: PartitionLayout,
        leader_epoch: LeaderEpoch,
        current: Snapshot,
        pages: PageCache,
        page_segments: int,
    ) -> None:
        self._store = store
        self._layout = layout
        self._leader_epoch = leader_epoch
        self._pages = pages
        self._page_segments = page_segments
        self.current = current

    @classmethod
    async def open(
        cls,
        store: RetryingStore,
        layout: PartitionLayout,
        leader_epoch: LeaderEpoch,
        log_start_offset: Offset,
        now_ms: int,
        page_segments: int = PAGE_SEGMENTS,
        check: Callable[[Snapshot | None], None] = lambda found: None,
    ) -> "ManifestWriter":
        """Take the partition over: what is published becomes ours, under our epoch.

        `log_start_offset` counts only where nothing was ever published; otherwise the manifest knows better. A leader
        that comes back in its own epoch publishes too: a snapshot of its own whose answer was lost may be on its way
        still, and must find its version taken before anything that it names is deleted. `check` is shown what is there,
        and may refuse it, before anything is published.
        """
        found = await load_newest(store, layout)
        check(found)
        if found is not None and found.version.leader_epoch > leader_epoch:
            raise ManifestFenced(
                f"epoch {leader_epoch} is deposed: epoch {found.version.leader_epoch} has published",
                where=f"{store.url}{layout.manifest_folder}",
            )
        identity = (layout.topic, layout.topic_id, layout.partition)
        before = found or Snapshot(*identity, Version(leader_epoch, -1), "", now_ms, log_start_offset)
        writer = cls(store, layout, leader_epoch, before, PageCache(store), page_segments)
        await writer._publish(before, now_ms)
        await writer._catch_up(_NOTHING if found is None else found.version, check, now_ms)
        return writer

    async def _catch_up(self, known: Version, check: Callable[[Snapshot | None], None], now_ms: int) -> None:
        """A deposed leader may have published between our look and our first snapshot, and dropped local segments then:
        its last snapshot is the one to take over. What it publishes from here on is too late for both."""
        ours = self._layout.manifest(self.current.version)
        last = await anext(aiter(self._store.list(self._layout.manifest_folder, ours)), None)
        version = None if last is None else self._layout.parse_manifest(last.key)
        if last is not None and version is not None and version > known:
            missed = await load(self._store, self._layout, last.key)
            check(missed)
            await self._publish(dataclasses.replace(missed, version=self.current.version), now_ms)

    async def append(self, segments: Sequence[Segment], now_ms: int) -> None:
        """Add newly archived segments at the end; from the moment this returns, they are the truth."""
        current = self.current
        tail = (*current.tail, *segments)
        pages = current.pages
        if len(tail) >= self._page_segments:
            pages, tail = (*pages, await self._close_page(tail)), ()
        await self._publish(dataclasses.replace(current, pages=pages, tail=tail), now_ms)

    async def expire(self, log_start_offset: Offset, now_ms: int) -> None:
        """Delete for readers what lies below `log_start_offset`; whole segments below it are listed as removed."""
        current = self.current
        removed = list(current.removed)
        pages: list[Page] = []
        for page in current.pages:
            if page.base_offset >= log_start_offset:
                pages.append(page)
                continue
            segments = await self._pages.get(self._layout, page)
            kept = [s for s in segments if s.end_offset > log_start_offset]
            if len(kept) == len(segments):
                pages.append(page)
                continue
            removed += self._removed((s.name for s in segments if s.end_offset <= log_start_offset), now_ms)
            removed.append(Removed(self._layout.page(page.base_offset, page.uuid), now_ms))
            if kept:
                pages.append(await self._close_page(kept))
        gone = [s for s in current.tail if s.end_offset <= log_start_offset]
        removed += self._removed((s.name for s in gone), now_ms)
        changed = dataclasses.replace(
            current,
            log_start_offset=max(log_start_offset, current.log_start_offset),
            pages=tuple(pages),
            tail=current.tail[len(gone) :],
            removed=tuple(removed),
        )
        await self._publish(changed, now_ms)

    async def replace(self, replacements: Sequence[Replacement], now_ms: int) -> None:
        """Rewritten segments take the place of those they were made from, all at once; the old are listed as removed.

        ReplacementRefused where one of the old is not there any more. Neighbouring pages that change are closed
        together, so that a manifest shrinks with what it describes.
        """
        current = self.current
        waiting = {each.old[0]: each for each in replacements}
        gone = [name for each in replacements for name in each.old]
        removed = [*current.removed, *self._removed(gone, now_ms)]
        pages: list[Page] = []
        run: list[Segment] = []
        for page in current.pages:
            if any(each.base_offset < page.end_offset and page.base_offset < each.end_offset for each in replacements):
                run += await self._pages.get(self._layout, page)
                removed.append(Removed(self._layout.page(page.base_offset, page.uuid), now_ms))
                continue
            pages += await self._close_pages(exchange(run, waiting), at_least=1)
            pages.append(page)
            run = []
        tail = exchange([*run, *current.tail], waiting)
        if waiting:
            first = min(each.base_offset for each in waiting.values())
            raise ReplacementRefused(
                f"the manifest no longer holds the segments from offset {first} on that were rewritten",
                hint="they expired, or another rewrote them; run it again on what is there now",
            )
        closed = await self._close_pages(tail, at_least=self._page_segments)
        tail = tail[sum(page.segments for page in closed) :]
        changed = dataclasses.replace(current, pages=(*pages, *closed), tail=tuple(tail), removed=tuple(removed))
        await self._publish(changed, now_ms)

    async def forget(self, keys: Sequence[str], now_ms: int) -> None:
        """Take deleted objects off the list of removed ones."""
        gone = set(keys)
        removed = tuple(entry for entry in self.current.removed if entry.key not in gone)
        await self._publish(dataclasses.replace(self.current, removed=removed), now_ms)

    async def still_newest(self) -> bool:
        newest = await anext(aiter(self._store.list(self._layout.manifest_folder)), None)
        return newest is not None and newest.key == self._layout.manifest(self.current.version)

    async def _publish(self, changed: Snapshot, now_ms: int) -> None:
        current = self.current
        same_epoch = current.version.leader_epoch == self._leader_epoch
        version = Version(self._leader_epoch, current.version.sequence + 1 if same_epoch else 0)
        # Of one epoch the versions are searched by time.
        published_ms = max(now_ms, current.published_ms) if same_epoch else now_ms
        new = dataclasses.replace(changed, version=version, nonce=uuid.uuid4().hex, published_ms=published_ms)
        invariants.check(new, current)
        key = self._layout.manifest(version)
        if not await self._store.put_if_absent(key, write_snapshot(new)):
            raise ManifestFenced(
                "another writer has published this version",
                where=f"{self._store.url}{key}",
                hint="two brokers act as leader of one partition, or two clusters share this bucket prefix",
            )
        self.current = new

    async def _close_pages(self, segments: Sequence[Segment], at_least: int) -> list[Page]:
        """Pages of the usual length; a rest shorter than `at_least` stays open."""
        cuts = range(0, len(segments), self._page_segments)
        runs = [segments[at : at + self._page_segments] for at in cuts]
        return [await self._close_page(run) for run in runs if len(run) >= at_least]

    async def _close_page(self, segments: Sequence[Segment]) -> Page:
        data = write_page(segments)
        page = summarize(segments, uuid.uuid4().hex, len(data), crc32c(data))
        await self._store.put(self._layout.page(page.base_offset, page.uuid), data)
        return page

    def _removed(self, names: Iterable[SegmentName], now_ms: int) -> list[Removed]:
        return [Removed(key, now_ms) for name in names for key in (self._layout.rows(name), self._layout.index(name))]

"""The leader's writer of a partition's manifest: it loads, takes over, and publishes.

Only the partition's leader has one. It does nothing before `open` has loaded the newest snapshot and published the
first of its own epoch. Every publish first checks the invariants, then writes with put-if-absent, and loses to a higher
version:
- If another writer writes the same version, put-if-absent lets one of them win. The other is fenced.
- A deposed leader's snapshot has a lower epoch than its successor's first one, so no reader takes it.
- If the bucket went back to an older state, or if somebody else writes to it, our last snapshot is no longer its
  newest. A publish compares the names first. Before anything that cannot be undone (deleting an object or a local
  segment), `still_newest` also reads whose snapshot the newest is.
"""

import dataclasses
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from cold_tier.errors import ManifestFenced, ObjectMissing, ReplacementRefused
from cold_tier.layout import PartitionLayout, Version
from cold_tier.manifest import invariants
from cold_tier.manifest.codec import write_page, write_snapshot
from cold_tier.manifest.model import (
    PAGE_SEGMENTS,
    Lost,
    Owner,
    Page,
    Removed,
    SegmentEntry,
    Snapshot,
    object_keys,
    summarize,
)
from cold_tier.manifest.reader import Manifest, PageCache, load, load_newest
from cold_tier.manifest.replacement import Replacement, exchange
from cold_tier.objects.bucket import Bucket
from hot_tier.ids import LeaderEpoch, Offset
from hot_tier.record.crc import crc32c

_NOTHING: Final = Version(LeaderEpoch(-1), -1)


async def _any(found: Snapshot | None) -> None:
    """Accepts every snapshot."""


class ManifestWriter:
    def __init__(
        self,
        store: Bucket,
        layout: PartitionLayout,
        leader_epoch: LeaderEpoch,
        current: Snapshot,
        pages: PageCache,
        page_segments: int = PAGE_SEGMENTS,
        owner: Owner | None = None,
    ) -> None:
        self._store = store
        self._layout = layout
        self._leader_epoch = leader_epoch
        self._pages = pages
        self._page_segments = page_segments
        self._owner = owner
        self.current = current

    @classmethod
    async def open(
        cls,
        store: Bucket,
        layout: PartitionLayout,
        leader_epoch: LeaderEpoch,
        log_start_offset: Offset,
        now_ms: int,
        page_segments: int = PAGE_SEGMENTS,
        check: Callable[[Snapshot | None], Awaitable[None]] = _any,
        owner: Owner | None = None,
        published: Version | None = None,
    ) -> "ManifestWriter":
        """Takes the partition over: continues what is published, under our epoch.

        `log_start_offset` is used only if nothing was ever published; otherwise the manifest has it. A leader that
        comes back in its own epoch publishes too: one of its earlier snapshots, whose answer was lost, may still be on
        its way. That snapshot must find its version taken before anything that it names is deleted. `check` gets the
        newest snapshot before anything is published, and may refuse it by an error. Without an `owner` the snapshots
        keep the owner of the one before: that is for tools that work while no broker runs. `published` was the newest
        version before the bucket lost all of them: they may come back, and then ours must be the newest.
        """
        found = await load_newest(store, layout)
        await check(found)
        if found is not None and found.version.leader_epoch > leader_epoch:
            raise ManifestFenced(
                f"epoch {leader_epoch} is deposed: epoch {found.version.leader_epoch} has already published",
                where=f"{store.url}{layout.manifest_folder}",
            )
        identity = (layout.topic, layout.topic_id, layout.partition)
        before = found or Snapshot(*identity, published or Version(leader_epoch, -1), "", now_ms, log_start_offset)
        writer = cls(store, layout, leader_epoch, before, PageCache(store), page_segments, owner)
        await writer._publish(before, now_ms, looked=True)
        await writer._catch_up(_NOTHING if found is None else found.version, check, now_ms)
        return writer

    async def _catch_up(self, known: Version, check: Callable[[Snapshot | None], Awaitable[None]], now_ms: int) -> None:
        """Takes over a snapshot that a deposed leader published between our look and our first snapshot.

        The deposed leader may have dropped local segments after that publish. What it publishes from now on has a lower
        epoch, so it drops nothing and no reader sees it.
        """
        ours = self._layout.manifest(self.current.version)
        last = await anext(aiter(self._store.list(self._layout.manifest_folder, ours)), None)
        version = None if last is None else self._layout.parse_manifest(last.key)
        if last is not None and version is not None and version > known:
            missed = await load(self._store, self._layout, last.key)
            await check(missed)
            await self._publish(dataclasses.replace(missed, version=self.current.version), now_ms, looked=True)

    async def append(self, segments: Sequence[SegmentEntry], now_ms: int) -> None:
        """Adds newly archived segments at the end. Once this returns, readers find them in the archive."""
        current = self.current
        tail = (*current.tail, *segments)
        pages = current.pages
        if len(tail) >= self._page_segments:
            pages, tail = (*pages, await self._close_page(tail)), ()
        await self._publish(dataclasses.replace(current, pages=pages, tail=tail), now_ms)

    async def expire(self, log_start_offset: Offset, now_ms: int) -> None:
        """Deletes for readers what lies below `log_start_offset`, and lists whole segments below it as removed."""
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
            removed += self._removed((s for s in segments if s.end_offset <= log_start_offset), now_ms)
            removed.append(Removed(self._layout.page(page.base_offset, page.uuid), now_ms))
            if kept:
                pages.append(await self._close_page(kept))
        gone = [s for s in current.tail if s.end_offset <= log_start_offset]
        removed += self._removed(gone, now_ms)
        changed = dataclasses.replace(
            current,
            log_start_offset=max(log_start_offset, current.log_start_offset),
            pages=tuple(pages),
            tail=current.tail[len(gone) :],
            removed=tuple(removed),
            lost=tuple(each for each in current.lost if each.end_offset > log_start_offset),
        )
        await self._publish(changed, now_ms)

    async def rebuild(self, segments: Sequence[SegmentEntry], lost: Sequence[Lost], now_ms: int) -> None:
        """Replaces all segments by `segments`: the repair of an archive whose manifests went back."""
        current, names = self.current, {segment.name for segment in segments}
        known = Manifest(current, self._pages).segments(current.start_offset, current.end_offset)
        gone = [segment async for segment in known if segment.name not in names]
        needed = set(object_keys(self._layout, segments))
        removed = [entry for entry in current.removed if entry.key not in needed] + self._removed(gone, now_ms)
        removed += [Removed(self._layout.page(page.base_offset, page.uuid), now_ms) for page in current.pages]
        pages = await self._close_pages(list(segments), at_least=self._page_segments)
        changed = dataclasses.replace(
            current,
            pages=tuple(pages),
            tail=tuple(segments[sum(page.segments for page in pages) :]),
            removed=tuple(removed),
            lost=(*current.lost, *lost),
        )
        await self._publish(changed, now_ms, looked=True)

    async def replace(self, replacements: Sequence[Replacement], now_ms: int) -> None:
        """Puts rewritten segments in the place of those they were made from, all at once. Lists the old ones as
        removed.

        Raises ReplacementRefused if an old segment is no longer in the manifest. Neighbouring pages that change are
        closed together, so that the manifest becomes smaller along with what it describes.
        """
        current = self.current
        waiting = {each.old[0]: each for each in replacements}
        gone = {name for each in replacements for name in each.old}
        removed = list(current.removed)
        pages: list[Page] = []
        run: list[SegmentEntry] = []
        for page in current.pages:
            if any(each.base_offset < page.end_offset and page.base_offset < each.end_offset for each in replacements):
                segments = await self._pages.get(self._layout, page)
                run += segments
                removed += self._removed((s for s in segments if s.name in gone), now_ms)
                removed.append(Removed(self._layout.page(page.base_offset, page.uuid), now_ms))
                continue
            pages += await self._close_pages(exchange(run, waiting), at_least=1)
            pages.append(page)
            run = []
        removed += self._removed((s for s in current.tail if s.name in gone), now_ms)
        tail = exchange([*run, *current.tail], waiting)
        if waiting:
            first = min(each.base_offset for each in waiting.values())
            raise ReplacementRefused(
                f"the manifest no longer holds the segments from offset {first} on that were rewritten",
                hint="they expired, or another job rewrote them; run the job again",
            )
        closed = await self._close_pages(tail, at_least=self._page_segments)
        tail = tail[sum(page.segments for page in closed) :]
        changed = dataclasses.replace(current, pages=(*pages, *closed), tail=tuple(tail), removed=tuple(removed))
        await self._publish(changed, now_ms)

    async def forget(self, keys: Sequence[str], now_ms: int) -> None:
        """Takes deleted objects off the list of removed objects."""
        gone = set(keys)
        removed = tuple(entry for entry in self.current.removed if entry.key not in gone)
        await self._publish(dataclasses.replace(self.current, removed=removed), now_ms)

    async def still_newest(self) -> bool:
        """Returns whether the newest snapshot in the bucket is exactly the one that was published here last."""
        newest = await load_newest(self._store, self._layout)
        return newest is not None and (newest.version, newest.nonce) == (self.current.version, self.current.nonce)

    async def still_there(self) -> bool:
        """Returns whether the bucket still has the snapshot that was published here last. Costs one GET. It does not
        tell whether there is a newer one."""
        current = self.current
        try:
            found = await load(self._store, self._layout, self._layout.manifest(current.version))
        except ObjectMissing:
            return False
        return found.nonce == current.nonce

    async def _is_newest(self) -> bool:
        newest = await anext(aiter(self._store.list(self._layout.manifest_folder)), None)
        return newest is not None and newest.key == self._layout.manifest(self.current.version)

    async def _publish(self, changed: Snapshot, now_ms: int, *, looked: bool = False) -> None:
        """`looked` says that the caller has just compared the bucket with what this publish continues."""
        current = self.current
        if not looked and not await self._is_newest():
            raise ManifestFenced(
                f"{tuple(current.version)} is no longer the newest manifest",
                where=f"{self._store.url}{self._layout.manifest_folder}",
                hint="the manifest is loaded again before anything is published",
            )
        same_epoch = current.version.leader_epoch == self._leader_epoch
        version = Version(self._leader_epoch, current.version.sequence + 1 if same_epoch else 0)
        # Versions of one epoch are searched by time, so the time must not go back.
        published_ms = max(now_ms, current.published_ms) if same_epoch else now_ms
        new = dataclasses.replace(changed, version=version, nonce=uuid.uuid4().hex, published_ms=published_ms)
        if self._owner is not None:
            new = dataclasses.replace(new, owner=self._owner)
        invariants.check(new, current)
        key = self._layout.manifest(version)
        if not await self._store.put_if_absent(key, write_snapshot(new)):
            raise ManifestFenced(
                "another writer has published this version",
                where=f"{self._store.url}{key}",
                hint="two brokers act as leader of one partition, or two clusters share this bucket prefix",
            )
        self.current = new

    async def _close_pages(self, segments: Sequence[SegmentEntry], at_least: int) -> list[Page]:
        """Closes pages of the usual length. A rest shorter than `at_least` is left out."""
        cuts = range(0, len(segments), self._page_segments)
        runs = [segments[at : at + self._page_segments] for at in cuts]
        return [await self._close_page(run) for run in runs if len(run) >= at_least]

    async def _close_page(self, segments: Sequence[SegmentEntry]) -> Page:
        data = write_page(segments)
        page = summarize(segments, uuid.uuid4().hex, len(data), crc32c(data))
        await self._store.put(self._layout.page(page.base_offset, page.uuid), data)
        return page

    def _removed(self, segments: Iterable[SegmentEntry], now_ms: int) -> list[Removed]:
        return [Removed(key, now_ms) for key in object_keys(self._layout, segments)]

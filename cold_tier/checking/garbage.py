"""Finds objects in a bucket that nobody needs: removed from a manifest, never named by one, or superseded manifests.

This module only finds objects. The caller deletes them, after it has checked that it may (`offloader.partition_archive`
checks its manifest, the command line asks its user). The rows of all topics that ever had one name lie in one folder,
so what any of them names is kept.

An object that may be newer than the manifest is not an orphan: if manifests went back, it is the only copy
(`may_be_newer`). If one topic id of a partition has objects but no manifest at all, nobody can say which rows belong to
it, so all orphans stay.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from cold_tier import proposals
from cold_tier.inventory import find_topics
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import Snapshot
from cold_tier.manifest.reader import Manifest, PageCache, load_newest
from cold_tier.objects.bucket import Bucket
from cold_tier.objects.store import ObjectInfo
from cold_tier.pins import held
from cold_tier.reports import Garbage


class Ages(Protocol):
    """How long objects stay that are no longer needed (`offloader.settings.OffloadSettings`)."""

    @property
    def delete_grace_ms(self) -> int: ...

    @property
    def orphan_age_ms(self) -> int: ...

    @property
    def manifest_history_ms(self) -> int: ...


async def named_keys(manifest: Manifest) -> set[str]:
    """Returns every object that the manifest needs or lists as removed."""
    snapshot = manifest.snapshot
    layout = snapshot.layout
    named = {gone.key for gone in snapshot.removed}
    named |= {layout.page(page.base_offset, page.uuid) for page in snapshot.pages}
    async for segment in manifest.segments(snapshot.start_offset, snapshot.end_offset):
        named |= segment.objects(layout).keys()
    return named


async def named_by_other_topics(store: Bucket, mine: PartitionLayout) -> set[str]:
    """Returns the rows of other topics of this name: deleted ones, and those of clusters that share the bucket."""
    named: set[str] = set()
    for life in await find_topics(store, mine.topic):
        for layout in life.layouts:
            if life.id != mine.topic_id and layout.partition == mine.partition:
                snapshot = await load_newest(store, layout)
                if snapshot is not None:
                    named |= await named_keys(Manifest(snapshot, PageCache(store)))
        for layout in life.bare:
            if life.id != mine.topic_id and layout.partition == mine.partition:
                named |= await indexed_rows(store, layout)
    return named


async def unnamed_objects(store: Bucket, layouts: Iterable[PartitionLayout], named: set[str]) -> dict[str, ObjectInfo]:
    """Returns the objects of segments, pages and refusals below `layouts` that are not in `named`.

    `layouts` are one partition of one topic name, for each of its topic ids. Names that `cold_tier.layout` does not
    make belong to others and are skipped.
    """
    found: dict[str, ObjectInfo] = {}
    for layout in layouts:
        for folder, parse in (
            (layout.rows_folder, layout.parse_rows),
            (layout.index_folder, layout.parse_index),
            (layout.aside_folder, layout.parse_aside),
            (layout.pages_folder, layout.parse_page),
            (layout.proposals_folder, layout.parse_refusal),
        ):
            async for info in store.list(folder):
                if info.key not in named and parse(info.key) is not None:
                    found[info.key] = info
    return found


def may_be_newer(key: str, snapshot: Snapshot) -> bool:
    """Returns whether an object that `snapshot` does not name may belong to a later manifest, published or not."""
    name = snapshot.layout.parse_segment(key)
    return name is not None and (
        name.base_offset >= snapshot.end_offset or name.leader_epoch > snapshot.version.leader_epoch
    )


async def indexed_rows(store: Bucket, layout: PartitionLayout) -> set[str]:
    """Returns the rows of this topic id of a partition, by the names of its indexes."""
    names = [layout.parse_index(info.key) async for info in store.list(layout.index_folder)]
    return {layout.rows(name) for name in names if name is not None}


async def superseded_manifests(store: Bucket, manifest: Manifest, older_than_ms: int) -> list[ObjectInfo]:
    layout = manifest.snapshot.layout
    newest = layout.manifest(manifest.snapshot.version)
    return [info async for info in store.list(layout.manifest_folder, newest) if info.modified_ms <= older_than_ms]


async def find_garbage(store: Bucket, layouts: Sequence[PartitionLayout], ages: Ages, now_ms: int) -> list[Garbage]:
    """Returns what may be deleted of one partition, past grace and age. Reads each manifest anew.

    `layouts` has all topic ids of the topic's name. A pin keeps what was removed. The bucket does not say whether its
    newest manifest is the one that was published last. So an object that was stored after that manifest is not an
    orphan.
    """
    named: set[str] = set()
    garbage: list[Garbage] = []
    due: list[str] = []
    newest: list[Snapshot] = []
    for layout in layouts:
        snapshot = await load_newest(store, layout)
        if snapshot is None:
            continue
        newest.append(snapshot)
        manifest = Manifest(snapshot, PageCache(store))
        named |= await named_keys(manifest) | await proposals.named(store, layout)
        if await held(store, layout.topic, layout.topic_id, now_ms):
            continue
        due += [gone.key for gone in snapshot.removed if now_ms - gone.removed_ms >= ages.delete_grace_ms]
        old = await superseded_manifests(store, manifest, now_ms - ages.manifest_history_ms)
        garbage += [Garbage("manifest", info.key, info.size) for info in old]
    found = await unnamed_objects(store, layouts, named - set(due))
    garbage += [Garbage("removed", key, found[key].size) for key in due if key in found]
    if len(newest) < len(layouts):
        return garbage
    garbage += [
        Garbage("orphan", key, info.size)
        for key, info in found.items()
        if key not in due
        and now_ms - info.modified_ms >= ages.orphan_age_ms
        and not any(info.modified_ms >= each.published_ms or may_be_newer(key, each) for each in newest)
    ]
    return garbage

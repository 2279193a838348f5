"""Objects in a bucket that nobody needs: what a manifest let go of, what none ever named, superseded manifests.

Only finds; who deletes has asked first whether it may (`offloader.partition_archive` its manifest, the command line
its user). Rows of all lives of a topic name lie in one folder, so what any of them names is kept.

No orphan is what may be newer than the manifest: where manifests went back, it is the only copy (`may_be_newer`). And
where a life of a partition has objects and no manifest at all, nobody can say which rows are its own: all stay.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from cold_tier import proposals
from cold_tier.inventory import find_topics
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import Snapshot
from cold_tier.manifest.reader import Manifest, PageCache, load_newest
from cold_tier.objects.retrying import RetryingStore
from cold_tier.objects.store import ObjectInfo
from cold_tier.pins import held
from cold_tier.reports import Garbage


class Ages(Protocol):
    """How long what is not needed stays (`offloader.settings.OffloadSettings`)."""

    @property
    def delete_grace_ms(self) -> int: ...

    @property
    def orphan_age_ms(self) -> int: ...

    @property
    def manifest_history_ms(self) -> int: ...


async def named_keys(manifest: Manifest) -> set[str]:
    """Every object that the manifest needs, or still lists as removed."""
    snapshot = manifest.snapshot
    layout = snapshot.layout
    named = {gone.key for gone in snapshot.removed}
    named |= {layout.page(page.base_offset, page.uuid) for page in snapshot.pages}
    async for segment in manifest.segments(snapshot.start_offset, snapshot.end_offset):
        named |= {layout.rows(segment.name), layout.index(segment.name)}
    return named


async def named_by_other_topics(store: RetryingStore, mine: PartitionLayout) -> set[str]:
    """Returns the rows that other topics of this name hold: deleted ones, and those of clusters that share the
    bucket."""
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


async def unnamed_objects(
    store: RetryingStore, layouts: Iterable[PartitionLayout], named: set[str]
) -> dict[str, ObjectInfo]:
    """Rows, indexes, pages and refusals of these lives of one partition that are not among `named`.

    A name that `cold_tier.layout` does not make is somebody else's."""
    found: dict[str, ObjectInfo] = {}
    for layout in layouts:
        for folder, parse in (
            (layout.rows_folder, layout.parse_rows),
            (layout.index_folder, layout.parse_index),
            (layout.pages_folder, layout.parse_page),
            (layout.proposals_folder, layout.parse_refusal),
        ):
            async for info in store.list(folder):
                if info.key not in named and parse(info.key) is not None:
                    found[info.key] = info
    return found


def may_be_newer(key: str, snapshot: Snapshot) -> bool:
    """Whether an object that `snapshot` does not name may be of a manifest that came after it, or is yet to come."""
    name = snapshot.layout.parse_rows(key) or snapshot.layout.parse_index(key)
    return name is not None and (
        name.base_offset >= snapshot.end_offset or name.leader_epoch > snapshot.version.leader_epoch
    )


async def indexed_rows(store: RetryingStore, layout: PartitionLayout) -> set[str]:
    """Rows that are of this life of a partition, by the names of their indexes."""
    names = [layout.parse_index(info.key) async for info in store.list(layout.index_folder)]
    return {layout.rows(name) for name in names if name is not None}


async def superseded_manifests(store: RetryingStore, manifest: Manifest, older_than_ms: int) -> list[ObjectInfo]:
    layout = manifest.snapshot.layout
    newest = layout.manifest(manifest.snapshot.version)
    return [info async for info in store.list(layout.manifest_folder, newest) if info.modified_ms <= older_than_ms]


async def find_garbage(
    store: RetryingStore, layouts: Sequence[PartitionLayout], ages: Ages, now_ms: int
) -> list[Garbage]:
    """Of all lives of one partition, past grace and age; each manifest is read anew. A pin keeps what was removed.

    Whether the manifest is the last one that was published the bucket does not say. So no orphan is what was stored
    since it was.
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

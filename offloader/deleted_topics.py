"""Deletes the archives of deleted topics, once the grace period after the deletion has passed.

Cluster metadata remembers a deletion for days, so an interrupted deletion is finished later. The order makes that
possible: rows, then indexes and pages, then manifests, then the topic's description. What is deleted last tells where
the rest is, and deleting an object again costs nothing.

Only objects of this topic id are deleted. A new topic of the same name has rows in the same folder. Rows are
distinguished by their stems, which the index folder and the manifests of each topic id name. A crash before an index is
written leaves rows that neither names. They are deleted if no other topic of that name exists and they are older than
the deletion; otherwise they are orphans of the other topic.

An archive to which somebody else has published since is left unchanged (`offloader.trust`): a cluster that restored the
topic, or a copy of this node. Their topic was not deleted.
"""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from cold_tier.checking.garbage import named_keys
from cold_tier.errors import CorruptObject, ForeignManifest
from cold_tier.inventory import find_topics
from cold_tier.layout import PartitionLayout, parse_topic_folder, topic_folder
from cold_tier.manifest.model import Owner
from cold_tier.manifest.reader import Manifest, PageCache, load_newest
from cold_tier.objects.bucket import Bucket
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import DeletedTopic, archived_key, decode_archived
from hot_tier.cluster.store import MAX_OPERATIONS, Delete, MetadataStore
from hot_tier.errors import TierlogError
from hot_tier.ids import NodeId, PartitionId, TopicId
from offloader import failpoints
from offloader.trust import FOR_GOOD, Local, judge

_log = structlog.get_logger()


class DeletedTopics:
    def __init__(
        self,
        image: ClusterImage,
        metadata: MetadataStore,
        store: Bucket,
        grace_ms: int,
        node_id: NodeId,
        owner: Owner,
    ) -> None:
        self._owner = owner
        self._image = image
        self._node_id = node_id
        self._metadata = metadata
        self._store = store
        self._grace_ms = grace_ms
        self._done: set[TopicId] = set()
        self.turn = asyncio.Lock()
        """Held during a deletion. The restore of a topic holds it too."""

    async def collect(self, now_ms: int, failed: Callable[[str], None] = lambda _: None) -> int:
        """Returns how many objects it deleted. In a cluster only the controller deletes; it also restores topics."""
        count = 0
        async with self.turn:
            for topic in list(self._image.deleted_topics()):
                if self._image.controller != self._node_id:
                    break
                if topic.id in self._done or now_ms - topic.deleted_ms < self._grace_ms:
                    continue
                try:
                    count += await self._remove(topic)
                except (TierlogError, OSError) as error:
                    failed(f"{topic.name} ({topic.id}): {error}")
                    _log.warning("the archive of a deleted topic is left for later", topic=topic.name, error=str(error))
                else:
                    self._done.add(topic.id)
        return count

    def revived(self, topic_id: TopicId) -> None:
        """The topic was restored, and may be deleted again."""
        self._done.discard(topic_id)

    async def _remove(self, topic: DeletedTopic) -> int:
        assert self._image.find_topic_by_id(topic.id) is None, "only what is deleted"
        folders = await self._folders(topic)
        for number in folders:
            await self._check_owner(PartitionLayout(topic.name, topic.id, number))
        rows = [key for number in folders for key in await self._rows(topic, number, folders[number])]
        count = await self._delete(rows)
        failpoints.reach("deleted.rows")
        count += await self._delete(key for keys in folders.values() for key in keys if "/manifest/" not in key)
        failpoints.reach("deleted.indexes")
        count += await self._delete(key for keys in folders.values() for key in keys if "/manifest/" in key)
        failpoints.reach("deleted.manifests")
        count += await self._remove_unnamed_rows(topic)
        rest = [info.key async for info in self._store.list(topic_folder(topic.name, topic.id))]
        count += await self._delete(rest)
        numbers = list(range(topic.partitions))
        for at in range(0, len(numbers), MAX_OPERATIONS):
            keys = [archived_key(topic.id, number) for number in numbers[at : at + MAX_OPERATIONS]]
            await self._metadata.transact([], [Delete(key) for key in keys])
        if count:
            _log.info("the archive of a deleted topic is gone", topic=topic.name, topic_id=str(topic.id), objects=count)
        return count

    async def _check_owner(self, layout: PartitionLayout) -> None:
        try:
            found = await load_newest(self._store, layout)
        except CorruptObject:
            return
        key = archived_key(layout.topic_id, layout.partition)
        known = await self._metadata.get(key)
        recorded = None if known is None else decode_archived(key, known.value)
        if found is None or (recorded is None and found.owner is None):
            return
        judgement = judge(found, recorded, Local(0, 0), self._owner, found.version.leader_epoch)
        if judgement.verdict in FOR_GOOD:
            raise ForeignManifest(
                f"{judgement.what}; the archive of the deleted topic is left to its owner",
                where=f"{self._store.url}{layout.manifest_folder}",
                hint="if nobody needs it, delete the folder in the bucket yourself",
            )

    async def _folders(self, topic: DeletedTopic) -> dict[PartitionId, list[str]]:
        """Returns the objects below `_tierlog/` by partition, without the topic's own descriptions."""
        found: dict[PartitionId, list[str]] = {}
        async for info in self._store.list(topic_folder(topic.name, topic.id)):
            parsed = parse_topic_folder(info.key)
            number = parsed[2].partition("/")[0] if parsed is not None else ""
            if number.isdecimal():
                found.setdefault(PartitionId(int(number)), []).append(info.key)
        return found

    async def _rows(self, topic: DeletedTopic, number: PartitionId, keys: list[str]) -> list[str]:
        layout = PartitionLayout(topic.name, topic.id, number)
        names = (layout.parse_index(key) for key in keys)
        rows = {layout.rows(name) for name in names if name is not None}
        try:
            snapshot = await load_newest(self._store, layout)
            if snapshot is not None:
                named = await named_keys(Manifest(snapshot, PageCache(self._store)))
                rows |= {key for key in named if layout.parse_rows(key) is not None}
        except CorruptObject:
            pass  # Its pages may already be gone. Every index names its rows as well.
        return sorted(rows)

    async def _remove_unnamed_rows(self, topic: DeletedTopic) -> int:
        others = [life for life in await find_topics(self._store, topic.name) if life.id != topic.id]
        if others or self._image.find_topic(topic.name) is not None:
            return 0
        return await self._delete(
            [
                info.key
                for number in range(topic.partitions)
                for layout in [PartitionLayout(topic.name, topic.id, PartitionId(number))]
                async for info in self._store.list(layout.rows_folder)
                if layout.parse_rows(info.key) is not None and info.modified_ms < topic.deleted_ms
            ]
        )

    async def _delete(self, keys: Iterable[str]) -> int:
        every = list(keys)
        await self._store.delete(every)
        return len(every)

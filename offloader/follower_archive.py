"""The archive of partitions that this broker follows. Nothing in the bucket is written or deleted here.

`FollowedPartitions` drops local segments when the bucket has them, as the leader does.

- It drops what the current leader has recorded as archived in its epoch, and only what is committed here. What a
  deposed leader recorded does not count: its last manifest may have come after its successor's first.
- Before it drops anything it asks the bucket: it judges the newest manifest as the leader does, and the objects must be
  there (`offloader.stored`). Somebody may have changed the bucket after the leader last looked.
- It loads the manifest when a reader here needs records that are only in the bucket, and judges it as the leader does
  (`offloader.trust`). It forgets the manifest when local segments go, and before objects that it names can be gone.

`ArchivedStart` lets a replica continue at the end of the archive, if the leader has its next offset only in the bucket.

- So a new replica of an archived partition copies only what is still local at its leader. What it needs of the rest is
  in the bucket: where the log starts, where leader epochs began, and the producers' state at the end of the archive.
- Local records of the replica are deleted once the bucket is found to hold them. A replica does not begin with a
  manifest that the leader would not continue from.
"""

from typing import Final

import structlog

from cold_tier.catalog import Catalog
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import Owner, Snapshot
from cold_tier.manifest.reader import Manifest, PageCache, load_newest
from cold_tier.objects.bucket import Bucket
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import Stopped
from hot_tier.errors import OffsetArchived, TierlogError
from hot_tier.ids import NO_EPOCH, Offset
from hot_tier.replication.followed_partition import FollowedPartition
from hot_tier.replication.table import PartitionTable
from offloader.plan import local_drop_offset
from offloader.restore import load_history
from offloader.stored import stored_until
from offloader.trust import Judgement, Local, judge, stopped_error

_log = structlog.get_logger()

AGAIN_MS: Final = 60_000


class FollowedPartitions:
    def __init__(
        self,
        partitions: PartitionTable,
        image: ClusterImage,
        catalog: Catalog,
        delete_grace_ms: int,
        owner: Owner,
    ) -> None:
        self._partitions = partitions
        self._owner = owner
        self._image = image
        self._catalog = catalog
        self._keep_ms = delete_grace_ms // 2
        self._loaded: dict[PartitionLayout, int] = {}
        """When each manifest in the catalog was loaded."""
        self._kept: dict[PartitionLayout, tuple[int, str]] = {}
        """When the bucket did not hold what could be dropped, and what was wrong."""

    async def attend(self, now_ms: int) -> None:
        followed = {_layout(replica): replica for replica in self._partitions.replicas}
        for layout, replica in followed.items():
            if self._catalog.get(layout) is not None or self._catalog.stopped(layout) is not None:
                self._loaded.setdefault(
                    layout, now_ms
                )  # It may be there from the time when this broker led the partition.
            if replica.log.config.remote_storage_enable and await self._drop_local(layout, replica, now_ms):
                self._forget(layout)
        self._kept = {layout: kept for layout, kept in self._kept.items() if layout in followed}
        for layout, loaded_ms in list(self._loaded.items()):
            if layout not in followed:
                del self._loaded[
                    layout
                ]  # This broker leads it now, or no longer holds it: others then manage its catalog entry.
            elif not 0 <= now_ms - loaded_ms < self._keep_ms:
                self._forget(layout)
        await self._load_wanted(now_ms)

    async def _load_wanted(self, now_ms: int) -> None:
        for layout in self._catalog.take_wanted() & {_layout(replica) for replica in self._partitions.replicas}:
            await self._load(layout, now_ms)

    async def _drop_local(self, layout: PartitionLayout, replica: FollowedPartition, now_ms: int) -> bool:
        archived = self._image.archived(replica.topic.id, replica.tp.partition)
        if archived is None:
            return False
        partition_log = replica.log
        reach = archived._replace(end_offset=min(archived.end_offset, replica.high_watermark))
        drop = local_drop_offset(partition_log.config, partition_log.segments(), reach, now_ms)
        if drop is None or 0 <= now_ms - self._kept.get(layout, (-AGAIN_MS, ""))[0] < AGAIN_MS:
            return False
        await self._load_wanted(now_ms)  # So that a waiting reader waits for at most one partition's check.
        until, wrong = await self._stored_until(layout, replica, drop)
        if not replica.is_open:
            return False  # This broker leads it now, or no longer holds it.
        if wrong:
            if self._kept.get(layout, (0, ""))[1] != wrong:
                _log.error("local segments stay: the bucket does not hold them", partition=str(replica.tp), why=wrong)
            self._kept[layout] = now_ms, wrong
        else:
            self._kept.pop(layout, None)
        return partition_log.drop_local_before(until, now_ms) > 0

    async def _stored_until(
        self, layout: PartitionLayout, replica: FollowedPartition, drop: Offset
    ) -> tuple[Offset, str]:
        """Returns the offset up to which the bucket holds what is to be dropped (0: nothing may go), and what is wrong
        there."""
        store, local_start = self._catalog.store, replica.log.local_log_start_offset
        try:
            snapshot = await load_newest(store, layout)
            judgement = self._judge(layout, replica, snapshot)
            if judgement.stops or snapshot is None:
                return Offset(0), judgement.what or "there is no manifest"
            return await stored_until(store, Manifest(snapshot, PageCache(store)), local_start, drop)
        except TierlogError as error:
            return Offset(0), str(error)

    def _judge(self, layout: PartitionLayout, replica: FollowedPartition, snapshot: Snapshot | None) -> Judgement:
        recorded = self._image.archive_record(layout.topic_id, layout.partition)
        local = Local(replica.log.log_start_offset, replica.log.local_log_start_offset)
        return judge(snapshot, recorded, local, self._owner, NO_EPOCH)

    async def _load(self, layout: PartitionLayout, now_ms: int) -> None:
        try:
            snapshot = await load_newest(self._catalog.store, layout)
        except TierlogError as error:
            _log.warning("the manifest of a followed partition is not loaded", error=str(error))
            return
        replica = next((each for each in self._partitions.replicas if _layout(each) == layout), None)
        if replica is None:
            return
        self._loaded[layout] = now_ms
        judgement = self._judge(layout, replica, snapshot)
        if judgement.stops:
            where = f"{self._catalog.store.url}{layout.manifest_folder}"
            self._catalog.stop(layout, stopped_error(Stopped(judgement.verdict, judgement.what), layout, where))
        elif snapshot is not None:
            self._catalog.put(snapshot)

    def _forget(self, layout: PartitionLayout) -> None:
        if self._loaded.pop(layout, None) is not None:
            self._catalog.drop(layout)


class ArchivedStart:
    def __init__(self, store: Bucket, image: ClusterImage) -> None:
        self._store = store
        self._image = image

    async def __call__(self, replica: FollowedPartition) -> None:
        where = str(replica.tp)
        layout = _layout(replica)
        recorded = self._image.archive_record(layout.topic_id, layout.partition)
        history = await load_history(self._store, layout)
        found = None if history is None else history.snapshot
        judgement = judge(found, recorded, Local(0, 0), Owner(self._image.cluster_id, "", ""), NO_EPOCH)
        if judgement.stops:
            stopped = Stopped(judgement.verdict, judgement.what)
            raise stopped_error(stopped, layout, f"{self._store.url}{layout.manifest_folder}")
        local_start, local_end = replica.log.local_log_start_offset, replica.log.log_end_offset
        reached = Offset(0) if replica.in_doubt else local_end
        wrong = ""
        if history is not None:
            snapshot = history.snapshot
            manifest = Manifest(snapshot, PageCache(self._store))
            _, wrong = await stored_until(self._store, manifest, local_start, min(local_end, snapshot.end_offset))
        if not replica.is_open:
            return  # This broker no longer follows the partition, so it must not change the log here.
        if history is None or history.snapshot.end_offset <= reached:
            raise OffsetArchived(
                f"the leader has offset {reached} only in the bucket, but the newest manifest does not hold it",
                where=where,
                hint="check that all brokers have the same --bucket",
            )
        if wrong:
            raise OffsetArchived(wrong, where=where, hint="the local copy stays; put the object back")
        snapshot = history.snapshot
        replica.begin_at_archive(
            snapshot.log_start_offset, snapshot.end_offset, list(history.epochs), history.producers
        )


def _layout(replica: FollowedPartition) -> PartitionLayout:
    return PartitionLayout(replica.tp.topic, replica.topic.id, replica.tp.partition)

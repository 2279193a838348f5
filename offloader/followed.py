"""Archived partitions that this broker follows: their local segments go when the bucket has them, as at the leader.

Who leads archives; here nothing in the bucket is written or deleted.

- Dropped is what the leader has said to be archived, in the epoch that it leads now, and what is committed here. What a
  deposed leader said counts for nothing: its last manifest may have come too late for its successor's first.
- The manifest is loaded when somebody asks here for what is in the bucket alone, and judged as the leader judges it
  (`offloader.trust`). It is thrown away when local segments go, and before objects that it names can be gone.
"""

import structlog

from cold_tier.catalog import Catalog
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import Owner
from cold_tier.manifest.reader import load_newest
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import Stopped
from hot_tier.errors import TierlogError
from hot_tier.ids import NO_EPOCH
from hot_tier.replication.replica import Replica
from hot_tier.replication.table import PartitionTable
from offloader.plan import local_drop_offset
from offloader.trust import Local, judge, stopped_error

log = structlog.get_logger()


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
        """When the manifest was loaded, of those that are in the catalog."""

    async def attend(self, now_ms: int) -> None:
        followed = {_layout(replica): replica for replica in self._partitions.replicas}
        for layout, replica in followed.items():
            if self._catalog.get(layout) is not None or self._catalog.stopped(layout) is not None:
                self._loaded.setdefault(layout, now_ms)  # It may be left from when this broker led.
            if replica.log.config.remote_storage_enable and self._drop_local(replica, now_ms):
                self._forget(layout)
        for layout, loaded_ms in list(self._loaded.items()):
            if layout not in followed:
                del self._loaded[layout]  # Led here now, or not held: the catalog is others' affair.
            elif not 0 <= now_ms - loaded_ms < self._keep_ms:
                self._forget(layout)
        for layout in self._catalog.take_wanted() & followed.keys():
            await self._load(layout, now_ms)

    def _drop_local(self, replica: Replica, now_ms: int) -> bool:
        archived = self._image.archived(replica.topic.id, replica.tp.partition)
        if archived is None:
            return False
        partition_log = replica.log
        reach = archived._replace(end_offset=min(archived.end_offset, replica.high_watermark))
        drop = local_drop_offset(partition_log.config, partition_log.segments(), reach, now_ms)
        return drop is not None and partition_log.drop_local_before(drop, now_ms) > 0

    async def _load(self, layout: PartitionLayout, now_ms: int) -> None:
        try:
            snapshot = await load_newest(self._catalog.store, layout)
        except TierlogError as error:
            log.warning("the manifest of a followed partition is not loaded", error=str(error))
            return
        replica = next((each for each in self._partitions.replicas if _layout(each) == layout), None)
        if replica is None:
            return
        self._loaded[layout] = now_ms
        recorded = self._image.archive_record(layout.topic_id, layout.partition)
        local = Local(replica.log.log_start_offset, replica.log.local_log_start_offset)
        judgement = judge(snapshot, recorded, local, self._owner, NO_EPOCH)
        if judgement.stops:
            where = f"{self._catalog.store.url}{layout.manifest_folder}"
            self._catalog.stop(layout, stopped_error(Stopped(judgement.verdict, judgement.what), layout, where))
        elif snapshot is not None:
            self._catalog.put(snapshot)

    def _forget(self, layout: PartitionLayout) -> None:
        if self._loaded.pop(layout, None) is not None:
            self._catalog.drop(layout)


def _layout(replica: Replica) -> PartitionLayout:
    return PartitionLayout(replica.tp.topic, replica.topic.id, replica.tp.partition)

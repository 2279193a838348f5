"""A replica whose next offset the leader has only in the bucket: it goes on at the end of the archive.

A new replica of an archived partition so copies only what is still local at its leader. What it needs of the rest is in
the bucket: where the log starts, where leader epochs began, and the producers' state at the end of the archive. What
the replica itself still had goes, once the bucket is found to hold it. A manifest that the leader would not go on from
(`offloader.trust`) is no history to begin with.
"""

from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import Owner
from cold_tier.manifest.reader import Manifest, PageCache
from cold_tier.objects.retrying import RetryingStore
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import Stopped
from hot_tier.errors import OffsetArchived
from hot_tier.ids import NO_EPOCH, Offset
from hot_tier.replication.followed_partition import FollowedPartition
from offloader.restore import load_history
from offloader.stored import stored_until
from offloader.trust import Local, judge, stopped_error


class ArchivedStart:
    def __init__(self, store: RetryingStore, image: ClusterImage) -> None:
        self._store = store
        self._image = image

    async def __call__(self, replica: FollowedPartition) -> None:
        where = str(replica.tp)
        layout = PartitionLayout(replica.tp.topic, replica.topic.id, replica.tp.partition)
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
        if replica.failure is not None:
            return  # It is no follower any more, and its log no longer ours to change.
        if history is None or history.snapshot.end_offset <= reached:
            raise OffsetArchived(
                f"the leader has offset {reached} in the bucket alone, and the newest manifest does not hold it",
                where=where,
                hint="check that all brokers have the same --bucket",
            )
        if wrong:
            raise OffsetArchived(wrong, where=where, hint="the local copy stays; put the object back")
        snapshot = history.snapshot
        replica.begin_at_archive(
            snapshot.log_start_offset, snapshot.end_offset, list(history.epochs), history.producers
        )

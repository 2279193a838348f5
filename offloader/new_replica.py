"""A replica whose next offset the leader has only in the bucket: it goes on at the end of the archive.

A new replica of an archived partition so copies only what is still local at its leader. What it needs of the rest is in
the bucket: where the log starts, where leader epochs began, and the producers' state at the end of the archive.
"""

from cold_tier.layout import PartitionLayout
from cold_tier.objects.retrying import RetryingStore
from hot_tier.errors import OffsetArchived
from hot_tier.replication.replica import Replica
from offloader.restore import load_history


class ArchivedStart:
    def __init__(self, store: RetryingStore) -> None:
        self._store = store

    async def __call__(self, replica: Replica) -> None:
        where = str(replica.tp)
        layout = PartitionLayout(replica.tp.topic, replica.topic.id, replica.tp.partition)
        history = await load_history(self._store, layout)
        if replica.failure is not None:
            return  # It is no follower any more, and its log no longer ours to change.
        reached = replica.log.log_end_offset
        if history is None or history.snapshot.end_offset <= reached:
            raise OffsetArchived(
                f"the leader has offset {reached} in the bucket alone, and the newest manifest does not hold it",
                where=where,
                hint="check that all brokers have the same --bucket",
            )
        snapshot = history.snapshot
        replica.begin_at_archive(
            snapshot.log_start_offset, snapshot.end_offset, list(history.epochs), history.producers
        )

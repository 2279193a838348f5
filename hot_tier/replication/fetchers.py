"""Which brokers are followed for which partitions: one `Fetcher` for each broker that leads some, or a few.

`table` says which replicas there are; a replica is followed at one broker in one leader epoch, and let go when either
changes.
"""

import asyncio
from collections.abc import Callable

from hot_tier.clock import wall_ms
from hot_tier.cluster.image import ClusterImage
from hot_tier.errors import OffsetArchived
from hot_tier.ids import NodeId
from hot_tier.replication.fetcher import Fetcher, Restore
from hot_tier.replication.followed_partition import FollowedPartition
from hot_tier.replication.link import Connect
from hot_tier.replication.settings import ReplicationSettings


async def _no_archive(replica: FollowedPartition) -> None:
    raise OffsetArchived("this broker has no archive to begin from", where=str(replica.tp))


def _nothing(node: NodeId) -> None:
    pass


class Fetchers:
    def __init__(
        self,
        image: ClusterImage,
        connect: Connect,
        settings: ReplicationSettings,
        *,
        clock: Callable[[], int] = wall_ms,
        suspect: Callable[[NodeId], None] = _nothing,
        restore: Restore = _no_archive,
        reassignment_bytes_per_s: Callable[[], int] = lambda: 0,
    ) -> None:
        """`suspect` hears of brokers whose connection broke or was refused: they may be gone."""
        self.image = image
        self.connect = connect
        self.settings = settings
        self.clock = clock
        self.suspect = suspect
        self.restore = restore
        self.started = asyncio.Event()
        self._reassignment_bytes_per_s = reassignment_bytes_per_s
        self._fetchers: dict[tuple[NodeId, int], Fetcher] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._copied_until = 0.0

    def start(self) -> None:
        """Begins to fetch. This broker is registered, so leaders listen to it from now on."""
        self.started.set()

    def follow(self, replica: FollowedPartition) -> None:
        at = self._place(replica)
        fetcher = self._fetchers.get(at)
        if fetcher is None:
            fetcher = self._fetchers[at] = Fetcher(replica.leader, f"{at[0]}/{at[1]}", self)
        fetcher.follow(replica)

    def unfollow(self, replica: FollowedPartition) -> None:
        at = self._place(replica)
        fetcher = self._fetchers.get(at)
        if fetcher is None:
            return
        fetcher.unfollow(replica)
        if not len(fetcher):
            del self._fetchers[at]
            stopping = asyncio.get_running_loop().create_task(fetcher.stop())
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)

    def _place(self, replica: FollowedPartition) -> tuple[NodeId, int]:
        topic_id, partition = replica.key
        return replica.leader, (topic_id.int + partition) % self.settings.fetchers

    def throttle(self, replica: FollowedPartition, nbytes: int, now_s: float) -> float:
        """Returns how long a replica that a reassignment brings in waits, so that all of them together keep to the
        rate."""
        rate = self._reassignment_bytes_per_s()
        if not rate or not replica.added:
            return 0.0
        self._copied_until = max(self._copied_until, now_s) + nbytes / rate
        return self._copied_until - now_s

    async def close(self) -> None:
        fetchers, self._fetchers = self._fetchers, {}
        await asyncio.gather(*(fetcher.stop() for fetcher in fetchers.values()), *self._stopping)

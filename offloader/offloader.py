"""The offloader of one broker: finds work on the partitions it leads and does it, without end.

Each round takes every led partition with `remote.storage.enable`: opens its archive, archives sealed segments through
the worker processes, applies retention, collects garbage. One partition's failure is counted, said once per kind, and
tried again in a later round with a growing pause; the others go on. A fenced archive is closed and opened anew, under
the epoch that the partition has then.
"""

import asyncio
from collections.abc import Callable, Iterator

import orjson
import structlog

from cold_tier.catalog import Catalog
from cold_tier.errors import ManifestFenced
from cold_tier.layout import topic_description
from cold_tier.objects.open import StoreSettings
from cold_tier.objects.retrying import StoreCounters
from cold_tier.reports import Collected
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import Topic
from hot_tier.cluster.store import MetadataStore
from hot_tier.errors import TierlogError
from hot_tier.ids import TopicPartition
from hot_tier.replication.partition import Partition
from hot_tier.replication.table import PartitionTable
from offloader.deleted_topics import DeletedTopics
from offloader.partition_archive import PartitionArchive
from offloader.settings import OffloadSettings
from offloader.worker import WorkerProcess

log = structlog.get_logger()

_MAX_PAUSE_MS = 60_000


class Offloader:
    def __init__(
        self,
        partitions: PartitionTable,
        image: ClusterImage,
        metadata: MetadataStore,
        catalog: Catalog,
        store: StoreSettings,
        settings: OffloadSettings,
        scratch: str,
        clock: Callable[[], int],
    ) -> None:
        self._partitions = partitions
        self._image = image
        self._metadata = metadata
        self._catalog = catalog
        self._settings = settings
        self._clock = clock
        self._workers = [WorkerProcess(store, f"{scratch}/{number}") for number in range(settings.workers)]
        self._archives: dict[TopicPartition, PartitionArchive] = {}
        self._not_before: dict[TopicPartition, int] = {}
        self._described: dict[str, bytes] = {}
        self.deleted_topics = DeletedTopics(image, metadata, catalog.store, settings.delete_grace_ms)
        self._next_garbage_ms = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.rounds = 0

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="offloader")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for worker in self._workers:
            await worker.close()

    def __iter__(self) -> Iterator[PartitionArchive]:
        return iter(list(self._archives.values()))

    def wake(self) -> None:
        """There may be something to do: a segment was sealed."""
        self._wake.set()

    @property
    def worker_requests(self) -> list[StoreCounters]:
        """What the workers asked of the store."""
        return [worker.requests for worker in self._workers]

    def archive_of(self, tp: TopicPartition) -> PartitionArchive | None:
        return self._archives.get(tp)

    async def collect_garbage(self) -> Collected:
        """Now, and not when it is due: of every led partition, and of deleted topics."""
        collected = Collected()
        for archive in self:
            tp = archive.partition.tp
            if self._partitions.find(*tp) is not archive.partition:
                continue  # Deleted, or led by another: the next round lets go of it.
            if not archive.is_open:
                collected.failed.append(f"{tp}: {archive.last_failure or 'its manifest is not loaded yet'}")
                continue
            try:
                collected.removed += await archive.collect_removed(self._clock())
                collected.orphans += await archive.collect_orphans(self._clock())
            except (TierlogError, OSError) as error:
                collected.failed.append(f"{tp}: {error}")
        collected.of_deleted_topics = await self.deleted_topics.collect(self._clock(), collected.failed.append)
        return collected

    async def _run(self) -> None:
        while True:
            await self.round()
            try:
                async with asyncio.timeout(self._settings.check_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    async def round(self) -> None:
        """Everything there is to do now, as many partitions at a time as there are workers."""
        now_ms = self._clock()
        collect = now_ms >= self._next_garbage_ms
        if collect:
            self._next_garbage_ms = now_ms + self._settings.garbage_check_ms
        waiting = [partition for partition in self._partitions if self._is_due(partition, now_ms)]
        self._forget_gone()

        async def take_turns(worker: WorkerProcess) -> None:
            while waiting:
                await self._attend(waiting.pop(), worker, collect)

        await asyncio.gather(*(take_turns(worker) for worker in self._workers))
        if collect:
            await self.deleted_topics.collect(self._clock())
        self.rounds += 1

    def _is_due(self, partition: Partition, now_ms: int) -> bool:
        partition_log = partition.log
        # A partition that nobody ever wrote to has nothing in the bucket, and needs nothing there.
        return (
            partition_log.config.remote_storage_enable
            # What the service keeps for itself it reads from local disk alone.
            and not partition.topic.internal
            and partition_log.log_end_offset > 0
            and now_ms >= self._not_before.get(partition.tp, 0)
        )

    def _forget_gone(self) -> None:
        alive = {partition.tp: partition for partition in self._partitions}
        for tp, archive in list(self._archives.items()):
            current = alive.get(tp)
            if current is not archive.partition or archive.leader_epoch != current.leader_epoch:
                del self._archives[tp]
            if current is None or current.topic.id != archive.layout.topic_id:
                self._catalog.drop(archive.layout)

    async def _attend(self, partition: Partition, worker: WorkerProcess, collect: bool) -> None:
        archive = self._archives.get(partition.tp)
        if archive is None:
            archive = PartitionArchive(partition, self._catalog, self._metadata, self._settings)
            self._archives[partition.tp] = archive
        try:
            if not archive.is_open:
                await archive.open(self._clock())
            await self._describe(partition.topic)
            while (following := archive.next_segment()) is not None:
                segment = await worker.archive(archive.job(following, self._clock()))
                await archive.publish(segment, self._clock())
            await archive.apply_retention(self._clock())
            await archive.collect_removed(self._clock())
            if collect:
                await archive.collect_orphans(self._clock())
        except (TierlogError, OSError) as error:
            self._failed(archive, error)
        else:
            archive.failures_in_a_row = 0
            archive.last_success_ms = self._clock()
            self._not_before.pop(partition.tp, None)

    def _failed(self, archive: PartitionArchive, error: Exception) -> None:
        tp = archive.partition.tp
        archive.failures += 1
        archive.failures_in_a_row += 1
        if archive.last_failure != str(error):
            archive.last_failure = str(error)
            log.warning("archiving failed and is tried again", partition=str(tp), error=str(error))
        pause_ms = min(self._settings.check_ms * 2 ** min(archive.failures_in_a_row, 10), _MAX_PAUSE_MS)
        self._not_before[tp] = self._clock() + pause_ms
        if isinstance(error, ManifestFenced):
            self._archives.pop(tp, None)

    async def _describe(self, topic: Topic) -> None:
        """Keep the topic's own description in the bucket, so that it can be restored from there alone."""
        described = orjson.dumps(
            {
                "name": topic.name,
                "id": str(topic.id),
                "partitions": topic.partitions,
                "replication_factor": topic.replication_factor,
                "config": dict(topic.config),
                "created_ms": topic.created_ms,
            }
        )
        if self._described.get(topic.name) != described:
            await self._catalog.store.put(topic_description(topic.name, topic.id, self._clock()), described)
            self._described[topic.name] = described

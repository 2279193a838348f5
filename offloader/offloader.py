"""The offloader of one broker: a loop that finds and does the archive work of the partitions that the broker leads.

Each round goes through every led partition with `remote.storage.enable`: it opens its archive, archives sealed segments
through the worker processes, applies retention, collects garbage. Partitions take turns, one segment each, and a round
is short. So a long backlog of one partition delays neither its own retention nor other partitions, including those that
this broker began to lead meanwhile. A partition's failure is counted, logged once per kind, and tried again in a later
round with a growing pause; the other partitions go on. If a publish was fenced or its answer was lost, the manifest is
loaded again first.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator

import structlog

from cold_tier.catalog import Catalog
from cold_tier.descriptions import TopicDescription, write_description
from cold_tier.errors import ArchiveStopped, ManifestFenced, StoreError, StoreUnavailable
from cold_tier.layout import parse_topic_description, topic_description, topic_descriptions
from cold_tier.manifest.model import Owner
from cold_tier.objects.bucket import StoreCounters
from cold_tier.objects.open import StoreSettings
from cold_tier.reports import Collected, Considered, RepairDecision, Repaired
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.internal_topics import stays_local
from hot_tier.cluster.model import Topic
from hot_tier.cluster.store import MetadataStore
from hot_tier.errors import CorruptLog, TierlogError
from hot_tier.ids import NodeId, TopicId, TopicPartition
from hot_tier.replication.led_partition import LedPartition
from hot_tier.replication.table import PartitionTable
from offloader.deleted_topics import DeletedTopics
from offloader.follower_archive import FollowedPartitions
from offloader.held import HoldingLog
from offloader.partition_archive import PartitionArchive
from offloader.plan import NextSegment
from offloader.proposals import consider
from offloader.repair import recover, take_over
from offloader.settings import OffloadSettings
from offloader.worker import WorkerProcess

_log = structlog.get_logger()

_MAX_PAUSE_MS = 60_000
_AWAY_PAUSE_MS = 10_000
"""An unavailable bucket may come back at any time, and an attempt costs nothing."""
_OPEN_AT_ONCE = 16


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
        node_id: NodeId,
        directory: str = "",
    ) -> None:
        """`directory` identifies the data directory, on a node that is its own cluster."""
        self._partitions = partitions
        self.owner = Owner(image.cluster_id, directory, "")
        """Without a token: every archive has its own."""
        self._image = image
        self._metadata = metadata
        self._catalog = catalog
        self._settings = settings
        self._clock = clock
        self._scratch = scratch
        self._workers = [WorkerProcess(store, f"{scratch}/{number}") for number in range(settings.workers)]
        self._archives: dict[TopicPartition, PartitionArchive] = {}
        """Ordered by last turn, least recent first."""
        self._not_before: dict[TopicPartition, int] = {}
        self._holding = HoldingLog()
        self._described: dict[TopicId, bytes] = {}
        self._considering: dict[TopicPartition, asyncio.Task[list[Considered]]] = {}
        self.deleted_topics = DeletedTopics(
            image, metadata, catalog.store, settings.delete_grace_ms, node_id, self.owner
        )
        self.followed = FollowedPartitions(partitions, image, catalog, settings.delete_grace_ms, self.owner)
        self._next_garbage_ms = 0
        self._uncollected: set[TopicPartition] = set()
        """Partitions whose garbage is due."""
        self._wake = asyncio.Event()
        self._wanted = asyncio.Event()
        catalog.when_wanted = self._wanted.set
        self._tasks: list[asyncio.Task[None]] = []
        self.rounds = 0

    def start(self) -> None:
        """Starts two loops, for led and for followed partitions. Neither waits for the other."""

        async def attend_followed() -> None:
            await self.followed.attend(self._clock())

        self._tasks = [
            asyncio.create_task(self._run(self.round, self._wake), name="offloader"),
            asyncio.create_task(self._run(attend_followed, self._wanted), name="followed archives"),
        ]

    async def close(self) -> None:
        tasks = [*self._tasks, *self._considering.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for worker in self._workers:
            await worker.close()

    def __iter__(self) -> Iterator[PartitionArchive]:
        return iter(list(self._archives.values()))

    def wake(self) -> None:
        """Begins the next round at once: a repair or a restore has left something to do."""
        self._wake.set()

    @property
    def worker_requests(self) -> list[StoreCounters]:
        """Returns the counts of the workers' requests to the store."""
        return [worker.requests for worker in self._workers]

    def archive_of(self, tp: TopicPartition) -> PartitionArchive | None:
        return self._archives.get(tp)

    async def collect_garbage(self) -> Collected:
        """Collects garbage at once, of every led partition and of deleted topics."""
        collected = Collected()
        for archive in self:
            tp = archive.partition.tp
            if self._partitions.find(*tp) is not archive.partition:
                continue  # It was deleted, or another broker leads it. The next round removes it.
            if archive.must_open:
                collected.failed.append(f"{tp}: {archive.last_failure or 'its manifest is not loaded yet'}")
                continue
            try:
                collected.removed += await archive.collect_removed(self._clock())
                collected.orphans += await archive.collect_orphans(self._clock())
            except (TierlogError, OSError) as error:
                collected.failed.append(f"{tp}: {error}")
        collected.of_deleted_topics = await self.deleted_topics.collect(self._clock(), collected.failed.append)
        return collected

    def consider_proposals(self, archive: PartitionArchive) -> asyncio.Task[list[Considered]]:
        """Answers the proposals for a partition in a task outside the rounds, because reading them may take long."""
        tp = archive.partition.tp
        task = self._considering.get(tp)
        if task is None:
            task = self._considering[tp] = asyncio.create_task(self._consider(archive))
            task.add_done_callback(lambda done: self._considering.pop(tp))
        return task

    async def repair(self, archive: PartitionArchive, decision: RepairDecision) -> Repaired:
        """Does what a person decided about a stopped archive."""
        now_ms, scratch = self._clock(), f"{self._scratch}/repair"
        if decision == "take-over":
            repaired = await take_over(archive, now_ms)
        else:
            repaired = await recover(archive, scratch, now_ms, accept_loss=decision == "accept-loss")
        self._succeeded(archive)
        self._not_before.pop(archive.partition.tp, None)
        return repaired

    async def _consider(self, archive: PartitionArchive) -> list[Considered]:
        answered: list[Considered] = []

        async def work() -> bool:
            answered.extend(await consider(archive, self._clock))
            return False

        if archive.is_open and not archive.must_open:
            await self._try(archive, work())
        return answered

    async def _run(self, work: Callable[[], Awaitable[None]], wake: asyncio.Event) -> None:
        while True:
            try:
                await work()
            except Exception:
                # This is a mistake of ours. It must not end archiving, or the disk would fill.
                _log.exception("a round of the offloader failed")
            try:
                async with asyncio.timeout(self._settings.check_ms / 1000):
                    await wake.wait()
            except TimeoutError:
                pass
            wake.clear()

    async def round(self) -> None:
        """Does the present work: as many partitions at a time as there are workers, one segment at a time each.

        Manifests are loaded first, because readers of the bucket need them and must not wait for uploads. For the same
        reason no turn begins after `check_ms`. The next round follows at once and does the rest.
        """
        now_ms = self._clock()
        left_ms = self._next_garbage_ms - now_ms
        collect = (
            left_ms <= 0 or left_ms > self._settings.garbage_check_ms
        )  # A longer time means that the clock went back.
        if collect:
            self._next_garbage_ms = now_ms + self._settings.garbage_check_ms
            self._uncollected = {partition.tp for partition in self._partitions}
        self._forget_gone()
        places = {tp: place for place, tp in enumerate(self._archives)}
        due = [partition for partition in self._partitions if self._is_due(partition, now_ms)]
        waiting = deque(sorted(due, key=lambda partition: places.get(partition.tp, -1)))
        await self._open_archives(due)
        began_ms = self._clock()

        async def take_turns(worker: WorkerProcess) -> None:
            while waiting:
                partition = waiting.popleft()
                ready = self._is_due(partition, self._clock()) and not self._archives[partition.tp].must_open
                if ready and await self._attend(partition, worker):
                    waiting.append(partition)
                if not 0 <= self._clock() - began_ms < self._settings.check_ms:
                    return

        await asyncio.gather(*(take_turns(worker) for worker in self._workers))
        if waiting:
            self._wake.set()
        if collect:
            await self.deleted_topics.collect(self._clock())
        self.rounds += 1

    def _is_due(self, partition: LedPartition, now_ms: int) -> bool:
        partition_log = partition.log
        pause_ms = self._not_before.get(partition.tp, 0) - now_ms
        # A partition that was never written to has nothing in the bucket, and needs nothing there.
        return (
            partition_log.config.remote_storage_enable
            # What the service reads back itself is on local disk only.
            and not stays_local(partition.topic)
            and partition_log.log_end_offset > 0
            and self._partitions.find(*partition.tp) is partition
            # A longer pause than any that is set means that the clock went back.
            and not 0 < pause_ms <= _MAX_PAUSE_MS
        )

    def _forget_gone(self) -> None:
        alive = {partition.tp: partition for partition in self._partitions}
        for tp, archive in list(self._archives.items()):
            current = alive.get(tp)
            if current is not archive.partition or archive.leader_epoch != current.leader_epoch:
                del self._archives[tp]
            if current is None or current.topic.id != archive.layout.topic_id:
                self._catalog.drop(archive.layout)
        self._not_before = {tp: until_ms for tp, until_ms in self._not_before.items() if tp in alive}
        topics = {partition.topic.id for partition in alive.values()}
        self._described = {topic_id: text for topic_id, text in self._described.items() if topic_id in topics}

    async def _open_archives(self, partitions: Iterable[LedPartition]) -> None:
        room = asyncio.Semaphore(_OPEN_AT_ONCE)

        async def open_archive(archive: PartitionArchive) -> bool:
            async with room:
                await archive.open(self._clock())
            return False

        opening = []
        for partition in partitions:
            archive = self._archives.get(partition.tp)
            if archive is None:
                archive = PartitionArchive(partition, self._catalog, self._metadata, self._settings, self.owner)
                self._archives[partition.tp] = archive
            if archive.must_open:
                opening.append(self._try(archive, open_archive(archive)))
        await asyncio.gather(*opening)

    async def _attend(self, partition: LedPartition, worker: WorkerProcess) -> bool:
        """Archives one segment, then applies retention and collects garbage. Returns whether there is more to do."""
        archive = self._archives[partition.tp] = self._archives.pop(partition.tp)

        async def work() -> bool:
            await archive.look(self._clock())
            await self._describe(partition.topic)
            following = archive.next_segment(self._clock())
            if following is not None:
                await self._archive(archive, following, worker)
            await archive.apply_retention(self._clock())
            await archive.collect_removed(self._clock())
            if partition.tp in self._uncollected:
                self.consider_proposals(archive)
                if partition.tp.partition == 0:
                    await archive.pinned(self._clock())
                await archive.collect_orphans(self._clock())
                self._uncollected.discard(partition.tp)
            self._succeeded(archive)
            self._not_before.pop(partition.tp, None)
            self._holding.note(partition, archive.writer.current.end_offset, self._clock())
            return archive.next_segment(self._clock()) is not None

        return await self._try(archive, work())

    async def _archive(self, archive: PartitionArchive, following: NextSegment, worker: WorkerProcess) -> None:
        try:
            job = await archive.begin(following, self._clock())
            segment = await worker.archive(job)
        except CorruptLog as error:
            archive.failures += 1
            archive.hold(following, error, self._clock())
        else:
            await archive.publish(segment, self._clock())

    async def _try(self, archive: PartitionArchive, work: Awaitable[bool]) -> bool:
        try:
            return await work
        except (TierlogError, OSError) as error:
            self._failed(archive, error)
        except Exception as error:
            _log.exception("archiving failed by a mistake of ours", partition=str(archive.partition.tp))
            self._failed(archive, error)
        return False

    def _succeeded(self, archive: PartitionArchive) -> None:
        archive.last_success_ms = self._clock()
        if archive.failures_in_a_row and archive.failing_since_ms is not None:
            archive.recovered_ms = archive.last_success_ms
            seconds = (archive.recovered_ms - archive.failing_since_ms) // 1000
            _log.info("archiving works again", partition=str(archive.partition.tp), failed_for_seconds=seconds)
        archive.failures_in_a_row = 0
        archive.failing_since_ms = None

    def _failed(self, archive: PartitionArchive, error: Exception) -> None:
        tp = archive.partition.tp
        if archive.failing_since_ms is None:
            archive.failing_since_ms = self._clock()
        archive.failures += 1
        archive.failures_in_a_row += 1
        if archive.last_failure != str(error) or archive.failures_in_a_row == 1:
            archive.last_failure = str(error)
            if isinstance(error, ArchiveStopped):
                _log.error(
                    "an archive is stopped: nothing of it is archived or deleted", partition=str(tp), why=str(error)
                )
            else:
                _log.warning("archiving failed and is tried again", partition=str(tp), error=str(error))
        longest_ms = _AWAY_PAUSE_MS if isinstance(error, StoreUnavailable) else _MAX_PAUSE_MS
        pause_ms = min(self._settings.check_ms * 2 ** min(archive.failures_in_a_row, 10), longest_ms)
        self._not_before[tp] = self._clock() + pause_ms
        if isinstance(error, ManifestFenced | StoreError):
            archive.mistrust()

    async def _describe(self, topic: Topic) -> None:
        """Keeps the topic's description in the bucket, so that the topic can be restored from the bucket alone."""
        described = write_description(
            TopicDescription(
                topic.name,
                topic.id,
                topic.partitions,
                topic.replication_factor,
                dict(topic.config),
                topic.created_ms,
            )
        )
        if self._described.get(topic.id) == described:
            return
        store, version = self._catalog.store, self._clock()
        newest = await anext(aiter(store.list(topic_descriptions(topic.name, topic.id))), None)
        if newest is None or bytes(await store.get(newest.key)) != described:
            if newest is not None:
                # The version must be above the one in the bucket, even if the clock went back.
                version = max(version, (parse_topic_description(newest.key) or 0) + 1)
            await store.put(topic_description(topic.name, topic.id, version), described)
        self._described[topic.id] = described

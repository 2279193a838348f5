"""The archive of a running node as its operators see it: status, verification, garbage, restore, figures.

The gateway's archive routes use it (`gateway.archive_control.ArchiveControl`). Each call works on the node's own
bucket. `tierlog.cli.archive` has the same tools for a bucket alone.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from cold_tier import pins
from cold_tier.catalog import Catalog
from cold_tier.checking.verify import verify
from cold_tier.errors import ArchiveNotStopped, CorruptObject
from cold_tier.inventory import find_topics
from cold_tier.layout import PROBES, PartitionLayout
from cold_tier.manifest.reader import load_newest
from cold_tier.objects.bucket import Bucket
from cold_tier.pins import Pin
from cold_tier.reader import ColdReader
from cold_tier.reports import (
    ArchivedRange,
    ArchivedSegment,
    ArchiveFigures,
    Collected,
    Considered,
    Estimate,
    Finding,
    HeldSegment,
    LocalRange,
    PartitionFigures,
    PartitionStatus,
    PinFigures,
    RepairDecision,
    Repaired,
    RestoredTopic,
    TopicFacts,
    VerifyEvent,
)
from hot_tier.cluster.admin import TopicAdmin
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.internal_topics import stays_local
from hot_tier.cluster.model import Topic
from hot_tier.cluster.producer_ids import ProducerIds
from hot_tier.cluster.store import MetadataStore
from hot_tier.errors import NotLeader, UnknownTopic
from hot_tier.ids import LeaderEpoch, NodeId, Offset, PartitionId, TopicPartition
from hot_tier.log.manager import LogManager
from hot_tier.replication.table import PartitionTable
from offloader.cost import estimate, requests_cost, storage_cost_per_day
from offloader.figures import PartitionLook
from offloader.held import holding_transaction
from offloader.offloader import Offloader
from offloader.plan import waiting
from offloader.prices import CostSettings
from offloader.restore import Restorer, restore_all
from offloader.trust import Local, judge

LOOK_MS = 3_000
"""How long a caller that looks at the bucket's state waits at most."""
_AT_ONCE = 16
_LAST_EPOCH = LeaderEpoch((1 << 31) - 1)


@dataclass(frozen=True, slots=True)
class Control:
    node_id: NodeId
    image: ClusterImage
    metadata: MetadataStore
    admin: TopicAdmin
    partitions: PartitionTable
    logs: LogManager
    producer_ids: ProducerIds
    catalog: Catalog
    reader: ColdReader
    offloader: Offloader
    clock: Callable[[], int]
    prices: CostSettings = field(default_factory=CostSettings)
    garbage_check_ms: int = 3_600_000
    _look: PartitionLook = field(default_factory=PartitionLook)

    @property
    def bucket(self) -> str:
        return self.catalog.store.url

    @property
    def _store(self) -> Bucket:
        return self.catalog.store

    def held(self) -> list[HeldSegment]:
        return [
            each.report() for archive in self.offloader for each in (archive.held, archive.kept) if each is not None
        ]

    async def look(self) -> None:
        """Sends a small request to the bucket. Raises StoreError with the reason if it does not answer."""
        await anext(aiter(self._store.within(LOOK_MS).list(PROBES)), None)

    async def pins(self, topics: Sequence[Topic]) -> list[tuple[Topic, Pin]]:
        """Returns the pins in the bucket that hold the retention of these topics now."""
        store, room = self._store.within(LOOK_MS), asyncio.Semaphore(_AT_ONCE)

        async def of(topic: Topic) -> list[tuple[Topic, Pin]]:
            async with room:
                found = await pins.held(store, topic.name, topic.id, self.clock())
            archive = self.offloader.archive_of(TopicPartition(topic.name, PartitionId(0)))
            if archive is not None and archive.layout.topic_id == topic.id:
                archive.pins = found
            return [(topic, pin) for pin in found]

        return [pair for pairs in await asyncio.gather(*map(of, topics)) for pair in pairs]

    def stopped(self) -> list[str]:
        return [str(archive.stopped) for archive in self.offloader if archive.stopped is not None]

    def status(self, topic: Topic, partition: int) -> PartitionStatus:
        layout = PartitionLayout(topic.name, topic.id, PartitionId(partition))
        manifest = self.catalog.get(layout)
        archived = None if manifest is None else ArchivedRange.of(manifest.snapshot)
        enabled = self.partitions.config(topic).remote_storage_enable and not stays_local(topic)
        try:
            led = self.partitions.get(topic.name, partition)
        except NotLeader:
            start = 0 if manifest is None else manifest.snapshot.log_start_offset
            return PartitionStatus(topic.name, topic.id, partition, enabled, start, None, archived)
        log = led.log
        archive = self.offloader.archive_of(TopicPartition(topic.name, PartitionId(partition)))
        held = None if archive is None else archive.held or archive.kept
        archived_end = Offset(0) if archived is None else Offset(archived.end_offset)
        pending = waiting(log.segments(), archived_end) if enabled else []
        return PartitionStatus(
            topic.name,
            topic.id,
            partition,
            enabled,
            log.log_start_offset,
            LocalRange(log.local_log_start_offset, log.log_end_offset, log.size_bytes, log.segment_count),
            archived,
            sum(info.size for info in pending),
            0 if archive is None else archive.failures,
            archive.last_failure if archive is not None and archive.failures_in_a_row else "",
            None if held is None else held.report(),
            None if archive is None else archive.failing_since_ms,
            None if archive is None else archive.recovered_ms,
            "" if archive is None or archive.stopped is None else str(archive.stopped),
            holding_transaction(led, archived_end) if enabled else None,
            pending[-1].end_offset if pending else None,
        )

    async def segments(
        self, topic: Topic, partition: int, from_offset: int, limit: int
    ) -> tuple[list[ArchivedSegment], int | None]:
        """Returns archived segments from the one that holds `from_offset`, and the offset to continue from (None at the
        end)."""
        layout = PartitionLayout(topic.name, topic.id, PartitionId(partition))
        manifest = self.catalog.get(layout)
        found: list[ArchivedSegment] = []
        if manifest is None or limit == 0:
            return found, None
        end = manifest.snapshot.end_offset
        async for segment in manifest.segments(Offset(from_offset), end):
            if len(found) == limit:
                return found, segment.base_offset
            aside = layout.aside(segment.name) if segment.aside else None
            found.append(ArchivedSegment(segment, layout.rows(segment.name), layout.index(segment.name), aside))
        return found, None

    async def verify(self, names: Sequence[str]) -> AsyncGenerator[VerifyEvent, None]:
        """Checks every object of these topics, or of all, against the manifests."""
        topics = await find_topics(self._store, names[0] if len(names) == 1 else None)
        chosen = [topic for topic in topics if not names or topic.name in names]
        for name in names:
            if not any(topic.name == name for topic in chosen) and self.image.find_topic(name) is None:
                raise UnknownTopic(f"neither the bucket nor the cluster has a topic {name!r}")
        async with aclosing(verify(self._store, chosen, all_topics=not names)) as events:
            async for event in events:
                yield event
        for known in [topic for topic in self.image.topics() if not names or topic.name in names]:
            for number in range(known.partitions):
                finding = await self._against_record(known, PartitionId(number))
                if finding is not None:
                    yield finding

    async def _against_record(self, topic: Topic, number: PartitionId) -> Finding | None:
        recorded = self.image.archive_record(topic.id, number)
        if recorded is None:
            return None
        try:
            log = self.partitions.get(topic.name, number).log
            local = Local(log.log_start_offset, log.local_log_start_offset)
        except NotLeader:
            local = Local(0, 0)
        layout, ours = PartitionLayout(topic.name, topic.id, number), self.offloader.owner
        try:
            found = await load_newest(self._store, layout)
        except CorruptObject:
            return None  # `verify` reports it.
        judgement = judge(found, recorded, local, ours, _LAST_EPOCH)
        where = f"{self._store.url}{layout.manifest_folder}"
        return Finding("went-back", where, judgement.what) if judgement.stops else None

    async def collect_garbage(self) -> Collected:
        return await self.offloader.collect_garbage()

    async def consider_proposals(self, topic: Topic, partition: int) -> list[Considered]:
        """Answers the waiting proposals now. Raises NotLeader if another node leads the partition."""
        self.partitions.get(topic.name, partition)
        archive = self.offloader.archive_of(TopicPartition(topic.name, PartitionId(partition)))
        return [] if archive is None else await asyncio.shield(self.offloader.consider_proposals(archive))

    async def repair(self, topic: Topic, partition: int, decision: RepairDecision) -> Repaired:
        """Repairs an archive as a person decided. Raises NotLeader if another node leads the partition."""
        self.partitions.get(topic.name, partition)
        archive = self.offloader.archive_of(TopicPartition(topic.name, PartitionId(partition)))
        if archive is None:
            raise ArchiveNotStopped(
                "the archive has not been opened yet", where=f"{topic.name}-{partition}", hint="try again in a moment"
            )
        repaired = await self.offloader.repair(archive, decision)
        self.offloader.wake()
        return repaired

    async def restore(self, names: Sequence[str], config: Mapping[str, str]) -> list[RestoredTopic]:
        """Restores these topics, which must not exist, or all that do not exist. They are served when this returns."""
        restorer = Restorer(
            self.image, self.metadata, self.admin, self.logs, self.producer_ids, self.node_id, self.clock()
        )
        async with self.offloader.deleted_topics.turn:
            restored = []
            async for topic in restore_all(self._store, restorer, names, config):
                restored.append(topic)
                if topic.restored:
                    self.offloader.deleted_topics.revived(topic.id)
                    for partition in topic.partitions:
                        self.partitions.get(topic.name, partition.partition)
        self.offloader.wake()
        return restored

    def cost(self, facts: TopicFacts, *, retention_ms: int | None, replays: float) -> Estimate:
        return estimate(
            facts, self.prices, retention_ms=retention_ms, replays=replays, garbage_check_ms=self.garbage_check_ms
        )

    def partition_figures(self) -> Iterator[PartitionFigures]:
        """Yields one by one, so that the caller may rest in between."""
        for archive in list(self.offloader):
            yield self._look.at(archive, self.clock())

    def figures(self, partitions: Sequence[PartitionFigures] | None = None) -> ArchiveFigures:
        """With `partitions`, does not look at them again."""
        requests = self._store.counters
        for counted in self.offloader.worker_requests:
            requests = requests + counted
        partitions = list(self.partition_figures()) if partitions is None else partitions
        return ArchiveFigures(
            partitions,
            [
                PinFigures(archive.partition.tp.topic, pin)
                for archive in self.offloader
                if archive.partition.tp.partition == 0
                for pin in archive.pins
                if pin.expires_ms > self.clock()
            ],
            requests,
            self.reader.hits,
            self.reader.misses,
            self.reader.memory_bytes,
            storage_cost_per_day(sum(each.stored_bytes for each in partitions), self.prices),
            requests_cost(requests, self.prices),
        )

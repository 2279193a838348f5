"""Rebuilds topics from the bucket alone, on a node that does not have them.

    plan      the newest topic of each name: description, manifests, leader epochs, the last segment's producer state
    logs      each partition's log begins, empty, at the archived end; its log start is the archive's. In a cluster
              the restoring broker leads all partitions at first; the other replicas begin there when they follow
    metadata  each manifest is recorded as the one to continue from: its publisher no longer owns the archive. Then
              the topic with its old id and settings, each partition in a leader epoch above every archived one

Planning only reads from the bucket. A stop before the metadata is written leaves empty logs of a topic that does not
exist; the next restore begins again. Records that were never archived are not restored: offsets continue at the
archived end, in a higher epoch, which tells clients that history was cut.

Partitions without a manifest come back empty. Topics that belong to the service are not archived, so not restored.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from cold_tier.descriptions import TopicDescription
from cold_tier.errors import CorruptManifest, CorruptObject, StoreDenied, StoreMisconfigured, StoreUnavailable
from cold_tier.format.index import read_index
from cold_tier.inventory import ArchivedTopic, describe, find_topics
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import Snapshot
from cold_tier.manifest.reader import Manifest, PageCache, load_newest
from cold_tier.objects.bucket import Bucket
from cold_tier.reports import RestoredPartition, RestoredTopic
from hot_tier.cluster.admin import TopicAdmin
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.internal_topics import AUDIT_TOPIC, INTERNAL_TOPICS
from hot_tier.cluster.model import PartitionState, Topic, archived_key, encode
from hot_tier.cluster.producer_ids import ProducerIds
from hot_tier.cluster.store import MetadataStore, Put
from hot_tier.errors import StorageFailure, TierlogError, TopicExists, UnknownTopic
from hot_tier.ids import LeaderEpoch, NodeId, PartitionId
from hot_tier.log.config import parse_topic_config
from hot_tier.log.epochs import LeaderEpochs
from hot_tier.log.manager import LogManager
from hot_tier.log.producers import ProducerState, read_producers
from offloader.archive_record import adopted

_ARCHIVED: Final = "remote.storage.enable"
_UNSEEN_PRODUCERS: Final = 1_000_000
"""Ids given out after the last archived segment are in no archive, and their producers may still be alive. This step is
wide enough to skip those ids.
"""


@dataclass(frozen=True, slots=True)
class History:
    """What the bucket knows about one partition."""

    snapshot: Snapshot
    epochs: tuple[tuple[int, int], ...]
    producers: ProducerState

    @property
    def next_epoch(self) -> LeaderEpoch:
        return LeaderEpoch(max(self.snapshot.version.leader_epoch, *(epoch for epoch, _ in self.epochs), 0) + 1)


@dataclass(frozen=True, slots=True)
class TopicPlan:
    description: TopicDescription
    histories: Mapping[int, History]
    warnings: list[str] = field(default_factory=list)


async def _find_lives(store: Bucket, names: Sequence[str]) -> list[list[ArchivedTopic]]:
    """Returns these topics, or all in the bucket. Each inner list has all topics that ever had one name."""
    lives: dict[str, list[ArchivedTopic]] = {}
    for topic in await find_topics(store, names[0] if len(names) == 1 else None):
        if topic.name not in INTERNAL_TOPICS - {AUDIT_TOPIC} and (not names or topic.name in names):
            lives.setdefault(topic.name, []).append(topic)
    for name in names:
        if name not in lives:
            raise UnknownTopic(f"the bucket holds nothing of topic {name!r}", where=store.url)
    return list(lives.values())


async def plan_topic(store: Bucket, lives: list[ArchivedTopic], config: Mapping[str, str]) -> TopicPlan:
    warnings: list[str] = []
    described = [(await _described(store, life, warnings), life) for life in lives]
    description, topic = max(described, key=lambda pair: pair[0].created_ms)
    if topic.bare:
        raise CorruptManifest(
            f"partition {topic.bare[0].partition} has archived objects but no manifest: it would come back empty",
            where=f"{store.url}{topic.bare[0].folder}",
            hint="put its manifests back from a copy of the bucket first",
        )
    histories = {}
    for layout in topic.layouts:
        history = await load_history(store, layout)
        if history is not None:
            histories[int(layout.partition)] = history
    # Without it, a node whose default is off would not see the archive.
    settings = {**description.config, _ARCHIVED: "true", **config}
    described_topic = TopicDescription(
        description.name,
        description.id,
        max(description.partitions, *(number + 1 for number in histories), 1),
        description.replication_factor,
        settings,
        description.created_ms,
    )
    return TopicPlan(described_topic, histories, warnings)


async def _described(store: Bucket, topic: ArchivedTopic, warnings: list[str]) -> TopicDescription:
    try:
        return await describe(store, topic)
    except CorruptObject as error:
        # Records without their settings are better than no records, and no record may expire because of missing
        # settings.
        warnings.append(f"{error}: restored with default settings and without retention")
        partitions = max((layout.partition for layout in topic.layouts), default=0) + 1
        unlimited = {"retention.ms": "-1", "retention.bytes": "-1"}
        return TopicDescription(topic.name, topic.id, partitions, 1, unlimited, 0)


async def load_history(store: Bucket, layout: PartitionLayout) -> History | None:
    snapshot = await load_newest(store, layout)
    if snapshot is None:
        return None
    manifest = Manifest(snapshot, PageCache(store))
    epochs = LeaderEpochs()
    last = None
    async for last in manifest.segments(snapshot.start_offset, snapshot.end_offset):
        for epoch in last.epochs:
            epochs.assign(epoch.leader_epoch, epoch.start_offset)
    epochs.truncate_start(snapshot.log_start_offset)
    producers = ProducerState()
    if last is not None:
        key = layout.index(last.name)
        found = read_producers(read_index(await store.get(key), f"{store.url}{key}").producers)
        # An older state would refuse what a producer sends next. Without any state the producer can begin again.
        if found is not None and found[0] == snapshot.end_offset:
            producers = found[1]
    return History(snapshot, tuple(epochs.entries()), producers)


class Restorer:
    """Carries out plans on one node, which may be running or not."""

    def __init__(
        self,
        image: ClusterImage,
        metadata: MetadataStore,
        admin: TopicAdmin,
        logs: LogManager,
        producer_ids: ProducerIds,
        node_id: NodeId,
        now_ms: int,
    ) -> None:
        self._image = image
        self._metadata = metadata
        self._admin = admin
        self._logs = logs
        self._producer_ids = producer_ids
        self._node_id = node_id
        self._now_ms = now_ms

    def refuse_existing(self, names: Sequence[str]) -> None:
        for name in names:
            if self._image.find_topic(name) is not None:
                raise TopicExists(
                    f"topic {name} already exists", where=name, hint="delete it first, or restore on an empty node"
                )

    async def restore(self, plan: TopicPlan) -> RestoredTopic:
        """Restores the topic. Leaves a topic that already exists unchanged."""
        described = plan.description
        if self._image.find_topic(described.name) is not None:
            return RestoredTopic(described.name, described.id, restored=False)
        config = parse_topic_config(described.config, self._admin.defaults)
        replicas = min(described.replication_factor, max(len(self._image.brokers()), 1))
        topic = Topic(
            name=described.name,
            id=described.id,
            partitions=described.partitions,
            replication_factor=replicas,
            config=MappingProxyType(described.config),
            created_ms=described.created_ms,
            internal=described.name in INTERNAL_TOPICS,
        )
        self._clear(topic)
        restored: list[RestoredPartition] = []
        states: list[PartitionState] = []
        producer = -1
        for number in range(topic.partitions):
            history = plan.histories.get(number)
            epoch = LeaderEpoch(0) if history is None else history.next_epoch
            states.append(PartitionState(self._node_id, epoch, (self._node_id,), self._replicas(number, replicas)))
            if history is None:
                restored.append(RestoredPartition(number, 0, 0, 0, 0, epoch))
                continue
            snapshot = history.snapshot
            # Nothing undecided is archived. The markers of the last transactions may lie behind the archive's end.
            history.producers.end_transactions()
            log = self._logs.log(topic.name, topic.id, PartitionId(number), config)
            log.start_from_archive(
                snapshot.log_start_offset, snapshot.end_offset, list(history.epochs), history.producers
            )
            producer = max(producer, *(each.producer_id for each in history.producers.describe()), -1)
            rows = sum(part.rows for part in snapshot.parts)
            restored.append(
                RestoredPartition(
                    number, snapshot.log_start_offset, snapshot.end_offset, snapshot.segments, rows, epoch
                )
            )
            await asyncio.sleep(0)  # Each log waits for the disk, so let other tasks run in between.
        if producer >= 0:
            await self._producer_ids.skip_past(producer + _UNSEEN_PRODUCERS)
        for number, history in plan.histories.items():
            key = archived_key(topic.id, number)
            await self._metadata.transact([], [Put(key, encode(adopted(history.snapshot, history.next_epoch)))])
        try:
            await self._admin.restore_topic(topic, states)
        except BaseException:
            self._logs.delete(topic.name, topic.id)
            raise
        warnings = [*plan.warnings, *self._warnings(plan, config.retention_ms, config.min_insync_replicas, replicas)]
        return RestoredTopic(topic.name, topic.id, True, dict(described.config), restored, warnings)

    def _replicas(self, number: int, count: int) -> tuple[NodeId, ...]:
        """Returns this node, which has the log, and others, which begin at the archived end like it."""
        others = [broker.id for broker in self._image.brokers() if broker.id != self._node_id]
        return (self._node_id, *(others[(number + turn) % len(others)] for turn in range(count - 1)))

    def _clear(self, topic: Topic) -> None:
        """Deletes what an interrupted restore left. Raises StorageFailure if there are records on disk."""
        for number in range(topic.partitions):
            log = self._logs.log(topic.name, topic.id, PartitionId(number), self._admin.defaults)
            if log.size_bytes:
                raise StorageFailure(
                    f"the data directory holds records of this topic, up to offset {log.log_end_offset}",
                    where=log.directory,
                    hint="they may be newer than the archive; move the directory away to restore without them",
                )
        self._logs.delete(topic.name, topic.id)

    def _warnings(self, plan: TopicPlan, retention_ms: int, min_in_sync: int, replicas: int) -> list[str]:
        found = []
        parts = [part for history in plan.histories.values() for part in history.snapshot.parts]
        oldest = self._now_ms - retention_ms
        if retention_ms >= 0 and any(part.rows and part.max_timestamp_ms < oldest for part in parts):
            found.append(
                f"some of it is older than retention.ms {retention_ms} and is deleted, in the bucket too, soon after "
                "the topic is served: to keep it, restore with a greater retention.ms or -1"
            )
        if min_in_sync > replicas:
            found.append(f"min.insync.replicas {min_in_sync} is above the {replicas} there are: no write is taken")
        return found


async def restore_all(
    store: Bucket,
    restorer: Restorer,
    names: Sequence[str] = (),
    config: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[RestoredTopic]:
    """Restores these topics, which must not exist, or all that do not exist. `config` overrides their own settings.

    If topics are named, a damaged one raises its error. If not, it is reported and the others are restored.
    """
    restorer.refuse_existing(names)
    for lives in await _find_lives(store, names):
        try:
            yield await restorer.restore(await plan_topic(store, lives, config))
        except (StoreUnavailable, StoreDenied, StoreMisconfigured):
            raise
        except TierlogError as error:
            if names:
                raise
            yield RestoredTopic(lives[0].name, lives[0].id, restored=False, failure=str(error))

"""Makes cluster metadata anew from what the brokers still hold, where etcd and its backups are lost.

For each partition the broker with the best log will lead: the log with the latest leader epoch, then the highest end
offset. That log has every committed record, if every broker that was in sync was surveyed. This is why: a record is
committed once all in-sync replicas have it; the leader of a later epoch was one of them; and a replica that has a batch
of an epoch has everything that its leader had before it. All other replicas follow from there, and cut what differs by
leader epoch. A log that lost all its records, and knows only where they ended, comes after all others.

Where nothing is known, the choice is the one that loses nothing: a topic whose settings are not in the bucket has no
retention until somebody sets it again. A topic whose offsets do not fit the bucket is left out, and named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from cold_tier.descriptions import TopicDescription
from cold_tier.errors import CorruptObject
from cold_tier.inventory import describe, find_topics
from cold_tier.manifest.model import Snapshot
from cold_tier.manifest.reader import load_newest
from cold_tier.objects.bucket import Bucket
from gateway.coordinators.journal.topic import JournalTopic, topic_settings
from hot_tier.cluster import model
from hot_tier.cluster.admin import TopicAdmin
from hot_tier.cluster.internal_topics import INTERNAL_TOPICS
from hot_tier.cluster.model import NO_NODE, NodeRecord, PartitionState, Topic
from hot_tier.cluster.producer_ids import ProducerIds
from hot_tier.cluster.store import MetadataStore, Put
from hot_tier.errors import SettingsError, TopicExists
from hot_tier.ids import LeaderEpoch, NodeId, TopicId
from offloader.archive_record import adopted
from tierlog.survey import FoundLog, Survey

KEEP_ALL: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
UNSEEN_PRODUCERS: Final = 1_000_000
"""How many ids may have been handed out to producers that have not written yet."""


@dataclass(frozen=True, slots=True)
class Archive:
    """What the bucket knows of one topic."""

    description: TopicDescription | None
    manifests: Mapping[int, Snapshot]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    name: str
    topic: Topic | None = None
    """None: it is left out."""
    states: Sequence[PartitionState] = ()
    manifests: Mapping[int, Snapshot] = field(default_factory=dict)
    notes: Sequence[str] = ()


Held = dict[int, list[tuple[NodeId, FoundLog]]]


def plan(
    surveys: Sequence[Survey],
    archives: Mapping[TopicId, Archive],
    partitions: Mapping[str, int],
    journals: Mapping[str, JournalTopic],
) -> list[Rebuilt]:
    """`partitions` says how many a topic has, where more were made than ever written to; `journals` are the topics of
    coordinators, by name."""
    by_topic: dict[tuple[str, TopicId], Held] = {}
    for each in surveys:
        for log in each.logs:
            held = by_topic.setdefault((log.topic, log.topic_id), {})
            held.setdefault(log.partition, []).append((each.node, log))
    nodes = sorted(each.node for each in surveys)
    names = [name for name, _ in by_topic]
    found = []
    for (name, topic_id), held in sorted(by_topic.items()):
        archive = archives.get(topic_id, Archive(None, {}))
        if names.count(name) > 1:
            why = "there are logs of two topics of this name: move the directories of one away, and survey again"
            found.append(Rebuilt(name, notes=[why]))
        else:
            count, journal = partitions.get(name, 0), journals.get(name)
            found.append(_topic(name, topic_id, held, archive, nodes, count, journal))
    return found


def _topic(
    name: str,
    topic_id: TopicId,
    held: Held,
    archive: Archive,
    nodes: list[NodeId],
    count: int,
    journal: JournalTopic | None,
) -> Rebuilt:
    notes: list[str] = []
    described = archive.description
    if described is not None:
        name, config, count = described.name, described.config, max(count, described.partitions)
    elif journal is not None:
        config, count = topic_settings(journal), count or journal.partitions
    else:
        config = dict(KEEP_ALL)
        notes.append("its settings are not known: nothing is deleted until you set retention.ms and the others again")
    count = max(count, *(number + 1 for number in held))
    for number, snapshot in archive.manifests.items():
        end = max((log.end_offset for _, log in held.get(number, [])), default=0)
        if end < snapshot.end_offset:
            why = f"partition {number} is archived up to offset {snapshot.end_offset}, and its log ends at {end}"
            return Rebuilt(name, notes=[f"{why}: bring it back with `tierlog archive restore --topic {name}`"])
    replicas = max(len(holders) for holders in held.values())
    states = [
        _state(
            held.get(number, []),
            archive.manifests.get(number),
            [nodes[(number + n) % len(nodes)] for n in range(replicas)],
        )
        for number in range(count)
    ]
    damaged = [number for number, each in sorted(held.items()) if all(log.damaged or log.emptied for _, log in each)]
    if damaged:
        notes.append(f"partitions {damaged} miss something at every broker")
    topic = Topic(name, topic_id, count, replicas, MappingProxyType(dict(config)), 0, internal=name in INTERNAL_TOPICS)
    return Rebuilt(name, topic, states, archive.manifests, notes)


def _state(holders: list[tuple[NodeId, FoundLog]], archived: Snapshot | None, empty: list[NodeId]) -> PartitionState:
    """Returns a state without a leader: the broker with the best log leads once it is there. A partition without a log
    gets `empty` as its replicas."""
    if not holders:
        return model.initial_state(empty)
    best = max(holders, key=lambda each: (not each[1].emptied, each[1].leader_epoch, each[1].end_offset))[0]
    others = sorted(node for node, _ in holders if node != best)
    known = [log.leader_epoch for _, log in holders] + ([archived.version.leader_epoch] if archived else [])
    return PartitionState(NO_NODE, LeaderEpoch(max(known) + 1), (best,), (best, *others))


async def look_at_archive(bucket: Bucket) -> dict[TopicId, Archive]:
    found = {}
    for topic in await find_topics(bucket, None):
        try:
            description = await describe(bucket, topic)
        except CorruptObject:
            description = None
        manifests = {int(layout.partition): await load_newest(bucket, layout) for layout in topic.layouts}
        found[topic.id] = Archive(description, {number: each for number, each in manifests.items() if each is not None})
    return found


async def refuse_known_cluster(store: MetadataStore) -> None:
    """Metadata that is there is not overwritten; brokers that run would not hear of it."""
    for prefix in (model.TOPICS_PREFIX, model.BROKERS_PREFIX):
        if (await store.range(prefix)).items:
            raise TopicExists(
                f"there is cluster metadata already, below {prefix}",
                where="--metadata",
                hint="rebuild into an empty etcd, or under another name, etcd://host:port/name",
            )


async def write(
    store: MetadataStore,
    admin: TopicAdmin,
    producer_ids: ProducerIds,
    surveys: Sequence[Survey],
    topics: Sequence[Rebuilt],
) -> None:
    """Topics come last: a broker that starts too early finds none of them."""
    if len({each.node for each in surveys}) != len(surveys) or len({each.identity for each in surveys}) != len(surveys):
        raise SettingsError("two surveys are of one broker or of one data directory", hint="give one for each broker")
    for each in surveys:
        record = NodeRecord(each.identity.data_id, each.identity.runs)
        await store.transact([], [Put(model.node_key(each.node), model.encode(record))])
    await producer_ids.skip_past(max(each.last_producer_id for each in surveys) + UNSEEN_PRODUCERS)
    for rebuilt in topics:
        if rebuilt.topic is None:
            continue
        for number, snapshot in rebuilt.manifests.items():
            epoch = rebuilt.states[number].leader_epoch
            key = model.archived_key(rebuilt.topic.id, number)
            await store.transact([], [Put(key, model.encode(adopted(snapshot, epoch)))])
        await admin.restore_topic(rebuilt.topic, rebuilt.states)

"""The cluster's metadata as this node sees it, in memory, kept up to date by one watch.

Owns: the maps that request handlers read without waiting, and the order in which listeners hear of changes.
It writes nothing; changes are made in the store (`hot_tier.cluster.admin` and others) and come back here.

- What is shown is the state of the store as of `revision`, which only grows: whole transactions, in order.
- Listeners run after the maps show the change, on the loop, one change after the other. Waiters for a revision
  wake after the listeners, so that whoever waited finds the rest of the node changed as well.
- It also remembers which brokers have just gone, and which may be gone because somebody on this node found out
  (`doubt`). In these moments an election is to be expected.
- After a gap (the watch fell behind, the store was away) the whole is read again and the difference is
  announced as one change; a topic deleted and made anew in the gap appears as old and new with different ids.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import structlog

from hot_tier.clock import steady_s
from hot_tier.cluster import acls, api_keys, credentials, model
from hot_tier.cluster.api_keys import ApiKey
from hot_tier.cluster.credentials import Credential
from hot_tier.cluster.model import Archived, BrokerInfo, DeletedTopic, NodeRecord, PartitionState, QuotaEntity, Topic
from hot_tier.cluster.store import ABSENT, Event, MetadataStore, Range, Revision
from hot_tier.errors import CorruptMetadata, TierlogError, UnknownPartition, UnknownTopic, UnknownTopicId
from hot_tier.ids import NodeId, PartitionId, TopicId, TopicPartition

RETRY_S: Final = 0.2
REMEMBER_GONE_S: Final = 3.0
ELECTION_S: Final = 1.0
"""How long elections take after the loss of a broker. A partition without a leader then waits for a broker."""

_log = structlog.get_logger()


@dataclass(slots=True)
class ImageChange:
    """What one step changed. A topic maps to its old and its new value; None means that it does not exist."""

    topics: dict[str, tuple[Topic | None, Topic | None]] = field(default_factory=dict)
    partitions: set[tuple[TopicId, PartitionId]] = field(default_factory=set)
    brokers: bool = False
    quotas: bool = False


Listener = Callable[[ImageChange], None]


class ClusterImage:
    """Call `open` before use; reads are plain calls from the loop's thread."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.revision = ABSENT
        self.cluster_id = ""
        self.controller: NodeId = model.NO_NODE
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[TopicId, Topic] = {}
        self._states: dict[TopicId, dict[PartitionId, PartitionState]] = {}
        self._brokers: dict[NodeId, BrokerInfo] = {}
        self._nodes: dict[NodeId, NodeRecord] = {}
        self._gone: dict[NodeId, tuple[BrokerInfo, float]] = {}
        self._doubted: set[NodeId] = set()
        self._deleted: dict[TopicId, DeletedTopic] = {}
        self._archived: dict[tuple[TopicId, PartitionId], Archived] = {}
        self._quotas: dict[QuotaEntity, Mapping[str, float]] = {}
        self._kept: dict[tuple[str, str], Mapping[str, str]] = {}
        self.users: dict[str, Mapping[str, Credential]] = {}
        """The credentials of each user, by mechanism."""
        self.salts = b""
        """The secret that makes the salts of users who do not exist; empty before it is made."""
        self.api_keys: dict[str, ApiKey] = {}
        """By id."""
        self.acls = acls.Rules()
        self._listeners: list[Listener] = []
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._following: asyncio.Task[None] | None = None

    async def open(self) -> None:
        self._reload(await self._store.range(""))
        self._following = asyncio.get_running_loop().create_task(self._follow(), name="cluster image")

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        for _, future in self._waiters:
            future.cancel()

    # Reads

    def topic(self, name: str) -> Topic:
        try:
            return self._topics[name]
        except KeyError:
            raise UnknownTopic(f"there is no topic {name!r}") from None

    def find_topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        try:
            return self._by_id[topic_id]
        except KeyError:
            raise UnknownTopicId(f"there is no topic with the id {topic_id}") from None

    def find_topic_by_id(self, topic_id: TopicId) -> Topic | None:
        return self._by_id.get(topic_id)

    def topics(self) -> Collection[Topic]:
        return self._topics.values()

    def partition_state(self, tp: TopicPartition) -> PartitionState:
        topic = self.topic(tp.topic)
        state = self._states.get(topic.id, {}).get(tp.partition)
        if state is None or tp.partition >= topic.partitions:
            raise UnknownPartition(
                f"topic {topic.name!r} has the partitions 0 to {topic.partitions - 1}", where=str(tp)
            )
        return state

    def partition_states(self, topic: Topic) -> Sequence[PartitionState]:
        """Returns the states of all partitions of a topic, in their order."""
        states = self._states[topic.id]
        return [states[PartitionId(index)] for index in range(topic.partitions)]

    def brokers(self) -> Sequence[BrokerInfo]:
        return [self._brokers[node] for node in sorted(self._brokers)]

    def broker(self, node: NodeId) -> BrokerInfo | None:
        return self._brokers.get(node)

    def node(self, node: NodeId) -> NodeRecord | None:
        """Returns what is known of a broker of the cluster, alive or not."""
        return self._nodes.get(node)

    def kept_settings(self, kind: str, name: str) -> Mapping[str, str]:
        return self._kept.get((kind, name), MappingProxyType({}))

    def owners_of_kept_settings(self, kind: str) -> Sequence[str]:
        return [name for owner_kind, name in self._kept if owner_kind == kind]

    def lately_gone(self) -> Sequence[BrokerInfo]:
        return [broker for broker, gone_at in self._gone.values() if steady_s() - gone_at < REMEMBER_GONE_S]

    def unsettled(self) -> set[NodeId]:
        """Returns the brokers whose partitions are about to get other leaders."""
        if not self._gone and not self._doubted:
            return set()
        now = steady_s()
        return self._doubted | {node for node, (_, gone_at) in self._gone.items() if now - gone_at < ELECTION_S}

    def doubt(self, node: NodeId) -> None:
        """Notes that this broker is perhaps gone. Call `trust` when that is decided, either way."""
        self._doubted.add(node)

    def trust(self, node: NodeId) -> None:
        self._doubted.discard(node)
        self._wake()

    def deleted_topics(self) -> Iterable[DeletedTopic]:
        return self._deleted.values()

    def archived(self, topic_id: TopicId, partition: PartitionId) -> Archived | None:
        """Returns how far the leader has archived a partition. Returns None if no leader has said so in the current
        epoch, or if the archive cannot be trusted."""
        said = self._archived.get((topic_id, partition))
        state = self._states.get(topic_id, {}).get(partition)
        if said is None or said.stopped is not None or state is None or said.leader_epoch != state.leader_epoch:
            return None
        return said

    def archive_record(self, topic_id: TopicId, partition: PartitionId) -> Archived | None:
        """Returns the last record of a partition's archive, of any epoch."""
        return self._archived.get((topic_id, partition))

    @property
    def quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        return MappingProxyType(self._quotas)

    # Changes

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def unsubscribe(self, listener: Listener) -> None:
        self._listeners.remove(listener)

    async def wait_for(self, predicate: Callable[[], bool]) -> None:
        """Returns once the predicate holds. It is asked again after every change."""
        if predicate():
            return
        entry = (predicate, asyncio.get_running_loop().create_future())
        self._waiters.append(entry)
        try:
            await entry[1]
        finally:
            if entry in self._waiters:
                self._waiters.remove(entry)

    async def reached(self, revision: Revision) -> None:
        """Returns once this node shows what was written at `revision`."""
        await self.wait_for(lambda: self.revision >= revision)

    async def _follow(self) -> None:
        while True:
            try:
                async for events in self._store.watch("", self.revision):
                    self._apply(events, events[-1].revision)
                return
            except TierlogError as error:
                _log.warning("metadata watch interrupted", error=str(error))
            try:
                self._reload(await self._store.range(""))
            except TierlogError as error:
                _log.warning("metadata not readable, trying again", error=str(error))
                await asyncio.sleep(RETRY_S)

    def _reload(self, listing: Range) -> None:
        present = {item.key for item in listing.items}
        gone = [Event(key, None, listing.revision) for key in self._known_keys() if key not in present]
        found = [Event(item.key, item.value, item.revision) for item in listing.items]
        self._apply(gone + found, listing.revision)

    def _known_keys(self) -> Iterable[str]:
        yield from map(model.topic_key, self._topics)
        yield from map(model.broker_key, self._brokers)
        yield from map(model.node_key, self._nodes)
        yield from map(model.deleted_key, self._deleted)
        yield from map(model.quota_key, self._quotas)
        yield from map(model.user_key, self.users)
        for each in self.api_keys.values():
            yield api_keys.key_of(each.user, each.id)
        yield from map(acls.acl_key, self.acls)
        for owner in self._kept:
            yield model.kept_key(*owner)
        for place in self._archived:
            yield model.archived_key(*place)
        yield model.CONTROLLER_KEY
        for topic_id, states in self._states.items():
            for partition in states:
                yield model.partition_key(topic_id, partition)

    def _apply(self, events: Sequence[Event], revision: Revision) -> None:
        change = ImageChange()
        for event in events:
            try:
                self._apply_one(event, change)
            except (CorruptMetadata, ValueError) as error:
                # The old value stays. One bad value must not cost the node its other topics.
                _log.error("metadata value ignored", error=str(error), key=event.key)
        self.revision = revision
        for listener in tuple(self._listeners):
            try:
                listener(change)
            except Exception:
                _log.exception("metadata listener failed")
        if self._waiters:
            self._wake()

    def _wake(self) -> None:
        waiting = []
        for predicate, future in self._waiters:
            if future.done():
                continue
            if predicate():
                future.set_result(None)
            else:
                waiting.append((predicate, future))
        self._waiters = waiting

    def _apply_one(self, event: Event, change: ImageChange) -> None:
        kind, _, rest = event.key.partition("/")
        match kind:
            case "topics":
                self._apply_topic(rest, event, change)
            case "partitions":
                self._apply_partition(event, change)
            case "brokers":
                self._apply_broker(rest, event, change)
            case "nodes":
                if event.value is None:
                    self._nodes.pop(NodeId(int(rest)), None)
                else:
                    self._nodes[NodeId(int(rest))] = model.decode_node(event.key, event.value)
            case "deleted":
                if event.value is None:
                    self._deleted.pop(TopicId(hex=rest), None)
                else:
                    deleted = model.decode_deleted(event.key, event.value)
                    self._deleted[deleted.id] = deleted
            case "archived":
                if event.value is None:
                    self._archived.pop(model.parse_archived_key(event.key), None)
                else:
                    place = model.parse_archived_key(event.key)
                    self._archived[place] = model.decode_archived(event.key, event.value)
            case "quotas":
                entity = model.parse_quota_key(event.key)
                if event.value is None:
                    self._quotas.pop(entity, None)
                else:
                    self._quotas[entity] = MappingProxyType(model.decode_map(event.key, event.value))
                change.quotas = True
            case "kept":
                owner = model.parse_kept_key(event.key)
                if event.value is None:
                    self._kept.pop(owner, None)
                else:
                    self._kept[owner] = MappingProxyType(model.decode_map(event.key, event.value))
            case "users":
                if event.value is None:
                    self.users.pop(model.parse_user_key(event.key), None)
                else:
                    self.users[model.parse_user_key(event.key)] = credentials.decode(event.key, event.value)
            case "salts" if event.value is not None:
                self.salts = credentials.decode_salts(event.key, event.value)
            case "api-keys":
                _, key_id = api_keys.parse_key(event.key)
                self.api_keys.pop(key_id, None)
                if event.value is not None:
                    self.api_keys[key_id] = api_keys.decode(event.key, event.value)
            case "acls":
                change_rules = self.acls.remove if event.value is None else self.acls.add
                change_rules(acls.parse_acl_key(event.key))
            case "controller":
                held = None if event.value is None else model.decode_map(event.key, event.value).get("node")
                self.controller = model.NO_NODE if held is None else NodeId(held)
                change.brokers = True
            case "cluster" if event.value is not None:
                self.cluster_id = str(model.decode_map(event.key, event.value).get("id", ""))

    def _apply_topic(self, name: str, event: Event, change: ImageChange) -> None:
        before = self._topics.get(name)
        after = None
        if event.value is not None:
            after = model.decode_topic(event.key, event.value, event.revision)
            self._topics[name] = after
            self._by_id[after.id] = after
        else:
            self._topics.pop(name, None)
        if before is not None and (after is None or after.id != before.id):
            del self._by_id[before.id]
        first, _ = change.topics.get(name, (before, None))
        if first != after:
            change.topics[name] = (first, after)

    def _apply_partition(self, event: Event, change: ImageChange) -> None:
        topic_id, partition = model.parse_partition_key(event.key)
        if event.value is None:
            states = self._states.get(topic_id, {})
            states.pop(partition, None)
            if not states:
                self._states.pop(topic_id, None)
        else:
            state = model.decode_partition(event.key, event.value, event.revision)
            self._states.setdefault(topic_id, {})[partition] = state
        change.partitions.add((topic_id, partition))

    def _apply_broker(self, node_id: str, event: Event, change: ImageChange) -> None:
        if event.value is None:
            gone = self._brokers.pop(NodeId(int(node_id)), None)
            if gone is not None:
                self._gone[gone.id] = (gone, steady_s())
        else:
            broker = model.decode_broker(event.key, event.value, event.revision)
            self._brokers[broker.id] = broker
            self._gone.pop(broker.id, None)
        change.brokers = True

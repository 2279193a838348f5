"""Makes, changes and deletes topics: Kafka's rules, then a compare-and-swap in the store.

Owns the rules of what a topic may be. It decides from the image, writes only if nothing changed since, and
returns once the image shows the change: the next request on this node finds the topic as it was made.
When another writer was faster, the decision is made again from the newer image.

Every refusal is one of `hot_tier.errors`. With `validate_only` all is checked and nothing is written.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from hot_tier.cluster import model
from hot_tier.cluster.configs import ConfigChange, apply_changes, topic_settings
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.internal_topics import AUDIT_TOPIC, INTERNAL_TOPICS
from hot_tier.cluster.model import DeletedTopic, PartitionState, Topic
from hot_tier.cluster.placement import Places, check_assignment, count_hosts, deal_order, place, places_of
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.cluster.store import ABSENT, MAX_OPERATIONS, Compare, Delete, MetadataStore, Put, Revision
from hot_tier.errors import (
    InvalidAssignment,
    InvalidConfig,
    InvalidPartitions,
    InvalidRequest,
    InvalidTopicName,
    MetadataConflict,
    PolicyViolation,
    TierlogError,
    TopicExists,
)
from hot_tier.ids import NodeId, TopicId
from hot_tier.log.config import TopicConfig, parse_topic_config

DEFAULT: Final = -1
"""As a number of partitions or a replication factor: what the settings say."""

NAME_LIMIT: Final = 249
ATTEMPTS: Final = 10

_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class NewTopic:
    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    config: Mapping[str, str] = field(default_factory=dict)
    assignment: Mapping[int, Sequence[int]] | None = None
    """Partition → brokers, preferred leader first; partitions and replication factor are then left at -1."""
    internal: bool = False


class TopicAdmin:
    def __init__(
        self,
        store: MetadataStore,
        image: ClusterImage,
        *,
        defaults: TopicConfig,
        settings: ClusterSettings,
        clock: Callable[[], int],
    ) -> None:
        self._store = store
        self._image = image
        self.settings = settings
        self._clock = clock
        self._placed = 0
        self.defaults = defaults

    async def create_topic(
        self,
        name: str,
        partitions: int = DEFAULT,
        replication_factor: int = DEFAULT,
        config: Mapping[str, str] | None = None,
        assignment: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
        *,
        internal: bool = False,
    ) -> Topic:
        new = NewTopic(name, partitions, replication_factor, config or {}, assignment, internal)
        (made,) = await self.create_topics([new], validate_only)
        if isinstance(made, TierlogError):
            raise made
        return made

    async def create_topics(
        self, topics: Sequence[NewTopic], validate_only: bool = False
    ) -> list[Topic | TierlogError]:
        """Returns for each new topic the topic, or the error why it could not be made. Topics made together share the
        store's commits."""
        return list(await asyncio.gather(*(self._create(topic, validate_only) for topic in topics)))

    async def restore_topic(self, topic: Topic, states: Sequence[PartitionState]) -> Topic:
        """Makes a topic as it once was, with its id and leader epochs. Raises TopicExists. A recorded deletion of it is
        removed."""
        check_topic_name(topic.name)
        parse_topic_config(topic.config, self.defaults)
        self._check_partition_count(topic.partitions)
        puts = [Put(model.partition_key(topic.id, index), model.encode(state)) for index, state in enumerate(states)]
        await self._store.transact([], [Delete(model.deleted_key(topic.id))])
        revision = await self._write_topic(topic, ABSENT, puts)
        if revision is None:
            raise TopicExists(f"topic {topic.name} already exists")
        await self._image.reached(revision)
        return replace(topic, version=revision)

    async def delete_topic(self, name: str, topic_id: TopicId | None = None) -> Topic:
        """Deletes a topic and returns it. With an id, deletes only that topic, not a newer one of the same name.

        Each broker deletes its records when it hears of the deletion.
        """

        async def attempt() -> tuple[Topic, Revision | None]:
            topic = self._image.topic(name) if topic_id is None else self._image.topic_by_id(topic_id)
            if topic.internal:
                raise InvalidTopicName(
                    f"{name} belongs to the service and cannot be deleted",
                    hint="delete the groups that use it; what the audit keeps ends by audit.retention_ms",
                )
            gone = DeletedTopic(topic.name, topic.id, topic.partitions, self._clock())
            revision = await self._store.transact(
                [Compare(model.topic_key(name), topic.version)],
                [Delete(model.topic_key(name)), Put(model.deleted_key(topic.id), model.encode(gone))],
            )
            return topic, revision

        topic = await self._until_written(name, attempt)
        leftovers = [Delete(model.partition_key(topic.id, index)) for index in range(topic.partitions)]
        await self._write_in_steps([], leftovers)
        return topic

    async def add_partitions(
        self,
        name: str,
        total: int,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Grows the topic to `total` partitions. `assignment` lists the replicas of the new partitions only."""

        async def attempt() -> tuple[Topic, Revision | None]:
            topic = self._image.topic(name)
            if topic.internal:
                raise InvalidTopicName(
                    f"{name} belongs to the service and cannot grow",
                    hint="what it holds is found by its partition count",
                )
            if total <= topic.partitions:
                raise InvalidPartitions(
                    f"topic {name} has {topic.partitions} partitions already, {total} were asked for",
                    hint="a topic can only grow",
                )
            self._check_partition_count(total)
            placed = self._place_more(topic, total, assignment)
            grown = replace(topic, partitions=total)
            if validate_only:
                return grown, self._image.revision
            states = self._state_puts(topic, topic.partitions, placed)
            return grown, await self._write_topic(grown, topic.version, states)

        return await self._until_written(name, attempt)

    async def alter_config(self, name: str, changes: Sequence[ConfigChange], validate_only: bool = False) -> Topic:
        """Changes single settings. The other settings stay as they are."""
        known = topic_settings(self.defaults)
        return await self._change_config(name, lambda topic: apply_changes(topic.config, changes, known), validate_only)

    async def replace_config(
        self, name: str, config: Mapping[str, str], validate_only: bool = False, *, by_service: bool = False
    ) -> Topic:
        """Replaces all overrides of the topic by these."""
        return await self._change_config(name, lambda _: config, validate_only, by_service)

    async def _change_config(
        self,
        name: str,
        decide: Callable[[Topic], Mapping[str, str]],
        validate_only: bool,
        by_service: bool = False,
    ) -> Topic:
        async def attempt() -> tuple[Topic, Revision | None]:
            topic = self._image.topic(name)
            if name == AUDIT_TOPIC and topic.internal and not by_service:
                # Otherwise whoever may change a topic's settings could delete what the audit says about them.
                raise PolicyViolation(
                    f"the settings of {name} cannot be changed",
                    where=name,
                    hint="they follow from the brokers' settings audit.*",
                )
            config = dict(decide(topic))
            archived = {key: value for key, value in topic.config.items() if key == "remote.storage.enable"}
            stays = parse_topic_config(config, self.defaults).remote_storage_enable
            if not stays and parse_topic_config(archived, self.defaults).remote_storage_enable:
                # As in Apache Kafka: records that only the bucket has could no longer be read, and would be deleted
                # when it is switched on again.
                raise InvalidConfig(
                    "remote.storage.enable cannot be switched off: records that are in the bucket only would be lost",
                    where=name,
                    hint="leave it on; a raised local.retention.ms keeps new records on local disk as well",
                )
            if topic.config.get("archive.encryption.key") and not config.get("archive.encryption.key"):
                raise InvalidConfig(
                    "archive.encryption.key cannot be taken away: what is archived from then on would be plain",
                    where=name,
                    hint="name another key, or make another topic",
                )
            changed = replace(topic, config=MappingProxyType(config))
            if validate_only or config == topic.config:
                return changed, self._image.revision
            return changed, await self._write_topic(changed, topic.version, [])

        return await self._until_written(name, attempt)

    async def _create(self, new: NewTopic, validate_only: bool) -> Topic | TierlogError:
        try:
            check_topic_name(new.name)
            if new.name in INTERNAL_TOPICS and not new.internal:
                raise InvalidTopicName(f"{new.name} belongs to the service, which makes it when it needs it")
            if self._image.find_topic(new.name) is not None:
                raise TopicExists(f"topic {new.name} already exists")
            parse_topic_config(new.config, self.defaults)
            placed = self._place_new(new)
            topic = Topic(
                name=new.name,
                id=model.new_topic_id(),
                partitions=len(placed),
                replication_factor=len(placed[0]),
                config=MappingProxyType(dict(new.config)),
                created_ms=self._clock(),
                internal=new.internal,
            )
            if validate_only:
                return topic
            revision = await self._write_topic(topic, ABSENT, self._state_puts(topic, 0, placed))
            if revision is None:
                raise TopicExists(f"topic {new.name} already exists")
            await self._image.reached(revision)
            return replace(topic, version=revision)
        except TierlogError as error:
            return error

    def _place_new(self, new: NewTopic) -> list[tuple[NodeId, ...]]:
        if new.assignment:
            if new.partitions != DEFAULT or new.replication_factor != DEFAULT:
                raise InvalidRequest(
                    "an assignment says how many partitions and replicas there are",
                    hint="leave both numbers at -1 when you send an assignment",
                )
            self._check_partition_count(len(new.assignment))
            return check_assignment(new.assignment, 0, self._broker_ids())
        count = self.settings.num_partitions if new.partitions == DEFAULT else new.partitions
        self._check_partition_count(count)
        brokers, places = self._open_brokers()
        factor = new.replication_factor
        if factor == DEFAULT:
            factor = self.settings.replication_factor(count_hosts(places))
        self._placed += 1
        return place(0, count, factor, brokers, self._placed, places)

    def _place_more(
        self, topic: Topic, total: int, assignment: Sequence[Sequence[int]] | None
    ) -> list[tuple[NodeId, ...]]:
        added = total - topic.partitions
        if assignment is None:
            brokers, places = self._open_brokers()
            first = self._image.partition_states(topic)[0].replicas[0]
            start = brokers.index(first) if first in brokers else 0
            return place(topic.partitions, added, topic.replication_factor, brokers, start, places)
        if len(assignment) != added:
            raise InvalidAssignment(f"the assignment is for {len(assignment)} new partitions, {added} are to be added")
        numbered = dict(enumerate(assignment, topic.partitions))
        placed = check_assignment(numbered, topic.partitions, self._broker_ids())
        if len(placed[0]) != topic.replication_factor:
            raise InvalidAssignment(
                f"the assignment has {len(placed[0])} replicas per partition, topic {topic.name} has "
                f"{topic.replication_factor}"
            )
        return placed

    def _check_partition_count(self, count: int) -> None:
        limit = self.settings.max_partitions_per_topic
        if not 1 <= count <= limit:
            raise InvalidPartitions(f"{count} partitions", hint=f"a topic has 1 to {limit}")

    def _broker_ids(self) -> list[NodeId]:
        return [broker.id for broker in self._image.brokers()]

    def _open_brokers(self) -> tuple[list[NodeId], Places]:
        """Returns the brokers that take new replicas, in the order in which replicas are dealt, and where they
        stand."""
        places = places_of(broker for broker in self._image.brokers() if not broker.draining)
        return deal_order(places), places

    def _state_puts(self, topic: Topic, first: int, placed: Sequence[tuple[NodeId, ...]]) -> list[Put]:
        states = [model.initial_state(replicas) for replicas in placed]
        return [
            Put(model.partition_key(topic.id, index), model.encode(state)) for index, state in enumerate(states, first)
        ]

    async def _write_topic(self, topic: Topic, expected: Revision, states: list[Put]) -> Revision | None:
        """Writes the partition states first and the topic's own key last, so readers see the topic whole or not at all.

        Every step requires that the topic is unchanged. Only then nobody uses the states that the step writes.
        """
        unchanged = [Compare(model.topic_key(topic.name), expected)]
        in_steps = max(0, len(states) - (MAX_OPERATIONS - 1))
        if in_steps and not await self._write_in_steps(unchanged, states[:in_steps]):
            return None
        last = [*states[in_steps:], Put(model.topic_key(topic.name), model.encode(topic))]
        revision = await self._store.transact(unchanged, last)
        if revision is None and expected == ABSENT:
            await self._write_in_steps([], [Delete(put.key) for put in states[:in_steps]])
        return revision

    async def _write_in_steps(self, compares: Sequence[Compare], writes: Sequence[Put | Delete]) -> bool:
        steps = [writes[at : at + MAX_OPERATIONS] for at in range(0, len(writes), MAX_OPERATIONS)]
        written = await asyncio.gather(*(self._store.transact(compares, step) for step in steps))
        return None not in written

    async def _until_written(self, name: str, attempt: Callable[[], Awaitable[tuple[Topic, Revision | None]]]) -> Topic:
        for _ in range(ATTEMPTS):
            seen = self._image.revision
            topic, revision = await attempt()
            if revision is not None:
                await self._image.reached(revision)
                return replace(topic, version=revision)
            await self._image.reached(Revision(seen + 1))
        raise MetadataConflict(f"topic {name} is being changed by others, gave up after {ATTEMPTS} attempts")


def check_topic_name(name: str) -> None:
    if name in ("", ".", ".."):
        raise InvalidTopicName(f"a topic cannot be named {name!r}")
    if len(name) > NAME_LIMIT:
        raise InvalidTopicName(f"a topic name of {len(name)} characters", hint=f"at most {NAME_LIMIT} are allowed")
    if not _NAME.fullmatch(name):
        raise InvalidTopicName(f"a topic cannot be named {name!r}", hint="use only letters, digits, '.', '_' and '-'")

"""The partitions this node holds, by topic and number, each in the role that the image gives it.

Owns: which `LedPartition` and `FollowedPartition` objects there are, and that they follow the image: a
deleted topic's are closed and its logs removed, a changed topic's take their new settings, a partition that another
broker leads is followed there, and one that this broker no longer holds is removed from its disk.

- A partition has one role at a time; what the old role still has under way is dropped before the new one begins.
- What a follower knew to be committed, the leader that it becomes knows too, and the other way round.

A partition that only this node holds is opened when it is first asked for, at the start if it has records: thousands
that nobody ever wrote to cost nothing but their metadata. Replicated ones are always open.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

import structlog

from hot_tier.clock import steady_ms
from hot_tier.cluster.image import ClusterImage, ImageChange
from hot_tier.cluster.internal_topics import stays_local
from hot_tier.cluster.model import NO_NODE, PartitionState, Topic
from hot_tier.errors import NotLeader, TierlogError, UnknownTopic
from hot_tier.ids import NodeId, Offset, PartitionId, TopicPartition
from hot_tier.log.config import TopicConfig, parse_topic_config
from hot_tier.log.manager import LogManager
from hot_tier.replication.fetchers import Fetchers
from hot_tier.replication.followed_partition import FollowedPartition
from hot_tier.replication.led_partition import LedPartition
from hot_tier.replication.local_partition import LocalPartition
from hot_tier.replication.readable import ReadablePartition
from hot_tier.replication.too_old import TooOld

_log = structlog.get_logger()

_NAMED = 5


class PartitionTable:
    def __init__(
        self,
        image: ClusterImage,
        logs: LogManager,
        node: NodeId,
        defaults: TopicConfig,
        *,
        fetchers: Fetchers | None = None,
        isr_due: Callable[[LedPartition], None] | None = None,
        lease_valid: Callable[[], bool] | None = None,
    ) -> None:
        """`fetchers`, `isr_due` and `lease_valid` are those of a cluster's member; a node of its own follows nobody."""
        self._image = image
        self._logs = logs
        self._node = node
        self._defaults = defaults
        self._fetchers = fetchers
        self._isr_due = isr_due
        self._lease_valid = lease_valid
        self.too_old = TooOld()
        self._partitions: dict[tuple[str, int], LedPartition] = {}
        self._replicas: dict[tuple[str, int], FollowedPartition] = {}
        self._configs: dict[str, TopicConfig] = {}

    def open(self) -> None:
        """Removes what a stop in the middle of a deletion left, opens what has records, then follows the image."""
        on_disk = {topic.topic_id for topic in self._logs.topics_on_disk()}
        for deleted in self._image.deleted_topics():
            if deleted.id in on_disk:
                self._logs.delete(deleted.name, deleted.id)
                on_disk.remove(deleted.id)
        for topic in self._image.topics():
            self._assume_all(topic, range(topic.partitions), opened=topic.id in on_disk)
            on_disk.discard(topic.id)
        if on_disk:
            # Not deleted: metadata that was lost or mixed up must not take the records with it.
            _log.warning("logs of unknown topics are left alone", topic_ids=sorted(map(str, on_disk)))
        self._image.subscribe(self._image_changed)

    def close(self) -> None:
        """Tells everyone who waits to look for another leader."""
        self._image.unsubscribe(self._image_changed)
        for at in (*self._partitions, *self._replicas):
            self._let_go(at, NotLeader("this broker is stopping", where=str(TopicPartition(at[0], PartitionId(at[1])))))

    def get(self, topic: str, partition: int) -> LedPartition:
        """Returns the partition as its leader. Raises UnknownTopic, UnknownPartition, NotLeader, or why the log did not
        open."""
        found = self._partitions.get((topic, partition))
        return self._open(TopicPartition(topic, PartitionId(partition))) if found is None else found

    def readable(self, topic: str, partition: int) -> ReadablePartition:
        """Returns the partition if this node leads or follows it. Raises the same errors as `get`."""
        found = self._replicas.get((topic, partition))
        return self.get(topic, partition) if found is None else found

    def find(self, topic: str, partition: int) -> LedPartition | None:
        """Returns the partition if it is open and led here."""
        return self._partitions.get((topic, partition))

    def find_local(self, topic: str, partition: int) -> LocalPartition | None:
        """Returns the partition if its log is open, in any role. A partition whose log is not open was never written
        to."""
        at = (topic, partition)
        return self._partitions.get(at) or self._replicas.get(at)

    def __iter__(self) -> Iterator[LedPartition]:
        """Yields the partitions that are open and led here."""
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def replicas(self) -> Collection[FollowedPartition]:
        """Returns the partitions that are followed here."""
        return self._replicas.values()

    def config(self, topic: Topic) -> TopicConfig:
        """Returns a topic's settings with the node's defaults filled in, parsed once.

        What the service reads back itself is never archived, whatever the default: it is read from local disk alone.
        """
        found = self._configs.get(topic.name)
        if found is None:
            found = parse_topic_config(topic.config, self._defaults)
            if stays_local(topic):
                found = replace(found, remote_storage_enable=False)
            self._configs[topic.name] = found
        return found

    # Roles

    def _open(self, tp: TopicPartition) -> LedPartition:
        state = self._image.partition_state(tp)
        if state.leader != self._node:
            raise self._not_leader(tp, state)
        return self._lead(self._image.topic(tp.topic), tp, state)

    def _assume_all(self, topic: Topic, indexes: Collection[int], *, opened: bool = False) -> None:
        """Gives partitions their roles. `opened`: also those that only this node holds; upkeep needs an open log."""
        for index in indexes:
            tp = TopicPartition(topic.name, PartitionId(index))
            try:
                state = self._image.partition_state(tp)
                held = opened or tp in self._partitions or tp in self._replicas
                if held or len(state.replicas) > 1:
                    self._assume(topic, tp, state, held)
            except (TierlogError, OSError) as error:
                _log.warning("partition not opened", topic=topic.name, partition=index, error=str(error))
            except Exception:
                # The partitions of a lost broker come many at a time. One must not keep the others from being served.
                _log.exception("partition not opened", topic=topic.name, partition=index)

    def _assume(self, topic: Topic, tp: TopicPartition, state: PartitionState, held: bool) -> None:
        """`held`: this node may have a log of it."""
        if state.leader == self._node:
            partition = self._partitions.get(tp)
            if partition is not None:
                partition.lead(state, steady_ms())
            else:
                self._lead(topic, tp, state)
        elif self._fetchers is not None and self._node in state.replicas:
            self._follow(topic, tp, state)
        elif held:
            self._let_go(tp, self._not_leader(tp, state))
            if self._fetchers is not None:
                self._logs.delete_partition(topic.name, topic.id, tp.partition)

    def _lead(self, topic: Topic, tp: TopicPartition, state: PartitionState) -> LedPartition:
        known = self._let_go(tp, self._not_leader(tp, state))
        log = self._logs.log(topic.name, topic.id, tp.partition, self.config(topic))
        log.trust()
        partition = LedPartition(
            tp, topic, log, state, self._node, steady_ms(), known, self._isr_due, self._lease_valid, self.too_old
        )
        self._partitions[tp] = partition
        return partition

    def _follow(self, topic: Topic, tp: TopicPartition, state: PartitionState) -> None:
        assert self._fetchers is not None
        held = self._replicas.get(tp)
        if held is not None and (held.leader, held.leader_epoch) == (state.leader, state.leader_epoch):
            held.confirm(state, self._node)
            return
        known = self._let_go(tp, self._not_leader(tp, state))
        log = self._logs.log(topic.name, topic.id, tp.partition, self.config(topic))
        replica = self._replicas[tp] = FollowedPartition(tp, topic, log, state, self._node, known)
        if state.leader != NO_NODE:
            self._fetchers.follow(replica)

    def _let_go(self, at: tuple[str, int], reason: TierlogError) -> Offset | None:
        """Ends the role. Returns what was known to be committed in it."""
        partition = self._partitions.pop(at, None)
        if partition is not None:
            partition.close(reason)
            return partition.high_watermark
        replica = self._replicas.pop(at, None)
        if replica is not None:
            if self._fetchers is not None:
                self._fetchers.unfollow(replica)
            replica.close(reason)
            return replica.high_watermark
        return None

    def _not_leader(self, tp: TopicPartition, state: PartitionState) -> NotLeader:
        who = "nobody leads" if state.leader == NO_NODE else f"broker {state.leader} leads"
        return NotLeader(f"{who} this partition", where=str(tp), hint="refresh metadata")

    # What changes

    def _image_changed(self, change: ImageChange) -> None:
        for name, (before, after) in change.topics.items():
            self._configs.pop(name, None)
            if before is not None and (after is None or after.id != before.id):
                _log.info("topic deleted", topic=name, id=str(before.id))
                self._remove(before)
                before = None
            if before is None and after is not None:
                _log.info("topic created", topic=name, id=str(after.id), partitions=after.partitions)
            if after is not None:
                self._configure(after)
                self._assume_all(after, range(before.partitions if before is not None else 0, after.partitions))
        gained: list[TopicPartition] = []
        lost: list[TopicPartition] = []
        for topic_id, index in change.partitions:
            topic = self._image.find_topic_by_id(topic_id)
            if topic is not None and index < topic.partitions:
                tp = TopicPartition(topic.name, PartitionId(index))
                led = tp in self._partitions
                self._assume_all(topic, (index,))
                if led != (tp in self._partitions):
                    (lost if led else gained).append(tp)
        if gained or lost:
            _log.info("leadership changed", leads=_named(gained), leads_no_more=_named(lost))

    def _remove(self, topic: Topic) -> None:
        gone = UnknownTopic(f"topic {topic.name} was deleted")
        for index in range(topic.partitions):
            self._let_go((topic.name, index), gone)
        self._logs.delete(topic.name, topic.id)
        self.too_old.forget(topic.name)

    def _configure(self, topic: Topic) -> None:
        try:
            config = self.config(topic)
        except TierlogError as error:
            # Written by a broker that knows other settings; what is open goes on as it was.
            _log.error("topic settings not understood", topic=topic.name, error=str(error))
            return
        for index in range(topic.partitions):
            at = (topic.name, index)
            held = self._partitions.get(at) or self._replicas.get(at)
            if held is not None:
                held.log.set_config(config)
                held.configure(topic, config)


def _named(partitions: Sequence[TopicPartition]) -> str:
    """Returns the names of a few: a lost broker has thousands."""
    shown = ", ".join(str(tp) for tp in partitions[:_NAMED])
    return shown if len(partitions) <= _NAMED else f"{shown} and {len(partitions) - _NAMED} more"

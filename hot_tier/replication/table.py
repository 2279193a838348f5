"""The partitions this node serves, by topic and number.

Owns: which `Partition` objects there are, and that they follow the image: a deleted topic's are closed and its
logs removed, a changed topic's take their new settings, a partition that another broker leads is let go.

A partition is opened when it is first asked for, at the start if it has records. Thousands that nobody ever wrote
to cost nothing but their metadata.
"""

from collections.abc import Iterator
from dataclasses import replace

import structlog

from hot_tier.cluster.image import ClusterImage, ImageChange
from hot_tier.cluster.model import Topic
from hot_tier.errors import NotLeader, TierlogError, UnknownTopic
from hot_tier.ids import NodeId, PartitionId, TopicPartition
from hot_tier.log.config import TopicConfig, parse_topic_config
from hot_tier.log.manager import LogManager
from hot_tier.replication.partition import Partition

_log = structlog.get_logger()


class PartitionTable:
    def __init__(self, image: ClusterImage, logs: LogManager, node: NodeId, defaults: TopicConfig) -> None:
        self._image = image
        self._logs = logs
        self._node = node
        self._defaults = defaults
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._configs: dict[str, TopicConfig] = {}

    def open(self) -> None:
        """Remove what a stop in the middle of a deletion left, open what has records, then follow the image."""
        on_disk = {topic.topic_id for topic in self._logs.topics_on_disk()}
        for deleted in self._image.deleted_topics():
            if deleted.id in on_disk:
                self._logs.delete(deleted.name, deleted.id)
                on_disk.remove(deleted.id)
        for topic in self._image.topics():
            if topic.id in on_disk:
                self._open_all(topic)
                on_disk.remove(topic.id)
        if on_disk:
            # Not deleted: metadata that was lost or mixed up must not take the records with it.
            _log.warning("logs of unknown topics are left alone", topic_ids=sorted(map(str, on_disk)))
        self._image.subscribe(self._image_changed)

    def close(self) -> None:
        """Everyone who waits is told to look for another leader."""
        self._image.unsubscribe(self._image_changed)
        for partition in self._partitions.values():
            partition.close(NotLeader("this broker is stopping", where=str(partition.tp)))
        self._partitions.clear()

    def get(self, topic: str, partition: int) -> Partition:
        """UnknownTopic, UnknownPartition, NotLeader, or what kept the log from opening."""
        found = self._partitions.get((topic, partition))
        return self._open(TopicPartition(topic, PartitionId(partition))) if found is None else found

    def find(self, topic: str, partition: int) -> Partition | None:
        """The partition if it is open; one that is not has never been written to."""
        return self._partitions.get((topic, partition))

    def __iter__(self) -> Iterator[Partition]:
        """Those that are open."""
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def config(self, topic: Topic) -> TopicConfig:
        """A topic's settings with the node's defaults filled in, parsed once.

        What the service keeps for itself is never archived, whatever the default: it is read from local disk alone.
        """
        found = self._configs.get(topic.name)
        if found is None:
            found = parse_topic_config(topic.config, self._defaults)
            if topic.internal:
                found = replace(found, remote_storage_enable=False)
            self._configs[topic.name] = found
        return found

    def _open(self, tp: TopicPartition) -> Partition:
        state = self._image.partition_state(tp)
        if state.leader != self._node:
            raise NotLeader(f"broker {state.leader} leads this partition", where=str(tp), hint="refresh metadata")
        topic = self._image.topic(tp.topic)
        log = self._logs.log(topic.name, topic.id, tp.partition, self.config(topic))
        partition = Partition(tp, topic, log, state, self._node)
        self._partitions[tp] = partition
        return partition

    def _open_all(self, topic: Topic) -> None:
        """A log is kept up (rolled, trimmed by retention) only once it is open."""
        for index in range(topic.partitions):
            try:
                self.get(topic.name, index)
            except TierlogError as error:
                _log.warning("partition not opened", topic=topic.name, partition=index, error=str(error))

    def _image_changed(self, change: ImageChange) -> None:
        for name, (before, after) in change.topics.items():
            self._configs.pop(name, None)
            if before is not None and (after is None or after.id != before.id):
                self._remove(before)
            elif after is not None:
                self._configure(after)
        if change.partitions and self._partitions:
            self._follow_leaders(change)

    def _remove(self, topic: Topic) -> None:
        gone = UnknownTopic(f"topic {topic.name} was deleted")
        for index in range(topic.partitions):
            partition = self._partitions.pop((topic.name, index), None)
            if partition is not None:
                partition.close(gone)
        self._logs.delete(topic.name, topic.id)

    def _configure(self, topic: Topic) -> None:
        try:
            config = self.config(topic)
        except TierlogError as error:
            # Written by a broker that knows other settings; what is open goes on as it was.
            _log.error("topic settings not understood", topic=topic.name, error=str(error))
            return
        for index in range(topic.partitions):
            partition = self._partitions.get((topic.name, index))
            if partition is not None:
                partition.log.set_config(config)
                partition.configure(topic, config)

    def _follow_leaders(self, change: ImageChange) -> None:
        for topic_id, index in change.partitions:
            topic = self._image.find_topic_by_id(topic_id)
            partition = None if topic is None else self._partitions.get((topic.name, index))
            if partition is None:
                continue
            state = self._image.partition_state(partition.tp)
            if state.leader == self._node:
                partition.lead(state)
            else:
                del self._partitions[partition.tp]
                partition.close(NotLeader(f"broker {state.leader} leads this partition", where=str(partition.tp)))

"""What one broker's data directory holds, for `tierlog cluster rebuild`: taken while the broker does not run.

Opening the logs recovers them as a start would, and closing them leaves the marker of a clean stop. So what a survey
says is what the broker has when it starts next.
"""

import os
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from hot_tier.clock import wall_ms
from hot_tier.cluster.directory import read_identity
from hot_tier.cluster.directory_format import check_format
from hot_tier.cluster.model import Identity
from hot_tier.errors import CorruptMetadata
from hot_tier.ids import NodeId, TopicId
from hot_tier.log import names
from hot_tier.log.config import TopicConfig
from hot_tier.log.manager import LogManager
from hot_tier.log.settings import LogSettings

LEFT_AS_IT_IS: Final = TopicConfig(remote_storage_enable=True)
"""A log whose topic is archived may begin before its first local segment: with this it keeps the start that it has."""


@dataclass(frozen=True, slots=True)
class FoundLog:
    topic: str
    """The topic's name, or the beginning of a long one."""
    topic_id: TopicId
    partition: int
    leader_epoch: int
    """The epoch of its last batch."""
    end_offset: int
    damaged: bool
    """It misses something that was synced."""
    emptied: bool
    """It misses all its records, and ends where they ended."""


@dataclass(frozen=True, slots=True)
class Survey:
    node: NodeId
    identity: Identity
    last_producer_id: int
    logs: tuple[FoundLog, ...]

    def document(self) -> dict[str, Any]:
        fields = FoundLog.__slots__
        logs = [{name: _plain(getattr(log, name)) for name in fields} for log in self.logs]
        return {
            "node": self.node,
            "data_id": self.identity.data_id,
            "runs": self.identity.runs,
            "last_producer_id": self.last_producer_id,
            "logs": logs,
        }

    @classmethod
    def of(cls, document: dict[str, Any], where: str) -> "Survey":
        try:
            logs = tuple(FoundLog(**{**log, "topic_id": UUID(log["topic_id"])}) for log in document["logs"])
            identity = Identity(document["data_id"], document["runs"])
            return cls(NodeId(document["node"]), identity, document["last_producer_id"], logs)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptMetadata(
                f"not a survey: {error!r}", where=where, hint="make it with `tierlog cluster survey`"
            ) from None


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value


async def survey(data_dir: str, node: NodeId) -> Survey:
    """Returns what the directory holds. Raises SettingsError if a broker runs on it."""
    check_format(data_dir)
    manager = LogManager(data_dir, LogSettings(), wall_ms)
    await manager.open(background=False)
    try:
        doubts = manager.disk.doubts
        found, last_producer_id = [], -1
        for topic in sorted(manager.topics_on_disk()):
            directory = os.path.join(manager.disk.logs_directory, names.topic_directory(topic.topic, topic.topic_id))
            partitions = map(names.parse_partition_directory, os.listdir(directory))
            for partition in sorted(number for number in partitions if number is not None):
                if not os.listdir(os.path.join(directory, names.partition_directory(partition))):
                    continue  # It is missing, and whoever opens it must know whether its topic is archived.
                key = (topic.topic_id, int(partition))
                log = manager.log(topic.topic, topic.topic_id, partition, LEFT_AS_IT_IS)
                damaged, emptied = key in doubts.damaged, key in doubts.emptied
                last_producer_id = max(last_producer_id, *(each.producer_id for each in log.producers.describe()), -1)
                found.append(FoundLog(topic.topic, *key, log.epochs.latest, log.log_end_offset, damaged, emptied))
        return Survey(node, read_identity(data_dir), last_producer_id, tuple(found))
    finally:
        await manager.close()

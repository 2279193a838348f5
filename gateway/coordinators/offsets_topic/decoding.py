"""Groups from the records of one partition of the offsets topic.

A value that cannot be read makes its group `damaged`, and that group alone: an offset that is unreadable is not an
offset that was never committed. A later commit of the same key heals it.
"""

from dataclasses import dataclass, field

from gateway.coordinators.journal.replay import Latest
from gateway.coordinators.offsets_topic.keys import OffsetKey, read_key
from gateway.coordinators.offsets_topic.values import CommittedOffset, GroupRecord, read_group, read_offset
from hot_tier.errors import CorruptLog
from hot_tier.ids import PartitionId, TopicPartition


@dataclass(slots=True)
class LoadedGroup:
    record: GroupRecord | None = None
    """None for a group that has only offsets: its consumers never joined."""
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    damage: str = ""
    """Why a value cannot be read. Such a group is not served."""
    unreadable: list[bytes] = field(default_factory=list)
    """Keys whose values cannot be read. Who deletes the group deletes them too."""


def decode_groups(latest: Latest) -> dict[str, LoadedGroup]:
    groups: dict[str, LoadedGroup] = {}
    for key_bytes, value in latest.items():
        try:
            key = read_key(key_bytes)
        except CorruptLog:
            # Nobody can ask for a group whose name cannot be read.
            continue
        if key is None:
            continue
        group = groups.setdefault(key.group_id, LoadedGroup())
        try:
            if isinstance(key, OffsetKey):
                tp = TopicPartition(key.topic, PartitionId(key.partition))
                group.offsets[tp] = read_offset(value)
            else:
                group.record = read_group(value)
        except CorruptLog as error:
            group.damage = f"{key}: {error}"
            group.unreadable.append(key_bytes)
    return groups

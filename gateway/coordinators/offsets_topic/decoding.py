"""Decodes groups from the records of one partition of the offsets topic.

A value that cannot be read makes only its own group `damaged`: an unreadable offset must not look like an offset that
was never committed. A later commit of the same key repairs it.
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
    pending: dict[int, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    """Offsets in open transactions, by producer id."""
    damage: str = ""
    """Why a value cannot be read. Such a group is not served."""
    unreadable: list[bytes] = field(default_factory=list)
    """Keys whose values cannot be read. They are deleted with the group."""


def decode_groups(latest: Latest) -> dict[str, LoadedGroup]:
    groups: dict[str, LoadedGroup] = {}
    for key, value in latest.items():
        _decode(groups, key, value)
    for producer_id, written in latest.open.items():
        for key, record in written.items():
            if record.value is not None:
                _decode(groups, key, record.value, producer_id)
    return groups


def _decode(groups: dict[str, LoadedGroup], key_bytes: bytes, value: bytes, producer_id: int | None = None) -> None:
    try:
        key = read_key(key_bytes)
    except CorruptLog:
        # No client can ask for a group whose name cannot be read.
        return
    if key is None:
        return
    group = groups.setdefault(key.group_id, LoadedGroup())
    try:
        if isinstance(key, OffsetKey):
            tp = TopicPartition(key.topic, PartitionId(key.partition))
            of = group.offsets if producer_id is None else group.pending.setdefault(producer_id, {})
            of[tp] = read_offset(value)
        elif producer_id is None:
            group.record = read_group(value)
    except CorruptLog as error:
        group.damage = f"{key}: {error}"
        group.unreadable.append(key_bytes)

"""Reads one partition of the offsets topic back: the newest value of each key, as groups.

Reading, decompressing and parsing happen in threads, a few MiB at a time, so that a broker that starts with millions
of commits answers other requests meanwhile. Only the newest value of a key is parsed.

A value that cannot be read makes its group `damaged`, and that group alone: an offset that is unreadable is not an
offset that was never committed. A later commit of the same key heals it.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from gateway.coordinators.offsets_topic.keys import OffsetKey, read_key
from gateway.coordinators.offsets_topic.values import CommittedOffset, GroupRecord, read_group, read_offset
from hot_tier.errors import CorruptLog
from hot_tier.ids import Offset, PartitionId, TopicPartition
from hot_tier.log.partition_log import PartitionLog
from hot_tier.record.batch import ReadBuffer, iter_headers
from hot_tier.record.records import decode_records

CHUNK_BYTES: Final = 4 << 20

Latest = dict[bytes, bytes]


@dataclass(slots=True)
class LoadedGroup:
    record: GroupRecord | None = None
    """None for a group that has only offsets: its consumers never joined."""
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    damage: str = ""
    """Why a value cannot be read; such a group is not served."""
    unreadable: list[bytes] = field(default_factory=list)
    """Keys whose values cannot be read: deleting the group deletes them too."""


async def load(log: PartitionLog, end_offset: Offset) -> dict[str, LoadedGroup]:
    """Everything up to `end_offset`, which the caller has seen committed."""
    latest: Latest = {}
    position = int(log.log_start_offset)
    while position < end_offset:
        place = log.locate(position, CHUNK_BYTES, end_offset)
        if place is None:
            break
        data = await log.read(place)
        position = await asyncio.to_thread(_collect, latest, data, position)
    return await asyncio.to_thread(_parse, latest)


def _collect(latest: Latest, data: ReadBuffer, position: int) -> int:
    """Where to go on reading."""
    for record in decode_records(data, from_offset=position):
        if record.key is None:
            continue
        if record.value is None:
            latest.pop(record.key, None)
        else:
            latest[record.key] = record.value
    next_position = position
    for _, header in iter_headers(data):
        next_position = header.end_offset
    if next_position <= position:
        raise CorruptLog(f"no whole batch at offset {position}")
    return next_position


def _parse(latest: Latest) -> dict[str, LoadedGroup]:
    groups: dict[str, LoadedGroup] = {}
    for key_bytes, value in latest.items():
        try:
            key = read_key(key_bytes)
        except CorruptLog:
            # Nobody can ask for what has no readable name.
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

"""Reads from consumers' group metadata which topics they subscribe to and which partitions they are assigned.

Group metadata is opaque, with the same exceptions as in Kafka. If a group of protocol type `consumer` still reads a
topic, that topic's offsets must not expire or be deleted; and people want to see who reads what. All versions of the
consumer protocol start in the same way; later fields are not read:

```
subscription   version i16 │ topics: i32 count, each a string
assignment     version i16 │ topics: i32 count, each a string and its partitions (i32 count, each i32)
```
"""

from collections.abc import Iterable
from typing import Final

from gateway.coordinators.groups.member import Member
from gateway.coordinators.offsets_topic.buffer import ValueReader
from hot_tier.errors import CorruptLog
from hot_tier.ids import PartitionId, TopicPartition

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Returns None if the bytes are not a consumer's subscription."""
    reader = ValueReader(metadata)
    try:
        reader.int16()
        return frozenset(reader.string() for _ in range(reader.count(2)))
    except CorruptLog:
        return None


def assigned_partitions(assignment: bytes) -> list[TopicPartition] | None:
    """Returns None if the bytes are not a consumer's assignment. Empty bytes mean no partitions."""
    if not assignment:
        return []
    reader = ValueReader(assignment)
    try:
        reader.int16()
        return [
            TopicPartition(topic, PartitionId(reader.int32()))
            for topic in (reader.string() for _ in range(reader.count(6)))
            for _ in range(reader.count(4))
        ]
    except CorruptLog:
        return None


def all_assigned(protocol_type: str | None, members: Iterable[Member]) -> frozenset[TopicPartition]:
    """Returns the partitions that the members of a group are assigned, as far as that is known."""
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return frozenset()
    return frozenset(tp for member in members for tp in assigned_partitions(member.assignment) or ())


def all_subscribed(protocol_type: str | None, members: Iterable[Member]) -> frozenset[str] | None:
    """Returns the topics that members subscribe to, with any of their protocols; None if that is unknown."""
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    for member in members:
        for _, metadata in member.protocols:
            subscribed = subscribed_topics(metadata)
            if subscribed is None:
                return None
            topics |= subscribed
    return frozenset(topics)

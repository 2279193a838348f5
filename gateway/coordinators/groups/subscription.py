"""What consumers say to each other through the group: the topics they subscribe to, the partitions they are assigned.

Group metadata is opaque, with the exceptions that Kafka makes as well: whether a group of protocol type `consumer`
still reads a topic decides if that topic's offsets may expire or be deleted; and people want to see who reads what.
All versions of the consumer protocol start alike, and later fields are not read:

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
    """Returns None when the bytes are not a consumer's subscription: they say nothing then."""
    reader = ValueReader(metadata)
    try:
        reader.int16()
        return frozenset(reader.string() for _ in range(reader.count(2)))
    except CorruptLog:
        return None


def assigned_partitions(assignment: bytes) -> list[TopicPartition] | None:
    """Returns None when the bytes are not a consumer's assignment. No bytes are no partitions."""
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
    """Returns the partitions that members of a group are assigned, as far as that can be told."""
    if protocol_type != CONSUMER_PROTOCOL_TYPE:
        return frozenset()
    return frozenset(tp for member in members for tp in assigned_partitions(member.assignment) or ())


def all_subscribed(protocol_type: str | None, members: Iterable[Member]) -> frozenset[str] | None:
    """Returns the topics that members subscribe to, with any of their protocols; None when that cannot be told."""
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

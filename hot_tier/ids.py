"""The nouns that every part of tierlog shares, as types.

Ranges are half-open throughout: `end_offset` is exclusive, `last_offset` inclusive.
"""

from typing import Final, NamedTuple, NewType
from uuid import UUID

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
PartitionId = NewType("PartitionId", int)
NodeId = NewType("NodeId", int)
TopicId = UUID

NO_EPOCH: Final = LeaderEpoch(-1)
NO_PRODUCER: Final = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: PartitionId

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

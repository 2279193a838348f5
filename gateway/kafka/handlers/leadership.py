"""Who leads a partition instead of us: told along with the refusal, it saves the client a round trip (KIP-951)."""

from typing import NamedTuple
from uuid import UUID

from gateway.node import Node
from hot_tier.errors import TierlogError
from hot_tier.ids import PartitionId, TopicPartition


class Leader(NamedTuple):
    id: int
    epoch: int


def current_leader(node: Node, topic: str | UUID, partition: int) -> Leader | None:
    """None when nobody leads, or the partition is unknown."""
    try:
        name = node.image.topic_by_id(topic).name if isinstance(topic, UUID) else topic
        state = node.image.partition_state(TopicPartition(name, PartitionId(partition)))
    except TierlogError:
        return None
    return Leader(state.leader, state.leader_epoch) if state.leader >= 0 else None

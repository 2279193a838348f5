"""Leadership as clients ask for it: who leads instead of us, and where an earlier leader's records end."""

from typing import NamedTuple
from uuid import UUID

from gateway.node import Node
from hot_tier.errors import TierlogError
from hot_tier.ids import NO_EPOCH, PartitionId, TopicPartition
from hot_tier.replication.partition import Partition


class Leader(NamedTuple):
    id: int
    epoch: int


def current_leader(node: Node, topic: str | UUID, partition: int) -> Leader | None:
    """Told along with a refusal it saves the client a round trip (KIP-951). None: nobody leads, or unknown."""
    try:
        name = node.image.topic_by_id(topic).name if isinstance(topic, UUID) else topic
        state = node.image.partition_state(TopicPartition(name, PartitionId(partition)))
    except TierlogError:
        return None
    return Leader(state.leader, state.leader_epoch) if state.leader >= 0 else None


def end_of_epoch(partition: Partition, epoch: int) -> tuple[int, int]:
    """The greatest epoch at or below `epoch` and its end offset; (-1, -1) for one that has not begun.

    The log knows only epochs in which something was written; the current one, and those between, end at the log end.
    """
    log = partition.log
    if epoch == partition.leader_epoch:
        return epoch, log.log_end_offset
    if epoch > partition.leader_epoch:
        return -1, -1
    found, end_offset = log.end_of_epoch(epoch)
    if end_offset < 0:
        return (epoch if log.leader_epoch == NO_EPOCH else log.leader_epoch), log.log_end_offset
    return found, end_offset

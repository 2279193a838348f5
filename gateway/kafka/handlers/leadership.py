"""Leadership as clients ask for it: who leads instead of us, and where a reader's history parts from ours."""

from typing import NamedTuple
from uuid import UUID

from gateway.node import Node
from hot_tier.errors import OffsetOutOfRange, TierlogError
from hot_tier.ids import PartitionId, TopicPartition
from hot_tier.replication.led_partition import LedPartition
from hot_tier.replication.readable import ReadablePartition


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


def nearer_replica(partition: ReadablePartition, node: Node, rack: str, offset: int) -> int | None:
    """As leader: who else should be read by a client in `rack` (KIP-392). None: nobody, or we are no farther away.

    In-sync replicas hold all that is committed; what is only in the bucket is read here.
    """
    me = node.image.broker(node.node_id)
    if not isinstance(partition, LedPartition) or me is None or me.rack == rack:
        return None
    if not partition.local_log_start_offset <= offset <= partition.high_watermark:
        return None
    near = [
        broker.id
        for broker in map(node.image.broker, partition.in_sync)
        if broker is not None and broker.rack == rack and broker.id != node.node_id
    ]
    # Always the same for a partition, so that its readers share what is in that broker's page cache.
    return near[partition.tp.partition % len(near)] if near else None


def diverging_epoch(partition: ReadablePartition, last_epoch: int, offset: int) -> tuple[int, int] | None:
    """Where a reader's history parts from ours: the epoch and its end that it must truncate to first (KIP-595).

    None when it stands on our history: its last epoch, -1 if it has none, reaches here as far as `offset`.
    """
    parts = partition.diverging(offset, last_epoch)
    if parts is not None and parts[1] < 0:
        raise OffsetOutOfRange(f"leader epoch {last_epoch} is not known", where=str(partition.tp))
    return parts

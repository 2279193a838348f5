"""Leadership as clients ask for it: which broker leads instead of us, and where a reader's history diverges."""

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
    """Returns the leader; None if it is unknown. Sent with a refusal, it saves the client a round trip (KIP-951)."""
    try:
        name = node.image.topic_by_id(topic).name if isinstance(topic, UUID) else topic
        state = node.image.partition_state(TopicPartition(name, PartitionId(partition)))
    except TierlogError:
        return None
    return Leader(state.leader, state.leader_epoch) if state.leader >= 0 else None


def nearer_replica(partition: ReadablePartition, node: Node, rack: str, offset: int) -> int | None:
    """Returns the broker that a client in `rack` should read from instead of this leader (KIP-392).

    Returns None if there is none, or if this broker is in that rack. In-sync replicas hold all that is committed;
    records that are only in the bucket are read here.
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
    # The choice is always the same for a partition, so that its readers share that broker's page cache.
    return near[partition.tp.partition % len(near)] if near else None


def diverging_epoch(partition: ReadablePartition, last_epoch: int, offset: int) -> tuple[int, int] | None:
    """Returns the epoch, and its end, to which the reader must truncate first (KIP-595).

    Returns None if the reader's history agrees with ours: its last epoch (-1 if it has none) reaches `offset` here too.
    """
    parts = partition.diverging(offset, last_epoch)
    if parts is not None and parts[1] < 0:
        raise OffsetOutOfRange(f"leader epoch {last_epoch} is not known here", where=str(partition.tp))
    return parts

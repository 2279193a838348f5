"""One broker's parts as the handlers of every protocol see them.

`tierlog.broker` makes the parts, in order, and stops them; nothing here owns a life cycle.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.coordinators.coordinator import GroupCoordinator
    from gateway.fetch.reader import Reader
    from gateway.kafka.settings import KafkaSettings
    from gateway.quotas import Quotas
    from hot_tier.cluster.admin import TopicAdmin
    from hot_tier.cluster.image import ClusterImage
    from hot_tier.cluster.producer_ids import ProducerIds
    from hot_tier.cluster.store import MetadataStore
    from hot_tier.cluster.quotas import QuotaAdmin
    from hot_tier.ids import NodeId
    from hot_tier.log.manager import LogManager
    from hot_tier.replication.table import PartitionTable


@dataclass(slots=True)
class Node:
    node_id: "NodeId"
    cluster_id: str
    kafka: "KafkaSettings"
    store: "MetadataStore"
    image: "ClusterImage"
    admin: "TopicAdmin"
    partitions: "PartitionTable"
    logs: "LogManager"
    reader: "Reader"
    groups: "GroupCoordinator"
    quotas: "Quotas"
    quota_admin: "QuotaAdmin"
    producer_ids: "ProducerIds"
    clock: Callable[[], int]
    """Milliseconds since the epoch."""

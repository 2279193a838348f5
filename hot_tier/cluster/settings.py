"""Settings of the node as a member of its cluster, and of the topics made on it."""

from dataclasses import dataclass, field

from hot_tier.errors import SettingsError


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    node_id: int = field(default=0, metadata={"doc": "This broker's number; every broker of a cluster has its own."})
    rack: str = field(
        default="", metadata={"doc": "Where this broker stands; replicas of a partition are kept on different racks."}
    )
    metadata: str = field(
        default="sqlite",
        metadata={"doc": "Where cluster metadata is kept: `sqlite` (one node) or `etcd://host:port[,…]`."},
    )
    num_partitions: int = field(
        default=4, metadata={"doc": "Partitions of a topic that is made without saying how many.", "min": 1}
    )
    default_replication_factor: int = field(
        default=1,
        metadata={"doc": "Copies of each partition of a topic that is made without saying how many.", "min": 1},
    )
    max_partitions_per_topic: int = field(
        default=10_000, metadata={"doc": "A topic with more partitions than this is refused.", "min": 1}
    )

    def __post_init__(self) -> None:
        if self.node_id < 0:
            raise SettingsError(f"cluster.node_id is {self.node_id}", hint="it is at least 0")
        for name in ("num_partitions", "default_replication_factor", "max_partitions_per_topic"):
            if getattr(self, name) < 1:
                raise SettingsError(f"cluster.{name} is {getattr(self, name)}", hint="it is at least 1")
        if self.num_partitions > self.max_partitions_per_topic:
            raise SettingsError(
                f"cluster.num_partitions is {self.num_partitions}",
                hint=f"it is at most max_partitions_per_topic ({self.max_partitions_per_topic})",
            )

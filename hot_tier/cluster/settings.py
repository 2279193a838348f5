"""Settings of the node as a member of its cluster, and of the topics made on it."""

from dataclasses import dataclass, field
from typing import Final

from hot_tier.errors import SettingsError

USUAL_REPLICATION_FACTOR: Final = 3


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    node_id: int = field(
        default=0,
        metadata={
            "doc": "This broker's number; every broker of a cluster has its own. With `cluster.workers` that of the "
            "first one; 0 then means 1."
        },
    )
    rack: str = field(
        default="", metadata={"doc": "Where this broker stands; replicas of a partition are kept on different racks."}
    )
    host: str = field(
        default="",
        metadata={
            "doc": "The name of the machine; replicas of a partition are kept on different hosts where there are "
            "several. Empty: the machine's own name with `cluster.workers`, else this broker is alone on its host."
        },
    )
    workers: str = field(
        default="",
        metadata={
            "doc": "How many brokers run here as one service, each a process of its own: a number, or `auto`, one for "
            "each core that may be used. Empty: one broker, without a supervisor."
        },
    )
    metadata: str = field(
        default="sqlite",
        metadata={
            "doc": "Where cluster metadata is kept: `sqlite` (one node) or `etcd://host:port[,host:port…][/name]`. "
            "Clusters that share an etcd have different names."
        },
    )
    num_partitions: int = field(
        default=4, metadata={"doc": "Partitions of a topic that is made without saying how many.", "min": 1}
    )
    default_replication_factor: int = field(
        default=0,
        metadata={
            "doc": "Copies of each partition of a topic that is made without saying how many. 0: three, or as many as "
            "there are hosts with brokers if those are fewer."
        },
    )
    max_partitions_per_topic: int = field(
        default=10_000, metadata={"doc": "A topic with more partitions than this is refused.", "min": 1}
    )
    lease_ttl_ms: int = field(
        default=2_000,
        metadata={
            "doc": "How long a broker of a cluster counts as alive after it was last heard of. A broker that hangs or "
            "is cut off is replaced after this time, one that was killed at once. etcd grants no less than 2 s.",
            "min": 100,
        },
    )
    stop_timeout_ms: int = field(
        default=10_000,
        metadata={"doc": "How long a broker that is told to stop tries to hand its partitions to others."},
    )
    leader_rebalance_interval_ms: int = field(
        default=60_000,
        metadata={
            "doc": "How often partitions are given back to their preferred leaders, once those are in sync again; "
            "0 is never."
        },
    )
    reassignment_bytes_per_second: int = field(
        default=0,
        metadata={
            "doc": "Most bytes per second that this broker fetches for replicas it is getting by a reassignment; "
            "0 is no limit."
        },
    )
    accept_lost_data: bool = field(
        default=False,
        metadata={
            "doc": "Start also where this broker alone held the committed records of a partition, and its data "
            "directory is not the one it had: those records are given up."
        },
    )

    @property
    def embedded(self) -> bool:
        """Returns whether metadata is kept in the data directory."""
        return self.metadata == "sqlite"

    @property
    def alone(self) -> bool:
        """Returns whether this node is a cluster of its own."""
        return self.embedded and not self.workers

    def replication_factor(self, hosts: int) -> int:
        """Returns the replication factor of a topic that is made without one, while brokers of this many hosts may take
        replicas."""
        return self.default_replication_factor or max(1, min(USUAL_REPLICATION_FACTOR, hosts))

    def __post_init__(self) -> None:
        if self.node_id < 0:
            raise SettingsError(f"cluster.node_id is {self.node_id}", hint="it is at least 0")
        for name in ("num_partitions", "max_partitions_per_topic", "lease_ttl_ms"):
            if getattr(self, name) < 1:
                raise SettingsError(f"cluster.{name} is {getattr(self, name)}", hint="it is at least 1")
        if self.num_partitions > self.max_partitions_per_topic:
            raise SettingsError(
                f"cluster.num_partitions is {self.num_partitions}",
                hint=f"it is at most max_partitions_per_topic ({self.max_partitions_per_topic})",
            )

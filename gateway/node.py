"""One broker's parts as the handlers of every protocol see them.

`tierlog.broker` makes the parts in order and stops them. This module neither starts nor stops anything.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gateway.authorizer import AuthorizationSettings, Authorizer
from gateway.lane import Lane
from gateway.logins import FailedLogins
from gateway.loop_delay import LoopDelay
from gateway.off_loop import COMPRESS_ON_LOOP_BYTES, ON_LOOP_BYTES
from gateway.timeouts import Timeouts
from hot_tier.clock import steady_s
from hot_tier.cluster.acl_admin import AclAdmin
from hot_tier.cluster.kept import KeptSettings
from hot_tier.cluster.moves import PartitionMoves
from hot_tier.cluster.users import UserAdmin
from hot_tier.record.validate import BatchLimits

if TYPE_CHECKING:
    from ssl import SSLContext

    from gateway.archive_control import ArchiveControl
    from gateway.audit.audit import Audit
    from gateway.coordinators.coordinator import GroupCoordinator
    from gateway.coordinators.transactions.coordinator import TransactionCoordinator
    from gateway.fetch.reader import Reader
    from gateway.kafka_settings import KafkaSettings
    from gateway.quotas import Quotas
    from gateway.tokens.tokens import Tokens
    from hot_tier.cluster.admin import TopicAdmin
    from hot_tier.cluster.image import ClusterImage
    from hot_tier.cluster.producer_ids import ProducerIds
    from hot_tier.cluster.quotas import QuotaAdmin
    from hot_tier.cluster.store import MetadataStore
    from hot_tier.ids import NodeId
    from hot_tier.log.config import TopicConfig
    from hot_tier.log.manager import LogManager
    from hot_tier.replication.led_partition import LedPartition
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
    transactions: "TransactionCoordinator"
    quotas: "Quotas"
    quota_admin: "QuotaAdmin"
    producer_ids: "ProducerIds"
    clock: Callable[[], int]
    """Milliseconds since the epoch."""
    archive: "ArchiveControl | None" = None
    """None on a node without a bucket."""
    tls: "SSLContext | None" = None
    """For calls to other brokers; None on a broker without a certificate."""
    tokens: "Tokens | None" = None
    """Checks tokens of an identity provider; None where there is none."""
    authorization: AuthorizationSettings = field(default_factory=AuthorizationSettings)
    peers: frozenset[str] = frozenset()
    """The names in the certificates of the brokers."""
    peer_listeners: frozenset[str] = frozenset()
    """The listeners that take brokers."""
    authorizer: Authorizer = field(init=False)
    acls: AclAdmin = field(init=False)
    audit: "Audit | None" = None
    """None if nothing is audited."""
    moves: PartitionMoves = field(init=False)
    kept: KeptSettings = field(init=False)
    users: UserAdmin = field(init=False)
    failed_logins: FailedLogins = field(init=False)
    lane: Lane = field(init=False, default_factory=Lane)
    loop_delay: LoopDelay = field(init=False, default_factory=LoopDelay)
    timeouts: Timeouts = field(init=False, default_factory=Timeouts)
    _limits: "dict[str, tuple[TopicConfig, BatchLimits, BatchLimits]]" = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.authorizer = Authorizer(self.image, self.authorization, self.peers, self.peer_listeners)
        self.acls = AclAdmin(self.store, self.image)
        self.moves = PartitionMoves(self.store, self.image)
        self.kept = KeptSettings(self.store, self.image)
        self.users = UserAdmin(self.store, self.image)
        self.failed_logins = FailedLogins(steady_s)

    def batch_limits(self, partition: "LedPartition", *, on_loop: bool = False) -> BatchLimits:
        """Returns the limits for batches of the partition's topic; with `on_loop`, those for checks on the loop."""
        config = partition.config
        known = self._limits.get(partition.tp.topic)
        if known is not None and known[0] is config:
            return known[2] if on_loop else known[1]
        limits = BatchLimits(
            max_bytes=config.max_message_bytes,
            max_decompressed_bytes=self.kafka.max_decompressed_bytes,
            compacted="compact" in config.cleanup_policy,
            depth=self.kafka.validation_depth,
            log_append_time=config.message_timestamp_type == "LogAppendTime",
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        )
        compressed_anew = config.compression_type != "producer"
        most = COMPRESS_ON_LOOP_BYTES if compressed_anew else ON_LOOP_BYTES
        quick = replace(
            limits,
            max_bytes=min(limits.max_bytes, most) if compressed_anew else limits.max_bytes,
            max_decompressed_bytes=min(limits.max_decompressed_bytes, most),
        )
        if len(self._limits) > len(self.image.topics()):
            self._limits.clear()  # Some are of topics that are deleted.
        self._limits[partition.tp.topic] = (config, limits, quick)
        return quick if on_loop else limits

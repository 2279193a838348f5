"""Settings of consumer groups, of transactions, and of the topics that store them. They mean the same as in Kafka."""

from dataclasses import dataclass, field, fields
from typing import Final

from hot_tier.errors import SettingsError

LONGEST_STRING_BYTES: Final = 0x7FFF


@dataclass(frozen=True, slots=True)
class GroupSettings:
    min_session_timeout_ms: int = field(
        default=1_000, metadata={"doc": "Shortest session timeout a member may ask for."}
    )
    max_session_timeout_ms: int = field(
        default=1_800_000, metadata={"doc": "Longest session timeout a member may ask for."}
    )
    initial_rebalance_delay_ms: int = field(
        default=250,
        metadata={
            "doc": "How long the first join of an empty group waits for company, prolonged by each newcomer. "
            "With 0 the first consumer of a deployment is assigned everything at once and the others wait for its "
            "next heartbeat, usually 3 s, to be let in; Kafka's 3000 makes every lone consumer wait 3 s. "
            "250 ms collects what starts together and nobody notices it."
        },
    )
    max_size: int = field(default=50_000, metadata={"doc": "Most members one group may have."})
    max_groups: int = field(default=50_000, metadata={"doc": "Most groups that this broker coordinates."})
    max_bytes: int = field(
        default=256 * 1024 * 1024,
        metadata={
            "doc": "Memory for the members of all groups: ids, metadata, assignments. The members from one address "
            "may take half of it, those of one group a quarter; who finds no room is told that the group is full."
        },
    )
    offsets_topic_partitions: int = field(
        default=50, metadata={"doc": "Partitions of `__consumer_offsets`; used once, when it is created."}
    )
    offsets_topic_replication_factor: int = field(
        default=3,
        metadata={"doc": "Replicas of `__consumer_offsets`, at most one per broker alive when it is created."},
    )
    offsets_topic_segment_bytes: int = field(
        default=100 * 1024 * 1024,
        metadata={"doc": "Segment size of `__consumer_offsets`: small, so that compaction keeps loading short."},
    )
    offsets_retention_minutes: int = field(
        default=7 * 24 * 60,
        metadata={"doc": "How long offsets are kept after a group's last member left, or after the last commit."},
    )
    offsets_retention_check_interval_ms: int = field(
        default=600_000, metadata={"doc": "How often offsets past their retention are looked for."}
    )
    offset_metadata_max_bytes: int = field(
        default=4096, metadata={"doc": "Longest metadata string that a commit may carry."}
    )

    def __post_init__(self) -> None:
        if not 0 < self.min_session_timeout_ms <= self.max_session_timeout_ms:
            raise SettingsError(
                f"groups.min_session_timeout_ms is {self.min_session_timeout_ms}",
                hint=f"it is at least 1 and at most max_session_timeout_ms ({self.max_session_timeout_ms})",
            )
        for name in (
            "max_size",
            "max_groups",
            "max_bytes",
            "offsets_topic_partitions",
            "offsets_topic_replication_factor",
            "offsets_topic_segment_bytes",
            "offsets_retention_minutes",
            "offsets_retention_check_interval_ms",
        ):
            if getattr(self, name) < 1:
                raise SettingsError(f"groups.{name} is {getattr(self, name)}", hint="it is at least 1")
        if self.initial_rebalance_delay_ms < 0:
            raise SettingsError(
                f"groups.initial_rebalance_delay_ms is {self.initial_rebalance_delay_ms}", hint="it is at least 0"
            )
        if not 0 <= self.offset_metadata_max_bytes <= LONGEST_STRING_BYTES:
            raise SettingsError(
                f"groups.offset_metadata_max_bytes is {self.offset_metadata_max_bytes}",
                hint=f"it is 0 to {LONGEST_STRING_BYTES}, what a string of the offsets topic can hold",
            )


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    max_timeout_ms: int = field(
        default=900_000,
        metadata={
            "doc": "Longest time-out that a transactional producer may ask for. While a transaction is open, readers "
            "that read committed records only, and the archive, do not get past its first record."
        },
    )
    abort_interval_ms: int = field(
        default=10_000,
        metadata={"doc": "How often transactions that take longer than their time-out are looked for and aborted."},
    )
    id_expiration_ms: int = field(
        default=7 * 24 * 3_600_000,
        metadata={"doc": "How long a transactional id is remembered that nobody uses."},
    )
    expiration_check_interval_ms: int = field(
        default=3_600_000, metadata={"doc": "How often transactional ids that have expired are looked for."}
    )
    max_ids: int = field(default=50_000, metadata={"doc": "Most transactional ids that this broker coordinates."})
    max_bytes: int = field(
        default=64 * 1024 * 1024,
        metadata={"doc": "Memory for all transactional ids and the partitions in their transactions."},
    )
    topic_partitions: int = field(
        default=50, metadata={"doc": "Partitions of `__transaction_state`; used once, when it is created."}
    )
    topic_replication_factor: int = field(
        default=3,
        metadata={"doc": "Replicas of `__transaction_state`, at most one per broker alive when it is created."},
    )
    topic_segment_bytes: int = field(
        default=100 * 1024 * 1024,
        metadata={"doc": "Segment size of `__transaction_state`: small, so that compaction keeps loading short."},
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) < 1:
                raise SettingsError(f"transactions.{each.name} is {getattr(self, each.name)}", hint="it is at least 1")

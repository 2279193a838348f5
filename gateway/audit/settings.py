"""The settings of the audit."""

from dataclasses import dataclass, field
from typing import Final, Literal

from hot_tier.errors import SettingsError

LEAST_QUEUE_BYTES: Final = 64 * 1024

AuditKind = Literal["authenticate", "admin", "produce", "consume", "describe", "group"]


@dataclass(frozen=True, slots=True)
class AuditSettings:
    enabled: bool = field(
        default=False,
        metadata={
            "doc": "Whether the broker writes who did what to the topic `__audit`. In a cluster it needs `tls.peers`."
        },
    )
    kinds: tuple[AuditKind, ...] = field(
        default=("admin", "authenticate"),
        metadata={"doc": "What is written. What is refused is written whatever its kind."},
    )
    excluded_topics: tuple[str, ...] = field(
        default=(),
        metadata={"doc": "Topics whose reads and writes are not written, unless they are refused."},
    )
    excluded_users: tuple[str, ...] = field(
        default=(), metadata={"doc": "Users of whom nothing is written but what is refused."}
    )
    on_full: Literal["refuse", "drop"] = field(
        default="refuse",
        metadata={
            "doc": "When the topic cannot be written and the queue is full: refuse requests of the kinds that are "
            "written, or go on, and drop and count the events."
        },
    )
    queue_bytes: int = field(
        default=8 * 1024 * 1024,
        metadata={"doc": "Memory for events that are not written yet.", "min": LEAST_QUEUE_BYTES},
    )
    interval_ms: int = field(
        default=60_000,
        metadata={
            "doc": "Reads, writes, heartbeats and the like are counted, and written once in this time for each "
            "connection, operation, topic and result.",
            "min": 100,
        },
    )
    partitions: int = field(
        default=3, metadata={"doc": "Partitions of `__audit`; used once, when it is created.", "min": 1}
    )
    replication_factor: int = field(
        default=3, metadata={"doc": "Replicas of `__audit`, at most one per broker alive.", "min": 1}
    )
    retention_ms: int = field(
        default=90 * 24 * 3_600_000,
        metadata={"doc": "How long events are kept; -1: for ever. Only this setting changes it.", "min": -1},
    )
    archived: bool = field(
        default=True,
        metadata={
            "doc": "Whether events go to the bucket as Parquet. Once on it stays on: see `remote.storage.enable`."
        },
    )
    segment_ms: int = field(
        default=3_600_000,
        metadata={"doc": "How long an event may wait until it is archived as Parquet.", "min": 1000},
    )

    def __post_init__(self) -> None:
        if self.enabled and not self.kinds:
            raise SettingsError("audit.kinds is empty", hint="name at least one kind, or set audit.enabled=false")

"""What is said of an archive: values that `offloader` finds and the HTTP API and the command line show."""

from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from cold_tier.manifest.model import NO_TIMESTAMP, Segment, Snapshot
from cold_tier.objects.retrying import StoreCounters
from cold_tier.pins import Pin


@dataclass(frozen=True, slots=True)
class LocalRange:
    """What a partition's leader has on its own disk."""

    start_offset: int
    end_offset: int
    bytes: int
    segments: int


@dataclass(frozen=True, slots=True)
class ArchivedRange:
    """What the newest manifest names."""

    start_offset: int
    end_offset: int
    segments: int
    rows: int
    rows_bytes: int
    index_bytes: int
    """Of the segments in closed pages estimated by those in the tail: pages are not read for this."""
    log_bytes: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    leader_epoch: int
    sequence: int
    published_ms: int
    removed_objects: int
    """Let go of, and deleted after the grace period."""
    lost: tuple[tuple[int, int], ...]
    """Offsets whose records are gone, as a person accepted; ends are exclusive."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> "ArchivedRange":
        parts = [part for part in snapshot.parts if part.rows]
        tail_index = sum(segment.index_bytes for segment in snapshot.tail)
        in_pages = snapshot.segments - len(snapshot.tail)
        return cls(
            snapshot.start_offset,
            snapshot.end_offset,
            snapshot.segments,
            sum(part.rows for part in parts),
            sum(part.rows_bytes for part in snapshot.parts),
            tail_index + (in_pages * tail_index // len(snapshot.tail) if snapshot.tail else 0),
            sum(part.log_bytes for part in snapshot.parts),
            min((part.min_timestamp_ms for part in parts), default=NO_TIMESTAMP),
            max((part.max_timestamp_ms for part in parts), default=NO_TIMESTAMP),
            snapshot.version.leader_epoch,
            snapshot.version.sequence,
            snapshot.published_ms,
            len(snapshot.removed),
            tuple((each.start_offset, each.end_offset) for each in snapshot.lost),
        )


@dataclass(frozen=True, slots=True)
class HeldSegment:
    """A local segment that is not archived because it is damaged, or stays because its archived copy is gone."""

    file: str
    base_offset: int
    end_offset: int
    why: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    topic: str
    topic_id: UUID
    partition: int
    enabled: bool | None
    """Whether it is archived; None where only the bucket was asked."""
    log_start_offset: int
    local: LocalRange | None
    """None where only the bucket was asked, or another node leads."""
    archived: ArchivedRange | None
    """None: nothing was ever archived, or the manifest is not loaded yet."""
    backlog_bytes: int | None = None
    """Sealed and not archived yet."""
    failures: int = 0
    last_failure: str = ""
    held: HeldSegment | None = None
    failing_since_ms: int | None = None
    """None while archiving works."""
    recovered_ms: int | None = None
    """When it last began to work again; None if it has not failed since this node leads."""
    stopped: str = ""
    """Why nothing of the archive is published, dropped or deleted; empty while it is not stopped."""

    @property
    def overlap(self) -> int:
        """How many offsets are in both tiers."""
        if self.local is None or self.archived is None:
            return 0
        start = max(self.local.start_offset, self.archived.start_offset)
        return max(0, min(self.local.end_offset, self.archived.end_offset) - start)


@dataclass(frozen=True, slots=True)
class ArchivedSegment:
    """A segment with the names of its two objects."""

    segment: Segment
    rows_object: str
    index_object: str


@dataclass(frozen=True, slots=True)
class Planned:
    """A partition is about to be verified."""

    topic: str
    partition: int
    segments: int


@dataclass(frozen=True, slots=True)
class Checked:
    """One segment was read whole and compared."""

    bytes: int


FindingKind = Literal[
    "manifest",
    "went-back",
    "missing",
    "damaged",
    "rows",
    "duplicate",
    "range",
    "timestamps",
    "gap",
    "overlap",
    "orphan",
]


@dataclass(frozen=True, slots=True)
class Finding:
    kind: FindingKind
    where: str
    what: str

    @property
    def is_problem(self) -> bool:
        """An orphan is not: it waits for its collection."""
        return self.kind != "orphan"


VerifyEvent = Planned | Checked | Finding


@dataclass(frozen=True, slots=True)
class Garbage:
    kind: Literal["removed", "orphan", "manifest"]
    key: str
    bytes: int


@dataclass(slots=True)
class Collected:
    """How many objects went, by why."""

    removed: int = 0
    """Let go of by a manifest, past the grace period."""
    orphans: int = 0
    """Named by no manifest, past their age; and superseded manifests, past theirs."""
    of_deleted_topics: int = 0
    failed: list[str] = field(default_factory=list)
    """Partitions and topics whose garbage could not be collected now, and why."""


@dataclass(frozen=True, slots=True)
class Considered:
    """What the leader did with a proposal."""

    partition: int
    name: str
    outcome: Literal["published", "refused", "waiting"]
    reason: str = ""


RepairDecision = Literal["recover", "accept-loss", "take-over"]


@dataclass(frozen=True, slots=True)
class Repaired:
    """What became of an archive that was stopped."""

    topic: str
    partition: int
    end_offset: int
    """Of what is archived now."""
    taken_up: int = 0
    """Segments that were in the bucket, and that no manifest named any more."""
    lost: tuple[tuple[int, int], ...] = ()
    """Offsets that were given up; ends are exclusive."""


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    partition: int
    log_start_offset: int
    end_offset: int
    segments: int
    rows: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class RestoredTopic:
    name: str
    id: UUID
    restored: bool
    """False: it exists already and was left alone, or `failure` says why not."""
    config: dict[str, str] = field(default_factory=dict)
    partitions: list[RestoredPartition] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    failure: str = ""


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    topic: str
    partition: int
    backlog_bytes: int
    archived_offset: int
    archived_segments: int
    archived_bytes: int
    failures: int
    held: bool
    """A segment is damaged, or its archived copy is gone."""
    stopped: bool
    """Its manifests went back, or another has published."""
    last_success_ms: int
    """0: not since the node started."""


@dataclass(frozen=True, slots=True)
class PinFigures:
    topic: str
    pin: Pin


@dataclass(frozen=True, slots=True)
class ArchiveFigures:
    partitions: list[PartitionFigures]
    pins: list[PinFigures]
    """Of the topics whose partition 0 is led here, as last seen."""
    requests: StoreCounters
    cold_hits: int
    cold_misses: int
    cold_memory_bytes: int

"""Values that describe an archive. `offloader` makes them; the HTTP API and the command line show them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from cold_tier.manifest.model import NO_TIMESTAMP, SegmentEntry, Snapshot
from cold_tier.objects.bucket import StoreCounters
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
    """What the newest manifest says."""

    start_offset: int
    end_offset: int
    segments: int
    rows: int
    rows_bytes: int
    index_bytes: int
    """For segments in closed pages this is an estimate from those in the tail: pages are not read for it."""
    aside_bytes: int
    """Aborted batches and markers."""
    log_bytes: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    leader_epoch: int
    sequence: int
    published_ms: int
    removed_objects: int
    """Objects that the manifest has removed; they are deleted after the grace period."""
    lost: tuple[tuple[int, int], ...]
    """Offsets whose records are gone and whose loss a person accepted; ends are exclusive."""

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
            sum(part.aside_bytes for part in snapshot.parts),
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
    """A local segment that is damaged and so not archived, or that stays because its archived copy is gone."""

    file: str
    base_offset: int
    end_offset: int
    why: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class HoldingTransaction:
    """An open transaction that the next sealed segment waits for: nothing undecided is archived."""

    transactional_id: str | None
    """None where it is not known: batches do not carry it."""
    producer_id: int
    first_offset: int
    since_ms: int

    @property
    def hint(self) -> str:
        if self.transactional_id is None:
            return f"`tierlog txn list` shows the transactional id of producer {self.producer_id}"
        return f"if its producer is gone: `tierlog txn abort {self.transactional_id}`"

    def __str__(self) -> str:
        who = "" if self.transactional_id is None else f"transactional id {self.transactional_id!r}, "
        return f"{who}producer {self.producer_id}, from offset {self.first_offset} on"


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    topic: str
    topic_id: UUID
    partition: int
    enabled: bool | None
    """Whether it is archived. None if only the bucket was asked."""
    log_start_offset: int
    local: LocalRange | None
    """None if only the bucket was asked, or if another node leads."""
    archived: ArchivedRange | None
    """None if nothing was ever archived, or if the manifest is not loaded yet."""
    backlog_bytes: int | None = None
    """The bytes of segments that are sealed and not archived yet."""
    failures: int = 0
    last_failure: str = ""
    held: HeldSegment | None = None
    failing_since_ms: int | None = None
    """None while archiving works."""
    recovered_ms: int | None = None
    """When archiving last began to work again. None if it has not failed since this node became leader."""
    stopped: str = ""
    """Why nothing of the archive is published, dropped or deleted. Empty if the archive is not stopped."""
    held_by: HoldingTransaction | None = None
    pending_end_offset: int | None = None
    """Where the sealed segments end that wait to be archived. None if none waits, or if another node leads."""

    @property
    def overlap(self) -> int:
        """Returns the number of offsets that are in both tiers."""
        if self.local is None or self.archived is None:
            return 0
        start = max(self.local.start_offset, self.archived.start_offset)
        return max(0, min(self.local.end_offset, self.archived.end_offset) - start)


@dataclass(frozen=True, slots=True)
class ArchivedSegment:
    """A segment with the names of its objects."""

    segment: SegmentEntry
    rows_object: str
    index_object: str
    aside_object: str | None


@dataclass(frozen=True, slots=True)
class Planned:
    """Verification of a partition begins."""

    topic: str
    partition: int
    segments: int


@dataclass(frozen=True, slots=True)
class Checked:
    """One segment was read completely and compared."""

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
        """Returns False for an orphan: it only waits for its collection."""
        return self.kind != "orphan"


VerifyEvent = Planned | Checked | Finding


@dataclass(frozen=True, slots=True)
class Garbage:
    kind: Literal["removed", "orphan", "manifest"]
    key: str
    bytes: int


@dataclass(slots=True)
class Collected:
    """How many objects were deleted, by reason."""

    removed: int = 0
    """Removed from a manifest, past the grace period."""
    orphans: int = 0
    """Objects that no manifest names, past their age; and superseded manifests, past theirs."""
    of_deleted_topics: int = 0
    failed: list[str] = field(default_factory=list)
    """Partitions and topics whose garbage could not be collected this time, and why."""


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
    """The result of the repair of a stopped archive."""

    topic: str
    partition: int
    end_offset: int
    """The end of what is archived now."""
    taken_up: int = 0
    """The number of segments that were in the bucket and that no manifest named any more."""
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
    """False if the topic already exists and was left unchanged, or if it could not be restored: see `failure`."""
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
    """Whether a segment is damaged or its archived copy is gone."""
    stopped: bool
    """Whether the archive is stopped: its manifests went back, or another cluster or data directory has published."""
    last_success_ms: int
    """0 if there was none since the node started."""
    lag_ms: int
    """For how long the oldest sealed segment has waited to be archived; 0 if none waits."""
    stored_bytes: int
    """Rows and indexes that the manifest names."""
    held_by: HoldingTransaction | None = None


@dataclass(frozen=True, slots=True)
class PinFigures:
    topic: str
    pin: Pin


@dataclass(frozen=True, slots=True)
class ArchiveFigures:
    partitions: Sequence[PartitionFigures]
    pins: list[PinFigures]
    """The pins of the topics whose partition 0 this node leads, as last seen."""
    requests: StoreCounters
    cold_hits: int
    cold_misses: int
    cold_memory_bytes: int
    storage_cost_per_day: float
    """What the objects named by the manifests cost, in the currency of the prices."""
    requests_cost: float
    """What all requests to the bucket have cost since the node started."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What the manifests of all partitions of a topic say together."""

    partitions: int
    segments: int
    rows_bytes: int
    index_bytes: int
    """With what transactions left besides rows: aborted batches and markers."""
    log_bytes: int
    span_ms: int
    """The time from the oldest archived record to the newest."""
    retention_ms: int
    """-1 means for ever."""
    local_retention_ms: int
    """-1 means for ever, -2 the same as retention."""


@dataclass(frozen=True, slots=True)
class Line:
    what: str
    amount: float
    unit: str
    price: float
    """The price of one unit."""

    @property
    def cost(self) -> float:
        return self.amount * self.price


@dataclass(frozen=True, slots=True)
class Estimate:
    retention_ms: int
    log_bytes_per_month: float
    held_log_bytes: float
    bucket: tuple[Line, ...]
    local: tuple[Line, ...]
    """What the topic keeps on local disks besides the archive."""
    disks: tuple[Line, ...]
    """The same retention on local disks alone."""

    @property
    def with_archive(self) -> float:
        return sum(line.cost for line in (*self.bucket, *self.local))

    @property
    def without_archive(self) -> float:
        return sum(line.cost for line in self.disks)

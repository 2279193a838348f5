"""The JSON documents of the archive's operations. The rules for documents are in `schemas`."""

from typing import Literal, Self

from pydantic import Field

from cold_tier.manifest.model import NO_TIMESTAMP
from cold_tier.reports import (
    ArchivedRange,
    ArchivedSegment,
    Collected,
    Considered,
    Estimate,
    HeldSegment,
    HoldingTransaction,
    Line,
    PartitionStatus,
    RepairDecision,
    Repaired,
    RestoredTopic,
    TopicFacts,
)
from gateway.http.schemas import Reply, Request, TopicName
from gateway.http.topic_settings import NewSettings


class ArchivedSegmentDocument(Reply):
    base_offset: int
    end_offset: int = Field(description="Exclusive, as every end.")
    rows: int
    min_timestamp: int | None = Field(description="Milliseconds since 1970; null where there are no rows.")
    max_timestamp: int | None
    rows_bytes: int = Field(description="Of the Parquet object.")
    index_bytes: int
    aside_bytes: int = Field(description="Of the object with aborted batches and markers; 0 if it has none.")
    log_bytes: int = Field(description="Of the local segment it was made from.")
    archived_ms: int
    rows_object: str = Field(description="The Parquet object's name, below `bucket`.")
    index_object: str
    aside_object: str | None

    @classmethod
    def of(cls, archived: ArchivedSegment) -> Self:
        segment = archived.segment
        return cls(
            base_offset=segment.base_offset,
            end_offset=segment.end_offset,
            rows=segment.rows,
            min_timestamp=_time(segment.min_timestamp_ms),
            max_timestamp=_time(segment.max_timestamp_ms),
            rows_bytes=segment.rows_bytes,
            index_bytes=segment.index_bytes,
            aside_bytes=segment.aside_bytes,
            log_bytes=segment.log_bytes,
            archived_ms=segment.archived_ms,
            rows_object=archived.rows_object,
            index_object=archived.index_object,
            aside_object=archived.aside_object,
        )


class LocalRangeDocument(Reply):
    start_offset: int
    end_offset: int
    bytes: int
    segments: int


class LostRange(Reply):
    start_offset: int
    end_offset: int


class ArchivedRangeDocument(Reply):
    start_offset: int
    end_offset: int
    segments: int
    rows: int
    rows_bytes: int
    index_bytes: int = Field(description="Where there are more than a thousand segments, estimated by the newest.")
    aside_bytes: int = Field(description="Aborted batches and markers of transactions.")
    log_bytes: int
    min_timestamp: int | None
    max_timestamp: int | None
    leader_epoch: int = Field(description="Of the leader that published the manifest.")
    sequence: int = Field(description="Of the manifest within that epoch.")
    published_ms: int
    removed_objects: int = Field(description="Let go of; deleted after the grace period.")
    lost: list[LostRange] = Field(description="Offsets whose records are gone, and were given up on purpose.")

    @classmethod
    def of(cls, archived: ArchivedRange) -> Self:
        return cls(
            start_offset=archived.start_offset,
            end_offset=archived.end_offset,
            segments=archived.segments,
            rows=archived.rows,
            rows_bytes=archived.rows_bytes,
            index_bytes=archived.index_bytes,
            aside_bytes=archived.aside_bytes,
            log_bytes=archived.log_bytes,
            min_timestamp=_time(archived.min_timestamp_ms),
            max_timestamp=_time(archived.max_timestamp_ms),
            leader_epoch=archived.leader_epoch,
            sequence=archived.sequence,
            published_ms=archived.published_ms,
            removed_objects=archived.removed_objects,
            lost=[LostRange(start_offset=start, end_offset=end) for start, end in archived.lost],
        )


class HeldSegmentDocument(Reply):
    file: str = Field(description="On the disk of the partition's leader.")
    base_offset: int
    end_offset: int
    why: str = Field(description="What is wrong with it, and what to do.")
    since_ms: int

    @classmethod
    def of(cls, held: HeldSegment) -> Self:
        return cls(
            file=held.file,
            base_offset=held.base_offset,
            end_offset=held.end_offset,
            why=held.why,
            since_ms=held.since_ms,
        )


class HoldingTransactionDocument(Reply):
    transactional_id: str | None = Field(description="Null where it is not known: batches do not carry it.")
    producer_id: int
    first_offset: int = Field(description="Of the transaction in this partition.")
    what: str = Field(description="The same in words.")
    since_ms: int = Field(description="When the transaction began here, in milliseconds since 1970.")
    hint: str = Field(description="What to do.")

    @classmethod
    def of(cls, holding: HoldingTransaction) -> Self:
        return cls(
            transactional_id=holding.transactional_id,
            producer_id=holding.producer_id,
            first_offset=holding.first_offset,
            what=str(holding),
            since_ms=holding.since_ms,
            hint=holding.hint,
        )


class PartitionArchiveDocument(Reply):
    partition: int
    enabled: bool = Field(description="Whether sealed segments are archived now.")
    log_start_offset: int
    local: LocalRangeDocument | None = Field(description="Null on a node that does not lead it.")
    archived: ArchivedRangeDocument | None = Field(description="Null: nothing is, or the manifest is not loaded yet.")
    overlap: int = Field(description="How many offsets are in both tiers.")
    backlog_bytes: int | None = Field(description="Sealed and not archived yet; null on a node that does not lead it.")
    failures: int
    last_failure: str = Field(description="Why archiving fails now; empty while it does not.")
    held: HeldSegmentDocument | None = Field(
        default=None,
        description="A local segment that is damaged, or whose archived copy is gone: neither it nor what follows is "
        "archived or deleted before that is put right.",
    )
    held_by: HoldingTransactionDocument | None = Field(
        default=None,
        description="The open transaction that the next sealed segment waits for: nothing undecided is archived.",
    )
    failing_since: int | None = Field(default=None, description="Milliseconds since 1970; null while archiving works.")
    recovered: int | None = Field(
        default=None, description="When archiving last began to work again; null if it never failed here."
    )
    stopped: str = Field(
        default="",
        description="Why nothing is archived, dropped or deleted until somebody decides: the bucket went back to an "
        "older state, or somebody else has published there. Empty while it is not stopped.",
    )
    pending_end_offset: int | None = Field(
        default=None, description="Where the sealed segments end that wait to be archived; null where none waits."
    )
    segments: list[ArchivedSegmentDocument]
    next_offset: int | None = Field(description="Ask again with this `offset` for the segments that follow; else null.")

    @classmethod
    def of(cls, status: PartitionStatus, segments: list[ArchivedSegment], next_offset: int | None) -> Self:
        local = status.local
        return cls(
            partition=status.partition,
            enabled=bool(status.enabled),
            log_start_offset=status.log_start_offset,
            local=None
            if local is None
            else LocalRangeDocument(
                start_offset=local.start_offset,
                end_offset=local.end_offset,
                bytes=local.bytes,
                segments=local.segments,
            ),
            archived=None if status.archived is None else ArchivedRangeDocument.of(status.archived),
            overlap=status.overlap,
            backlog_bytes=status.backlog_bytes,
            failures=status.failures,
            last_failure=status.last_failure,
            held=None if status.held is None else HeldSegmentDocument.of(status.held),
            held_by=None if status.held_by is None else HoldingTransactionDocument.of(status.held_by),
            failing_since=status.failing_since_ms,
            recovered=status.recovered_ms,
            stopped=status.stopped,
            pending_end_offset=status.pending_end_offset,
            segments=[ArchivedSegmentDocument.of(segment) for segment in segments],
            next_offset=next_offset,
        )


class TopicArchive(Reply):
    topic: str
    id: str
    bucket: str
    partitions: list[PartitionArchiveDocument]


class CostLine(Reply):
    what: str
    amount: float
    unit: str
    price: float = Field(description="Of one unit.")
    cost: float

    @classmethod
    def of(cls, line: Line) -> Self:
        return cls(what=line.what, amount=line.amount, unit=line.unit, price=line.price, cost=line.cost)


class TopicCost(Reply):
    topic: str
    retention_ms: int
    span_ms: int = Field(description="From the oldest archived record to the newest: what the rate is taken from.")
    stored_bytes: int
    log_bytes_per_month: float
    held_log_bytes: float
    bucket: list[CostLine]
    local: list[CostLine]
    local_disks_alone: list[CostLine]
    monthly_with_archive: float
    monthly_local_disks_alone: float

    @classmethod
    def of(cls, topic: str, facts: TopicFacts, estimate: Estimate) -> Self:
        return cls(
            topic=topic,
            retention_ms=estimate.retention_ms,
            span_ms=facts.span_ms,
            stored_bytes=facts.rows_bytes + facts.index_bytes,
            log_bytes_per_month=estimate.log_bytes_per_month,
            held_log_bytes=estimate.held_log_bytes,
            bucket=[CostLine.of(line) for line in estimate.bucket],
            local=[CostLine.of(line) for line in estimate.local],
            local_disks_alone=[CostLine.of(line) for line in estimate.disks],
            monthly_with_archive=estimate.with_archive,
            monthly_local_disks_alone=estimate.without_archive,
        )


class BucketDocument(Reply):
    bucket: str
    works: bool = Field(description="Whether it answered this request's own look at it.")
    failure: str = Field(description="Why not, and since when; empty if it works.")


class PinDocument(Reply):
    topic: str
    id: str
    name: str = Field(description="Of the job that holds the topic.")
    created_ms: int
    expires_ms: int = Field(description="The pin holds until then, or until it is released.")


class PinsDocument(Reply):
    pins: list[PinDocument]


class ArchiveVerification(Request):
    topics: list[TopicName] = Field(default_factory=list, max_length=10_000, description="All when empty.")


class PlannedLine(Reply):
    type: Literal["planned"] = "planned"
    topic: str
    partition: int
    segments: int


class ProgressLine(Reply):
    type: Literal["progress"] = "progress"
    segments: int
    bytes: int


class FindingLine(Reply):
    type: Literal["finding"] = "finding"
    kind: str
    where: str
    what: str
    problem: bool


class SummaryLine(Reply):
    type: Literal["summary"] = "summary"
    partitions: int
    segments: int
    bytes: int
    problems: int
    orphans: int


class GarbageCollected(Reply):
    removed: int = Field(description="Objects that manifests had let go of, past the grace period.")
    orphans: int = Field(description="Objects that no manifest names, and superseded manifests, past their age.")
    of_deleted_topics: int
    failed: list[str] = Field(description="What could not be collected now, and why.")

    @classmethod
    def of(cls, collected: Collected) -> Self:
        return cls(
            removed=collected.removed,
            orphans=collected.orphans,
            of_deleted_topics=collected.of_deleted_topics,
            failed=collected.failed,
        )


class ProposalDocument(Reply):
    partition: int
    name: str = Field(description="As its object is named.")
    outcome: Literal["published", "refused", "waiting"]
    reason: str = Field(description="Why not; empty if it is published.")

    @classmethod
    def of(cls, considered: Considered) -> Self:
        return cls(
            partition=considered.partition,
            name=considered.name,
            outcome=considered.outcome,
            reason=considered.reason,
        )


class ProposalsConsidered(Reply):
    proposals: list[ProposalDocument]


class ArchiveRepair(Request):
    decision: RepairDecision = Field(
        description="`recover`: take up again what is in the bucket and no manifest names. `accept-loss`: the same, "
        "and give up what is in neither tier. `take-over`: what somebody else published is this partition's history."
    )


class RepairedDocument(Reply):
    partition: int
    end_offset: int = Field(description="Of what is archived now.")
    taken_up: int = Field(description="Segments that were in the bucket, and that no manifest named any more.")
    lost: list[LostRange] = Field(description="Offsets that were given up.")

    @classmethod
    def of(cls, repaired: Repaired) -> Self:
        return cls(
            partition=repaired.partition,
            end_offset=repaired.end_offset,
            taken_up=repaired.taken_up,
            lost=[LostRange(start_offset=start, end_offset=end) for start, end in repaired.lost],
        )


class ArchiveRestore(Request):
    topics: list[TopicName] = Field(
        default_factory=list,
        max_length=10_000,
        description="None of them may exist. When empty, all that the bucket holds and the cluster does not have.",
    )
    config: NewSettings = Field(default_factory=dict, description="Settings to restore with, above those archived.")


class RestoredPartitionDocument(Reply):
    partition: int
    log_start_offset: int
    end_offset: int
    segments: int
    rows: int
    leader_epoch: int


class RestoredTopicDocument(Reply):
    name: str
    id: str
    restored: bool = Field(description="False: it exists already and was left alone, or `failure` says why not.")
    config: dict[str, str]
    partitions: list[RestoredPartitionDocument]
    warnings: list[str]
    failure: str

    @classmethod
    def of(cls, topic: RestoredTopic) -> Self:
        return cls(
            name=topic.name,
            id=str(topic.id),
            restored=topic.restored,
            config=topic.config,
            partitions=[
                RestoredPartitionDocument(
                    partition=each.partition,
                    log_start_offset=each.log_start_offset,
                    end_offset=each.end_offset,
                    segments=each.segments,
                    rows=each.rows,
                    leader_epoch=each.leader_epoch,
                )
                for each in topic.partitions
            ],
            warnings=topic.warnings,
            failure=topic.failure,
        )


class Restored(Reply):
    topics: list[RestoredTopicDocument]


def _time(ms: int) -> int | None:
    return None if ms == NO_TIMESTAMP else ms

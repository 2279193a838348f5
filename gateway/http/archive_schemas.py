"""The documents of the archive's operations; `schemas` says how documents are made."""

from typing import Literal, Self

from pydantic import Field

from cold_tier.manifest.model import NO_TIMESTAMP
from cold_tier.reports import (
    ArchivedRange,
    ArchivedSegment,
    Collected,
    Considered,
    HeldSegment,
    PartitionStatus,
    RepairDecision,
    Repaired,
    RestoredTopic,
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
    log_bytes: int = Field(description="Of the local segment it was made from.")
    archived_ms: int
    rows_object: str = Field(description="The Parquet object's name, below `bucket`.")
    index_object: str

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
            log_bytes=segment.log_bytes,
            archived_ms=segment.archived_ms,
            rows_object=archived.rows_object,
            index_object=archived.index_object,
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
    failing_since: int | None = Field(default=None, description="Milliseconds since 1970; null while archiving works.")
    recovered: int | None = Field(
        default=None, description="When archiving last began to work again; null if it never failed here."
    )
    stopped: str = Field(
        default="",
        description="Why nothing is archived, dropped or deleted until somebody decides: the bucket went back to an "
        "older state, or somebody else has published there. Empty while it is not stopped.",
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
            failing_since=status.failing_since_ms,
            recovered=status.recovered_ms,
            stopped=status.stopped,
            segments=[ArchivedSegmentDocument.of(segment) for segment in segments],
            next_offset=next_offset,
        )


class TopicArchive(Reply):
    topic: str
    id: str
    bucket: str
    partitions: list[PartitionArchiveDocument]


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

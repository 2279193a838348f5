"""What a manifest says: which archived segments hold a partition, and which objects may go.

A snapshot is immutable. Its segments are those of its closed pages, in order, then those of its tail; together they
cover `[start_offset, end_offset)` without hole or overlap (`cold_tier.manifest.invariants`). Offsets whose records
were not archived (control batches, aborted transactions, compacted keys) still lie inside a segment's range.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from cold_tier.layout import PartitionLayout, SegmentName, Version
from hot_tier.ids import NO_EPOCH, LeaderEpoch, Offset, PartitionId

PAGE_SEGMENTS: Final = 1000
NO_TIMESTAMP: Final = -1


class Part(Protocol):
    """A run of archived offsets: a segment, or a page of them."""

    @property
    def base_offset(self) -> Offset: ...
    @property
    def end_offset(self) -> Offset: ...
    @property
    def rows(self) -> int: ...
    @property
    def rows_bytes(self) -> int: ...
    @property
    def log_bytes(self) -> int: ...
    @property
    def min_timestamp_ms(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class EpochStart:
    leader_epoch: LeaderEpoch
    start_offset: Offset


@dataclass(frozen=True, slots=True)
class Segment:
    name: SegmentName
    end_offset: Offset
    rows: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    """Both NO_TIMESTAMP where there are no rows."""
    rows_bytes: int
    rows_crc32c: int
    index_bytes: int
    index_crc32c: int
    log_bytes: int
    """Size of the local segment it was made from: what retention.bytes counts."""
    archived_ms: int
    epochs: tuple[EpochStart, ...]
    """Leader epochs of its offsets, in order; the first starts at or before the base offset."""

    @property
    def base_offset(self) -> Offset:
        return self.name.base_offset

    @property
    def newest_ms(self) -> int:
        """From when on its age counts. Records without a timestamp are as old as their archive."""
        return self.archived_ms if self.max_timestamp_ms == NO_TIMESTAMP else self.max_timestamp_ms


@dataclass(frozen=True, slots=True)
class Page:
    """A closed run of segments, kept in an object of its own; what planning needs is here."""

    uuid: str
    base_offset: Offset
    end_offset: Offset
    segments: int
    rows: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    rows_bytes: int
    log_bytes: int
    size: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class Removed:
    """An object that no segment of this manifest needs any more; it may go after the grace period."""

    key: str
    removed_ms: int


@dataclass(frozen=True, slots=True)
class Owner:
    """Who published a manifest. A broker goes on from its own alone (`offloader.trust`)."""

    cluster: str
    """The cluster's id."""
    directory: str
    """On a node that is its own cluster: which data directory; else empty."""
    writer: str
    """One leader in one epoch; its metadata knew this before the bucket did."""

    def __str__(self) -> str:
        return f"cluster {self.cluster}" + (f", data directory {self.directory}" if self.directory else "")


@dataclass(frozen=True, slots=True)
class Lost:
    """Offsets whose records are gone, and were given up by a person; a segment without rows stands in their place."""

    start_offset: Offset
    end_offset: Offset
    accepted_ms: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    topic: str
    topic_id: UUID
    partition: PartitionId
    version: Version
    nonce: str
    """Made anew for every publish: tells our own write from another's with the same content."""
    published_ms: int
    log_start_offset: Offset
    """Records below it are deleted for every reader, even where a segment still holds them."""
    pages: tuple[Page, ...] = ()
    tail: tuple[Segment, ...] = ()
    removed: tuple[Removed, ...] = ()
    owner: Owner | None = None
    """None in what version 0.1 wrote."""
    lost: tuple[Lost, ...] = ()

    @property
    def layout(self) -> PartitionLayout:
        return PartitionLayout(self.topic, self.topic_id, self.partition)

    @property
    def start_offset(self) -> Offset:
        """First offset that a segment covers; the log start where there is none."""
        if self.pages:
            return self.pages[0].base_offset
        return self.tail[0].base_offset if self.tail else self.log_start_offset

    @property
    def end_offset(self) -> Offset:
        """Archived through here, exclusive."""
        if self.tail:
            return self.tail[-1].end_offset
        return self.pages[-1].end_offset if self.pages else self.log_start_offset

    def holds(self, offset: int) -> bool:
        return self.start_offset <= offset < self.end_offset

    @property
    def segments(self) -> int:
        return sum(page.segments for page in self.pages) + len(self.tail)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Everything archived, in offset order."""
        return (*self.pages, *self.tail)


def covering(parts: Sequence[Part], offset: Offset) -> int | None:
    """The index of the part whose range holds `offset`, among parts in offset order without holes."""
    index = bisect_right(parts, offset, key=lambda part: part.base_offset) - 1
    return index if index >= 0 and offset < parts[index].end_offset else None


def epoch_at(segment: Segment, end_offset: Offset) -> LeaderEpoch:
    """The leader epoch of the last offset before `end_offset`."""
    found = [epoch.leader_epoch for epoch in segment.epochs if epoch.start_offset < end_offset]
    return found[-1] if found else NO_EPOCH


def summarize(segments: Sequence[Segment], uuid: str, size: int, crc32c: int) -> Page:
    stamps = [s for s in segments if s.rows]
    return Page(
        uuid,
        segments[0].base_offset,
        segments[-1].end_offset,
        len(segments),
        sum(s.rows for s in segments),
        min((s.min_timestamp_ms for s in stamps), default=NO_TIMESTAMP),
        max((s.max_timestamp_ms for s in stamps), default=NO_TIMESTAMP),
        sum(s.rows_bytes for s in segments),
        sum(s.log_bytes for s in segments),
        size,
        crc32c,
    )

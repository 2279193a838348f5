"""What a manifest says: which archived segments hold a partition, and which objects may be deleted.

A snapshot is immutable. Its segments are those of its closed pages, in order, then those of its tail. Together they
cover `[start_offset, end_offset)` without hole or overlap (`cold_tier.manifest.invariants`). Offsets whose records were
no rows (control batches, aborted transactions, compacted keys) still lie inside a segment's range.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from cold_tier.layout import PartitionLayout, SegmentName, Version
from hot_tier.ids import NO_EPOCH, LeaderEpoch, Offset, PartitionId

PAGE_SEGMENTS: Final = 1000
NO_TIMESTAMP: Final = -1


class Part(Protocol):
    """A range of archived offsets: a segment, or a page of segments."""

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
    @property
    def aside_bytes(self) -> int: ...
    @property
    def aside_max_timestamp_ms(self) -> int: ...


@dataclass(frozen=True, slots=True)
class EpochStart:
    leader_epoch: LeaderEpoch
    start_offset: Offset


@dataclass(frozen=True, slots=True)
class Aside:
    """The object with a segment's batches that are no rows (`cold_tier.format.aside`)."""

    size: int
    crc32c: int
    batches: int
    max_timestamp_ms: int
    """The greatest of its aborted records; NO_TIMESTAMP if it has only markers."""


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    name: SegmentName
    end_offset: Offset
    rows: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    """Both are NO_TIMESTAMP if there are no rows."""
    rows_bytes: int
    rows_crc32c: int
    index_bytes: int
    index_crc32c: int
    log_bytes: int
    """The size of the local segment that it was made from. retention.bytes counts this size."""
    archived_ms: int
    epochs: tuple[EpochStart, ...]
    """Leader epochs of its offsets, in order; the first starts at or before the base offset."""
    master_key: str = ""
    """The master key of an encrypted segment (`cold_tier.keys.master`); empty: it is not encrypted."""
    aside: Aside | None = None
    """None if all its batches are rows."""

    @property
    def base_offset(self) -> Offset:
        return self.name.base_offset

    @property
    def newest_ms(self) -> int:
        """Returns the time from which its age counts: the time of archiving, if no record has a timestamp."""
        return self.archived_ms if self.max_timestamp_ms == NO_TIMESTAMP else self.max_timestamp_ms

    @property
    def aside_bytes(self) -> int:
        return 0 if self.aside is None else self.aside.size

    @property
    def aside_max_timestamp_ms(self) -> int:
        return NO_TIMESTAMP if self.aside is None else self.aside.max_timestamp_ms

    def objects(self, layout: PartitionLayout) -> dict[str, int]:
        """Returns the keys of all its objects, with their sizes."""
        found = {layout.rows(self.name): self.rows_bytes, layout.index(self.name): self.index_bytes}
        return found if self.aside is None else {**found, layout.aside(self.name): self.aside.size}


@dataclass(frozen=True, slots=True)
class Page:
    """A closed run of segments, stored in an object of its own. These fields are enough for planning."""

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
    aside_bytes: int = 0
    aside_max_timestamp_ms: int = NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class Removed:
    """An object that no segment of this manifest needs any more. It may be deleted after the grace period."""

    key: str
    removed_ms: int


@dataclass(frozen=True, slots=True)
class Owner:
    """Who published a manifest. A broker continues only its own manifests (`offloader.trust`)."""

    cluster: str
    """The cluster's id."""
    directory: str
    """The data directory, on a node that is its own cluster; else empty."""
    writer: str
    """Identifies one leader in one epoch. It is written to metadata before the first manifest with it is published."""

    def __str__(self) -> str:
        return f"cluster {self.cluster}" + (f", data directory {self.directory}" if self.directory else "")


@dataclass(frozen=True, slots=True)
class Lost:
    """Offsets whose records are gone and that a person gave up. A segment without rows stands in their place."""

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
    """New for every publish. It distinguishes our own write from another writer's with the same content."""
    published_ms: int
    log_start_offset: Offset
    """Records below it are deleted for every reader, even if a segment still holds them."""
    pages: tuple[Page, ...] = ()
    tail: tuple[SegmentEntry, ...] = ()
    removed: tuple[Removed, ...] = ()
    owner: Owner | None = None
    """None in manifests of version 0.1."""
    lost: tuple[Lost, ...] = ()

    @property
    def layout(self) -> PartitionLayout:
        return PartitionLayout(self.topic, self.topic_id, self.partition)

    @property
    def start_offset(self) -> Offset:
        """Returns the first offset that a segment covers, or the log start if there is no segment."""
        if self.pages:
            return self.pages[0].base_offset
        return self.tail[0].base_offset if self.tail else self.log_start_offset

    @property
    def end_offset(self) -> Offset:
        """Returns the end of the archived offsets, exclusive."""
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
        """Returns all pages and tail segments, in offset order."""
        return (*self.pages, *self.tail)


def covering(parts: Sequence[Part], offset: Offset) -> int | None:
    """Returns the index of the part that holds `offset`, or None. `parts` are in offset order without holes."""
    index = bisect_right(parts, offset, key=lambda part: part.base_offset) - 1
    return index if index >= 0 and offset < parts[index].end_offset else None


def object_keys(layout: PartitionLayout, segments: Iterable[SegmentEntry]) -> list[str]:
    """Returns the keys of all objects of these segments."""
    return [key for segment in segments for key in segment.objects(layout)]


def epoch_at(segment: SegmentEntry, end_offset: Offset) -> LeaderEpoch:
    """Returns the leader epoch of the last offset before `end_offset`."""
    found = [epoch.leader_epoch for epoch in segment.epochs if epoch.start_offset < end_offset]
    return found[-1] if found else NO_EPOCH


def summarize(segments: Sequence[SegmentEntry], uuid: str, size: int, crc32c: int) -> Page:
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
        sum(s.aside_bytes for s in segments),
        max(s.aside_max_timestamp_ms for s in segments),
    )

"""Decides what to archive, what to drop locally and what to expire, from values and the time. Decisions only.

The rules (tests/offloader/test_plan.py tries each of them):
- Sealed segments wholly below the last stable offset are archived, oldest first, without a hole.
- Local segments past `local.retention.*` are dropped, if a published manifest holds them or has expired them.
- Archived segments past `retention.*` expire, oldest first. What is not archived never expires: it is archived first.
  The size that counts is that of the log: for the archived part the sizes that its segments had, plus what is only
  local.
- Objects that a published manifest no longer names are deleted once the grace period is over.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cold_tier.manifest.model import Removed, SegmentEntry, Snapshot
from hot_tier.errors import CorruptLog
from hot_tier.ids import Offset
from hot_tier.log.config import TopicConfig
from hot_tier.log.retention import Limits, newest_ms
from hot_tier.log.segment_info import SegmentInfo

_AS_TOTAL: Final = -2
"""For local.retention.*: the same as retention.*."""


@dataclass(frozen=True, slots=True)
class NextSegment:
    info: SegmentInfo
    base_offset: Offset
    """Where the archived range continues. It lies inside the segment if a part of the segment is already archived."""


def next_to_archive(
    segments: Sequence[SegmentInfo], archived: Snapshot, stable_end: Offset, log_start: Offset
) -> NextSegment | None:
    """Returns the oldest sealed segment that the archive lacks, if all of it is committed.

    Also returns None if everything between the archive and the local log was deleted: then the archive expires first
    (`archive_start`).
    """
    for info in segments:
        if info.end_offset <= archived.end_offset or info.end_offset == info.base_offset:
            continue
        if archived.end_offset < info.base_offset <= log_start:
            return None
        if archived.segments and info.base_offset > archived.end_offset:
            raise CorruptLog(
                f"offsets {archived.end_offset} to {info.base_offset} are neither archived nor on the local disk",
                where=info.path,
                hint="archiving stops here; `tierlog archive verify` shows the hole; fill it from a copy of the data",
            )
        if not info.sealed or info.end_offset > stable_end:
            return None
        base = max(info.base_offset, archived.end_offset) if archived.segments else info.base_offset
        return NextSegment(info, base)
    return None


def waiting(segments: Sequence[SegmentInfo], archived_end: Offset) -> list[SegmentInfo]:
    """Returns the segments that are sealed and not archived yet."""
    return [info for info in segments if info.sealed and info.end_offset > archived_end]


def backlog_bytes(segments: Sequence[SegmentInfo], archived_end: Offset) -> int:
    return sum(info.size for info in waiting(segments, archived_end))


class Reach(Protocol):
    """How far an archive reaches: at the leader a manifest's snapshot, at a follower what metadata says."""

    @property
    def end_offset(self) -> Offset: ...
    @property
    def log_start_offset(self) -> Offset: ...


def local_drop_offset(
    config: TopicConfig, segments: Sequence[SegmentInfo], archived: Reach, now_ms: int
) -> Offset | None:
    """Returns the offset up to which local segments may go, or None. What is deleted for all readers may always go."""
    keep_ms = config.retention_ms if config.local_retention_ms == _AS_TOTAL else config.local_retention_ms
    keep_bytes = config.retention_bytes if config.local_retention_bytes == _AS_TOTAL else config.local_retention_bytes
    held_bytes = sum(info.size for info in segments)
    limits = Limits(keep_ms=keep_ms, keep_bytes=keep_bytes, held_bytes=held_bytes, now_ms=now_ms)
    drop: Offset | None = None
    for at, info in enumerate(segments):
        if not info.sealed or info.end_offset > archived.end_offset:
            break
        deleted = info.end_offset <= archived.log_start_offset
        if not (deleted or limits.too_old(newest_ms(segments[at:])) or limits.too_many(info.size)):
            break
        limits.drop(info.size)
        drop = info.end_offset
    return drop


def archive_start(log_start: Offset, archived: Snapshot, segments: Sequence[SegmentInfo]) -> Offset:
    """Where the archive starts once it follows the log start: as far as it reaches. A local log that began anew above
    that, because all in between was deleted, is where the archive goes on."""
    local_start = min((info.base_offset for info in segments), default=archived.end_offset)
    return min(max(log_start, archived.log_start_offset), max(archived.end_offset, local_start))


class Expiry:
    """Goes through archived segments, oldest first, and says how far they are past retention.

    The segments come page by page from the bucket, so call `expires` for each until it returns False.
    """

    def __init__(self, config: TopicConfig, archived: Snapshot, local: Sequence[SegmentInfo], now_ms: int) -> None:
        by_policy = "delete" in config.cleanup_policy
        only_local = sum(info.size for info in local if info.end_offset > archived.end_offset)
        self._limits = Limits(
            keep_ms=config.retention_ms if by_policy else -1,
            keep_bytes=config.retention_bytes if by_policy else -1,
            held_bytes=sum(part.log_bytes for part in archived.parts) + only_local,
            now_ms=now_ms,
        )
        self.log_start_offset = archived.log_start_offset

    def expires(self, segment: SegmentEntry) -> bool:
        past = self._limits.too_old(segment.newest_ms) or self._limits.too_many(segment.log_bytes)
        if not (past or segment.end_offset <= self.log_start_offset):
            return False
        self._limits.drop(segment.log_bytes)
        self.log_start_offset = max(self.log_start_offset, segment.end_offset)
        return True


class GracePeriod:
    """Counts how long ago the objects were let go of that a published manifest lists as removed.

    The manifest says when its publish began, by the clock of who published it. It may have come to the bucket much
    later, and readers went by the one before until then: so the period begins when it is seen here to be published.
    """

    def __init__(self, grace_ms: int) -> None:
        self._grace_ms = grace_ms
        self._seen_ms: dict[str, int] = {}

    def over(self, removed: Sequence[Removed], now_ms: int) -> list[str]:
        """Returns the keys of those whose grace period is over."""
        self._seen_ms = {gone.key: self._seen_ms.get(gone.key, now_ms) for gone in removed}
        return [
            gone.key for gone in removed if now_ms - max(gone.removed_ms, self._seen_ms[gone.key]) >= self._grace_ms
        ]

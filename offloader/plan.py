"""What to archive, what to drop locally, what to expire: decisions only, from values and the time.

The rules (each is tried by tests/offloader/test_plan.py):
- Archived are sealed segments wholly below the last stable offset, oldest first, without a hole.
- Dropped locally are segments that a published manifest holds or has let go of, past `local.retention.*`.
- Expired are archived segments, oldest first, past `retention.*`. What is not archived is never expired: it is
  archived first. The size counted is that of the log: the archived part by the sizes its segments had, plus what is
  still only local.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from cold_tier.manifest.model import Segment, Snapshot
from hot_tier.errors import CorruptLog
from hot_tier.ids import Offset
from hot_tier.log.config import TopicConfig
from hot_tier.log.segment_info import SegmentInfo

_AS_TOTAL: Final = -2
"""Of local.retention.*: the same as retention.*."""


@dataclass(frozen=True, slots=True)
class NextSegment:
    info: SegmentInfo
    base_offset: Offset
    """Where the archived range goes on: inside the segment where a part of it is archived already."""


def next_to_archive(segments: Sequence[SegmentInfo], archived: Snapshot, stable_end: Offset) -> NextSegment | None:
    """The oldest sealed segment that the archive lacks, if all of it is committed."""
    for info in segments:
        if info.end_offset <= archived.end_offset or info.end_offset == info.base_offset:
            continue
        if archived.segments and info.base_offset > archived.end_offset:
            raise CorruptLog(
                f"offsets {archived.end_offset} to {info.base_offset} are neither archived nor on the local disk",
                where=info.path,
                hint="archiving stops here; `tierlog archive verify` shows the hole, a copy of the data can fill it",
            )
        if not info.sealed or info.end_offset > stable_end:
            return None
        base = max(info.base_offset, archived.end_offset) if archived.segments else info.base_offset
        return NextSegment(info, base)
    return None


def backlog_bytes(segments: Sequence[SegmentInfo], archived_end: Offset) -> int:
    return sum(info.size for info in segments if info.sealed and info.end_offset > archived_end)


class Reach(Protocol):
    """How far an archive reaches: a manifest's snapshot at the leader, what metadata says of it at a follower."""

    @property
    def end_offset(self) -> Offset: ...
    @property
    def log_start_offset(self) -> Offset: ...


def local_drop_offset(
    config: TopicConfig, segments: Sequence[SegmentInfo], archived: Reach, now_ms: int
) -> Offset | None:
    """Local segments that end at or below this go; None: none do. What is deleted for all readers goes in any case."""
    keep_ms = config.retention_ms if config.local_retention_ms == _AS_TOTAL else config.local_retention_ms
    keep_bytes = config.retention_bytes if config.local_retention_bytes == _AS_TOTAL else config.local_retention_bytes
    excess = sum(info.size for info in segments) - keep_bytes
    drop: Offset | None = None
    for info in segments:
        if not info.sealed or info.end_offset > archived.end_offset:
            break
        deleted = info.end_offset <= archived.log_start_offset
        too_old = keep_ms >= 0 and now_ms - info.max_timestamp > keep_ms
        too_many = keep_bytes >= 0 and excess >= info.size
        if not (deleted or too_old or too_many):
            break
        excess -= info.size
        drop = info.end_offset
    return drop


class Expiry:
    """Goes through archived segments, oldest first, and says how far they are past retention.

    A walk, because the segments come page by page from the bucket: feed it until it answers False.
    """

    def __init__(self, config: TopicConfig, archived: Snapshot, local: Sequence[SegmentInfo], now_ms: int) -> None:
        self._now_ms = now_ms
        self._retention_ms = config.retention_ms
        self._by_policy = "delete" in config.cleanup_policy
        only_local = sum(info.size for info in local if info.end_offset > archived.end_offset)
        total = sum(part.log_bytes for part in archived.parts) + only_local
        limited = self._by_policy and config.retention_bytes >= 0
        self._excess = total - config.retention_bytes if limited else -1
        self.log_start_offset = archived.log_start_offset

    def expires(self, segment: Segment) -> bool:
        too_old = self._by_policy and self._retention_ms >= 0 and self._now_ms - segment.newest_ms > self._retention_ms
        too_many = self._excess >= segment.log_bytes
        if not (segment.end_offset <= self.log_start_offset or too_old or too_many):
            return False
        self._excess -= segment.log_bytes
        self.log_start_offset = max(self.log_start_offset, segment.end_offset)
        return True

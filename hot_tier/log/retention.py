"""Decides when a segment is closed and which segments are deleted, from values and the time. Decisions only."""

from collections.abc import Sequence
from typing import Final

from hot_tier.log.config import MAX_INT, TopicConfig
from hot_tier.log.index import NO_TIMESTAMP
from hot_tier.log.segment_info import SegmentInfo

_INDEX_ENTRY_BYTES: Final = 8
_MIX: Final = 0x9E37_79B9_7F4A_7C15


def roll_for_write(config: TopicConfig, *, size: int, batch_bytes: int, offset_span: int, index_entries: int) -> bool:
    """Returns whether a batch needs a new segment because this one is full. An empty segment takes any batch."""
    return size > 0 and (
        size + batch_bytes > config.segment_bytes
        or offset_span > MAX_INT
        or index_entries * _INDEX_ENTRY_BYTES >= config.segment_index_bytes
    )


def roll_at_ms(config: TopicConfig, *, base_offset: int, created_ms: int) -> int:
    """Returns when a segment that got its first batch at `created_ms` is closed, whether or not a write arrives."""
    segment_ms = min(config.segment_ms, config.max_compaction_lag_ms) if config.compacted else config.segment_ms
    jitter = (base_offset * _MIX & 0xFFFF_FFFF) % config.segment_jitter_ms if config.segment_jitter_ms else 0
    return created_ms + max(1, segment_ms - jitter)


class Limits:
    """The rule for age and size of local and archived segments. The caller goes through the segments, oldest first, and
    tells which it drops. A limit below 0 is no limit."""

    def __init__(self, *, keep_ms: int, keep_bytes: int, held_bytes: int, now_ms: int) -> None:
        self._keep_ms = keep_ms
        self._now_ms = now_ms
        self._excess = held_bytes - keep_bytes if keep_bytes >= 0 else -1

    def too_old(self, newest_ms: int) -> bool:
        """Returns whether a segment is too old. One whose time is not known is never too old."""
        return self._keep_ms >= 0 and newest_ms != NO_TIMESTAMP and self._now_ms - newest_ms > self._keep_ms

    def too_many(self, size: int) -> bool:
        return self._excess >= size

    def drop(self, size: int) -> None:
        self._excess -= size


def newest_ms(segments: Sequence[SegmentInfo]) -> int:
    """Returns an upper bound for the time of the first segment. If its records have no times, or it is damaged and they
    cannot be believed, that is the time of the next segment that has one: its records were written later."""
    known = (each.max_timestamp for each in segments if not each.damage and each.max_timestamp != NO_TIMESTAMP)
    return next(known, NO_TIMESTAMP)


def expired(
    config: TopicConfig,
    segments: Sequence[SegmentInfo],
    *,
    log_start_offset: int,
    deletable_end: int,
    now_ms: int,
) -> int:
    """Returns how many of the oldest segments may be deleted. `segments` is the whole local log, active segment last.

    Only sealed segments wholly below `deletable_end` are deleted. The active one counts too if it is past its time: the
    caller closes it, and it is deleted once it is sealed.
    """
    by_policy = "delete" in config.cleanup_policy
    limits = Limits(
        keep_ms=config.retention_ms if by_policy else -1,
        keep_bytes=config.retention_bytes if by_policy else -1,
        held_bytes=sum(segment.size for segment in segments),
        now_ms=now_ms,
    )
    count = 0
    for at, segment in enumerate(segments):
        if segment.end_offset > deletable_end or segment.end_offset == segment.base_offset:
            break
        below_start = segment.end_offset <= log_start_offset
        unwanted = segment.sealed and (below_start or limits.too_many(segment.size))
        if not (unwanted or limits.too_old(newest_ms(segments[at:]))):
            break
        limits.drop(segment.size)
        count += 1
    return count

"""When a segment is closed and which segments go: decisions only, from values and the time."""

from collections.abc import Sequence
from typing import Final

from hot_tier.log.config import MAX_INT, TopicConfig
from hot_tier.log.index import NO_TIMESTAMP
from hot_tier.log.segment_info import SegmentInfo

_INDEX_ENTRY_BYTES: Final = 8
_MIX: Final = 0x9E37_79B9_7F4A_7C15


def roll_for_write(config: TopicConfig, *, size: int, batch_bytes: int, offset_span: int, index_entries: int) -> bool:
    """Whether a batch must go to a new segment, for room. An empty segment takes any batch."""
    return size > 0 and (
        size + batch_bytes > config.segment_bytes
        or offset_span > MAX_INT
        or index_entries * _INDEX_ENTRY_BYTES >= config.segment_index_bytes
    )


def roll_at_ms(config: TopicConfig, *, base_offset: int, created_ms: int) -> int:
    """When a segment that took its first batch at `created_ms` is closed, whether or not a write arrives."""
    segment_ms = min(config.segment_ms, config.max_compaction_lag_ms) if config.compacted else config.segment_ms
    jitter = (base_offset * _MIX & 0xFFFF_FFFF) % config.segment_jitter_ms if config.segment_jitter_ms else 0
    return created_ms + max(1, segment_ms - jitter)


def expired(
    config: TopicConfig,
    segments: Sequence[SegmentInfo],
    *,
    log_start_offset: int,
    deletable_end: int,
    now_ms: int,
) -> int:
    """How many of the oldest segments may be deleted; `segments` is the whole local log, active segment last.

    Only sealed segments wholly below `deletable_end` go. The active one counts too when it is past its time: the
    caller closes it, and it goes once it is sealed. The times of a damaged segment are not believed: it is as old as
    the first whole one after it.
    """
    by_policy = "delete" in config.cleanup_policy
    excess = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    for at, segment in enumerate(segments):
        if segment.end_offset > deletable_end or segment.end_offset == segment.base_offset:
            break
        below_start = segment.end_offset <= log_start_offset and segment.sealed
        timestamp = next((each.max_timestamp for each in segments[at:] if not each.damage), NO_TIMESTAMP)
        too_old = (
            by_policy
            and config.retention_ms >= 0
            and timestamp != NO_TIMESTAMP
            and now_ms - timestamp > config.retention_ms
        )
        too_many = by_policy and config.retention_bytes >= 0 and excess >= segment.size and segment.sealed
        if not (below_start or too_old or too_many):
            break
        excess -= segment.size
        count += 1
    return count

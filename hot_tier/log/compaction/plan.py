"""Key compaction: of each key only the latest record stays. Decisions here; `compactor` moves the bytes.

A log under `cleanup.policy=compact` is cleaned from its start up to the first segment that may not be cleaned yet: the
active one, one that is damaged or not committed, or one younger than min.compaction.lag.ms.

    0 ───── cleaned before ─────┬────── dirty ──────┬── not yet ──┬─ active ─
                                first dirty         cleanable end

Rules:
- A record stays if no later record below the cleanable end has its key. Records without a key go.
- A delete marker (null value) stays until delete.retention.ms after its segment was first cleaned, so that a reader
  who saw the old value sees the marker too. Segments whose markers still wait are not merged with others: a merged
  segment has one cleaning time, and putting it off at every pass would keep markers for ever.
- Where the log is archived its delete markers stay for good: the bucket may hold older values of their keys, which
  would come back to life.
- A batch keeps its base and last offset whatever it loses. One that loses all goes, unless it is its producer's last:
  then its bare header stays, so that a replica that reads the log still knows the sequence.
- Neighbours are merged while the result fits into one segment.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hot_tier.log.config import MAX_INT, TopicConfig
from hot_tier.log.index import NEVER_CLEANED
from hot_tier.log.segment_info import SegmentInfo


@dataclass(frozen=True, slots=True)
class Merge:
    """Neighbours that become one segment."""

    base_offset: int
    end_offset: int
    members: tuple[SegmentInfo, ...]
    drop_markers: bool
    """Their delete markers have been there long enough."""


def cleanable(
    config: TopicConfig, segments: Sequence[SegmentInfo], *, committed_offset: int, now_ms: int
) -> list[SegmentInfo]:
    """The segments, from the oldest on, that may be cleaned now."""
    chosen: list[SegmentInfo] = []
    for segment in segments:
        if not segment.sealed or segment.damage or segment.end_offset > committed_offset:
            break
        if config.min_compaction_lag_ms and now_ms - segment.max_timestamp < config.min_compaction_lag_ms:
            break
        chosen.append(segment)
    return chosen


def first_dirty(segments: Sequence[SegmentInfo]) -> int:
    """How many of the oldest segments have been cleaned before."""
    for at, segment in enumerate(segments):
        if segment.cleaned_ms == NEVER_CLEANED:
            return at
    return len(segments)


def dirty_ratio(segments: Sequence[SegmentInfo]) -> float:
    """The share of bytes that were never cleaned; `segments` are the cleanable ones."""
    total = sum(segment.size for segment in segments)
    dirty = sum(segment.size for segment in segments[first_dirty(segments) :])
    return dirty / total if total else 0.0


def is_due(config: TopicConfig, segments: Sequence[SegmentInfo], *, now_ms: int) -> bool:
    """Whether it is time to clean; `segments` are the cleanable ones."""
    dirty = segments[first_dirty(segments) :]
    if not dirty:
        return False
    if dirty_ratio(segments) >= config.min_cleanable_dirty_ratio:
        return True
    return any(now_ms - segment.max_timestamp > config.max_compaction_lag_ms for segment in dirty)


def merges(config: TopicConfig, segments: Sequence[SegmentInfo], *, now_ms: int, archived: bool = False) -> list[Merge]:
    found: list[list[SegmentInfo]] = []
    for segment in segments:
        if found and _may_join(config, found[-1], segment, now_ms):
            found[-1].append(segment)
        else:
            found.append([segment])
    return [
        Merge(
            members[0].base_offset,
            members[-1].end_offset,
            tuple(members),
            _markers_may_go(config, members[0], now_ms) and not archived,
        )
        for members in found
    ]


def _markers_may_go(config: TopicConfig, segment: SegmentInfo, now_ms: int) -> bool:
    return segment.cleaned_ms != NEVER_CLEANED and now_ms - segment.cleaned_ms >= config.delete_retention_ms


def _may_join(config: TopicConfig, members: Sequence[SegmentInfo], segment: SegmentInfo, now_ms: int) -> bool:
    first = members[0]
    alike = segment.cleaned_ms == first.cleaned_ms == NEVER_CLEANED or (
        _markers_may_go(config, first, now_ms) and _markers_may_go(config, segment, now_ms)
    )
    return (
        alike
        and sum(member.size for member in members) + segment.size <= config.segment_bytes
        and segment.end_offset - first.base_offset <= MAX_INT
    )

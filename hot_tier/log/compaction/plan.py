"""Key compaction: of each key only the latest record stays. This module decides; `compactor` moves the bytes.

A log under `cleanup.policy=compact` is cleaned from its start up to the first segment that may not be cleaned yet: the
active one, one that is damaged or not committed, or one younger than min.compaction.lag.ms.

    0 ───── cleaned before ─────┬────── dirty ──────┬── not yet ──┬─ active ─
                                first dirty         cleanable end

Rules:
- A record stays if no later record below the cleanable end has its key. Records without a key go.
- A delete marker (null value) stays until delete.retention.ms after its segment was first cleaned, so that a reader
  who saw the old value sees the marker too. Segments whose markers still wait are not merged with others: a merged
  segment has one cleaning time, and putting it off at every pass would keep markers for ever. A segment that lost all
  its records has no markers: it joins any cleaned neighbour. Else each segment would leave an empty one for a day.
- Records of aborted transactions go, and with them what is known of these transactions. What stays is committed, and
  is written as batches without a transaction: no marker is needed any more to tell what became of them. Markers stay as
  long as delete markers do, for readers on their way; one that alone tells a producer's epoch stays for good.
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
    cleaned_ms: int
    """When those with records were cleaned last, -1 if one never was."""
    drop_markers: bool
    """Their delete markers have been there long enough."""
    drop_control: bool
    """So have their markers of transactions."""


def cleanable(
    config: TopicConfig, segments: Sequence[SegmentInfo], *, committed_offset: int, now_ms: int
) -> list[SegmentInfo]:
    """Returns the segments, from the oldest on, that may be cleaned now."""
    chosen: list[SegmentInfo] = []
    for segment in segments:
        if not segment.sealed or segment.damage or segment.end_offset > committed_offset:
            break
        if config.min_compaction_lag_ms and now_ms - segment.max_timestamp < config.min_compaction_lag_ms:
            break
        chosen.append(segment)
    return chosen


def first_dirty(segments: Sequence[SegmentInfo]) -> int:
    """Returns how many of the oldest segments have been cleaned before."""
    for at, segment in enumerate(segments):
        if segment.cleaned_ms == NEVER_CLEANED:
            return at
    return len(segments)


def dirty_ratio(segments: Sequence[SegmentInfo]) -> float:
    """Returns the share of bytes that were never cleaned. `segments` are the cleanable ones."""
    total = sum(segment.size for segment in segments)
    dirty = sum(segment.size for segment in segments[first_dirty(segments) :])
    return dirty / total if total else 0.0


def is_due(config: TopicConfig, segments: Sequence[SegmentInfo], *, now_ms: int) -> bool:
    """Returns whether it is time to clean. `segments` are the cleanable ones."""
    dirty = segments[first_dirty(segments) :]
    if not dirty:
        return False
    if dirty_ratio(segments) >= config.min_cleanable_dirty_ratio:
        return True
    return any(now_ms - segment.max_timestamp > config.max_compaction_lag_ms for segment in dirty)


def merges(config: TopicConfig, segments: Sequence[SegmentInfo], *, now_ms: int, archived: bool = False) -> list[Merge]:
    found: list[list[SegmentInfo]] = []
    size, holder = 0, None
    for segment in segments:
        if not (
            found
            and size + segment.size <= config.segment_bytes
            and segment.end_offset - found[-1][0].base_offset <= MAX_INT
            and _alike(config, found[-1][0], holder, segment, now_ms)
        ):
            found.append([])
            size, holder = 0, None
        found[-1].append(segment)
        size += segment.size
        if holder is None and segment.size:
            holder = segment
    return [_merge(config, members, now_ms, archived) for members in found]


def _merge(config: TopicConfig, members: Sequence[SegmentInfo], now_ms: int, archived: bool) -> Merge:
    cleaned_ms = max(member.cleaned_ms for member in [each for each in members if each.size] or members)
    if any(member.cleaned_ms == NEVER_CLEANED for member in members):
        cleaned_ms = NEVER_CLEANED
    long_enough = _markers_may_go(config, cleaned_ms, now_ms)
    return Merge(
        members[0].base_offset,
        members[-1].end_offset,
        tuple(members),
        cleaned_ms,
        long_enough and not archived,
        long_enough,
    )


def _alike(
    config: TopicConfig, first: SegmentInfo, holder: SegmentInfo | None, segment: SegmentInfo, now_ms: int
) -> bool:
    """`holder` is the first segment with records that `segment` would join, None if there is none yet."""
    if NEVER_CLEANED in (first.cleaned_ms, segment.cleaned_ms):
        return first.cleaned_ms == segment.cleaned_ms
    if holder is None or not segment.size:
        return True
    return all(_markers_may_go(config, each.cleaned_ms, now_ms) for each in (holder, segment))


def _markers_may_go(config: TopicConfig, cleaned_ms: int, now_ms: int) -> bool:
    return cleaned_ms != NEVER_CLEANED and now_ms - cleaned_ms >= config.delete_retention_ms

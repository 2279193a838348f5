"""Decides which archived segments are rewritten together. Decisions only.

- Neighbours become one segment of about the target size. A segment of at least half that size is left alone.
- A segment spans no more offsets than a record batch can, even if few records are left in it.
- A merge at least doubles the largest of its members. So a record is rewritten only as often as its segment doubles,
  even if the job runs more often.
- If a topic is compacted by key, segments that lose rows are always rewritten, and sizes are those after the loss.
- Delete markers stay for `delete.retention.ms` after a compaction by key first kept them, so that a reader that saw the
  old value sees the marker too. Each segment has this time (`cold_tier.rewrite.CLEANED_MS`). A new segment takes the
  latest time among those of its old segments whose markers must still stay.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import SegmentEntry
from hot_tier.ids import Offset
from hot_tier.log.config import MAX_INT, TopicConfig


@dataclass(frozen=True, slots=True)
class Candidate:
    """A segment that may be rewritten."""

    segment: SegmentEntry
    kept_rows: int
    """The number of its rows that stay."""
    cleaned_ms: int | None = None

    @property
    def bytes_after(self) -> int:
        segment = self.segment
        rows_bytes = segment.rows_bytes * self.kept_rows // segment.rows if segment.rows else 0
        return rows_bytes + segment.aside_bytes

    @property
    def shrinks(self) -> bool:
        return self.kept_rows < self.segment.rows


@dataclass(frozen=True, slots=True)
class PartitionWork:
    layout: PartitionLayout
    log_start_offset: Offset
    segments: tuple[SegmentEntry, ...]


def groups(candidates: Sequence[Candidate], target_bytes: int) -> list[list[Candidate]]:
    """Returns runs of neighbours. Each run becomes one segment."""
    found: list[list[Candidate]] = []
    run: list[Candidate] = []
    total = 0
    for candidate in candidates:
        size = candidate.bytes_after
        alone = size >= target_bytes // 2 and not candidate.shrinks
        too_long = bool(run) and candidate.segment.end_offset - run[0].segment.base_offset > MAX_INT
        if alone or total + size > target_bytes or too_long:
            found.append(run)
            run, total = [], 0
        if not alone:
            run.append(candidate)
            total += size
    return [run for run in (*found, run) if _worth_it(run)]


def _worth_it(run: Sequence[Candidate]) -> bool:
    if any(candidate.shrinks for candidate in run):
        return True
    sizes = [candidate.bytes_after for candidate in run]
    return len(run) > 1 and 2 * max(sizes) <= sum(sizes)


def compactable(config: TopicConfig, segments: Sequence[SegmentEntry], now_ms: int) -> tuple[SegmentEntry, ...]:
    """Returns the segments, from the oldest on, that `min.compaction.lag.ms` allows to compact."""
    chosen: list[SegmentEntry] = []
    for segment in segments:
        if now_ms - segment.newest_ms < config.min_compaction_lag_ms:
            break
        chosen.append(segment)
    return tuple(chosen)


def markers_may_go(config: TopicConfig, cleaned_ms: int | None, now_ms: int) -> bool:
    return cleaned_ms is not None and now_ms - cleaned_ms >= config.delete_retention_ms


def cleaned_time(config: TopicConfig, group: Sequence[Candidate], now_ms: int) -> int:
    """Returns the time from which `delete.retention.ms` counts for the markers of a new segment."""
    waiting = [
        now_ms if each.cleaned_ms is None else each.cleaned_ms
        for each in group
        if not markers_may_go(config, each.cleaned_ms, now_ms)
    ]
    return max(waiting, default=now_ms)

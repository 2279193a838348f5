"""Archived segments exchanged for others that hold the same offsets: what may take whose place.

A replacement is made by whoever rewrote the segments (`spark.jobs.compact`), judged from the manifest entries alone,
and carried out by `cold_tier.manifest.writer`. What must be true of it:

- The old segments follow one another in the manifest, as they were when they were read.
- The new ones cover the same offsets, without a hole, and tell the same leader epochs.
- They hold as many rows; fewer only where the topic is compacted by key.

Offsets keep their numbers, and nothing moves from one replacement into another.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cold_tier.layout import PartitionLayout, SegmentName
from cold_tier.manifest import invariants
from cold_tier.manifest.model import EpochStart, Segment
from hot_tier.ids import Offset


@dataclass(frozen=True, slots=True)
class Replacement:
    old: tuple[SegmentName, ...]
    new: tuple[Segment, ...]

    @property
    def base_offset(self) -> Offset:
        return self.old[0].base_offset

    @property
    def end_offset(self) -> Offset:
        return self.new[-1].end_offset


@dataclass(frozen=True, slots=True)
class Proposal:
    """What someone other than the leader rewrote of a partition, for the leader to publish as a whole or not at all."""

    layout: PartitionLayout
    proposed_ms: int
    replacements: tuple[Replacement, ...]


def judge(replacement: Replacement, old: Sequence[Segment], *, by_key: bool) -> list[str]:
    """What speaks against it; `old` are the entries that the manifest has for its range."""
    new = replacement.new
    if tuple(segment.name for segment in old) != replacement.old:
        return [f"the manifest no longer holds [{replacement.base_offset}, {replacement.end_offset}) as it was read"]
    problems = invariants.ranges(new)
    if (new[0].base_offset, new[-1].end_offset) != (old[0].base_offset, old[-1].end_offset):
        problems.append(
            f"covers [{new[0].base_offset}, {new[-1].end_offset}), in the place of "
            f"[{old[0].base_offset}, {old[-1].end_offset})"
        )
    if merge_epochs(new) != merge_epochs(old):
        problems.append("the leader epochs are not the same")
    before, after = sum(segment.rows for segment in old), sum(segment.rows for segment in new)
    if after > before or (after < before and not by_key):
        problems.append(f"{after} rows, in the place of {before}")
    if sum(segment.log_bytes for segment in new) > sum(segment.log_bytes for segment in old):
        problems.append("more bytes of log than before: retention would not be the same")
    if _newest(new) > _newest(old) or (_newest(new) < _newest(old) and not by_key):
        problems.append("the newest timestamp is not the same")
    return problems


def _newest(segments: Sequence[Segment]) -> int:
    return max(segment.max_timestamp_ms for segment in segments)


def merge_epochs(segments: Sequence[Segment]) -> tuple[EpochStart, ...]:
    """The leader epochs of neighbours, each where it begins."""
    merged: list[EpochStart] = []
    for epoch in (epoch for segment in segments for epoch in segment.epochs):
        if not merged or merged[-1].leader_epoch != epoch.leader_epoch:
            merged.append(epoch)
    return tuple(merged)


def exchange(segments: Sequence[Segment], waiting: dict[SegmentName, Replacement]) -> list[Segment]:
    """Neighbours in offset order with the new in the place of the old; what was carried out is no longer `waiting`.

    Replacements wait under the first of their old names."""
    changed: list[Segment] = []
    at = 0
    while at < len(segments):
        found = waiting.get(segments[at].name)
        if found is None or tuple(each.name for each in segments[at : at + len(found.old)]) != found.old:
            changed.append(segments[at])
            at += 1
        else:
            del waiting[found.old[0]]
            changed += found.new
            at += len(found.old)
    return changed

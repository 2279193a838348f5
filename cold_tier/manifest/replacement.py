"""Replaces archived segments by others that hold the same offsets, and says which replacement is allowed.

The program that rewrote the segments (`spark.jobs.compact`) makes a replacement. It is judged from the manifest entries
alone, and `cold_tier.manifest.writer` carries it out. What must be true of it:

- The old segments follow one another in the manifest and are the ones that were read.
- The new segments cover the same offsets, without a hole, and have the same leader epochs.
- They hold the same number of rows, or fewer if the topic is compacted by key. The same is true of batches aside.

Offsets keep their numbers, and no record moves from one replacement to another.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cold_tier.layout import PartitionLayout, SegmentName
from cold_tier.manifest import invariants
from cold_tier.manifest.model import EpochStart, SegmentEntry
from hot_tier.ids import Offset


@dataclass(frozen=True, slots=True)
class Replacement:
    old: tuple[SegmentName, ...]
    new: tuple[SegmentEntry, ...]

    @property
    def base_offset(self) -> Offset:
        return self.old[0].base_offset

    @property
    def end_offset(self) -> Offset:
        return self.new[-1].end_offset


@dataclass(frozen=True, slots=True)
class Proposal:
    """Segments of a partition, rewritten by someone other than the leader. The leader publishes all or none."""

    layout: PartitionLayout
    proposed_ms: int
    replacements: tuple[Replacement, ...]


def judge(replacement: Replacement, old: Sequence[SegmentEntry], *, by_key: bool) -> list[str]:
    """Returns the reasons against the replacement. `old` are the entries that the manifest has for its range."""
    new = replacement.new
    if tuple(segment.name for segment in old) != replacement.old:
        return [f"the manifest no longer holds [{replacement.base_offset}, {replacement.end_offset}) as it was read"]
    problems = invariants.ranges(new)
    if (new[0].base_offset, new[-1].end_offset) != (old[0].base_offset, old[-1].end_offset):
        problems.append(
            f"covers [{new[0].base_offset}, {new[-1].end_offset}), in the place of "
            f"[{old[0].base_offset}, {old[-1].end_offset})"
        )
    if any(each.master_key for each in old) and not all(each.master_key for each in new):
        problems.append("not encrypted, in the place of encrypted segments")
    if merge_epochs(new) != merge_epochs(old):
        problems.append("the leader epochs are not the same")
    before, after = sum(segment.rows for segment in old), sum(segment.rows for segment in new)
    if after > before or (after < before and not by_key):
        problems.append(f"{after} rows, in the place of {before}")
    aside_before, aside_after = _aside_batches(old), _aside_batches(new)
    if aside_after > aside_before or (aside_after < aside_before and not by_key):
        problems.append(f"{aside_after} batches aside, in the place of {aside_before}")
    if sum(segment.log_bytes for segment in new) > sum(segment.log_bytes for segment in old):
        problems.append("more bytes of log than before: retention would not be the same")
    if _newest(new) > _newest(old) or (_newest(new) < _newest(old) and not by_key):
        problems.append("the newest timestamp is not the same")
    return problems


def _aside_batches(segments: Sequence[SegmentEntry]) -> int:
    return sum(segment.aside.batches for segment in segments if segment.aside is not None)


def _newest(segments: Sequence[SegmentEntry]) -> int:
    return max(segment.max_timestamp_ms for segment in segments)


def merge_epochs(segments: Sequence[SegmentEntry]) -> tuple[EpochStart, ...]:
    """Returns the leader epochs of consecutive segments, each with the offset where it begins."""
    merged: list[EpochStart] = []
    for epoch in (epoch for segment in segments for epoch in segment.epochs):
        if not merged or merged[-1].leader_epoch != epoch.leader_epoch:
            merged.append(epoch)
    return tuple(merged)


def exchange(segments: Sequence[SegmentEntry], waiting: dict[SegmentName, Replacement]) -> list[SegmentEntry]:
    """Returns `segments`, which are in offset order, with replacements applied. An applied one is deleted from
    `waiting`.

    The key in `waiting` is the first old name of a replacement.
    """
    changed: list[SegmentEntry] = []
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

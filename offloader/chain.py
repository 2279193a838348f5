"""Chooses, from all archived segments in the bucket, those that make the best history of a partition. A decision only.

It is for an archive whose manifests went back. The newest manifest still names some segments. Others are in the bucket
but no manifest names them. Of some the objects are gone. The best chain loses the fewest offsets. Among equal chains it
has the most segments that the manifest names, then the most rows, since a compacted segment has fewer.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from cold_tier.manifest.model import SegmentEntry
from hot_tier.ids import Offset


@dataclass(frozen=True, slots=True)
class Candidate:
    segment: SegmentEntry
    named: bool
    """Whether the manifest names it."""
    there: bool = True
    """Whether both objects are in the bucket. A named segment stays in the chain even if not: they may be put back."""

    @property
    def offsets(self) -> int:
        return self.segment.end_offset - self.segment.base_offset


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets that no segment holds."""

    start_offset: Offset
    end_offset: Offset


def best_chain(candidates: Sequence[Candidate], start: Offset, goal: Offset) -> list[Candidate | Hole]:
    """Returns the chain from `start` to `goal` in offset order. Each step begins where the one before it ends."""
    bases = sorted({each.segment.base_offset for each in candidates})
    by_base: dict[int, list[Candidate]] = {}
    for each in candidates:
        by_base.setdefault(each.segment.base_offset, []).append(each)
    places = sorted({start, goal, *bases, *(each.segment.end_offset for each in candidates)}, reverse=True)
    best: dict[int, tuple[tuple[int, int, int], Candidate | Hole | None]] = {}
    for at in places:
        if at >= goal:
            best[at] = (0, 0, 0), None
            continue
        following = bisect_right(bases, at)
        end = Offset(min(bases[following], goal) if following < len(bases) else goal)
        lost, unnamed, rows = best[end][0]
        options: list[tuple[tuple[int, int, int], Candidate | Hole | None]] = [
            ((lost + end - at, unnamed, rows), Hole(Offset(at), end))
        ]
        for each in by_base.get(at, ()):
            lost, unnamed, rows = best[each.segment.end_offset][0]
            lost += 0 if each.there else each.offsets
            unnamed += 0 if each.named else each.offsets
            options.append(((lost, unnamed, rows - each.segment.rows), each))
        # Prefer a segment to a hole: one that is named and gone loses as much, but its objects may be put back.
        best[at] = min(reversed(options), key=lambda option: option[0])
    chain: list[Candidate | Hole] = []
    at = start
    while (step := best[at][1]) is not None:
        chain.append(step)
        at = step.segment.end_offset if isinstance(step, Candidate) else step.end_offset
    return chain


def needed(chain: Sequence[Candidate | Hole], local_start: Offset) -> list[Candidate | Hole]:
    """Returns the needed part of the chain. From the first hole that the local disk can fill, all is archived anew."""
    kept: list[Candidate | Hole] = []
    for step in chain:
        if isinstance(step, Hole) and step.end_offset > local_start:
            if step.start_offset < local_start:
                kept.append(Hole(step.start_offset, local_start))
            break
        kept.append(step)
    return kept

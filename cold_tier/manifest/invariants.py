"""What must be true of a manifest before it is published. Each rule is a predicate over (new, current).

`check` runs before every publish (`cold_tier.manifest.writer`) and in `tierlog archive verify`. A rule that fails stops
the publish: the objects stay as they are, the partition's backlog grows, and the error is reported.
"""

from collections.abc import Sequence
from itertools import pairwise

from cold_tier.errors import ManifestInvalid
from cold_tier.manifest.model import Part, Snapshot, covering, object_keys


def check(new: Snapshot, current: Snapshot | None) -> None:
    problems = ranges(new.pages) + ranges(new.tail) + seam(new) + deletion(new)
    if current is not None:
        problems += identity(new, current) + order(new, current) + coverage(new, current) + removal(new, current)
        problems += loss(new, current)
    if problems:
        raise ManifestInvalid(
            "; ".join(problems),
            where=new.layout.manifest(new.version),
            hint="nothing was published; the last manifest still counts",
        )


def ranges(parts: Sequence[Part]) -> list[str]:
    """Each range is not empty and begins where the one before it ends."""
    problems = [f"[{p.base_offset}, {p.end_offset}) is empty" for p in parts if p.base_offset >= p.end_offset]
    for left, right in pairwise(parts):
        if left.end_offset != right.base_offset:
            kind = "overlaps" if left.end_offset > right.base_offset else "leaves a hole before"
            problems.append(f"[{left.base_offset}, {left.end_offset}) {kind} {right.base_offset}")
    return problems


def seam(new: Snapshot) -> list[str]:
    """The tail begins where the pages end, and the log start lies within the archived range."""
    problems = []
    if new.pages and new.tail and new.pages[-1].end_offset != new.tail[0].base_offset:
        problems.append(f"pages end at {new.pages[-1].end_offset}, the tail begins at {new.tail[0].base_offset}")
    if not new.start_offset <= new.log_start_offset <= new.end_offset:
        problems.append(
            f"log start {new.log_start_offset} is outside the archived range [{new.start_offset}, {new.end_offset}]"
        )
    return problems


def deletion(new: Snapshot) -> list[str]:
    """No object that readers follow is listed as removed."""
    listed = {gone.key for gone in new.removed}
    layout = new.layout
    named = object_keys(layout, new.tail)
    named += [layout.page(page.base_offset, page.uuid) for page in new.pages]
    return [f"{key} is needed, and listed as removed" for key in named if key in listed]


def identity(new: Snapshot, current: Snapshot) -> list[str]:
    if new.layout != current.layout:
        return [f"belongs to {new.layout}, the current one to {current.layout}"]
    return []


def order(new: Snapshot, current: Snapshot) -> list[str]:
    if new.version <= current.version:
        return [f"version {tuple(new.version)} is not above {tuple(current.version)}"]
    return []


def coverage(new: Snapshot, current: Snapshot) -> list[str]:
    """The archived range may grow only at its end and shrink only at its start (`seam`: below the log start)."""
    problems = []
    if new.end_offset < current.end_offset:
        problems.append(f"archived through {new.end_offset}, before it was {current.end_offset}")
    if new.log_start_offset < current.log_start_offset:
        problems.append(f"log start {new.log_start_offset} goes back from {current.log_start_offset}")
    return problems


def removal(new: Snapshot, current: Snapshot) -> list[str]:
    """An object that leaves a manifest is listed as removed, so that no object is ever forgotten.

    Segments that moved from the tail into a page are still named. For a page that is dropped, the writer must list its
    segments.
    """
    layout = new.layout
    listed = {gone.key for gone in new.removed}
    kept_segments = {segment.name for segment in new.tail}
    kept_pages = {page.uuid for page in new.pages}
    gone = [
        segment
        for segment in current.tail
        if segment.name not in kept_segments and covering(new.pages, segment.base_offset) is None
    ]
    lost = object_keys(layout, gone)
    lost += [layout.page(page.base_offset, page.uuid) for page in current.pages if page.uuid not in kept_pages]
    return [f"{key} disappears without being listed as removed" for key in lost if key not in listed]


def loss(new: Snapshot, current: Snapshot) -> list[str]:
    """The manifest names a lost range for as long as readers can ask for it."""
    return [
        f"offsets {each.start_offset} to {each.end_offset - 1} are lost, but the new manifest no longer says so"
        for each in current.lost
        if each.end_offset > new.log_start_offset and each not in new.lost
    ]

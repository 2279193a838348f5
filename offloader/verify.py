"""Every object of a bucket against its manifest: what is missing, damaged, in the way, or left over.

Reads everything that a manifest names, whole. Changes nothing.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from cold_tier.errors import CorruptObject, ManifestInvalid, ObjectMissing
from cold_tier.format.index import read_index
from cold_tier.inventory import ArchivedTopic
from cold_tier.layout import PartitionLayout
from cold_tier.manifest import invariants
from cold_tier.manifest.model import Segment, Snapshot
from cold_tier.manifest.reader import Manifest, PageCache, load_newest
from cold_tier.objects.retrying import RetryingStore
from hot_tier.errors import TierlogError
from offloader.archive import verify_segment

Kind = Literal["manifest", "missing", "damaged", "gap", "orphan"]

_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Finding:
    kind: Kind
    where: str
    what: str

    @property
    def is_problem(self) -> bool:
        """An orphan is not: it waits for its collection."""
        return self.kind != "orphan"


@dataclass(slots=True)
class PartitionReport:
    layout: PartitionLayout
    snapshot: Snapshot | None = None
    segments: int = 0
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)


async def verify_partition(
    store: RetryingStore, layout: PartitionLayout, progress: Callable[[Segment], None] = lambda _: None
) -> PartitionReport:
    report = PartitionReport(layout)
    try:
        report.snapshot = await load_newest(store, layout)
        if report.snapshot is None:
            return report
        invariants.check(report.snapshot, None)
        manifest = Manifest(report.snapshot, PageCache(store))
        segments = [s async for s in manifest.segments(report.snapshot.start_offset, report.snapshot.end_offset)]
    except (CorruptObject, ManifestInvalid) as error:
        report.findings.append(Finding("manifest", error.where, error.what))
        return report
    report.findings += [
        Finding("gap", layout.manifest(report.snapshot.version), what) for what in invariants.ranges(segments)
    ]
    room = asyncio.Semaphore(_AT_ONCE)

    async def check(segment: Segment) -> None:
        async with room:
            report.findings += await _check_segment(store, layout, segment)
            report.segments += 1
            report.bytes += segment.rows_bytes + segment.index_bytes
            progress(segment)

    await asyncio.gather(*(check(segment) for segment in segments))
    report.findings += await _orphans(store, report.snapshot, segments)
    return report


async def _check_segment(store: RetryingStore, layout: PartitionLayout, segment: Segment) -> list[Finding]:
    try:
        await verify_segment(store, layout, segment)
        key = layout.index(segment.name)
        index = read_index(await store.get(key), f"{store.url}{key}")
    except ObjectMissing as error:
        return [Finding("missing", error.where, "the manifest names this object, but it is not there")]
    except CorruptObject as error:
        return [Finding("damaged", error.where, error.what)]
    if (index.base_offset, index.end_offset) != (segment.base_offset, segment.end_offset):
        what = f"covers [{index.base_offset}, {index.end_offset}), the manifest says "
        return [Finding("damaged", f"{store.url}{key}", f"{what}[{segment.base_offset}, {segment.end_offset})")]
    return []


async def _orphans(store: RetryingStore, snapshot: Snapshot, segments: Iterable[Segment]) -> list[Finding]:
    layout = snapshot.layout
    named = {gone.key for gone in snapshot.removed}
    named |= {layout.page(page.base_offset, page.uuid) for page in snapshot.pages}
    for segment in segments:
        named |= {layout.rows(segment.name), layout.index(segment.name)}
    return [
        Finding("orphan", f"{store.url}{info.key}", f"{info.size} bytes that no manifest names")
        for folder in (layout.rows_folder, layout.index_folder, layout.pages_folder)
        async for info in store.list(folder)
        if info.key not in named
    ]


async def verify_topics(
    store: RetryingStore, topics: Iterable[ArchivedTopic], progress: Callable[[Segment], None] = lambda _: None
) -> list[PartitionReport]:
    """One partition after the other; a store that does not answer is an error, not a finding."""
    reports = []
    for topic in topics:
        for layout in topic.layouts:
            try:
                reports.append(await verify_partition(store, layout, progress))
            except TierlogError as error:
                error.hint = error.hint or f"while verifying {topic.name}-{layout.partition}"
                raise
    return reports

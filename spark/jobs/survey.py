"""Lists what a bucket should hold and what it does hold: every manifest, and every other object.

Objects are listed before manifests are read. So what is archived in between is named by its manifest, and an object
that no manifest names was there before any manifest was read. Only manifests and topic descriptions are opened here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from cold_tier.errors import CorruptObject
from cold_tier.inventory import ArchivedTopic, describe, find_topics
from cold_tier.layout import ROOT, PartitionLayout, parse_stem, parse_topic_folder
from cold_tier.manifest import invariants
from cold_tier.manifest.model import SegmentEntry, Snapshot
from cold_tier.manifest.reader import Manifest, PageCache, load_newest
from cold_tier.objects.bucket import Bucket
from cold_tier.objects.store import ObjectInfo
from cold_tier.reports import Finding
from hot_tier.errors import UnknownTopic
from hot_tier.ids import PartitionId


@dataclass(frozen=True, slots=True)
class SurveyedPartition:
    layout: PartitionLayout
    snapshot: Snapshot
    segments: tuple[SegmentEntry, ...]


@dataclass(slots=True)
class Survey:
    partitions: list[SurveyedPartition] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


async def survey(store: Bucket, wanted: Sequence[str]) -> Survey:
    """Surveys all topics, or only those in `wanted`, with every topic id of each name."""
    listed = await _list(store, wanted)
    topics = [topic for topic in await find_topics(store) if not wanted or topic.name in wanted]
    for name in wanted:
        if name not in {topic.name for topic in topics}:
            raise UnknownTopic(
                f"the archive has no topic {name!r}", where=store.url, hint="check the bucket and the name"
            )
    found = Survey()
    named: set[str] = set()
    unreadable: set[str] = set()
    for topic in topics:
        found.findings += await _description_faults(store, topic)
        for layout in topic.layouts:
            try:
                partition = await load_partition(store, layout)
            except CorruptObject as error:
                found.findings.append(Finding("manifest", error.where, error.what))
                unreadable |= {layout.rows_folder, layout.folder}
                continue
            if partition is not None:
                found.partitions.append(partition)
                where = f"{store.url}{layout.manifest(partition.snapshot.version)}"
                found.findings += manifest_faults(partition, where)
                named |= named_keys(partition)
    found.findings += [
        Finding("orphan", f"{store.url}{key}", f"{info.size} bytes that no manifest names")
        for key, info in listed.items()
        # Without its manifest, every object would look left over.
        if key not in named and not key.startswith(tuple(unreadable))
    ]
    return found


async def load_partition(store: Bucket, layout: PartitionLayout) -> SurveyedPartition | None:
    snapshot = await load_newest(store, layout)
    if snapshot is None:
        return None
    manifest = Manifest(snapshot, PageCache(store))
    segments = [each async for each in manifest.segments(snapshot.start_offset, snapshot.end_offset)]
    return SurveyedPartition(layout, snapshot, tuple(segments))


def named_keys(partition: SurveyedPartition) -> set[str]:
    layout, snapshot = partition.layout, partition.snapshot
    keys = {gone.key for gone in snapshot.removed}
    keys |= {layout.page(page.base_offset, page.uuid) for page in snapshot.pages}
    for segment in partition.segments:
        keys |= segment.objects(layout).keys()
    return keys


def manifest_faults(partition: SurveyedPartition, where: str) -> Iterator[Finding]:
    for what in invariants.seam(partition.snapshot):
        yield Finding("manifest", where, what)
    for left, right in pairwise(partition.segments):
        if left.end_offset < right.base_offset:
            yield Finding("gap", where, f"offsets {left.end_offset} to {right.base_offset - 1} are in no segment")
        elif left.end_offset > right.base_offset:
            what = f"offsets {right.base_offset} to {min(left.end_offset, right.end_offset) - 1} are in two segments"
            yield Finding("overlap", where, what)


async def _description_faults(store: Bucket, topic: ArchivedTopic) -> list[Finding]:
    try:
        await describe(store, topic)
    except CorruptObject as error:
        return [Finding("missing" if topic.description_key is None else "damaged", error.where, error.what)]
    return []


async def _list(store: Bucket, wanted: Sequence[str]) -> dict[str, ObjectInfo]:
    """Returns objects of segments, and pages. Names that `cold_tier.layout` does not make belong to others and are
    skipped."""
    found: dict[str, ObjectInfo] = {}
    topics = [name.removeprefix("topic=") for name in await store.folders("") if name.startswith("topic=")]
    for name in topics:
        if wanted and name not in wanted:
            continue
        async for info in store.list(f"topic={name}/"):
            folder, _, file = info.key.removeprefix(f"topic={name}/").partition("/")
            if folder.startswith("partition=") and file.endswith(".parquet") and parse_stem(file[:-8]):
                found[info.key] = info
    async for info in store.list(ROOT):
        parsed = parse_topic_folder(info.key)
        if parsed is None or (wanted and parsed[0] not in wanted):
            continue
        number = parsed[2].partition("/")[0]
        if number.isdecimal():
            layout = PartitionLayout(parsed[0], parsed[1], PartitionId(int(number)))
            if layout.parse_segment(info.key) or layout.parse_page(info.key):
                found[info.key] = info
    return found

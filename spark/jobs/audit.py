"""Checks the whole bucket: rows against manifests, offsets without gap or repetition, checksums, objects.

    tierlog spark audit --bucket s3://bucket/prefix

Spark distributes the segments, and one task reads each segment completely (`cold_tier.checking.segment_check`). The job
changes nothing. A broker may work at the same time: an object counts as missing only if the manifest, read again, still
names it.
"""

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from cold_tier.checking.segment_check import CheckedSegment, check_segment
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import NO_TIMESTAMP, SegmentEntry
from cold_tier.objects.bucket import Bucket
from cold_tier.objects.open import StoreSettings, open_store
from cold_tier.reports import Finding
from hot_tier.clock import steady_s
from spark.jobs.command import job_parser, print_json, print_table, run, show_bytes, show_time
from spark.jobs.survey import Survey, load_partition, survey
from spark.options import store_settings
from spark.plan import with_store

_AT_ONCE: Final = 4
"""How many segments one task checks at a time. A store answers in milliseconds, which is long for small segments."""
_TASKS_PER_CORE: Final = 4

Work = tuple[PartitionLayout, SegmentEntry]


@dataclass(frozen=True, slots=True)
class PartitionAudit:
    topic: str
    topic_id: str
    partition: int
    segments: int
    rows: int
    bytes: int
    start_offset: int
    end_offset: int
    offsets_without_row: int
    """Control records, aborted transactions and compacted keys leave such offsets."""
    min_timestamp_ms: int
    max_timestamp_ms: int
    problems: int


@dataclass(frozen=True, slots=True)
class AuditReport:
    bucket: str
    partitions: list[PartitionAudit]
    findings: list[Finding]
    checked: list[CheckedSegment]
    seconds: float

    @property
    def problems(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.is_problem]

    def document(self) -> dict[str, Any]:
        return {
            "bucket": self.bucket,
            "ok": not self.problems,
            "segments": len(self.checked),
            "rows": sum(each.rows for each in self.partitions),
            "bytes": sum(each.bytes for each in self.partitions),
            "seconds": round(self.seconds, 3),
            "found": dict(Counter(finding.kind for finding in self.findings)),
            "partitions": [asdict(each) for each in self.partitions],
            "findings": [asdict(finding) for finding in self.findings],
        }


def audit(spark: SparkSession, bucket: str, topics: Sequence[str] = (), *, s3_endpoint: str = "") -> AuditReport:
    """Checks everything in the bucket, or only `topics`, with every topic id of each name."""
    settings = store_settings(bucket, s3_endpoint)
    began = steady_s()
    seen = with_store(settings, lambda store: survey(store, topics))
    work = [(each.layout, segment) for each in seen.partitions for segment in each.segments]
    context = spark.sparkContext
    tasks = max(1, min(len(work), context.defaultParallelism * _TASKS_PER_CORE))
    # Segments are dealt out in turn, because neighbours are of one topic and of similar size.
    dealt = [work[number::tasks] for number in range(tasks)]
    shares = context.parallelize(dealt, tasks)
    checked = shares.flatMap(lambda share: _check(settings, share)).collect()
    checked.sort(key=lambda each: (each.layout.topic, each.layout.partition, each.segment.base_offset))
    gone = with_store(settings, lambda store: _expired(store, checked))
    checked = [each for each in checked if (each.layout, each.segment) not in gone]
    findings = seen.findings + [finding for each in checked for finding in each.findings]
    partitions = _by_partition(seen, checked, findings)
    return AuditReport(bucket, partitions, findings, checked, steady_s() - began)


def _check(settings: StoreSettings, share: Sequence[Work]) -> list[CheckedSegment]:
    """Runs on an executor."""

    async def work() -> list[CheckedSegment]:
        store = open_store(settings)
        free = asyncio.Semaphore(_AT_ONCE)

        async def one(layout: PartitionLayout, segment: SegmentEntry) -> CheckedSegment:
            async with free:
                return await check_segment(store, layout, segment)

        try:
            return await asyncio.gather(*(one(*each) for each in share))
        finally:
            await store.close()

    return asyncio.run(work())


async def _expired(store: Bucket, checked: Iterable[CheckedSegment]) -> set[Work]:
    """Returns those of the missing segments that the manifest, read again, no longer names."""
    missing = [each for each in checked if any(finding.kind == "missing" for finding in each.findings)]
    gone: set[Work] = set()
    for layout in {each.layout for each in missing}:
        now = await load_partition(store, layout)
        named = {segment.name for segment in now.segments} if now else set()
        gone |= {(layout, each.segment) for each in missing if each.layout == layout and each.segment.name not in named}
    return gone


def _by_partition(seen: Survey, checked: Sequence[CheckedSegment], findings: Sequence[Finding]) -> list[PartitionAudit]:
    held: dict[PartitionLayout, list[CheckedSegment]] = {}
    for each in checked:
        held.setdefault(each.layout, []).append(each)
    found = []
    for partition in seen.partitions:
        layout, snapshot = partition.layout, partition.snapshot
        mine = held.get(layout, [])
        stamped = [each.segment for each in mine if each.segment.rows]
        folders = (layout.folder, layout.rows_folder)
        found.append(
            PartitionAudit(
                layout.topic,
                str(layout.topic_id),
                layout.partition,
                len(mine),
                sum(each.rows for each in mine),
                sum(each.bytes for each in mine),
                snapshot.start_offset,
                snapshot.end_offset,
                sum(each.holes for each in mine),
                min((segment.min_timestamp_ms for segment in stamped), default=NO_TIMESTAMP),
                max((segment.max_timestamp_ms for segment in stamped), default=NO_TIMESTAMP),
                sum(finding.is_problem and any(each in finding.where for each in folders) for finding in findings),
            )
        )
    return found


def parser() -> argparse.ArgumentParser:
    made = job_parser("audit", "Checks every object of a bucket; ends with 1 if anything but orphans is found.")
    made.add_argument("topics", nargs="*", metavar="TOPIC", help="all if none is named")
    made.add_argument("--plot", metavar="FILE", help="write a plot of what was checked and what is wrong to this PNG")
    return made


def _work(spark: SparkSession, given: argparse.Namespace) -> int:
    report = audit(spark, given.bucket, given.topics, s3_endpoint=given.s3_endpoint)
    if given.plot:
        from spark.jobs.plots import plot_audit

        plot_audit(report, given.plot)
    if given.json:
        print_json(report.document())
    else:
        _show(report)
    return 1 if report.problems else 0


def _show(report: AuditReport) -> None:
    print_table(
        ("topic", "partition>", "segments>", "rows>", "bytes>", "offsets", "from", "to", "no row>", "problems>"),
        [
            (
                each.topic,
                each.partition,
                each.segments,
                each.rows,
                show_bytes(each.bytes),
                f"{each.start_offset} – {each.end_offset}",
                show_time(each.min_timestamp_ms),
                show_time(each.max_timestamp_ms),
                each.offsets_without_row,
                each.problems,
            )
            for each in report.partitions
        ],
    )
    for finding in report.findings:
        print(f"{finding.kind}: {finding.where}: {finding.what}")
    print("\n".join(_summary(report)))


def _summary(report: AuditReport) -> Iterator[str]:
    size = sum(each.bytes for each in report.partitions)
    rows = sum(each.rows for each in report.partitions)
    rate = f"{show_bytes(size / report.seconds)}/s"
    yield f"{len(report.checked):,} segments, {rows:,} rows, {show_bytes(size)} in {report.seconds:.1f} s ({rate})"
    counts = Counter(finding.kind for finding in report.findings)
    yield ", ".join(f"{count:,} {kind}" for kind, count in counts.items()) or "nothing is wrong"


def main(arguments: Sequence[str]) -> int:
    return run(parser(), _work, arguments, through_hadoop=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

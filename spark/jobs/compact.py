"""Merges small archived files into large ones. If a topic is compacted by key, it keeps only the latest record of each
key.

    tierlog spark compact --bucket s3://bucket/prefix --gateway http://broker:8080 orders

Spark distributes the work, one new segment per task (`cold_tier.rewrite`): no record passes through Python or the JVM.
Offsets, their order, leader epochs and producer state stay the same. Readers see the old files or the new ones, never
both. The leader publishes: it gets one proposal per partition and publishes all of it or nothing. With `--offline`,
when no broker runs on the bucket, the job publishes itself.

While the job runs, a pin suspends the topic's retention.
"""

import argparse
import asyncio
import sys
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from cold_tier import pins
from cold_tier.format.open import open_segment
from cold_tier.inventory import find_topics, newest_lives
from cold_tier.keys.master import name_of
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import SegmentEntry
from cold_tier.manifest.replacement import Proposal, Replacement
from cold_tier.objects.bucket import Bucket
from cold_tier.objects.open import StoreSettings
from cold_tier.proposals import Answer
from cold_tier.rewrite import Rewrite, cleaned_ms, rewrite
from hot_tier.clock import steady_s, wall_ms
from hot_tier.errors import SettingsError, TierlogError, UnknownTopic
from hot_tier.log.config import TopicConfig, parse_topic_config
from hot_tier.record.column_decoder import Int64s
from spark.gateway import Gateway, hot_topic, open_gateway
from spark.jobs.command import job_parser, print_json, print_table, run, show_bytes
from spark.jobs.compact_publish import propose, publish_offline
from spark.jobs.compaction_plan import Candidate, PartitionWork, cleaned_time, compactable, groups, markers_may_go
from spark.jobs.latest_keys import LatestKeys
from spark.jobs.survey import load_partition
from spark.options import store_settings
from spark.plan import with_store

TARGET_BYTES: Final = 256 << 20
_AT_ONCE: Final = 16
_HOLD_MS: Final = 6 * 3_600_000
"""A job that is killed leaves its pin for this long."""


@dataclass(frozen=True, slots=True)
class Made:
    """The result for one group: a segment, or why there is none."""

    number: int
    segment: SegmentEntry | None
    failure: str
    seconds: float


@dataclass(frozen=True, slots=True)
class PartitionCompaction:
    topic: str
    partition: int
    outcome: str
    """published, refused, waiting, failed, or nothing (to do)."""
    reason: str = ""
    segments_before: int = 0
    """This and all fields below count only segments that were rewritten."""
    segments_after: int = 0
    rows_before: int = 0
    rows_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


@dataclass(frozen=True, slots=True)
class CompactReport:
    partitions: list[PartitionCompaction]
    log_bytes: int
    """The size in the log of the records that were rewritten."""
    task_seconds: float
    """The sum over all tasks: the time that they would take one after another on one core."""
    seconds: float

    @property
    def ok(self) -> bool:
        return all(each.outcome not in ("refused", "failed") for each in self.partitions)

    @property
    def bytes_per_core_second(self) -> float:
        return self.log_bytes / self.task_seconds if self.task_seconds else 0.0

    def document(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "partitions": [asdict(each) for each in self.partitions],
            "log_bytes": self.log_bytes,
            "seconds": round(self.seconds, 3),
            "bytes_per_core_second": round(self.bytes_per_core_second),
        }


@dataclass(frozen=True, slots=True)
class _Topic:
    config: TopicConfig
    partitions: tuple[PartitionWork, ...]
    master_key: str
    """The master key that encrypts what is written, or an empty text."""

    @property
    def name(self) -> str:
        return self.partitions[0].layout.topic

    @property
    def by_key(self) -> bool:
        return "compact" in self.config.cleanup_policy


Group = tuple[PartitionWork, list[Candidate]]


def compact(
    spark: SparkSession,
    bucket: str,
    topics: Sequence[str] = (),
    *,
    gateway: str = "",
    offline: bool = False,
    target_bytes: int = TARGET_BYTES,
    zstd_level: int = 3,
    s3_endpoint: str = "",
    now_ms: int | None = None,
) -> CompactReport:
    """Compacts `topics`, or all. For a name that was deleted and made again, only the topic that was made last."""
    if gateway and offline:
        raise SettingsError(
            "--gateway and --offline exclude each other", hint="--offline is for a bucket on which no broker runs"
        )
    through = open_gateway(gateway) if gateway else None
    settings = store_settings(bucket, s3_endpoint)
    now_ms = wall_ms() if now_ms is None else now_ms
    began = steady_s()
    report = CompactReport([], 0, 0.0, 0.0)
    for topic in with_store(settings, lambda store: _find(store, topics)):
        if through is not None:
            hot_topic(through, topic.name)  # Fails here if the gateway cannot be reached, and not after hours of work.
        job = _Job(spark, bucket, settings, topic, target_bytes, zstd_level, now_ms)
        found = job.run(through, offline)
        report = CompactReport(
            report.partitions + found.partitions,
            report.log_bytes + found.log_bytes,
            report.task_seconds + found.task_seconds,
            steady_s() - began,
        )
    return report


async def _find(store: Bucket, names: Sequence[str]) -> list[_Topic]:
    lives = [life for life in await find_topics(store) if life.layouts and (not names or life.name in names)]
    for name in names:
        if name not in {life.name for life in lives}:
            raise UnknownTopic(f"the archive has no topic {name!r}", where=store.url, hint="check bucket and name")
    found = []
    layouts = {life.id: life.layouts for life in lives}
    async for description in newest_lives(store, lives):
        loaded = [await load_partition(store, layout) for layout in layouts[description.id]]
        partitions = [
            PartitionWork(each.layout, each.snapshot.log_start_offset, each.segments)
            for each in loaded
            if each is not None and each.segments
        ]
        if partitions:
            config = parse_topic_config(description.config, TopicConfig())
            found.append(_Topic(config, tuple(partitions), await _master_key(store, config, partitions)))
    return found


async def _master_key(store: Bucket, config: TopicConfig, partitions: Sequence[PartitionWork]) -> str:
    """Returns the newest version of the topic's key. What was encrypted stays so, whatever its description says."""
    used = [each.master_key for work in partitions for each in work.segments if each.master_key]
    name = config.archive_encryption_key or (name_of(used[-1]) if used else "")
    return await asyncio.to_thread(store.keys.newest, name) if name else ""


@dataclass(frozen=True, slots=True)
class _Job:
    """The compaction of one topic."""

    spark: SparkSession
    bucket: str
    settings: StoreSettings
    topic: _Topic
    target_bytes: int
    zstd_level: int
    now_ms: int

    def run(self, gateway: Gateway | None, offline: bool) -> CompactReport:
        layout = self.topic.partitions[0].layout
        pin = f"compact-{uuid.uuid4().hex[:8]}"
        where = (layout.topic, layout.topic_id, pin)
        with_store(self.settings, lambda store: pins.place(store, *where, wall_ms(), _HOLD_MS))
        try:
            chosen, made = self._by_key() if self.topic.by_key else self._merge()
            partitions = [self._hand_over(each, chosen, made, gateway, offline) for each in self.topic.partitions]
        finally:
            with_store(self.settings, lambda store: pins.release(store, *where))
        log_bytes = sum(each.segment.log_bytes for _, group in chosen for each in group)
        return CompactReport(partitions, log_bytes, sum(each.seconds for each in made), 0.0)

    def _merge(self) -> tuple[list[Group], list[Made]]:
        chosen = [
            (work, group)
            for work in self.topic.partitions
            for group in groups([Candidate(each, each.rows) for each in work.segments], self.target_bytes)
        ]
        if not chosen:
            return [], []
        settings = self.settings
        jobs = [(number, self._rewrite(work, group)) for number, (work, group) in enumerate(chosen)]
        tasks = self.spark.sparkContext.parallelize(jobs, len(jobs))
        return chosen, tasks.map(lambda job: _carry_out(settings, *job, None)).collect()

    def _by_key(self) -> tuple[list[Group], list[Made]]:
        config, now_ms = self.topic.config, self.now_ms
        work = [
            PartitionWork(each.layout, each.log_start_offset, compactable(config, each.segments, now_ms))
            for each in self.topic.partitions
        ]
        work = [each for each in work if each.segments]
        if not work:
            return [], []
        cleaned = with_store(self.settings, lambda store: _cleaned_times(store, work))
        expired = [markers_may_go(config, each, now_ms) for each in cleaned]
        latest = LatestKeys(self.spark, self.bucket, work, expired, s3Endpoint=self.settings.s3_endpoint)
        try:
            kept, number = latest.counts(), 0
            chosen: list[Group] = []
            group_of: dict[int, int] = {}
            for each in work:
                numbers = range(number, number + len(each.segments))
                candidates = [
                    Candidate(segment, kept.get(at, 0), cleaned[at])
                    for at, segment in zip(numbers, each.segments, strict=True)
                ]
                places = {candidate.segment.name: at for candidate, at in zip(candidates, numbers, strict=True)}
                for group in groups(candidates, self.target_bytes):
                    group_of |= {places[candidate.segment.name]: len(chosen) for candidate in group}
                    chosen.append((each, group))
                number += len(each.segments)
            jobs = [self._rewrite(each, group, cleaned_time(config, group, now_ms)) for each, group in chosen]
            settings = self.settings
            return chosen, latest.map_groups(group_of, lambda at, keep: _carry_out(settings, at, jobs[at], keep))
        finally:
            latest.close()

    def _rewrite(self, work: PartitionWork, group: Sequence[Candidate], cleaned: int | None = None) -> Rewrite:
        segments = tuple(each.segment for each in group)
        return Rewrite(work.layout, segments, self.zstd_level, cleaned, self.topic.master_key)

    def _hand_over(
        self, work: PartitionWork, chosen: Sequence[Group], made: Sequence[Made], gateway: Gateway | None, offline: bool
    ) -> PartitionCompaction:
        layout = work.layout
        mine = [(chosen[each.number][1], each) for each in made if chosen[each.number][0].layout == layout]
        failures = [each.failure for _, each in mine if each.failure]
        done = [([old.segment for old in group], each.segment) for group, each in mine if each.segment is not None]
        # A compaction by key is all or nothing: a marker must not go while an older value of its key stays.
        if not done or (failures and self.topic.by_key):
            return PartitionCompaction(
                layout.topic, layout.partition, "failed" if failures else "nothing", "; ".join(failures)
            )
        replacements = [Replacement(tuple(segment.name for segment in old), (new,)) for old, new in done]
        replacements.sort(key=lambda each: each.base_offset)
        answer = self._publish(Proposal(layout, self.now_ms, tuple(replacements)), gateway, offline)
        old = [segment for members, _ in done for segment in members]
        new = [segment for _, segment in done]
        return PartitionCompaction(
            layout.topic,
            layout.partition,
            "failed" if failures else answer.outcome,
            "; ".join([*failures, *filter(None, [answer.reason])]),
            len(old),
            len(new),
            sum(segment.rows for segment in old),
            sum(segment.rows for segment in new),
            sum(segment.rows_bytes for segment in old),
            sum(segment.rows_bytes for segment in new),
        )

    def _publish(self, proposal: Proposal, gateway: Gateway | None, offline: bool) -> Answer:
        if offline:
            by_key = self.topic.by_key
            return with_store(self.settings, lambda store: publish_offline(store, proposal, by_key=by_key))
        return with_store(self.settings, lambda store: propose(store, proposal, gateway))


def _carry_out(settings: StoreSettings, number: int, job: Rewrite, keep: Int64s | None) -> Made:
    """Runs on an executor."""
    began = steady_s()
    try:
        segment = rewrite(settings, job, keep)
    except TierlogError as error:
        return Made(number, None, str(error), steady_s() - began)
    return Made(number, segment, "", steady_s() - began)


async def _cleaned_times(store: Bucket, work: Sequence[PartitionWork]) -> list[int | None]:
    """Returns, for all segments in order, when their delete markers were first kept."""

    room = asyncio.Semaphore(_AT_ONCE)

    async def one(layout: PartitionLayout, segment: SegmentEntry) -> int | None:
        async with room:
            return cleaned_ms(await open_segment(store, layout, segment))

    return await asyncio.gather(*(one(each.layout, segment) for each in work for segment in each.segments))


def parser() -> argparse.ArgumentParser:
    made = job_parser(
        "compact", "Merges small archived files; keeps the latest of each key where a topic is compacted."
    )
    made.add_argument("topics", nargs="*", metavar="TOPIC", help="all if none is named")
    made.add_argument("--gateway", default="", metavar="URL", help="a broker that is asked to publish at once")
    made.add_argument(
        "--offline", action="store_true", help="publish without a broker; only if none runs on this bucket"
    )
    made.add_argument("--target-bytes", type=int, default=TARGET_BYTES, metavar="N", help="size of a new Parquet file")
    made.add_argument(
        "--zstd-level", type=int, default=3, metavar="N", help="9 gives files a tenth smaller, for five times the CPU"
    )
    return made


def _work(spark: SparkSession, given: argparse.Namespace) -> int:
    report = compact(
        spark,
        given.bucket,
        given.topics,
        gateway=given.gateway,
        offline=given.offline,
        target_bytes=given.target_bytes,
        zstd_level=given.zstd_level,
        s3_endpoint=given.s3_endpoint,
    )
    if given.json:
        print_json(report.document())
    else:
        _show(report)
    return 0 if report.ok else 1


def _show(report: CompactReport) -> None:
    print_table(
        ("topic", "partition>", "", "segments>", "to>", "rows>", "to>", "bytes>", "to>"),
        [
            (
                each.topic,
                each.partition,
                each.outcome,
                each.segments_before,
                each.segments_after,
                each.rows_before,
                each.rows_after,
                show_bytes(each.bytes_before),
                show_bytes(each.bytes_after),
            )
            for each in report.partitions
        ],
    )
    for each in report.partitions:
        if each.reason:
            print(f"{each.topic}-{each.partition}: {each.reason}")
    rate = show_bytes(report.bytes_per_core_second)
    print(f"{show_bytes(report.log_bytes)} of records in {report.seconds:.1f} s, {rate}/s per core")


def main(arguments: Sequence[str]) -> int:
    return run(parser(), _work, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

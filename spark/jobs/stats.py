"""Statistics of archived topics: volume per partition, hour and key, skew, and the wait for the archive.

    tierlog spark stats --bucket s3://bucket/prefix

The job reads the rows three times, each time with only the columns it needs: volume, keys, latency. A record's latency
is the time from its timestamp to the moment when its segment was archived, which the manifest holds.
"""

import argparse
import base64
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from cold_tier.inventory import find_topics
from cold_tier.objects.bucket import Bucket
from hot_tier.errors import UnknownTopic
from spark.jobs.command import (
    add_range,
    job_parser,
    print_json,
    print_table,
    range_options,
    run,
    show_bytes,
    show_time,
)
from spark.options import store_settings
from spark.plan import Plan, with_store
from spark.source import exactly, planned, tierlog_read

_PERCENTILES: Final = (0.5, 0.9, 0.99)
_ACCURACY: Final = 10_000


@dataclass(frozen=True, slots=True)
class PartitionVolume:
    partition: int
    rows: int
    bytes: int
    """The size of keys and values."""
    segments: int
    archived_bytes: int
    """The size of the whole Parquet files that hold them."""


@dataclass(frozen=True, slots=True)
class HourVolume:
    hour_ms: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class KeyVolume:
    key: str
    encoding: str
    """`utf-8`, or `base64` if the key is not text."""
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Latency:
    p50_ms: int
    p90_ms: int
    p99_ms: int
    max_ms: int


@dataclass(slots=True)
class TopicStats:
    topic: str
    partitions: list[PartitionVolume] = field(default_factory=list)
    hours: list[HourVolume] = field(default_factory=list)
    top_keys: list[KeyVolume] = field(default_factory=list)
    distinct_keys: int = 0
    rows_without_key: int = 0
    latency: Latency | None = None

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.partitions)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.partitions)

    @property
    def partition_skew(self) -> float:
        """Returns the rows of the fullest partition divided by the average. 1 if all are equal."""
        most = max((each.rows for each in self.partitions), default=0)
        return most * len(self.partitions) / self.rows if self.rows else 1.0

    @property
    def top_key_share(self) -> float:
        """Returns the share of the most frequent key in all rows."""
        return self.top_keys[0].rows / self.rows if self.top_keys and self.rows else 0.0

    def document(self) -> dict[str, Any]:
        derived = {"rows": self.rows, "bytes": self.bytes}
        skew = {"partition_skew": round(self.partition_skew, 4), "top_key_share": round(self.top_key_share, 6)}
        return {**asdict(self), **derived, **skew}


@dataclass(frozen=True, slots=True)
class StatsReport:
    bucket: str
    topics: list[TopicStats]

    def document(self) -> dict[str, Any]:
        return {"bucket": self.bucket, "topics": [each.document() for each in self.topics]}


def stats(
    spark: SparkSession,
    bucket: str,
    topics: Sequence[str] = (),
    *,
    top: int = 10,
    s3_endpoint: str = "",
    **options: Any,
) -> StatsReport:
    """Returns statistics of `topics`, or of all. `options` are those of `tierlog_read` and select the rows."""
    if s3_endpoint:
        options["s3Endpoint"] = s3_endpoint
    names = list(topics) or _all_topics(bucket, s3_endpoint)
    subscribed = ",".join(names)
    _, plan = planned(spark, bucket, subscribed, **options)
    rows = tierlog_read(spark, bucket, subscribed, **{**options, **exactly(plan)})
    found = {name: TopicStats(name) for name in names}
    _add_volume(found, rows, plan)
    _add_keys(found, rows, top)
    _add_latency(spark, found, rows, plan)
    return StatsReport(bucket, [found[name] for name in names])


def _all_topics(bucket: str, s3_endpoint: str) -> list[str]:
    async def names(store: Bucket) -> list[str]:
        return sorted({topic.name for topic in await find_topics(store) if topic.layouts})

    settings = store_settings(bucket, s3_endpoint)
    found = with_store(settings, names)
    if not found:
        raise UnknownTopic("the archive has no topics", where=bucket, hint="check the bucket and its prefix")
    return found


def _size() -> Any:
    return F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0))


def _add_volume(found: dict[str, TopicStats], rows: DataFrame, plan: Plan) -> None:
    hourly = rows.withColumn("hour", F.date_trunc("hour", "timestamp")).withColumn("size", _size())
    grouped = hourly.groupingSets(
        [[F.col("topic"), F.col("partition")], [F.col("topic"), F.col("hour")]], "topic", "partition", "hour"
    )
    counted = grouped.agg(
        F.grouping("partition").alias("by_hour"), F.count("*").alias("rows"), F.sum("size").alias("bytes")
    ).withColumn("hour_ms", F.unix_millis("hour"))
    in_partition: dict[tuple[str, int], tuple[int, int]] = {}
    for row in counted.collect():
        if row["by_hour"]:
            found[row["topic"]].hours.append(HourVolume(row["hour_ms"], row["rows"], row["bytes"]))
        else:
            in_partition[row["topic"], row["partition"]] = (row["rows"], row["bytes"])
    for each in plan.ranges:
        count, size = in_partition.get((each.topic, each.partition), (0, 0))
        stored = sum(segment.rows_bytes for segment in each.segments)
        volume = PartitionVolume(each.partition, count, size, len(each.segments), stored)
        found[each.topic].partitions.append(volume)
    for topic in found.values():
        topic.hours.sort(key=lambda each: each.hour_ms)


def _add_keys(found: dict[str, TopicStats], rows: DataFrame, top: int) -> None:
    keys = rows.groupBy("topic", "key").agg(F.count("*").alias("rows"), F.sum(_size()).alias("bytes"))
    keys = keys.persist()
    try:
        for row in (
            keys.groupBy("topic")
            .agg(
                F.count("key").alias("distinct"),
                F.sum(F.when(F.col("key").isNull(), F.col("rows")).otherwise(0)).alias("without"),
            )
            .collect()
        ):
            found[row["topic"]].distinct_keys = row["distinct"]
            found[row["topic"]].rows_without_key = row["without"]
        order = Window.partitionBy("topic").orderBy(F.desc("rows"), "key")
        ranked = (
            keys.where("key is not null").withColumn("rank", F.row_number().over(order)).where(F.col("rank") <= top)
        )
        for row in ranked.orderBy("topic", "rank").collect():
            found[row["topic"]].top_keys.append(KeyVolume(*_shown(row["key"]), row["rows"], row["bytes"]))
    finally:
        keys.unpersist()


def _shown(key: bytes) -> tuple[str, str]:
    try:
        return bytes(key).decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(key).decode(), "base64"


def _add_latency(spark: SparkSession, found: dict[str, TopicStats], rows: DataFrame, plan: Plan) -> None:
    """Joins each row with its segment by slots of offsets as wide as an average segment. So a row is compared with only
    one or two segments."""
    segments = [(each.topic, each.partition, segment) for each in plan.ranges for segment in each.segments]
    if not segments:
        return
    width = max(1, sum(segment.end_offset - segment.base_offset for _, _, segment in segments) // len(segments))
    archived = spark.createDataFrame(
        [
            (topic, partition, bucket, segment.base_offset, segment.end_offset, segment.archived_ms)
            for topic, partition, segment in segments
            for bucket in range(segment.base_offset // width, (segment.end_offset - 1) // width + 1)
        ],
        "topic string, partition int, slot long, base long, end long, archived_ms long",
    )
    slotted = rows.select("topic", "partition", "offset", "timestamp", F.expr(f"offset div {width}").alias("slot"))
    joined = slotted.join(F.broadcast(archived), ["topic", "partition", "slot"]).where(
        "base <= offset and offset < end"
    )
    waited = joined.withColumn("waited_ms", F.col("archived_ms") - F.unix_millis("timestamp"))
    summed = waited.groupBy("topic").agg(
        F.percentile_approx("waited_ms", list(_PERCENTILES), _ACCURACY).alias("percentiles"),
        F.max("waited_ms").alias("most"),
    )
    for row in summed.collect():
        p50, p90, p99 = row["percentiles"]
        found[row["topic"]].latency = Latency(p50, p90, p99, row["most"])


def parser() -> argparse.ArgumentParser:
    made = job_parser("stats", "Volume per topic, partition, hour and key, skew, and latency of the archive.")
    made.add_argument("topics", nargs="*", metavar="TOPIC", help="all if none is named")
    made.add_argument("--top", type=int, default=10, metavar="N", help="how many of the most frequent keys [10]")
    made.add_argument("--plot", metavar="FILE", help="write the plots to this PNG")
    add_range(made)
    return made


def _work(spark: SparkSession, given: argparse.Namespace) -> int:
    report = stats(
        spark,
        given.bucket,
        given.topics,
        top=given.top,
        s3_endpoint=given.s3_endpoint,
        **range_options(given),
    )
    if given.plot:
        from spark.jobs.plots import plot_stats

        plot_stats(report, given.plot)
    if given.json:
        print_json(report.document())
    else:
        _show(report)
    return 0


def _show(report: StatsReport) -> None:
    print_table(
        ("topic", "rows>", "bytes>", "keys>", "without key>", "skew>", "top key>", "latency p50>", "p99>", "max>"),
        [
            (
                each.topic,
                each.rows,
                show_bytes(each.bytes),
                each.distinct_keys,
                each.rows_without_key,
                f"{each.partition_skew:.2f}",
                f"{each.top_key_share:.1%}",
                *(
                    [_seconds(ms) for ms in (each.latency.p50_ms, each.latency.p99_ms, each.latency.max_ms)]
                    if each.latency
                    else ["-"] * 3
                ),
            )
            for each in report.topics
        ],
    )
    for topic in report.topics:
        print(f"\n{topic.topic}")
        print_table(
            ("partition>", "rows>", "bytes>", "segments>", "archived>"),
            [
                (each.partition, each.rows, show_bytes(each.bytes), each.segments, show_bytes(each.archived_bytes))
                for each in topic.partitions
            ],
        )
        print()
        print_table(
            ("hour", "rows>", "bytes>"),
            [(show_time(each.hour_ms), each.rows, show_bytes(each.bytes)) for each in topic.hours],
        )
        print()
        print_table(
            ("key", "rows>", "bytes>"), [(each.key, each.rows, show_bytes(each.bytes)) for each in topic.top_keys]
        )


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:,.1f} s"


def main(arguments: Sequence[str]) -> int:
    return run(parser(), _work, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

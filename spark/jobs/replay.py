"""Copies a range of an archived topic, filtered by any SQL expression, into a topic, to files or into a table.

    tierlog spark replay orders --bucket s3://bucket/prefix --where "cast(key as string) = 'ada'" \
        --to-topic orders-again --kafka broker:9092

Each record arrives once. A replay is a job with a name, by default a hash of all its parameters. If a job was killed,
running it again continues where it stopped. In a topic, headers say what has arrived (`spark.jobs.replay_target`). In
files and tables, a job has its own folder or partition, which is replaced as a whole.

Key, value, headers and timestamp stay as they are. A source partition goes, in order, to the target partition of the
same number, modulo the number of target partitions. A topic that would delete records at once, because they are older
than its retention.ms, is refused; `--keep` sets retention.ms to -1.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from hot_tier.clock import wall_ms
from hot_tier.errors import PolicyViolation, SettingsError
from hot_tier.secrets import is_reference, resolve_secret
from spark.jobs.command import (
    add_decrypt,
    add_range,
    check_decrypt,
    configured,
    job_parser,
    print_json,
    range_options,
    run,
)
from spark.jobs.replay_target import Progress, TargetTopic, TopicWriter
from spark.plan import Plan, Range
from spark.source import exactly, planned, tierlog_read


@dataclass(frozen=True, slots=True)
class ReplayReport:
    job: str
    topic: str
    target: str
    records: int
    """The number of records that this run wrote."""
    resumed_after: dict[int, int]
    """By source partition, the last offset that an earlier run of this job had sent."""


def job_name(*asked: object) -> str:
    """Returns the same name for the same parameters, so that the same command continues after it was killed."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()[:16]


def replay_to_topic(
    spark: SparkSession,
    bucket: str,
    topic: str,
    target: TargetTopic,
    *,
    where: str | None = None,
    keep: bool = False,
    **options: Any,
) -> ReplayReport:
    """`options` are those of `tierlog_read` and select the rows; `where` is SQL over their columns. With `keep` the
    target keeps its records for ever."""
    if spark.sparkContext.getConf().get("spark.speculation", "false") == "true":
        raise SettingsError(
            "speculation would send records twice", hint="start the job with --conf spark.speculation=false"
        )
    _, plan = planned(spark, bucket, topic, **options)
    # A wrong expression fails here, before anything is written to the target's cluster.
    wanted = chosen(tierlog_read(spark, bucket, topic, **{**options, **exactly(plan)}), where)
    if keep:
        target.keep()
    check_kept(wanted, target)
    progress = target.progress()
    rest = exactly(remaining(plan, progress))
    rows = chosen(tierlog_read(spark, bucket, topic, **{**options, **rest}), where)
    last = max((each.partition for each in plan.ranges), default=0)
    columns = ("partition", "offset", F.unix_millis("timestamp"), "key", "value", "headers")
    shares = rows.select(*columns).repartitionById(last + 1, F.col("partition")).sortWithinPartitions("offset")
    counts = shares.rdd.mapPartitions(Share(target, progress)).collect()
    return ReplayReport(target.job, topic, target.where, sum(counts), dict(sorted(progress.sent.items())))


def check_kept(rows: DataFrame, target: TargetTopic) -> None:
    """Raises PolicyViolation if the target would delete some of the rows at once."""
    retention_ms = target.retention_ms()
    if retention_ms < 0:
        return
    sent_ms = F.unix_millis("timestamp")
    [(oldest_ms,)] = rows.agg(F.min(F.when(sent_ms >= 0, sent_ms))).collect()
    if oldest_ms is not None and wall_ms() - oldest_ms > retention_ms:
        oldest = datetime.fromtimestamp(oldest_ms / 1000, UTC).isoformat(timespec="seconds")
        raise PolicyViolation(
            f"its retention.ms {retention_ms} would delete records as old as {oldest} at once",
            where=target.where,
            hint="`--keep` sets its retention.ms to -1 first; or replay a later range with --from",
        )


class Share:
    """Sends one source partition, on an executor. Does not send again what an earlier attempt has sent."""

    def __init__(self, target: TargetTopic, progress: Progress) -> None:
        self._target = target
        self._progress = progress

    def __call__(self, rows: Iterable[Any]) -> Iterator[int]:
        rows = iter(rows)
        first = next(rows, None)
        task = TaskContext.get()
        if first is None or task is None:
            return
        progress = self._target.look_again(self._progress, task.partitionId(), after_another=task.attemptNumber() > 0)
        yield TopicWriter(self._target, progress).send(chain([first], rows))


def replay_to_files(
    spark: SparkSession, bucket: str, topic: str, url: str, job: str, *, where: str | None = None, **options: Any
) -> ReplayReport:
    """Writes Parquet files to the folder `replay=<job>`, with the columns of the archive."""
    folder = f"{url.rstrip('/')}/replay={job}"
    chosen(tierlog_read(spark, bucket, topic, **options), where).write.mode("overwrite").parquet(folder)
    return ReplayReport(job, topic, folder, spark.read.parquet(folder).count(), {})


def replay_to_table(
    spark: SparkSession, bucket: str, topic: str, table: str, job: str, *, where: str | None = None, **options: Any
) -> ReplayReport:
    """Writes to a table of Spark's catalog that is partitioned by `replay`. The job has one partition."""
    rows = chosen(tierlog_read(spark, bucket, topic, **options), where).withColumn("replay", F.lit(job))
    if spark.catalog.tableExists(table):
        with configured(spark, "spark.sql.sources.partitionOverwriteMode", "dynamic"):
            rows.write.insertInto(table, overwrite=True)
    else:
        rows.write.partitionBy("replay").format("parquet").saveAsTable(table)
    return ReplayReport(job, topic, table, spark.table(table).where(F.col("replay") == job).count(), {})


def check_catalog(spark: SparkSession, table: str) -> None:
    """Raises SettingsError unless a session that is started later can find the table."""
    names = {table.split(".")[0], str(spark.conf.get("spark.sql.defaultCatalog", "spark_catalog")), "spark_catalog"}
    if spark.conf.get("spark.sql.catalogImplementation", "in-memory") != "in-memory":
        return
    if not any(spark.conf.get(f"spark.sql.catalog.{name}", "") for name in names):
        raise SettingsError(
            "Spark has no catalog here that keeps tables: the table would be gone when the job ends",
            where=table,
            hint="write files with --to URL, or run it with spark-submit and a catalog, such as "
            "--conf spark.sql.catalogImplementation=hive",
        )


def chosen(rows: DataFrame, where: str | None) -> DataFrame:
    return rows if where is None else rows.where(where)


def remaining(plan: Plan, progress: Progress) -> Plan:
    """Returns what follows the last record of each partition that the target already has."""

    def start(each: Range) -> int:
        return min(each.end, max(each.start, progress.sent.get(each.partition, -1) + 1))

    return Plan(tuple(replace(each, start=start(each)) for each in plan.ranges))


def parser() -> argparse.ArgumentParser:
    made = job_parser("replay", "Copies a range of a topic, filtered by SQL, each record once.")
    made.add_argument("topic", metavar="TOPIC")
    made.add_argument(
        "--where", metavar="SQL", help="a condition over key, value, headers, partition, offset, timestamp"
    )
    place = made.add_mutually_exclusive_group(required=True)
    place.add_argument("--to-topic", metavar="NAME", help="with --kafka: a topic that exists")
    place.add_argument("--to", dest="target", metavar="URL", help="a folder for Parquet files")
    place.add_argument("--table", metavar="NAME", help="a table of Spark's catalog")
    made.add_argument("--keep", action="store_true", help="first set retention.ms of --to-topic to -1")
    made.add_argument("--kafka", default="127.0.0.1:9092", metavar="HOST:PORT", help="brokers of --to-topic")
    made.add_argument(
        "--kafka-config", action="append", default=[], metavar="NAME=VALUE", help="a setting of librdkafka, such as TLS"
    )
    made.add_argument("--job", metavar="NAME", help="give another name to run the same replay from the start")
    add_range(made)
    add_decrypt(made)
    return made


def _kafka_setting(pair: str) -> tuple[str, str]:
    """Secrets are references: others on this machine see flags."""
    name, equals, value = pair.partition("=")
    if not equals:
        raise SettingsError(f"--kafka-config cannot be {pair!r}", hint="it is NAME=VALUE")
    if not name.endswith(("password", "secret")):
        return name, value
    if not is_reference(value):
        raise SettingsError(
            f"{name} is a secret, and others on this machine see the flags of a process",
            where="--kafka-config",
            hint=f"write {name}=file:/path or {name}=env:NAME",
        )
    return name, resolve_secret(value, f"--kafka-config {name}")


def _work(spark: SparkSession, given: argparse.Namespace) -> int:
    if given.table and given.session_ends:
        check_catalog(spark, given.table)
    options = range_options(given)
    if given.s3_endpoint:
        options["s3Endpoint"] = given.s3_endpoint
    to = given.to_topic or given.target or given.table
    job = given.job or job_name(given.bucket, given.topic, given.where, range_options(given), to, given.kafka)
    if not job.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise SettingsError(f"a job cannot be named {job!r}", hint="use letters, digits, dots, dashes and underscores")
    if given.to_topic:
        kafka = {"bootstrap.servers": given.kafka, **dict(map(_kafka_setting, given.kafka_config))}
        target = TargetTopic(kafka, given.to_topic, job)
        options["keep"] = given.keep
        report = replay_to_topic(spark, given.bucket, given.topic, target, where=given.where, **options)
    else:
        check_decrypt(planned(spark, given.bucket, given.topic, **options)[1], given.decrypt)
        write = replay_to_table if given.table else replay_to_files
        report = write(spark, given.bucket, given.topic, to, job, where=given.where, **options)
    if given.json:
        print_json(asdict(report))
    else:
        print(f"{report.records:,} records of {report.topic} to {report.target} (job {report.job})")
        if report.resumed_after:
            print("resumed after " + ", ".join(f"{p}: {offset:,}" for p, offset in report.resumed_after.items()))
    return 0


def main(arguments: Sequence[str]) -> int:
    return run(parser(), _work, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

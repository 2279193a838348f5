"""A topic with typed columns, as Parquet files or in an Iceberg table.

    tierlog spark export orders --bucket s3://bucket/prefix --value json --to s3a://lake/orders

The table of records has `topic`, `partition`, `offset`, `timestamp`, `key`, `headers` and `value`, a struct of decoded
fields. What cannot be decoded goes to a table beside it, with its bytes and the reason; both are counted, and together
they are every row of the range, or nothing is published.

A range is given by offsets or by times. Exporting it again puts the same rows in the same place: for files as
`spark.jobs.export_ranges` says, for tables as `spark.jobs.iceberg_target` does.
"""

import argparse
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from hot_tier.errors import SettingsError
from spark.jobs.command import JobFailed, add_range, configured, job_parser, print_json, range_options, run
from spark.jobs.export_ranges import TABLES, Chunk, Folder, replaced
from spark.jobs.values import Values, decode, read_schema
from spark.options import ReadOptions
from spark.plan import Plan
from spark.source import exactly, planned, tierlog_read

_ABOUT: Final = ("topic", "partition", "offset", "timestamp", "key", "headers")


@dataclass(frozen=True, slots=True)
class ExportReport:
    topic: str
    target: str
    rows: int
    records: int
    undecodable: int
    ranges: dict[int, str]
    """By partition, what was exported."""


class Target(Protocol):
    url: str
    partition_by: tuple[str, ...]
    """Columns that are folders."""

    def check(self, topic: str, chunks: Mapping[int, Chunk]) -> None:
        """Refuses what would contradict what is there, before any work is done."""
        ...

    def stage(self, token: str, schemas: Mapping[str, StructType]) -> dict[str, str]:
        """For each table of one run, the folder that its files are written to first."""
        ...

    def publish(self, topic: str, chunks: Mapping[int, Chunk]) -> None: ...

    def clear(self) -> None:
        """Takes away what was staged and is not published."""
        ...


def export(
    spark: SparkSession,
    bucket: str,
    topic: str,
    target: Target,
    values: Values,
    *,
    s3_endpoint: str = "",
    **options: Any,
) -> ExportReport:
    """`options` are those of `tierlog_read` and say which rows."""
    if s3_endpoint:
        options["s3Endpoint"] = s3_endpoint
    asked, plan = planned(spark, bucket, topic, **options)
    chunks = _chunks(asked, plan)
    target.check(topic, chunks)
    rows = tierlog_read(spark, bucket, topic, **{**options, **exactly(plan)})
    decoded = decode(spark, rows, values)
    try:
        counts = _write(spark, decoded, target)
        total = rows.count()
        if sum(counts) != total:
            raise JobFailed(
                f"{total} rows were read, but {counts[0]} records and {counts[1]} undecodable ones were written",
                where=target.url,
                hint="nothing was published; is a file of the archive being changed meanwhile?",
            )
        target.publish(topic, chunks)
    finally:
        target.clear()
    return ExportReport(topic, target.url, total, *counts, {number: chunk.name for number, chunk in chunks.items()})


def _write(spark: SparkSession, decoded: DataFrame, target: Target) -> tuple[int, int]:
    """How many rows the two tables then have, by what was written."""
    observed = Observation()
    watched = decoded.observe(observed, F.count("reason").alias("undecodable"))
    frames = {
        "records": watched.where("reason is null").select(*_ABOUT, F.col("decoded").alias("value")),
        "undecodable": decoded.where("reason is not null").select(*_ABOUT, "value", "reason"),
    }
    folders = target.stage(uuid.uuid4().hex, {table: frame.schema for table, frame in frames.items()})
    counts = {"records": 0, "undecodable": 0}
    # Spark's own default is INT96, which Iceberg refuses and others warn about.
    with configured(spark, "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS"):
        for table, frame in frames.items():
            if table == "records" or observed.get["undecodable"]:
                frame.write.mode("overwrite").partitionBy(*target.partition_by).parquet(folders[table])
                counts[table] = spark.read.schema(frame.schema).parquet(folders[table]).count()
    return counts["records"], counts["undecodable"]


def _chunks(asked: ReadOptions, plan: Plan) -> dict[int, Chunk]:
    if asked.from_ms is None and asked.to_ms is None:
        return {each.partition: Chunk("offsets", each.start, each.end) for each in plan.ranges if each.start < each.end}
    if asked.from_ms is None or asked.to_ms is None:
        raise SettingsError("a range of times has two ends", hint="give both --from and --until")
    if asked.starting.given or asked.ending.given:
        raise SettingsError("an export is by offsets or by times, not both", hint="leave one of them out")
    return {each.partition: Chunk("times", asked.from_ms, asked.to_ms) for each in plan.ranges}


class ParquetFolder:
    """A folder of Parquet files; `spark.jobs.export_ranges` says how it is laid out."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self._folder = Folder(spark, url)
        self.url = self._folder.url
        self.partition_by: tuple[str, ...] = ("topic", "partition")
        self._staging = ""

    def check(self, topic: str, chunks: Mapping[int, Chunk]) -> None:
        self._replaced(topic, chunks)

    def stage(self, token: str, schemas: Mapping[str, StructType]) -> dict[str, str]:
        self._staging = f"_staging/{token}"
        return {table: f"{self.url}/{self._staging}/{table}" for table in schemas}

    def publish(self, topic: str, chunks: Mapping[int, Chunk]) -> None:
        for old in self._replaced(topic, chunks):
            self._folder.delete(old)
        for table in TABLES:
            for number, chunk in chunks.items():
                below = f"{table}/topic={topic}/partition={number}"
                if self._folder.names(f"{self._staging}/{below}"):
                    self._folder.move(f"{self._staging}/{below}", f"{below}/{chunk.name}")

    def clear(self) -> None:
        if self._staging:
            self._folder.delete(self._staging)
        if not self._folder.names("_staging"):
            self._folder.delete("_staging")

    def _replaced(self, topic: str, chunks: Mapping[int, Chunk]) -> list[str]:
        found = []
        for number, new in chunks.items():
            for table in TABLES:
                below = f"{table}/topic={topic}/partition={number}"
                old = replaced(self._folder.chunks(below), new, f"{self.url}/{below}")
                found += [f"{below}/{chunk.name}" for chunk in old]
        return found


def parser() -> argparse.ArgumentParser:
    made = job_parser("export", "Writes a topic with typed columns; what cannot be decoded goes to a table beside it.")
    made.add_argument("topic", metavar="TOPIC")
    made.add_argument("--value", choices=("json", "avro", "protobuf"), default="json", help="what values are [json]")
    made.add_argument("--schema", metavar="SCHEMA", help="a file, or of JSON also DDL; JSON without it is inferred")
    made.add_argument("--message", default="", metavar="NAME", help="of Protobuf: the message's full name")
    made.add_argument(
        "--skip-bytes", type=int, default=0, metavar="N", help="before each value: 5 with a registry's id"
    )
    place = made.add_mutually_exclusive_group(required=True)
    place.add_argument("--to", dest="target", metavar="URL", help="a folder for Parquet files")
    place.add_argument("--table", metavar="NAME", help="an Iceberg table, as namespace.name")
    made.add_argument("--catalog", default="default", metavar="NAME", help="of pyiceberg's settings [default]")
    add_range(made)
    return made


def _work(spark: SparkSession, given: argparse.Namespace) -> int:
    target: Target
    if given.table:
        from spark.jobs.iceberg import open_catalog
        from spark.jobs.iceberg_target import IcebergTarget

        target = IcebergTarget(spark, open_catalog(given.catalog), given.table)
    else:
        target = ParquetFolder(spark, given.target)
    values = Values(given.value, read_schema(given.schema), given.message, given.skip_bytes)
    report = export(
        spark, given.bucket, given.topic, target, values, s3_endpoint=given.s3_endpoint, **range_options(given)
    )
    if given.json:
        print_json(asdict(report))
    else:
        print(f"{report.rows:,} rows of {report.topic} to {report.target}: {report.records:,} records")
        print(f"{report.undecodable:,} could not be decoded" if report.undecodable else "all could be decoded")
    return 0


def main(arguments: Sequence[str]) -> int:
    return run(parser(), _work, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

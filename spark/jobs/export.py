"""Exports a topic with typed columns, as Parquet files or into an Iceberg table.

    tierlog spark export orders --bucket s3://bucket/prefix --value json --to s3a://lake/orders

The table of records has `topic`, `partition`, `offset`, `timestamp`, `key`, `headers` and `value`, a struct of decoded
fields. Records that cannot be decoded go to a second table, with their bytes and the reason. Both tables are counted.
If together they do not have every row of the range, nothing is published.

A range is given by offsets or by times. A repeated export puts the same rows in the same place: for files see
`spark.jobs.export_ranges`, for tables `spark.jobs.iceberg_target`.
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
from spark.jobs.command import (
    JobFailed,
    add_decrypt,
    add_range,
    check_decrypt,
    configured,
    job_parser,
    print_json,
    range_options,
    run,
)
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
    """By partition, the range that was exported."""


class Target(Protocol):
    url: str
    partition_by: tuple[str, ...]
    """The columns that become folders."""

    def check(self, topic: str, chunks: Mapping[int, Chunk]) -> None:
        """Raises an error if the export contradicts what the target holds, before any work is done."""
        ...

    def stage(self, token: str, schemas: Mapping[str, StructType]) -> dict[str, str]:
        """Returns, for each table of one run, the folder to which its files are written first."""
        ...

    def publish(self, topic: str, chunks: Mapping[int, Chunk]) -> None: ...

    def clear(self) -> None:
        """Deletes what was staged and is not published."""
        ...


def export(
    spark: SparkSession,
    bucket: str,
    topic: str,
    target: Target,
    values: Values,
    *,
    s3_endpoint: str = "",
    decrypt: bool = False,
    **options: Any,
) -> ExportReport:
    """`options` are those of `tierlog_read` and select the rows. `decrypt` allows to write an encrypted topic plain."""
    if s3_endpoint:
        options["s3Endpoint"] = s3_endpoint
    asked, plan = planned(spark, bucket, topic, **options)
    check_decrypt(plan, decrypt)
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
                hint="nothing was published; check whether another program changes files of the archive",
            )
        target.publish(topic, chunks)
    finally:
        target.clear()
    return ExportReport(topic, target.url, total, *counts, {number: chunk.name for number, chunk in chunks.items()})


def _write(spark: SparkSession, decoded: DataFrame, target: Target) -> tuple[int, int]:
    """Returns the number of rows in each of the two tables, counted in the written files."""
    observed = Observation()
    watched = decoded.observe(observed, F.count("reason").alias("undecodable"))
    frames = {
        "records": watched.where("reason is null").select(*_ABOUT, F.col("decoded").alias("value")),
        "undecodable": decoded.where("reason is not null").select(*_ABOUT, "value", "reason"),
    }
    folders = target.stage(uuid.uuid4().hex, {table: frame.schema for table, frame in frames.items()})
    counts = {"records": 0, "undecodable": 0}
    # Spark's own default is INT96. Iceberg refuses it and other readers warn about it.
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
        raise SettingsError("a range of times needs both ends", hint="give both --from and --until")
    if asked.starting.given or asked.ending.given:
        raise SettingsError("an export is by offsets or by times, not both", hint="leave one of them out")
    return {each.partition: Chunk("times", asked.from_ms, asked.to_ms) for each in plan.ranges}


class ParquetFolder:
    """A folder of Parquet files, with the layout of `spark.jobs.export_ranges`."""

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
    made.add_argument(
        "--value", choices=("json", "avro", "protobuf"), default="json", help="format of the values [json]"
    )
    made.add_argument("--schema", metavar="SCHEMA", help="a file; for JSON also DDL, or nothing to infer it")
    made.add_argument("--message", default="", metavar="NAME", help="full name of the Protobuf message")
    made.add_argument(
        "--skip-bytes", type=int, default=0, metavar="N", help="bytes to skip before each value: 5 with a registry's id"
    )
    place = made.add_mutually_exclusive_group(required=True)
    place.add_argument("--to", dest="target", metavar="URL", help="a folder for Parquet files")
    place.add_argument("--table", metavar="NAME", help="an Iceberg table, as namespace.name")
    made.add_argument(
        "--catalog", default="default", metavar="NAME", help="a catalog of pyiceberg's settings [default]"
    )
    add_range(made)
    add_decrypt(made)
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
        spark,
        given.bucket,
        given.topic,
        target,
        values,
        s3_endpoint=given.s3_endpoint,
        decrypt=given.decrypt,
        **range_options(given),
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

"""The archive with nothing of ours installed: Spark, DuckDB, Polars and pyarrow over the files as they are."""

from datetime import UTC, datetime

import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import PARTITIONS, TOPIC, Archive
from tests.spark.topics import START_MS, STEP_MS, rows_of

WANTED = range(100, 200)
HALF_MS = START_MS + 1500 * STEP_MS


def chosen(archive: Archive) -> list[tuple[int, bytes | None]]:
    return [(row[2], row[6]) for row in archive.rows if row[1] == 1 and row[2] in WANTED]


@pytest.mark.java
def test_spark(spark: SparkSession, archive: Archive) -> None:
    frame = spark.read.parquet(f"{archive.bucket}/topic={TOPIC}")
    assert dict(frame.dtypes)["partition"] == "int"
    every = spark.read.parquet(archive.bucket)
    assert {"topic", "partition"} <= set(every.columns)
    assert rows_of(every.where(every["topic"] == TOPIC)) == archive.rows
    few = frame.where("partition = 1 and offset >= 100 and offset < 200")
    assert [(row["offset"], _bytes(row["value"])) for row in few.orderBy("offset").collect()] == chosen(archive)
    plan = few._jdf.queryExecution().executedPlan().toString()
    assert "GreaterThanOrEqual(offset,100)" in plan, "row groups are left out by their statistics"
    early = frame.where(frame["timestamp"] < datetime.fromtimestamp(HALF_MS / 1000, UTC))
    assert early.count() == sum(row[3] < HALF_MS for row in archive.rows)


def test_duckdb(archive: Archive) -> None:
    duckdb = pytest.importorskip("duckdb")
    source = f"read_parquet('{archive.path}/topic=*/partition=*/*.parquet', hive_partitioning = true)"
    few = duckdb.sql(
        f"select \"offset\", value from {source} where topic = '{TOPIC}' and partition = 1 "
        'and "offset" between 100 and 199 order by "offset"'
    )
    assert few.fetchall() == chosen(archive)
    per_hour = duckdb.sql(
        f"select strftime(timestamp, '%d %H') as hour, count(*) from {source} where topic = '{TOPIC}' group by hour"
    ).fetchall()
    assert sum(count for _, count in per_hour) == len(archive.rows)
    names = duckdb.sql(f"select headers[1].key from {source} where headers is not null limit 1").fetchall()
    assert names == [("n",)]


def test_polars(archive: Archive) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.scan_parquet(f"{archive.path}/topic={TOPIC}", hive_partitioning=True)
    few = frame.filter((polars.col("partition") == 1) & polars.col("offset").is_between(100, 199))
    found = few.select("offset", "value").sort("offset").collect()
    assert found.rows() == chosen(archive)
    counts = frame.group_by("partition").len().collect()
    assert dict(counts.rows()) == {p: archive.ends[p] for p in range(PARTITIONS)}


def test_pyarrow(archive: Archive) -> None:
    found = pyarrow.dataset.dataset(archive.path, partitioning="hive", exclude_invalid_files=False)
    field = pyarrow.dataset.field
    few = (field("topic") == TOPIC) & (field("partition") == 1) & (field("offset") >= 100) & (field("offset") < 200)
    table = found.to_table(columns=["offset", "value"], filter=few).sort_by("offset")
    assert list(zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)) == chosen(archive)
    assert found.count_rows(filter=field("topic") == TOPIC) == len(archive.rows)


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)

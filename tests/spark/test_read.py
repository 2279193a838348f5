"""Spark's rows are what a Kafka consumer reads from offset 0, byte for byte: natively, in Python, with the hot tail."""

import json
import time

import pytest
from pyspark.sql import SparkSession

from spark.options import read_options
from spark.plan import plan_read
from spark.source import register, tierlog_read
from tests.spark.conftest import PARTITIONS, TOPIC, Archive
from tests.spark.topics import START_MS, STEP_MS, rows_of

pytestmark = pytest.mark.java

BOTH = pytest.mark.parametrize("reader", ["native", "python"])


@BOTH
def test_every_archived_row_once(spark: SparkSession, archive: Archive, reader: str) -> None:
    frame = tierlog_read(spark, archive.bucket, TOPIC, reader=reader)
    assert rows_of(frame) == archive.rows


@BOTH
def test_columns_are_those_of_the_kafka_source(spark: SparkSession, archive: Archive, reader: str) -> None:
    frame = tierlog_read(spark, archive.bucket, TOPIC, reader=reader)
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    without = tierlog_read(spark, archive.bucket, TOPIC, reader=reader, includeHeaders=False)
    assert without.dtypes == frame.dtypes[:-1]
    assert without.count() == len(archive.rows)


@BOTH
def test_offsets(spark: SparkSession, archive: Archive, reader: str) -> None:
    options = {
        "startingOffsets": json.dumps({TOPIC: {"0": 500, "1": -2, "2": archive.ends[2]}}),
        "endingOffsets": {TOPIC: {"0": 501 + 200, "1": 7}},
    }
    frame = tierlog_read(spark, archive.bucket, TOPIC, reader=reader, **options)
    wanted = {0: range(500, 701), 1: range(7), 2: range(0)}
    assert rows_of(frame) == [row for row in archive.rows if row[2] in wanted[row[1]]]


@BOTH
def test_one_partition_by_offsets_alone(spark: SparkSession, archive: Archive, reader: str) -> None:
    offsets = {
        "startingOffsets": {TOPIC: {"0": 3, "1": -1, "2": -1}},
        "endingOffsets": {TOPIC: {"0": 4}},
    }
    frame = tierlog_read(spark, archive.bucket, TOPIC, reader=reader, **offsets)
    assert rows_of(frame) == [row for row in archive.rows if row[1] == 0 and row[2] == 3]


@BOTH
def test_times(spark: SparkSession, archive: Archive, reader: str) -> None:
    begin, end = START_MS + 1000 * STEP_MS, START_MS + 2000 * STEP_MS
    frame = tierlog_read(spark, archive.bucket, TOPIC, reader=reader, startingTimestamp=begin, endingTimestamp=end)
    wanted = [row for row in archive.rows if begin <= row[3] < end]
    assert len(wanted) == 1000
    assert rows_of(frame) == wanted
    late = tierlog_read(spark, archive.bucket, TOPIC, reader=reader, endingTimestamp=253402300799999)
    assert late.count() == len(archive.rows)


def test_segments_outside_the_range_are_not_opened(archive: Archive) -> None:
    def files(**options: str) -> int:
        return len(
            plan_read(read_options({"bucket": archive.bucket, "subscribe": TOPIC, **options}, streaming=False)).files
        )

    every = files()
    assert every >= 3 * PARTITIONS
    assert files(startingTimestamp=str(START_MS), endingTimestamp=str(START_MS + 1)) == 1
    assert files(endingTimestamp=str(START_MS)) == 0
    assert PARTITIONS <= files(startingTimestamp=str(START_MS + 3000 * STEP_MS)) < every
    one = json.dumps({TOPIC: {str(each): 1 for each in range(PARTITIONS)}})
    assert files(endingOffsets=one) == PARTITIONS


@BOTH
def test_the_hot_tail_without_gap_or_overlap(spark: SparkSession, archive: Archive, reader: str) -> None:
    frame = tierlog_read(spark, archive.bucket, TOPIC, includeHot=True, gateway=archive.service.url, reader=reader)
    assert rows_of(frame) == archive.truth
    begin = START_MS + 5000 * STEP_MS
    late = tierlog_read(
        spark,
        archive.bucket,
        TOPIC,
        includeHot=True,
        gateway=archive.service.url,
        reader=reader,
        startingTimestamp=begin,
    )
    assert rows_of(late) == [row for row in archive.truth if row[3] >= begin]


def test_one_frame_used_twice(spark: SparkSession, archive: Archive) -> None:
    """Filters that are pushed into a Python source leak between its scans in some versions of Spark."""
    register(spark)
    frame = spark.read.format("tierlog").options(bucket=archive.bucket, subscribe=TOPIC).load()
    counts = {p: sum(row[1] == p for row in archive.rows) for p in range(PARTITIONS)}
    assert frame.where("partition = 1").count() == counts[1]
    assert frame.count() == len(archive.rows)
    both = frame.where("partition = 1").union(frame.where("partition = 2"))
    found = {row["partition"]: row["count"] for row in both.groupBy("partition").count().collect()}
    assert found == {1: counts[1], 2: counts[2]}


def test_min_partitions(spark: SparkSession, archive: Archive) -> None:
    frame = tierlog_read(spark, archive.bucket, TOPIC, minPartitions=6)
    assert frame.rdd.getNumPartitions() >= 6
    assert frame.count() == len(archive.rows)
    register(spark)
    python = spark.read.format("tierlog").options(path=archive.path, subscribe=TOPIC, minPartitions="4").load()
    assert python.rdd.getNumPartitions() >= 4


def test_filters_reach_the_parquet_reader(spark: SparkSession, archive: Archive) -> None:
    frame = tierlog_read(spark, archive.bucket, TOPIC).where("offset > 10 and partition = 1").select("offset")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "GreaterThan(offset,10)" in plan
    assert "PartitionFilters" in plan and "partition" in plan.split("PartitionFilters")[1].split("\n")[0]
    assert "value" not in plan.split("ReadSchema")[1]


def test_the_session_is_left_as_it_was(spark: SparkSession, archive: Archive) -> None:
    name = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
    before = spark.conf.get(name)
    tierlog_read(spark, archive.bucket, TOPIC)
    assert spark.conf.get(name) == before


def test_sql_over_a_view(spark: SparkSession, archive: Archive) -> None:
    tierlog_read(spark, archive.bucket, TOPIC).createOrReplaceTempView("orders_view")
    [row] = spark.sql("select count(*) n, max(offset) m from orders_view where partition = 0").collect()
    assert (row.n, row.m) == (archive.ends[0], archive.ends[0] - 1)


def test_as_of_now_is_now(spark: SparkSession, archive: Archive) -> None:
    frame = tierlog_read(spark, archive.bucket, TOPIC, asOf=int(time.time() * 1000))
    assert frame.count() == len(archive.rows)

"""Archived topics as DataFrames, with the columns of Spark's Kafka source.

    from tierlog.spark import read
    orders = read(spark, "s3://bucket/prefix", "orders", startingTimestamp="2026-01-01")

`read` (here `tierlog_read`) plans on the driver from the manifests and hands the files to Spark's own Parquet reader:
Spark does column pruning, filters on statistics and vectorized decoding. A DataFrame always reads the same snapshot,
even if it is used several times. The hot tail, and a bucket that Hadoop has no file system for, go through the Python
source:

    register(spark)
    spark.read.format("tierlog").option("bucket", …).option("subscribe", "orders").load()

The Python source reads the same rows at a fraction of the speed, and can stream (`spark.streaming`). It does not
implement `pushFilters`: in Spark 4.3.0 pushed filters leak between the scans of one DataFrame.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any, ClassVar, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from cold_tier.objects.open import StoreSettings
from hot_tier.errors import SettingsError, TierlogError
from spark.options import ReadOptions, keys_file, read_options
from spark.plan import Plan, Range, plan_read
from spark.read_tasks import SCHEMA, Task, read_task, schema_of, tasks
from spark.session import session_endpoint, session_endpoints

_IN_TASKS: Final = ("spark.sql.sources.parallelPartitionDiscovery.parallelism", "16")
"""By default Spark lists each file in its own task: 12 s for 2,000 files, 0.7 s with this."""
_ON_DRIVER: Final = ("spark.sql.sources.parallelPartitionDiscovery.threshold", "1000000")
"""The driver finds a local file faster than a task starts: for 60 files in a quarter of the time."""

MOST_NAMES: Final = 1000
"""The most names in a pattern. Hadoop compiles a pattern of a thousand names in 50 ms, of five thousand in 600 ms."""


def tierlog_read(spark: SparkSession, bucket: str, topic: str, **options: Any) -> DataFrame:
    """Returns the rows of `topic` (or of several, separated by commas) that `options` select. `spark.options` lists
    them."""
    given = _given(spark, bucket, topic, options)
    asked = read_options(given, streaming=False)
    plan = plan_read(asked)
    if (asked.reader or _reader_for(spark, asked.store, plan)) == "python":
        return _python_frame(spark, given, plan)
    frame = native_frame(spark, asked, plan)
    return frame.union(_python_frame(spark, given, _hot_part(plan))) if plan.hot else frame


def planned(spark: SparkSession, bucket: str, topic: str, **options: Any) -> tuple[ReadOptions, Plan]:
    """Returns what `tierlog_read` would read now. With the options of `exactly`, it later reads exactly that."""
    asked = read_options(_given(spark, bucket, topic, options), streaming=False)
    return asked, plan_read(asked)


def exactly(plan: Plan) -> dict[str, str]:
    """Returns options that select the offsets of a plan."""
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for each in plan.ranges:
        starts.setdefault(each.topic, {})[str(each.partition)] = each.start
        ends.setdefault(each.topic, {})[str(each.partition)] = each.end
    return {"startingOffsets": json.dumps(starts), "endingOffsets": json.dumps(ends)}


def register(spark: SparkSession) -> None:
    """Makes `format("tierlog")` known to this session, with the S3 endpoints that its settings name.

    Spark makes the source in another process, which cannot see the session, so the class carries the endpoints.
    """

    class Source(TierlogDataSource):
        endpoints = session_endpoints(spark)

    spark.dataSource.register(Source)


class TierlogDataSource(DataSource):
    endpoints: ClassVar[Mapping[str, str]] = {}
    """The endpoints of S3-compatible stores, by bucket; `*` stands for all other buckets."""

    def __init__(self, options: Mapping[str, str]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        name = urlsplit(given.get("bucket") or given.get("path") or "").netloc
        endpoint = self.endpoints.get(name) or self.endpoints.get("*") or ""
        super().__init__({"s3endpoint": endpoint, **given})
        self._plan: Plan | None = None

    @classmethod
    def name(cls) -> str:
        return "tierlog"

    def schema(self) -> StructType:
        """Spark calls this once, when a DataFrame is made. So this fixes the snapshot of the DataFrame.

        An error of the plan is raised by `reader`: a stream needs no plan and must not fail because of it.
        """
        options = read_options(dict(self.options), streaming=False)
        try:
            self._plan = plan_read(options)
        except TierlogError:
            pass
        return schema_of(options)

    def reader(self, schema: StructType) -> "TierlogReader":
        options = read_options(dict(self.options), streaming=False)
        return TierlogReader(options, self._plan or plan_read(options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from spark.streaming import TierlogStreamReader

        return TierlogStreamReader(read_options(dict(self.options), streaming=True))


class TierlogReader(DataSourceReader):
    def __init__(self, options: ReadOptions, plan: Plan) -> None:
        self._options = options
        self._tasks = tasks(plan, options)

    def partitions(self) -> list[InputPartition]:
        return list(self._tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # If there are no partitions, Spark calls this with None.
        return read_task(partition, self._options) if isinstance(partition, Task) else iter(())

    def __getstate__(self) -> dict[str, Any]:
        """Leaves the tasks out: Spark sends each task its own pieces along with this reader."""
        return {"_options": self._options, "_tasks": []}


def native_frame(spark: SparkSession, options: ReadOptions, plan: Plan) -> DataFrame:
    """Reads the archived part of a plan through Spark's Parquet reader."""
    base = _literal(spark_url(options.store))
    paths = [f"{base}{key}" for key in plan.files]
    schema = schema_of(options)
    if not paths:
        return spark.createDataFrame([], schema)
    count = min(options.min_partitions or 1, len(paths))
    groups = [paths[len(paths) * n // count : len(paths) * (n + 1) // count] for n in range(count)]
    with _listed_quickly(spark, options.store):
        frame = _listed(spark, base, plan) if count == 1 else None
        if frame is None:
            reader = _rows_reader(spark, base)
            frame = reduce(DataFrame.union, [reader.parquet(*group) for group in groups])
    for condition in _conditions(options, plan):
        frame = frame.where(condition)
    return frame.select(*schema.fieldNames())


def _listed(spark: SparkSession, base: str, plan: Plan) -> DataFrame | None:
    """Reads the same rows by listing folders, if Spark finds the files faster so than by looking each of them up.

    Returns None if it does not, or if a file is missing: looking the files up then names it.
    """
    folders = {each.layout.rows_folder: each.among for each in plan.ranges if each.layout and each.segments}
    names = [key.rpartition("/")[2] for key in plan.files]
    if len(names) > MOST_NAMES or 2 * len(names) < sum(folders.values()):
        return None
    reader = _rows_reader(spark, base).option("pathGlobFilter", f"{{{','.join(names)}}}")
    frame = reader.parquet(*(f"{base}{folder}" for folder in folders))
    # For a classic DataFrame this is a Java array, whose length is known at once. A Python list would take a call per
    # file.
    found = len(getattr(frame, "_jdf", frame).inputFiles())
    return frame if found == len(names) else None


def _rows_reader(spark: SparkSession, base: str) -> DataFrameReader:
    """Spark compares pages with their checksums, so a bit that flipped in the bucket fails the query."""
    reader = spark.read.schema(SCHEMA).option("basePath", base)
    return reader.option("parquet.page.verify-checksum.enabled", "true")


def spark_url(store: StoreSettings) -> str:
    """Returns the bucket's URL for Hadoop's file systems, with a slash at its end."""
    url = urlsplit(store.bucket)
    path = unquote(url.path).rstrip("/")
    return f"s3a://{url.netloc}{path}/" if url.scheme == "s3" else f"file://{path}/"


def _conditions(options: ReadOptions, plan: Plan) -> Iterator[Column]:
    """Yields the conditions that exclude unwanted rows: other times, and parts of the first and last segments."""
    if options.from_ms is not None:
        yield F.col("timestamp") >= F.lit(_moment(options.from_ms))
    if options.to_ms is not None:
        yield F.col("timestamp") < F.lit(_moment(options.to_ms))
    ranges = [each for each in plan.ranges if each.segments]
    cut = [each for each in ranges if each.cut_start or each.cut_end]
    if not cut:
        return
    # Parquet's statistics can answer these two. For a single partition they are enough.
    yield F.col("offset") >= min(each.start for each in ranges)
    yield F.col("offset") < max(_archived_end(each) for each in ranges)
    if len(ranges) > 1:
        for each in cut:
            here = (F.col("topic") == each.topic) & (F.col("partition") == each.partition)
            yield ~here | ((F.col("offset") >= each.start) & (F.col("offset") < _archived_end(each)))


def _archived_end(each: Range) -> int:
    return min(each.end, each.archived_end)


def _moment(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def _python_frame(spark: SparkSession, given: Mapping[str, str], plan: Plan) -> DataFrame:
    """Reads the offsets of a plan through the Python source, which looks up again which tier has them."""
    register(spark)
    given = {name: value for name, value in given.items() if name.lower() not in ("startingoffsets", "endingoffsets")}
    return spark.read.format("tierlog").options(**{**given, **exactly(plan)}).load()


def _hot_part(plan: Plan) -> Plan:
    return Plan(
        tuple(
            Range(each.topic, each.partition, max(each.start, min(each.archived_end, each.end)), each.end, 0, None, ())
            for each in plan.ranges
        )
    )


def _reader_for(spark: SparkSession, store: StoreSettings, plan: Plan) -> str:
    """Returns native, unless rows are encrypted, or the bucket is in S3 and this session has no S3A."""
    if plan.encrypted:
        return "python"
    if not store.bucket.startswith("s3:"):
        return "native"
    context = getattr(spark, "_jsc", None)
    if context is None:
        return "native"  # With Spark Connect the server is set up for its buckets.
    found = context.hadoopConfiguration().getClassByNameOrNull("org.apache.hadoop.fs.s3a.S3AFileSystem")
    return "native" if found is not None else "python"


@contextmanager
def _listed_quickly(spark: SparkSession, store: StoreSettings) -> Iterator[None]:
    name, wanted = _IN_TASKS if store.bucket.startswith("s3:") else _ON_DRIVER
    before = spark.conf.get(name)
    spark.conf.set(name, wanted)
    try:
        yield
    finally:
        spark.conf.set(name, str(before))


def _literal(path: str) -> str:
    """Escapes the characters that Hadoop would take for a pattern."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def _given(spark: SparkSession, bucket: str, topic: str, options: Mapping[str, Any]) -> dict[str, str]:
    given = {"bucket": bucket, "subscribe": topic, **{name: _text(value) for name, value in options.items()}}
    if "s3endpoint" not in {name.lower() for name in given}:
        given["s3Endpoint"] = session_endpoint(spark, bucket)
    if keys_file() and "keysfile" not in {name.lower() for name in given}:
        given["keysFile"] = keys_file()  # Other processes do not have this one's environment.
    return given


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return json.dumps(value)
    if value is None:
        raise SettingsError("an option cannot be None", hint="leave it out")
    return str(value)

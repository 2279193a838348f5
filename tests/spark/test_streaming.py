"""An archived topic as a stream: every row once, over bounded batches, restarts, kills, and the seam of the tiers."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.source import register
from spark.streaming import bounded, from_json, to_json
from tests.spark.conftest import TOPIC, Archive
from tests.spark.topics import consume, create, rows_of, send

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]


def run(spark: SparkSession, out: Path, **options: str) -> list[int]:
    """Reads what is available now into files; how many rows each micro-batch had."""
    register(spark)
    query = (
        spark.readStream.format("tierlog")
        .options(startingOffsets="earliest", **options)
        .load()
        .writeStream.format("parquet")
        .option("path", str(out / "rows"))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(200)
        return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]
    finally:
        query.stop()


def test_everything_available_in_bounded_batches(spark: SparkSession, archive: Archive, tmp_path: Path) -> None:
    batches = run(spark, tmp_path, bucket=archive.bucket, subscribe=TOPIC, maxOffsetsPerTrigger="2000")
    assert max(batches) <= 2000
    assert len(batches) == -(-len(archive.rows) // 2000)
    assert rows_of(spark.read.parquet(str(tmp_path / "rows"))) == archive.rows
    assert run(spark, tmp_path, bucket=archive.bucket, subscribe=TOPIC) == [], "a restart finds nothing to do"


def test_a_restart_goes_on_over_the_seam(spark: SparkSession, archive: Archive, tmp_path: Path) -> None:
    """First all of the topic, hot tail included; then what was sent since, which by then is partly archived."""
    create(archive.service, "growing")
    hot = {"bucket": archive.bucket, "subscribe": "growing", "includeHot": "true", "gateway": archive.service.url}
    send(archive.service, "growing", range(1500))
    assert sum(run(spark, tmp_path, **hot)) == 1500
    send(archive.service, "growing", range(1500, 2500))
    assert sum(run(spark, tmp_path, **hot, maxOffsetsPerTrigger="700")) == 1000
    assert rows_of(spark.read.parquet(str(tmp_path / "rows"))) == consume(archive.service, "growing")


KILLED = """
import sys, time
from spark.session import session
from spark.source import register

bucket, out = sys.argv[1:]
spark = session("killed", config={{"spark.master": "local[2]", "spark.driver.memory": "512m"}})
register(spark)

def slowly(frame, number):
    frame.write.mode("overwrite").parquet(f"{{out}}/batches/{{number}}")
    print("batch", number, flush=True)
    time.sleep({pause})

stream = spark.readStream.format("tierlog").options(
    bucket=bucket, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger="1000"
).load()
query = stream.writeStream.foreachBatch(slowly).option("checkpointLocation", f"{{out}}/checkpoint")
query.trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


@pytest.mark.slow
def test_killed_and_started_again(spark: SparkSession, archive: Archive, tmp_path: Path) -> None:
    """kill -9 after a batch was written and before Spark knows it: it is run again, with the same rows."""
    command = [sys.executable, "-c", textwrap.dedent(KILLED.format(pause=60)), archive.bucket, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("batch 0"):
            break
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert os.listdir(tmp_path / "batches") == ["0"]
    before = rows_of(spark.read.parquet(str(tmp_path / "batches/0")))

    command[2] = textwrap.dedent(KILLED.format(pause=0))
    subprocess.run(command, check=True, timeout=400, capture_output=True)
    batches = sorted(os.listdir(tmp_path / "batches"), key=int)
    assert rows_of(spark.read.parquet(str(tmp_path / "batches/0"))) == before
    found = rows_of(spark.read.parquet(*(str(tmp_path / "batches" / each) for each in batches)))
    assert found == archive.rows


def test_a_stream_that_waits_sees_what_is_sent(spark: SparkSession, archive: Archive) -> None:
    register(spark)
    create(archive.service, "live")
    send(archive.service, "live", range(10))
    options = {"includeHot": "true", "gateway": archive.service.url, "bucket": archive.bucket, "subscribe": "live"}
    stream = spark.readStream.format("tierlog").options(**options).load()
    query = (
        stream.writeStream.format("memory").queryName("live_rows").trigger(processingTime="200 milliseconds").start()
    )
    try:
        deadline = time.monotonic() + 100
        while not query.lastProgress:
            assert time.monotonic() < deadline and query.isActive, query.exception()
            time.sleep(0.1)
        send(archive.service, "live", range(10, 15))
        while spark.table("live_rows").count() < 5:
            assert time.monotonic() < deadline and query.isActive, query.exception()
            time.sleep(0.2)
        offsets = [row["offset"] for row in spark.table("live_rows").orderBy("offset").collect()]
        assert offsets == [10, 11, 12, 13, 14], "from latest on, as Spark's Kafka source does by default"
    finally:
        query.stop()


def test_a_bound_is_shared_out() -> None:
    begin = {("t", 0): 0, ("t", 1): 100, ("t", 2): 5}
    ends = {("t", 0): 1000, ("t", 1): 110, ("t", 2): 5}
    for most in (1, 2, 7, 500, 1009):
        found = bounded(begin, ends, most)
        assert sum(found[place] - begin[place] for place in begin) == most
        assert all(begin[place] <= found[place] <= ends[place] for place in begin)
    assert bounded(begin, ends, 1010) == ends


def test_offsets_as_json_and_back() -> None:
    offsets = {("b", 10): 1, ("b", 9): 2, ("a", 0): 3}
    assert from_json(to_json(offsets)) == offsets
    assert str(to_json(offsets)) == "{'a': {'0': 3}, 'b': {'9': 2, '10': 1}}"

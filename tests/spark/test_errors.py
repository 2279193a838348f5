"""What is wrong is said: which option, which topic, which offsets, which object."""

import json
import os
import shutil
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cold_tier.errors import StoreMisconfigured
from hot_tier.errors import OffsetOutOfRange, SettingsError, TierlogError, UnknownPartition, UnknownTopic
from spark.gateway import GatewayUnavailable
from spark.options import read_options
from spark.plan import plan_read
from spark.source import register, tierlog_read
from tests.spark.conftest import TOPIC, Archive
from tests.spark.topics import rows_of

pytestmark = pytest.mark.java


@pytest.fixture
def copy(archive: Archive, tmp_path: Path) -> Path:
    """A bucket of the test's own, to be damaged."""
    return Path(shutil.copytree(archive.path, tmp_path / "bucket"))


def first_file(bucket: Path) -> Path:
    return sorted(bucket.glob(f"topic={TOPIC}/partition=0/*.parquet"))[0]


def test_no_such_bucket(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StoreMisconfigured, match="no such bucket"):
        tierlog_read(spark, f"file://{tmp_path}/nothing", TOPIC)
    assert not (tmp_path / "nothing").exists(), "a reader makes nothing"


def test_no_such_topic(spark: SparkSession, archive: Archive) -> None:
    with pytest.raises(UnknownTopic, match="order'"):
        tierlog_read(spark, archive.bucket, "order")
    with pytest.raises(UnknownTopic):
        tierlog_read(spark, archive.bucket, "order", includeHot=True, gateway=archive.service.url)


def test_ranges_that_are_not_there(spark: SparkSession, archive: Archive) -> None:
    beyond = {TOPIC: {"0": archive.ends[0] + 1}}
    with pytest.raises(OffsetOutOfRange, match=r"orders-0.*not archived yet.*includeHot"):
        tierlog_read(spark, archive.bucket, TOPIC, endingOffsets=beyond)
    frame = tierlog_read(spark, archive.bucket, TOPIC, endingOffsets=beyond, failOnDataLoss=False)
    assert frame.count() == len(archive.rows)
    with pytest.raises(UnknownPartition, match="no partition 7"):
        tierlog_read(spark, archive.bucket, TOPIC, startingOffsets={TOPIC: {"7": 0}})


def test_an_unreachable_gateway(spark: SparkSession, archive: Archive) -> None:
    with pytest.raises(GatewayUnavailable, match=r"http://127\.0\.0\.1:9.*cannot be reached"):
        tierlog_read(spark, archive.bucket, TOPIC, includeHot=True, gateway="http://127.0.0.1:9")


@pytest.mark.parametrize("reader", ["native", "python"])
def test_a_missing_file_is_named(spark: SparkSession, copy: Path, reader: str) -> None:
    path = first_file(copy)
    path.unlink()
    with pytest.raises(PySparkException, match=path.name):
        tierlog_read(spark, f"file://{copy}", TOPIC, reader=reader).select("value").collect()


@pytest.mark.parametrize("options", [{}, {"minPartitions": 3}, {"reader": "python"}], ids=str)
def test_a_file_that_no_manifest_names_is_not_read(
    spark: SparkSession, archive: Archive, copy: Path, options: dict[str, object]
) -> None:
    """Left by an upload that came to nothing, or by another writer."""
    path = first_file(copy)
    shutil.copy(path, path.with_name(path.name.replace(path.stem[-32:], "0" * 32)))
    assert tierlog_read(spark, f"file://{copy}", TOPIC, **options).count() == len(archive.rows)


@pytest.mark.parametrize("reader", ["native", "python"])
def test_a_damaged_file_is_named(spark: SparkSession, copy: Path, reader: str) -> None:
    path = first_file(copy)
    data = path.read_bytes()
    path.write_bytes(data[:100] + os.urandom(len(data) - 100))
    with pytest.raises((PySparkException, Py4JJavaError), match=path.name):
        tierlog_read(spark, f"file://{copy}", TOPIC, reader=reader).select("value").collect()


def test_one_flipped_bit_is_found_by_the_python_reader(spark: SparkSession, copy: Path) -> None:
    path = first_file(copy)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(PySparkException, match=f"{path.name}.*damaged"):
        tierlog_read(spark, f"file://{copy}", TOPIC, reader="python").collect()


def test_the_source_by_name_says_it_too(spark: SparkSession, archive: Archive) -> None:
    register(spark)
    with pytest.raises(PySparkException, match="the archive has no topic 'order'"):
        spark.read.format("tierlog").options(bucket=archive.bucket, subscribe="order").load().count()
    with pytest.raises(PySparkException, match="there is no option 'startingoffset'"):
        spark.read.format("tierlog").options(bucket=archive.bucket, subscribe=TOPIC, startingOffset="1").load()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"subscribe": ""}, "subscribe"),
        ({"startingOffsets": "first"}, "startingOffsets"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "startingOffsets"),
        ({"startingOffsets": '{"others":{"0":1}}'}, "others"),
        ({"endingOffsets": "[1]"}, "endingOffsets"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp"),
        ({"endingTimestamp": "2026-02-30T00:00:00Z"}, "2026-03-01T08:00:00Z"),
        ({"startingTimestamp": "1" * 18}, "milliseconds since 1970"),
        ({"endingTimestamp": "1772323200000000"}, "milliseconds since 1970"),
        ({"asOf": "1772323200000000000"}, "milliseconds since 1970"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss"),
        ({"minPartitions": "0"}, "minPartitions"),
        ({"includeHot": "true"}, "gateway"),
        ({"includeHot": "true", "gateway": "http://x", "asOf": "1"}, "asOf"),
        ({"reader": "fast"}, "reader"),
        ({"bucket": "ftp://x"}, "ftp://x"),
        ({"kafka.bootstrap.servers": "x"}, "kafka.bootstrap.servers"),
    ],
)
def test_a_bad_option_is_named(options: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_options({"bucket": "file:///x", "subscribe": "orders", **options}, streaming=False)
    assert named in str(caught.value)


def test_a_damaged_manifest_is_named(copy: Path) -> None:
    [manifest, *_] = sorted(copy.glob("_tierlog/orders.*/0/manifest/*.manifest"))
    manifest.write_bytes(manifest.read_bytes()[:-1])
    with pytest.raises(TierlogError, match=manifest.name):
        plan_read(read_options({"bucket": str(copy), "subscribe": TOPIC}, streaming=False))


def test_json_offsets_as_text_or_mapping(spark: SparkSession, archive: Archive) -> None:
    end = {TOPIC: {"0": 2, "1": 0, "2": 0}}
    assert tierlog_read(spark, archive.bucket, TOPIC, endingOffsets=end).count() == 2
    assert tierlog_read(spark, archive.bucket, TOPIC, endingOffsets=json.dumps(end)).count() == 2


def test_a_flipped_bit_fails_the_query(spark: SparkSession, archive: Archive, copy: Path) -> None:
    file = first_file(copy)
    whole = file.read_bytes()
    outcomes = []
    for number in range(6):
        harmed = bytearray(whole)
        harmed[len(whole) * (number + 1) // 10] ^= 0x10
        file.write_bytes(harmed)
        try:
            outcomes.append(rows_of(tierlog_read(spark, f"file://{copy}", TOPIC)) == archive.rows)
        except (Py4JJavaError, PySparkException):
            outcomes.append("refused")
    assert False not in outcomes
    assert "refused" in outcomes

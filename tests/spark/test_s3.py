"""The archive in a real S3 server: through Hadoop's s3a, and without any jar."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from cold_tier.errors import StoreMisconfigured
from spark.session import hadoop_version, s3a_config, session_endpoints
from spark.source import register, tierlog_read
from tests.integration.tiers import SOON
from tests.spark.topics import Row, consume, create, rows_of, send, settle
from tests.support.s3 import S3Server, credentials, weed
from tests.support.service import services

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

THROUGH_S3A = """
import sys
from spark.session import session
from spark.source import tierlog_read

bucket, endpoint, gateway, out = sys.argv[1:]
config = {"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.driver.host": "127.0.0.1"}
spark = session("s3a", s3_endpoint=endpoint, config=config)
hot = {"includeHot": "true", "gateway": gateway}
tierlog_read(spark, bucket, "orders", reader="native", **hot).write.parquet(f"{out}/rows")
spark.read.parquet(f"{bucket.replace('s3:', 's3a:')}/topic=orders").write.parquet(f"{out}/plain")
assert tierlog_read(spark, bucket, "orders")._jdf.queryExecution().toString().count("parquet")
spark.stop()
"""


@dataclass
class Bucket:
    server: S3Server
    url: str
    gateway: str
    truth: list[Row]
    end: int


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    directory = tmp_path_factory.mktemp("s3")
    with weed(directory / "weed") as server, services(directory) as make:
        url = f"s3://{server.new_bucket()}/some/prefix"
        service = make(*SOON, "--bucket", url, "--s3-endpoint", server.endpoint, **credentials())
        create(service, "orders")
        send(service, "orders", range(2000))
        end = settle(service, "orders")[0]
        yield Bucket(server, url, service.url, consume(service, "orders"), end)


@pytest.fixture(autouse=True)
def signed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in credentials().items():
        monkeypatch.setenv(name, value)


def test_through_s3a(spark: SparkSession, bucket: Bucket, tmp_path: Path) -> None:
    command = [sys.executable, "-c", THROUGH_S3A, bucket.url, bucket.server.endpoint, bucket.gateway, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    if "unresolved dependency" in ran.stderr:
        pytest.skip("hadoop-aws cannot be fetched: Maven Central is out of reach and nothing is in ~/.ivy2 or ~/.m2")
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert rows_of(spark.read.parquet(str(tmp_path / "rows"))) == bucket.truth
    plain = rows_of(spark.read.parquet(str(tmp_path / "plain")).selectExpr("*", "'orders' as topic"))
    assert plain == [row for row in bucket.truth if row[2] < bucket.end]


def test_without_any_jar(spark: SparkSession, bucket: Bucket) -> None:
    frame = tierlog_read(spark, bucket.url, "orders", s3Endpoint=bucket.server.endpoint)
    assert rows_of(frame) == [row for row in bucket.truth if row[2] < bucket.end]


@pytest.mark.parametrize("setting", ["fs.s3a.endpoint", "fs.s3a.bucket.{name}.endpoint"])
def test_the_sessions_endpoint_is_used(spark: SparkSession, bucket: Bucket, setting: str) -> None:
    setting = f"spark.hadoop.{setting.format(name=urlsplit(bucket.url).netloc)}"
    spark.conf.set(setting, bucket.server.endpoint)
    try:
        register(spark)
        frame = spark.read.format("tierlog").option("bucket", bucket.url).option("subscribe", "orders").load()
        assert rows_of(frame) == [row for row in bucket.truth if row[2] < bucket.end]
        assert tierlog_read(spark, bucket.url, "orders").count() == bucket.end
    finally:
        spark.conf.unset(setting)


def test_an_endpoint_as_hadoop_takes_it(spark: SparkSession) -> None:
    told = {"endpoint": "127.0.0.1:8333", "connection.ssl.enabled": "false", "bucket.a.endpoint": "s3.amazonaws.com"}
    for name, value in told.items():
        spark.conf.set(f"spark.hadoop.fs.s3a.{name}", value)
    found = session_endpoints(spark)
    for name in told:
        spark.conf.unset(f"spark.hadoop.fs.s3a.{name}")
    assert found == {"*": "http://127.0.0.1:8333"}
    assert session_endpoints(spark) == {}


def test_a_missing_bucket_is_named(spark: SparkSession, bucket: Bucket) -> None:
    with pytest.raises(StoreMisconfigured, match=r"s3://nothing-here/.*no such bucket"):
        tierlog_read(spark, "s3://nothing-here", "orders", s3Endpoint=bucket.server.endpoint)


def test_the_jar_matches_the_hadoop_inside() -> None:
    assert s3a_config()["spark.jars.packages"] == f"org.apache.hadoop:hadoop-aws:{hadoop_version()}"
    assert hadoop_version().count(".") == 2

"""Jobs on a bucket in a real S3 server, in a session without Hadoop's S3 file system."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cold_tier.errors import StoreMisconfigured
from cold_tier.objects.open import StoreSettings, open_store
from spark.jobs.audit import audit
from spark.jobs.stats import stats
from tests.spark.conftest import TOPIC, Archive
from tests.spark.jobs.submit import submit
from tests.support.s3 import S3Server, credentials, weed

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def signed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in credentials().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    with weed(tmp_path / "weed") as started:
        yield started


def upload(archive: Archive, server: S3Server) -> str:
    url = f"s3://{server.new_bucket()}/some/prefix"
    root = Path(archive.path)

    async def copy() -> None:
        store = open_store(StoreSettings(bucket=url, s3_endpoint=server.endpoint))
        for path in root.rglob("*"):
            if path.is_file():
                await store.put_file(str(path.relative_to(root)), str(path))
        await store.close()

    asyncio.run(copy())
    return url


def test_audit_and_stats(spark: SparkSession, archive: Archive, server: S3Server) -> None:
    url = upload(archive, server)
    report = audit(spark, url, [TOPIC], s3_endpoint=server.endpoint)
    assert report.findings == []
    assert sum(each.rows for each in report.partitions) == len(archive.rows)
    [topic] = stats(spark, url, [TOPIC], s3_endpoint=server.endpoint).topics
    assert topic.rows == len(archive.rows)
    with pytest.raises(StoreMisconfigured, match="no such bucket"):
        audit(spark, "s3://nothing-here/prefix", s3_endpoint=server.endpoint)


def test_a_submitted_job_takes_the_jars_that_are_there(archive: Archive, server: S3Server, tmp_path: Path) -> None:
    """`spark-submit` brings PySpark as an archive, without the folder of jars that tells Hadoop's version."""
    url = upload(archive, server)
    ran = submit(tmp_path, "spark", "stats", TOPIC, "--bucket", url, "--s3-endpoint", server.endpoint, "--json")
    assert ran.returncode == 0, ran.stderr
    [topic] = json.loads(ran.stdout.splitlines()[-1])["topics"]
    assert topic["rows"] == len(archive.rows)

"""One Spark session for all tests, and one topic in both tiers. Without Java all of this is skipped."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from benchmarks.peer.jars import PeerUnavailable, java
from spark.session import session
from tests.integration.tiers import SOON
from tests.spark.topics import Row, consume, create, send, settle
from tests.support.s3 import credentials
from tests.support.service import services
from tierlog.process import ServeProcess

TOPIC = "orders"
PARTITIONS = 3
COUNT = 6000


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    try:
        java()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    config = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    with pytest.MonkeyPatch.context() as environment:
        # Workers are given the environment of the session's start; some of them read from a real S3 server.
        for name, value in {**credentials(), "PYSPARK_PYTHON": sys.executable}.items():
            environment.setenv(name, value)
        started = session("tests", config=config)
    yield started
    started.stop()


@dataclass
class Archive:
    service: ServeProcess
    bucket: str
    path: str
    truth: list[Row]
    """Every record of the topic, both tiers."""
    ends: dict[int, int]
    """How far each partition is archived; it does not move while tests run."""

    @property
    def rows(self) -> list[Row]:
        """What is archived."""
        return [row for row in self.truth if row[2] < self.ends[row[1]]]


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    directory = tmp_path_factory.mktemp("archive")
    with services(directory) as make:
        service = make(*SOON, "--bucket", f"file://{directory}/bucket")
        create(service, TOPIC, PARTITIONS)
        send(service, TOPIC, range(COUNT), PARTITIONS)
        ends = settle(service, TOPIC)
        truth = consume(service, TOPIC, PARTITIONS)
        assert all(0 < end < COUNT // PARTITIONS for end in ends.values()), f"both tiers hold something: {ends}"
        yield Archive(service, f"file://{directory}/bucket", f"{directory}/bucket", truth, ends)

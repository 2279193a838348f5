"""A bucket that refuses, is not there, goes away and comes back, on a real S3 server: who is told what, and when."""

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.gateway.kafka.wire import Wire
from tests.support.command import tierlog
from tests.support.s3 import S3Server, credentials, weed
from tests.support.service import services
from tests.support.waiting import wait_until
from tierlog.client import Client, path
from tierlog.process import ServeFailed, ServeProcess

TOPIC = "orders"
AT_ONCE_S = 30.0
"""A start on a busy machine and no more: half the time that a bucket is waited for."""
QUICK = (
    *("--set", "archive.check_ms=100"),
    *("--set", "cache.memory_bytes=1"),
    *("--set", "cache.disk_bytes=0"),
    # The broker's own work waits long for the bucket; readers do not.
    *("--set", "store.deadline_ms=5000"),
    *("--set", "store.read_deadline_ms=1500"),
)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with weed(tmp_path_factory.mktemp("weed")) as server:
        yield server


def refusal(directory: Path, bucket: str, endpoint: str, **keys: str) -> str:
    """What `tierlog serve` says when it ends instead of serving."""
    serve = ServeProcess(directory, ("--bucket", bucket, "--s3-endpoint", endpoint), {**credentials(), **keys})
    began = time.monotonic()
    with pytest.raises(ServeFailed):
        serve.start()
    assert time.monotonic() - began < AT_ONCE_S, "it waited for what cannot heal"
    return serve.output()


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "AWS_SECRET_ACCESS_KEY"),
        ({"AWS_ACCESS_KEY_ID": "nobody"}, "AWS_ACCESS_KEY_ID"),
    ],
)
def test_wrong_credentials_end_the_start_with_what_to_do(
    keys: dict[str, str], told: str, s3: S3Server, tmp_path: Path
) -> None:
    said = refusal(tmp_path / "data", f"s3://{s3.new_bucket()}/x", s3.endpoint, **keys)
    assert "error: s3://" in said
    assert told in said
    assert "<" not in said, "no raw XML"
    assert not (tmp_path / "data" / "metadata.db").exists(), "nothing was begun"


def test_wrong_credentials_end_a_command_at_once(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**credentials(), "AWS_SECRET_ACCESS_KEY": "wrong"}.items():
        monkeypatch.setenv(name, value)
    began = time.monotonic()
    ran = tierlog("archive", "verify", "--bucket", f"s3://{s3.new_bucket()}", "--s3-endpoint", s3.endpoint, code=1)
    assert time.monotonic() - began < AT_ONCE_S
    assert "AWS_SECRET_ACCESS_KEY" in ran.err


def test_a_bucket_that_is_not_there_ends_the_start(s3: S3Server, tmp_path: Path) -> None:
    said = refusal(tmp_path / "data", "s3://no-such-bucket/x", s3.endpoint)
    assert "no such bucket" in said
    assert "--bucket" in said


def test_a_store_without_tls_ends_the_start(s3: S3Server, tmp_path: Path) -> None:
    said = refusal(tmp_path / "data", "s3://any/x", s3.endpoint.replace("http:", "https:"))
    assert "http://" in said


def fetch_error(service: ServeProcess) -> int:
    """The code that a Kafka client gets for offset 0, which is in the bucket alone; 0 while it is told to wait."""

    async def ask() -> int:
        host, _, port = service.kafka.rpartition(":")
        asked = FetchTopic(
            topic=TOPIC, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
        )
        async with Wire(host, int(port)) as wire:
            request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1000, isolation_level=0, topics=[asked])
            answer = await wire.ask(request, 4)
        [part] = answer.responses[0].partitions
        return int(part.error_code)

    return asyncio.run(ask())


def problem(service: ServeProcess) -> dict[str, Any]:
    url = f"{service.url}{path('topics', TOPIC, 'partitions', 0, 'messages')}?offset=0&limit=1"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url, timeout=30)
    assert refused.value.code == 503
    found: dict[str, Any] = json.load(refused.value)
    return found


def fill(client: Client) -> None:
    messages = [{"value": "x" * 400} for _ in range(100)]
    client.post(path("topics", TOPIC, "messages", "batch"), {"messages": messages})


@pytest.mark.timeout(180)
def test_a_bucket_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    with weed(tmp_path / "weed") as s3, services(tmp_path) as make:
        bucket = ("--bucket", f"s3://{s3.new_bucket()}/x", "--s3-endpoint", s3.endpoint)
        service = make(*QUICK, *bucket, **credentials())
        assert "the bucket works" in service.output()
        config = {
            "segment.bytes": "20000",
            "remote.storage.enable": "true",
            "local.retention.ms": "1",
            "retention.ms": "-1",
        }
        with Client(service.url) as client:
            client.post(path("topics"), {"name": TOPIC, "config": config})

            def archived() -> dict[str, Any]:
                status: dict[str, Any] = client.get(path("topics", TOPIC, "archive"), limit=0)["partitions"][0]
                return status

            fill(client)
            fill(client)
            wait_until(lambda: archived()["local"]["start_offset"] > 0, "records are in the bucket alone")
            assert tierlog("archive", "status", server=service.url).code == 0

            s3.stop()
            # A person learns of it at once, a reader within seconds, and producers go on.
            ran = tierlog("archive", "status", server=service.url, code=1)
            assert "the bucket does not work" in ran.err and "Connection refused" in ran.err
            began = time.monotonic()
            document = problem(service)
            assert time.monotonic() - began < 8
            assert "Connection refused" in document["detail"]
            assert "since 20" in document["detail"]
            wait_until(lambda: fetch_error(service) == ErrorCode.KAFKA_STORAGE_ERROR, "a client is told", deadline_s=8)
            fill(client)
            fill(client)
            wait_until(lambda: archived()["last_failure"] != "", "archiving fails", deadline_s=40)
            assert "since 20" in archived()["last_failure"]
            ran = tierlog("archive", "status", server=service.url, code=1)
            assert "archiving fails since" in ran.err
            assert tierlog("archive", "status", "--json", server=service.url, code=1).json[0]["last_failure"]

            # A start without it is a start, with a word.
            service.stop()
            client.close()
            service.start()
            assert "the bucket does not answer" in service.output()
            assert "the bucket fails since" in problem(service)["detail"]
            fill(client)
            wait_until(lambda: archived()["last_failure"] != "", "archiving fails", deadline_s=40)

            s3.start()

            def works() -> bool:
                found = client.get(path("topics", TOPIC, "archive"), limit=0)["partitions"]
                return bool(found[0]["recovered"]) and not any(each["last_failure"] for each in found)

            wait_until(works, "it works", deadline_s=60)
            assert "archiving works again" in service.output(1000)
            ran = tierlog("archive", "status", server=service.url)
            assert "archiving works again since" in ran.err
            wait_until(lambda: fetch_error(service) == 0, "the client reads again")

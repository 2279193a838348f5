"""The bucket's policies against what is really asked of a bucket, recorded between the programs and a real S3 server.

All that a broker, a collector and a reader ask for is allowed, and everything that is allowed was asked for.
"""

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pyarrow.dataset
import pyarrow.fs
import pytest
from aiohttp import web
from botocore.config import Config
from confluent_kafka import Producer

from cold_tier.layout import PartitionLayout, SegmentName
from cold_tier.objects.open import StoreSettings, open_store
from hot_tier.ids import LeaderEpoch, Offset, PartitionId
from offloader.cost import PART_BYTES
from tests.integration.tiers import SOON, create_topic, local_start
from tests.support.command import tierlog
from tests.support.faulty_s3 import Act, Fault, FaultyS3, faulty
from tests.support.s3 import credentials, weed
from tests.support.service import services
from tests.support.waiting import wait_until
from tests.terraform.iam import Asked, allowing, key_actions, permissions, s3_actions
from tests.terraform.tool import Terraform
from tierlog.process import ServeProcess

PREFIX = "logs/tierlog"
KEY = "arn:aws:kms:eu-west-1:123456789012:key/00000000-0000-0000-0000-000000000000"
RECORDS, RECORD_BYTES = 45, 1_000_000
"""Random bytes: a segment of 20 MB stays larger than what is uploaded in one request."""


@dataclass
class Recorder:
    """What was asked of the bucket, by who asked."""

    proxy: FaultyS3
    bucket: str
    asked: dict[str, list[Asked]] = field(default_factory=dict)

    def of(self, who: str) -> None:
        """From now on it is `who` that asks."""
        found = self.asked.setdefault(who, [])

        def seen(request: web.Request, body: bytes) -> None:
            found.extend(s3_actions(request.method, request.path, request.query, body))

        self.proxy.seen = seen

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{PREFIX}"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorder]:
    folder = tmp_path_factory.mktemp("recorded")
    with weed(folder / "weed") as server, faulty(server.endpoint) as proxy, pytest.MonkeyPatch.context() as environment:
        for name, value in credentials().items():
            environment.setenv(name, value)
        recorder = Recorder(proxy, server.new_bucket())
        recorder.of("writer")
        write(recorder, folder, server.endpoint)
        recorder.of("reader")
        read(recorder)
        recorder.of("collector")
        collect(recorder)
        yield recorder


def write(recorder: Recorder, folder: Path, endpoint: str) -> None:
    """A broker's life: an upload that breaks off, archiving, a bad proposal, cold reads, retention, a restart."""
    part = Fault(Act.ANSWER, frozenset({"PUT"}), f"/{PREFIX}/topic=", every=1_000_000, status=500, code="InternalError")
    recorder.proxy.faults = (part,)
    flags = (*SOON, "--set", "archive.garbage_check_ms=300", "--bucket", recorder.url)
    with services(folder) as make:
        service = make(*flags, "--s3-endpoint", recorder.proxy.endpoint, **credentials())
        create_topic(service, "orders", segment_bytes="20000000")
        send(service)
        wait_until(lambda: local_start(service, "orders") > 0, "the first segments are in the bucket alone")
        assert recorder.proxy.met == 1
        propose(recorder.bucket, endpoint)
        wait_until(lambda: has(recorder, "s3:DeleteObject", "/proposals/"), "the proposal is refused")
        first = tierlog("consume", "orders", "--offset", "0", "--limit", "1", "--json", server=service.url)
        assert json.loads(first.lines[0])["offset"] == 0
        tierlog("topic", "alter", "orders", "--config", "retention.bytes=21000000", server=service.url)
        wait_until(lambda: start_offset(service) > 0, "retention lets go of the oldest segment")
        service.stop()
        service.start()
    asyncio.run(set_aside(recorder, folder, endpoint))


async def set_aside(recorder: Recorder, folder: Path, endpoint: str) -> None:
    """A large object with batches aside, whose upload breaks off: the topic of the broker has no transactions."""
    key = PartitionLayout("orders", uuid.uuid4(), PartitionId(0)).aside(
        SegmentName(Offset(0), LeaderEpoch(0), "ab" * 16)
    )
    recorder.proxy.faults = (
        Fault(Act.ANSWER, frozenset({"PUT"}), f"/{PREFIX}/{key}", every=1_000_000, status=500, code="InternalError"),
    )
    large = folder / "aside"
    large.write_bytes(bytes(PART_BYTES + 1))
    store = open_store(StoreSettings(bucket=recorder.url, s3_endpoint=recorder.proxy.endpoint))
    await store.put_file(key, str(large))
    await store.close()
    client = boto3.client("s3", endpoint_url=endpoint, config=Config(s3={"addressing_style": "path"}))
    client.delete_object(Bucket=recorder.bucket, Key=f"{PREFIX}/{key}")
    assert has(recorder, "s3:AbortMultipartUpload", "/aside/")


def send(service: ServeProcess) -> None:
    producer = Producer({"bootstrap.servers": service.kafka, "message.max.bytes": 2_000_000, "log_level": 0})
    for _ in range(RECORDS):
        producer.produce("orders", os.urandom(RECORD_BYTES), partition=0)
    assert producer.flush(60) == 0


def propose(bucket: str, endpoint: str) -> None:
    """Something that is no proposal, where the leader looks for them."""
    client = boto3.client("s3", endpoint_url=endpoint, config=Config(s3={"addressing_style": "path"}))
    listed = client.list_objects_v2(Bucket=bucket, Prefix=f"{PREFIX}/_tierlog/orders.")["Contents"]
    topic = listed[0]["Key"].removeprefix(f"{PREFIX}/_tierlog/").partition("/")[0]
    key = f"{PREFIX}/_tierlog/{topic}/0/proposals/{uuid.uuid4().hex}.proposal"
    client.put_object(Bucket=bucket, Key=key, Body=b"no proposal")


def start_offset(service: ServeProcess) -> int:
    with urllib.request.urlopen(f"{service.url}/api/v1/topics/orders/partitions/0/messages?limit=1") as answer:
        return int(json.load(answer)["messages"][0]["offset"])


def read(recorder: Recorder) -> None:
    """Our own readers, and one that knows nothing of us."""
    where = ("--bucket", recorder.url, "--s3-endpoint", recorder.proxy.endpoint)
    tierlog("archive", "status", *where)
    tierlog("archive", "verify", *where)
    endpoint = recorder.proxy.endpoint.removeprefix("http://")
    store = pyarrow.fs.S3FileSystem(endpoint_override=endpoint, scheme="http", region="us-east-1")
    table = pyarrow.dataset.dataset(f"{recorder.bucket}/{PREFIX}/topic=orders", filesystem=store, partitioning="hive")
    assert table.count_rows() > 0


def collect(recorder: Recorder) -> None:
    """Without the time that readers in flight are given."""
    at_once = {"TIERLOG_ARCHIVE__DELETE_GRACE_MS": "0", "TIERLOG_ARCHIVE__MANIFEST_HISTORY_MS": "0"}
    command = [sys.executable, "-m", "tierlog", "archive", "gc", "--offline", "--json", "--bucket", recorder.url]
    command += ["--s3-endpoint", recorder.proxy.endpoint]
    done = subprocess.run(command, env={**os.environ, **at_once}, capture_output=True, check=True, timeout=60)
    assert {each["kind"] for each in json.loads(done.stdout)["objects"]} == {"removed", "manifest"}


def has(recorder: Recorder, action: str, part: str) -> bool:
    return any(each.action == action and part in each.resource for each in recorder.asked["writer"])


@pytest.fixture(scope="module")
def policies(in_cloud: Terraform, recorded: Recorder) -> dict[str, dict[str, Any]]:
    plan = in_cloud.plan("modules/bucket", {"name": recorded.bucket, "prefix": PREFIX, "kms_key_arn": KEY})
    documents: Mapping[str, str] = plan["planned_values"]["outputs"]["policy_documents"]["value"]
    return {name: json.loads(document) for name, document in documents.items()}


def all_asked(recorded: Recorder, who: str) -> set[Asked]:
    asked = set(recorded.asked[who])
    return asked | set(key_actions(asked, KEY, "s3.eu-west-1.amazonaws.com"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("who", ["writer", "collector", "reader"])
def test_what_is_asked_for_is_allowed(recorded: Recorder, policies: dict[str, dict[str, Any]], who: str) -> None:
    assert sorted({str(each) for each in all_asked(recorded, who) if not allowing(policies[who], each)}) == []


@pytest.mark.parametrize("who", ["writer", "collector", "reader"])
def test_what_is_allowed_is_asked_for(recorded: Recorder, policies: dict[str, dict[str, Any]], who: str) -> None:
    used = {permission for each in all_asked(recorded, who) for permission in allowing(policies[who], each)}
    assert set(permissions(policies[who])) - used == set()


@pytest.mark.parametrize("who", ["collector", "reader"])
def test_nobody_but_the_writer_writes(policies: dict[str, dict[str, Any]], who: str) -> None:
    assert "s3:PutObject" not in {action for _, action, _ in permissions(policies[who])}


def test_a_reader_is_refused_what_a_writer_does(recorded: Recorder, policies: dict[str, dict[str, Any]]) -> None:
    """The checker can say no: else the tests above would show nothing."""
    refused = {each.action for each in recorded.asked["writer"] if not allowing(policies["reader"], each)}
    assert refused == {"s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"}
    elsewhere = Asked("s3:GetObject", f"arn:aws:s3:::{recorded.bucket}/else/where")
    assert not any(allowing(policy, elsewhere) for policy in policies.values())
    everything = Asked("s3:ListBucket", f"arn:aws:s3:::{recorded.bucket}", {"s3:prefix": ""})
    assert not any(allowing(policy, everything) for policy in policies.values())

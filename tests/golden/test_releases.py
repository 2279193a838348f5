"""What released versions left behind opens unchanged: data directories, buckets, cluster metadata.

`tests/golden/v0.1.0/README.md` says what is stored and how it was made.
"""

import asyncio
import base64
import json
import tarfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from hot_tier.cluster.etcd import EtcdStore
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.store import Put
from hot_tier.ids import PartitionId
from tests.golden.releases import HERE, NEVER_EXPIRES, TOPICS, Seen, look, plain, records, send_batch
from tests.support.command import tierlog
from tests.support.etcd import EtcdCluster, etcd_cluster
from tests.support.service import QUICK
from tierlog.process import ServeProcess

RELEASES = sorted(path.name for path in HERE.glob("v*"))
FLAGS = [*QUICK, *(word for setting in NEVER_EXPIRES for word in ("--set", setting))]
PREFIX = "/tierlog/"


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> Path:
    return HERE / str(request.param)


def expected(release: Path, name: str) -> Seen:
    found: Seen = json.loads((release / "expected.json").read_text())[name]
    return found


def unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")


@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_a_data_directory_opens(release: Path, ending: str, tmp_path: Path) -> None:
    unpack(release / f"{ending}.tar.xz", tmp_path)
    with ServeProcess(tmp_path / "node", FLAGS) as node:
        seen = expected(release, ending)
        check(node, seen)
        write_on(node.kafka, seen)
        node.stop()
        node.start()
        check_written(node.kafka, seen)
        assert warnings(node) == []
    check_bucket(tmp_path / "node" / "bucket")


def test_a_cluster_opens(release: Path, tmp_path: Path) -> None:
    unpack(release / "cluster.tar.xz", tmp_path)
    with ExitStack() as stack:
        cluster = stack.enter_context(etcd_cluster(1))
        asyncio.run(store_dump(cluster, release / "metadata-stopped.json"))
        shared = ["--metadata", cluster.url, "--bucket", f"file://{tmp_path}/bucket"]
        nodes = [
            ServeProcess(tmp_path / f"broker-{n}", [*FLAGS, *shared, "--node-id", str(n), "--rack", f"r{n}"])
            for n in (1, 2, 3)
        ]
        for node in nodes:
            stack.callback(node.kill)
        with ThreadPoolExecutor() as starting:
            list(starting.map(ServeProcess.start, nodes))
        seen = expected(release, "cluster")
        check(nodes[0], seen)
        write_on(nodes[0].kafka, seen)
        check_written(nodes[2].kafka, seen)
    check_bucket(tmp_path / "bucket")


def test_metadata_of_a_running_cluster_is_read(release: Path) -> None:
    """As a new broker finds it in a rolling upgrade: with registrations and a controller."""
    seen = expected(release, "cluster")

    async def read(cluster: EtcdCluster) -> None:
        await store_dump(cluster, release / "metadata-running.json")
        store = EtcdStore([cluster.members[0].endpoint], PREFIX)
        await store.open()
        image = ClusterImage(store)
        await image.open()
        try:
            assert sorted(broker.id for broker in image.brokers()) == [1, 2, 3]
            assert image.controller in (1, 2, 3)
            topics = {topic.name: topic for topic in image.topics() if not topic.internal}
            assert {name: str(topic.id) for name, topic in topics.items()} == {
                name: described["id"] for name, described in seen["topics"].items()
            }
            assert [topic.name for topic in image.deleted_topics()] == ["gone"]
            history = image.archive_record(topics["history"].id, PartitionId(0))
            assert history is not None and history.end_offset == seen["archived"]
        finally:
            await image.close()
            await store.close()

    with etcd_cluster(1) as cluster:
        asyncio.run(read(cluster))


async def store_dump(cluster: EtcdCluster, dump: Path) -> None:
    """Puts every key where it was, those with a lease under a new one."""
    store = EtcdStore([cluster.members[0].endpoint], "/")
    await store.open()
    lease = await store.grant_lease(600_000)
    for entry in json.loads(dump.read_text()):
        key = entry["key"].removeprefix("/")
        assert await store.transact([], [Put(key, entry["value"].encode(), lease if entry["leased"] else None)])
    await store.close()


def check(node: ServeProcess, seen: Seen) -> None:
    """Everything that was seen then is seen now, and the bytes of an idempotent producer are known."""
    found = plain(look(node.kafka, node.http))
    for what in found:
        if what != "local":
            assert found[what] == seen[what], what
    assert found["local"] >= seen["local"] > 0, "the first records are in the bucket alone"
    batch = base64.b64decode(seen["batch"])
    assert send_batch(node.kafka, batch) == seen["batch_offset"]


def write_on(kafka: str, seen: Seen) -> None:
    producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True})
    for topic in TOPICS:
        producer.produce(topic, key=b"new", value=b"written by the present version", partition=0)
    assert producer.flush(30) == 0


def check_written(kafka: str, seen: Seen) -> None:
    for topic in TOPICS:
        found = plain({"records": records(kafka, topic)})["records"]
        before = seen["records"][topic]
        new = [record for record in found if record not in before]
        assert len(found) == len(before) + 1, topic
        assert [base64.b64decode(record[4]) for record in new] == [b"written by the present version"], topic


def check_bucket(bucket: Path) -> None:
    where = ("--bucket", f"file://{bucket}", "--json")
    assert tierlog("archive", "verify", *where).json["problems"] == 0
    assert [pin["name"] for pin in tierlog("archive", "pins", *where).json] == ["job"]


def warnings(node: ServeProcess) -> Any:
    with urllib.request.urlopen(f"{node.url}/readyz", timeout=30) as answer:
        return json.load(answer)["warnings"]

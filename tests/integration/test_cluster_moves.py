"""Replicas move between real brokers while records are kept: a broker comes, gets its share, and goes again."""

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient
from kafka.structs import TopicPartition

from benchmarks.peer.jars import PeerUnavailable, jars_dir, java
from tests.support.brokers import Brokers, cluster, make_topic, partitions
from tests.support.command import tierlog
from tests.support.waiting import wait_until
from tierlog.client import Client, path

WAIT_S = 60.0
RECORDS = 2_000


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Three brokers on two racks."""
    with cluster(tmp_path_factory.mktemp("cluster"), size=0) as brokers:
        brokers.start_all({1: "a", 2: "b", 3: "a"})
        yield brokers


def produce(brokers: Brokers, topic: str) -> None:
    producer = ck.Producer({"bootstrap.servers": brokers.bootstrap, "acks": "all"})
    failed: list[Any] = []
    for number in range(RECORDS):
        producer.produce(
            topic, f"record {number}", str(number), on_delivery=lambda error, _: error and failed.append(error)
        )
    assert producer.flush(WAIT_S) == 0
    assert not failed


def consume(brokers: Brokers, topic: str) -> list[str]:
    """All records, by key order."""
    consumer = ck.Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([ck.TopicPartition(topic, each["partition"], 0) for each in partitions(brokers, topic)])
    found: list[str] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < RECORDS and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.5):
            assert message.error() is None, message.error()
            found.append(message.value().decode())
    consumer.close()
    return sorted(found)


EXPECTED = sorted(f"record {number}" for number in range(RECORDS))


def logs_of(brokers: Brokers, node: int, topic: str) -> list[Path]:
    return sorted((brokers[node].data_dir / "logs").glob(f"{topic}.*/*/*.log"))


@pytest.mark.timeout(180)
def test_administrators_tools_move_partitions_and_leaders(brokers: Brokers) -> None:
    make_topic(brokers, "moved", partitions=1, replication_factor=1)
    produce(brokers, "moved")
    tp = TopicPartition("moved", 0)
    admin = KafkaAdminClient(bootstrap_servers=brokers.bootstrap.split(","))
    try:
        for target in ([1, 2, 3], [3, 2], [2]):
            admin.alter_partition_reassignments({tp: target})
            wait_until(lambda: not admin.list_partition_reassignments(), "the reassignment is done")
            (found,) = partitions(brokers, "moved")
            assert (found["replicas"], sorted(found["isr"])) == (target, sorted(target))
            assert found["leader"] in target
        admin.alter_partition_reassignments({tp: [1, 2]})
        wait_until(lambda: not admin.list_partition_reassignments(), "the reassignment is done")
        assert partitions(brokers, "moved")[0]["leader"] == 2
    finally:
        admin.close()
    electing = AdminClient({"bootstrap.servers": brokers.bootstrap})
    elected = electing.elect_leaders(ck.ElectionType.PREFERRED, [ck.TopicPartition("moved", 0)])
    assert list(elected.result(WAIT_S).values()) == [None]
    assert partitions(brokers, "moved")[0]["leader"] == 1
    assert consume(brokers, "moved") == EXPECTED
    with Client(brokers[1].url) as client:
        client.delete(path("topics", "moved"))


@pytest.mark.java
@pytest.mark.timeout(180)
def test_apaches_own_tool_moves_a_partition_slowly(brokers: Brokers, tmp_path: Path) -> None:
    make_topic(brokers, "slowly", partitions=1, replication_factor=1)
    target = [3, 2]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": "slowly", "partition": 0, "replicas": target}]}))
    try:
        command = [java(), "-cp", f"{jars_dir()}/*", "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"]
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    command += ["--bootstrap-server", brokers.bootstrap, "--reassignment-json-file", str(plan)]

    def run(*flags: str) -> str:
        done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "Successfully started partition reassignment" in run("--execute", "--throttle", "1000000")
    wait_until(lambda: partitions(brokers, "slowly")[0]["replicas"] == target, "it has moved")
    said = run("--verify")
    assert "Reassignment of partition slowly-0 is completed." in said
    assert "Clearing broker-level throttles" in said
    with Client(brokers[1].url) as client:
        client.delete(path("topics", "slowly"))


@pytest.mark.timeout(180)
def test_a_broker_comes_gets_its_share_and_goes_again(brokers: Brokers) -> None:
    make_topic(brokers, "t", partitions=6, replication_factor=2)
    racks = {1: "a", 2: "b", 3: "a"}
    for each in partitions(brokers, "t"):
        assert {racks[node] for node in each["replicas"]} == {"a", "b"}
    produce(brokers, "t")

    brokers.add(4, "--rack", "b").start()
    racks[4] = "b"
    shown = tierlog("cluster", "rebalance", "--dry-run", "--json", server=brokers[1].url).json["moves"]
    moved = tierlog("cluster", "rebalance", "--json", server=brokers[1].url).json["moves"]
    assert moved == shown
    assert moved
    after = partitions(brokers, "t")
    assert {each["partition"]: each["replicas"] for each in after}.items() >= {
        each["partition"]: each["after"] for each in moved if each["topic"] == "t"
    }.items()
    everything = after + partitions(brokers, "__consumer_offsets")
    held = {node: sum(node in each["replicas"] for each in everything) for node in racks}
    assert max(held.values()) - min(held.values()) <= 2, "as even as two racks allow"
    for each in after:
        assert {racks[node] for node in each["replicas"]} == {"a", "b"}
        assert set(each["isr"]) == set(each["replicas"])
    assert len({path.parent for path in logs_of(brokers, 4, "t")}) == sum(4 in each["replicas"] for each in after) > 0
    assert consume(brokers, "t") == EXPECTED

    ran = tierlog("cluster", "decommission", "2", server=brokers[3].url)
    assert ran.out == "broker 2 holds nothing any more\n"
    wait_until(lambda: not logs_of(brokers, 2, "t"), "what it no longer holds goes from its disk")
    brokers[2].stop()
    assert all(2 not in each["replicas"] and each["leader"] for each in partitions(brokers, "t"))
    assert consume(brokers, "t") == EXPECTED
    produce(brokers, "t")

    refused = tierlog("cluster", "decommission", "4", server=brokers[1].url, code=4)
    assert "has 3 replicas, and only 2 brokers would stay" in refused.err
    tierlog("cluster", "decommission", "2", "--cancel", server=brokers[1].url)
    assert "there never was a broker 17" in tierlog("cluster", "decommission", "17", server=brokers[1].url, code=3).err

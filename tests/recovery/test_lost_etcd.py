"""etcd and its backups are lost; the metadata of a cluster is made anew from what its brokers hold."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.support.brokers import Brokers, make_topic
from tests.support.command import tierlog
from tests.support.etcd import etcd
from tests.support.waiting import wait_until
from tests.upgrade.traffic import Traffic, check_all
from tierlog.client import Client, path

SOON = ("--set", "archive.check_ms=200", "--set", "log.retention_check_ms=200")
SAFE = {"min.insync.replicas": "2"}
ARCHIVED = {**SAFE, "remote.storage.enable": "true", "segment.bytes": "20000", "local.retention.bytes": "30000"}
PARTITIONS = 3


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    with ExitStack() as stack, ExitStack() as first:
        made = Brokers(tmp_path, first.enter_context(etcd()), stack, {})
        made.start_all(dict.fromkeys((1, 2, 3), ""), *SOON)
        yield made


def committed(brokers: Brokers, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "upgrade"})
    found = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], timeout=30)
    consumer.close()
    return sum(each.offset for each in found)


def archived_end(brokers: Brokers, topic: str) -> int:
    with Client(brokers[1].url) as client:
        shown = client.get(path("topics", topic, "archive"))["partitions"]
    return sum(part["archived"]["end_offset"] for part in shown if part["archived"])


def take_surveys(brokers: Brokers, directory: Path) -> list[str]:
    found = []
    for node, process in brokers.by_node.items():
        said = tierlog("cluster", "survey", "--node-id", str(node), "--data-dir", str(process.data_dir))
        path = directory / f"broker-{node}.json"
        path.write_text(said.out)
        found.append(str(path))
    return found


def test_every_acknowledged_record_is_there_without_the_old_etcd(brokers: Brokers, tmp_path: Path) -> None:
    """One broker is behind when the others are killed, so that not any log will do."""
    topics = {"orders": SAFE, "history": ARCHIVED}
    with ExitStack() as stack:
        for topic, config in topics.items():
            make_topic(brokers, topic, partitions=PARTITIONS, replication_factor=3, config=config)
        traffic = {name: stack.enter_context(Traffic(brokers.bootstrap, name, PARTITIONS)) for name in topics}
        for each in traffic.values():
            each.goes_on(100)
        brokers[3].kill()
        for each in traffic.values():
            each.goes_on(300)
        wait_until(lambda: archived_end(brokers, "history") > 0, "records are archived")
    place, archived = committed(brokers, "orders"), archived_end(brokers, "history")
    for process in brokers.by_node.values():
        process.kill()
    surveys = take_surveys(brokers, tmp_path)
    with etcd() as url:
        shared = ("--metadata", url, "--bucket", f"file://{tmp_path}/bucket")
        said = tierlog("cluster", "rebuild", *surveys, *shared, "--partitions", "__consumer_offsets=4")
        assert "orders: 3 partitions, 3 replicas" in said.out
        assert "orders: its settings are not known" in said.err and "history: its" not in said.err
        again = tierlog("cluster", "rebuild", *surveys, *shared, code=4)
        assert "there is cluster metadata already" in again.err
        for process in brokers.by_node.values():
            process.flags = tuple(url if word == brokers.metadata else word for word in process.flags)
        for process in reversed(brokers.by_node.values()):
            process.launch()
        for process in brokers.by_node.values():
            process.wait_until_ready()
        for name, each in traffic.items():
            check_all(brokers.bootstrap, name, PARTITIONS, each)
        assert committed(brokers, "orders") == place, "groups are where they were"
        with Traffic(brokers.bootstrap, "history", PARTITIONS) as more:
            more.goes_on(200)
            wait_until(lambda: archived_end(brokers, "history") > archived, "the archive goes on")
        assert more.failed == {}
        assert tierlog("archive", "verify", *shared[2:], "--json").json["problems"] == 0
        for process in brokers.by_node.values():
            process.kill()


def test_a_directory_that_is_in_use_is_not_surveyed(brokers: Brokers) -> None:
    where = ("--data-dir", str(brokers[1].data_dir))
    said = tierlog("cluster", "survey", "--node-id", "1", *where, code=2)
    assert "another broker uses this data directory" in said.err
    assert os.path.exists(brokers[1].data_dir)

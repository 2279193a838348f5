"""A cluster is upgraded from 0.1.0 and taken back again, broker by broker, while clients go on."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.brokers import Brokers, make_topic, partitions
from tests.support.command import tierlog
from tests.support.etcd import etcd
from tests.support.waiting import wait_until
from tests.upgrade.traffic import Traffic, check_all
from tests.upgrade.versions import environment_of_old, run_as
from tierlog.client import Client, path

TOPIC, PARTITIONS = "events", 3
SOON = ("--set", "archive.check_ms=200", "--set", "log.retention_check_ms=200")
ARCHIVED = {"remote.storage.enable": "true", "segment.bytes": "20000", "min.insync.replicas": "2", "retention.ms": "-1"}


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    """Three of 0.1.0, with a topic that is archived."""
    environment = environment_of_old()
    with ExitStack() as stack:
        made = Brokers(tmp_path, stack.enter_context(etcd()), stack, {})
        for node in (1, 2, 3):
            made.add(node, *SOON).environment.update(environment)
        start_all(made)
        make_topic(made, TOPIC, partitions=PARTITIONS, replication_factor=3, config=ARCHIVED)
        yield made


def start_all(brokers: Brokers) -> None:
    for process in brokers.by_node.values():
        process.launch()
    for process in brokers.by_node.values():
        process.wait_until_ready()


def archived_end(brokers: Brokers) -> int:
    with Client(brokers[1].url) as client:
        shown = client.get(path("topics", TOPIC, "archive"))
    return sum(part["archived"]["end_offset"] for part in shown["partitions"] if part["archived"])


def wait_until_archive_goes_on(brokers: Brokers) -> None:
    before = archived_end(brokers)
    wait_until(lambda: archived_end(brokers) > before, "the archive goes on")


def wait_until_whole(brokers: Brokers) -> None:
    def whole() -> bool:
        return all(len(part["isr"]) == 3 for part in partitions(brokers, TOPIC))

    wait_until(whole, "every broker is in sync everywhere")


def roll(brokers: Brokers, *, killed: bool) -> None:
    """Each broker to the present version, then each back to 0.1.0."""
    with Traffic(brokers.bootstrap, TOPIC, PARTITIONS) as traffic:
        for environment in ({}, environment_of_old()):
            for node in (1, 2, 3):
                if killed:
                    brokers[node].kill()
                run_as(brokers[node], environment)
                wait_until_whole(brokers)
                traffic.goes_on()
            wait_until_archive_goes_on(brokers)
    assert traffic.failed == {}
    check_all(brokers.bootstrap, TOPIC, PARTITIONS, traffic)
    bucket = f"file://{brokers.directory}/bucket"
    assert tierlog("archive", "verify", "--bucket", bucket, "--json").json["problems"] == 0


def test_a_cluster_is_upgraded_and_taken_back_under_load(brokers: Brokers) -> None:
    roll(brokers, killed=False)


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["commit", "os"])
def test_brokers_that_are_killed_are_upgraded_and_taken_back(brokers: Brokers, flush: str) -> None:
    with Client(brokers[1].url) as client:
        client.patch(path("topics", TOPIC), {"config": {"flush": flush}})
    roll(brokers, killed=True)

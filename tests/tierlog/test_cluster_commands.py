"""A cluster that one command runs: it comes up, says how it is, goes down, and comes up as it was."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import tierlog
from tests.support.etcd import etcd_binary, etcd_cluster
from tests.support.modes import open_to_others
from tests.support.service import services
from tests.support.waiting import wait_until
from tierlog.client import Client, path
from tierlog.cluster_process import LocalCluster
from tierlog.cluster_status import summary

DEADLINE_S = 60


class Up:
    """A running `tierlog cluster up`."""

    def __init__(self, directory: Path, *flags: str) -> None:
        command = [sys.executable, "-m", "tierlog", "cluster", "up", "--data-dir", str(directory), "--json", *flags]
        self.errors = directory.with_suffix(".err")
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)

    def document(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it ended instead of getting ready:\n{self.errors.read_text()}"
        return json.loads(line)

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)


@contextmanager
def up(directory: Path, *flags: str) -> Iterator[Up]:
    etcd_binary()
    running = Up(directory, *flags)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.terminate()
            try:
                running.process.wait(DEADLINE_S)
            finally:
                running.process.kill()
        if running.process.stdout is not None:
            running.process.stdout.close()


def listeners(directory: Path) -> list[int]:
    """Those of the cluster's ports that somebody listens on."""
    plan = json.loads((directory / "cluster.json").read_text())
    ports = [plan["etcd_port"], *(port for each in plan["brokers"] for port in each.values())]
    found = []
    for port in ports:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                found.append(port)
    return found


@pytest.mark.timeout(300)
def test_the_life_of_a_cluster(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    with up(directory, "--brokers", "2") as running:
        first = running.document()
        one, two = first["brokers"]
        with Client(one["http"]) as client:
            client.post(path("topics"), {"name": "orders", "partitions": 4})
            stored = client.post(path("topics", "orders", "messages"), b"kept")
        healthy = tierlog("cluster", "status", "--json", server=two["http"]).json
        assert healthy["healthy"] and healthy["partitions"] == 4
        assert [(each["up"], each["rack"], each["leaders"], each["in_sync"]) for each in healthy["brokers"]] == [
            (True, "rack-1", 2, 4),
            (True, "rack-2", 2, 4),
        ]

        os.kill(two["pid"], signal.SIGKILL)
        wait_until(lambda: "broker 2 was ended by signal 9" in running.errors.read_text(), "word of the broker's end")

        def status() -> Any:
            return tierlog("cluster", "status", "--json", server=one["http"], code=None).json

        wait_until(lambda: [each["leaders"] for each in status()["brokers"]] == [4, 0], "broker 1 to lead everything")
        wait_until(lambda: len(status()["under_replicated"]) == 4, "broker 2 to leave the in-sync sets")
        shown = tierlog("cluster", "status", server=one["http"], code=1).out
        assert "4 partitions with replicas missing" in shown and "down" in shown
        assert running.end(signal.SIGTERM) == 0
    assert listeners(directory) == []
    assert not open_to_others(directory)

    with up(directory) as running:
        second = running.document()
        assert [(each["kafka"], each["http"]) for each in second["brokers"]] == [
            (each["kafka"], each["http"]) for each in first["brokers"]
        ]
        wait_until(lambda: tierlog("cluster", "status", server=two["http"], code=None).code == 0, "all in sync")
        with Client(two["http"]) as client:
            at = path("topics", "orders", "partitions", stored["partition"], "messages")
            (message,) = client.get(at, offset=stored["offset"])["messages"]
            assert message["offset"] == stored["offset"]
        assert running.end(signal.SIGINT) == 0
    assert listeners(directory) == []


@pytest.mark.timeout(180)
def test_an_interrupted_start_leaves_nothing_behind(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    with up(directory, "--brokers", "2") as running:
        wait_until(lambda: (directory / "broker-2.out").exists(), "the brokers to be started")
        assert running.end(signal.SIGINT) == 130
    assert listeners(directory) == []


@pytest.mark.timeout(180)
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_killed_command_leaves_nothing_behind(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    with up(directory, "--brokers", "2") as running:
        running.document()
        assert running.end(signal.SIGKILL) == -signal.SIGKILL
        wait_until(lambda: listeners(directory) == [], "its processes to be gone")


def test_status_says_that_etcd_is_down(tmp_path: Path) -> None:
    with etcd_cluster(1) as store, services(tmp_path) as make:
        service = make("--node-id", "1", "--metadata", store.url, "--bucket", f"file://{tmp_path}/bucket")
        assert tierlog("cluster", "status", server=service.url).err == ""
        (member,) = store.members
        member.kill()
        shown = tierlog("cluster", "status", server=service.url, code=1)
        assert "broker 1" in shown.out, "what it knows is shown all the same"
        assert "broker 1 shows what it saw last" in shown.err and member.address in shown.err
        found = tierlog("cluster", "status", "--json", server=service.url, code=1).json
        assert not found["healthy"] and "no endpoint of etcd answers" in found["metadata_error"]
        member.start()
        member.wait_until_ready()
        wait_until(lambda: tierlog("cluster", "status", server=service.url, code=None).code == 0, "a healthy cluster")


def test_without_etcd_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = tierlog("cluster", "up", "--data-dir", str(tmp_path / "cluster"), code=1)
    assert "no etcd on PATH" in ran.err and "apt install etcd-server" in ran.err


def test_a_bucket_that_is_none_is_not_remembered(tmp_path: Path) -> None:
    ran = tierlog("cluster", "up", "--data-dir", str(tmp_path), "--bucket", "nonsense", code=2)
    assert "'nonsense'" in ran.err and "file:///" in ran.err
    assert not (tmp_path / "cluster.json").exists()


def test_what_a_directory_holds_is_not_changed_by_accident(tmp_path: Path) -> None:
    LocalCluster(tmp_path, 3, "file:///tmp/one", usual_ports=False)
    ran = tierlog("cluster", "up", "--data-dir", str(tmp_path), "--bucket", "file:///tmp/two", code=2)
    assert "archives to file:///tmp/one" in ran.err
    (tmp_path / "cluster.json").write_text("{}")
    ran = tierlog("cluster", "up", "--data-dir", str(tmp_path), code=2)
    assert "cluster.json" in ran.err


def test_ports_are_kept_and_brokers_can_be_added(tmp_path: Path) -> None:
    first = LocalCluster(tmp_path, 2, usual_ports=False)
    more = LocalCluster(tmp_path, 4, usual_ports=False)
    again = LocalCluster(tmp_path, usual_ports=False)
    assert more.plan == again.plan
    assert [broker.kafka for broker in again.brokers.values()][:2] == [b.kafka for b in first.brokers.values()]
    assert list(again.brokers) == [1, 2, 3, 4]
    ports = [port for each in again.plan.brokers for port in (each.kafka, each.http)]
    assert len({*ports, again.plan.etcd_port, again.plan.etcd_peer_port}) == 10


# Status, from what a node says


def partition(number: int, leader: int | None, replicas: list[int], isr: list[int]) -> dict[str, Any]:
    return {"partition": number, "leader": leader, "replicas": replicas, "isr": isr, "leader_epoch": 3}


def broker(node: int) -> dict[str, Any]:
    return {"id": node, "host": "h", "port": 9, "rack": None, "http_host": "h", "http_port": 8}


def cluster_of(*nodes: int, controller: int | None = 1, error: str | None = None) -> dict[str, Any]:
    brokers = [broker(node) for node in nodes]
    return {"cluster_id": "c", "node_id": 1, "controller": controller, "brokers": brokers, "metadata_error": error}


def test_a_whole_cluster_is_healthy() -> None:
    topics = [{"name": "t", "partitions": [partition(0, 1, [1, 2], [2, 1]), partition(1, 2, [2, 1], [2, 1])]}]
    found = summary(cluster_of(1, 2), topics)
    assert found["healthy"] and not found["offline"] and not found["under_replicated"]
    assert [each["leaders"] for each in found["brokers"]] == [1, 1]
    assert not summary(cluster_of(1, 2, controller=None), topics)["healthy"]
    assert not summary(cluster_of(1, 2, error="no answer"), topics)["healthy"]


def test_a_broker_that_is_down_is_known_by_its_replicas() -> None:
    topics = [
        {"name": "t", "partitions": [partition(0, 1, [1, 2], [1]), partition(1, None, [2], [2])]},
        {"name": "u", "partitions": [partition(0, 1, [1], [1])]},
    ]
    found = summary(cluster_of(1), topics)
    assert not found["healthy"]
    assert [(each["id"], each["up"]) for each in found["brokers"]] == [(1, True), (2, False)]
    assert [(each["topic"], each["partition"]) for each in found["offline"]] == [("t", 1)]
    assert [(each["topic"], each["partition"]) for each in found["under_replicated"]] == [("t", 0)]
    down = found["brokers"][1]
    assert (down["leaders"], down["replicas"], down["in_sync"]) == (0, 2, 1)

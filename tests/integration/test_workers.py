"""`tierlog serve --workers 2`: brokers of one host as one service, that are killed, stopped and started again."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.etcd import etcd
from tests.support.service import QUICK
from tests.support.workers import (
    Load,
    cluster,
    is_running,
    load,
    make_topic,
    partitions,
    read_all,
    until,
    wait_for_brokers,
    worker_pids,
)
from tierlog.process import ServeFailed, ServeProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers need Linux")


def workers(directory: Path, *flags: str) -> ServeProcess:
    return ServeProcess(directory, (*QUICK, "--workers", "2", *flags))


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServeProcess]:
    made = workers(tmp_path / "data").start()
    try:
        yield made
    finally:
        made.kill()


def url_of(service: ServeProcess, node: int) -> str:
    (broker,) = [each for each in cluster(service.url)["brokers"] if each["id"] == node]
    return f"http://{broker['http_host']}:{broker['http_port']}"


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def all_there(bootstrap: str, topic: str, count: int, acked: set[bytes]) -> None:
    """Everything acknowledged is read, and offsets have no gap and no second value."""
    found = read_all(bootstrap, topic, count)
    assert acked <= {value for _, _, value in found}, f"{topic} has lost acknowledged records"
    for partition in range(count):
        offsets = [offset for where, offset, _ in found if where == partition]
        assert offsets == list(range(len(offsets)))


def test_two_workers_are_two_brokers_of_one_host(service: ServeProcess) -> None:
    wait_for_brokers(service.url, 2)
    seen = AdminClient({"bootstrap.servers": service.kafka}).list_topics(timeout=30)
    assert sorted(seen.brokers) == [1, 2]
    ports = {broker.port for broker in seen.brokers.values()}
    bootstrap_port = int(service.kafka.rpartition(":")[2])
    assert len(ports) == 2 and bootstrap_port not in ports
    brokers = cluster(service.url)["brokers"]
    assert {each["host_name"] for each in brokers} == {socket.gethostname()}

    make_topic(service.url, "spread", partitions=4)
    assert sorted(each["leader"] for each in partitions(service.url, "spread")) == [1, 1, 2, 2]
    assert all(len(each["replicas"]) == 1 for each in partitions(service.url, "spread")), "one host has one copy"
    with load(service.kafka, "spread") as running:
        running.more(2_000)
        acked = running.stop()["spread"]
    all_there(service.kafka, "spread", 4, acked)
    consumer = Consumer({"bootstrap.servers": service.kafka, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["spread"])
    grouped: set[bytes] = set()
    until(lambda: grouped.update(each.value() for each in consumer.consume(500, 0.5)) or acked <= grouped, "the group")
    consumer.close()
    assert {len(each["replicas"]) for each in partitions(service.url, "__consumer_offsets")} == {1}

    asked = {cluster(service.url)["node_id"] for _ in range(40)}
    assert asked == {1, 2}, "both answer at the address in common"
    for node in (1, 2):
        until(lambda node=node: urllib.request.urlopen(f"{url_of(service, node)}/readyz").status == 200, "ready")
        metrics = urllib.request.urlopen(f"{url_of(service, node)}/metrics").read().decode()
        assert "tierlog_brokers 2" in metrics
    shown = subprocess.run(
        [sys.executable, "-m", "tierlog", "cluster", "status", "--server", service.url],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"host {socket.gethostname()}" in shown

    pids = worker_pids(service)
    assert set(pids) == {1, 2}
    service.stop()
    assert not any(map(is_running, pids.values()))
    assert not any(map(answers, {*ports, bootstrap_port}))
    with pytest.raises(ServeFailed, match="2 workers keep their data here"):
        ServeProcess(service.data_dir).start()
    service.start()
    assert {broker.port for broker in AdminClient({"bootstrap.servers": service.kafka}).list_topics().brokers.values()}
    all_there(service.kafka, "spread", 4, acked)


def test_a_killed_worker_is_started_again_and_nothing_is_lost(service: ServeProcess) -> None:
    """One topic has one copy, on disk before it is acknowledged; the other has two, so leadership moves meanwhile."""
    make_topic(service.url, "one", partitions=4, replication_factor=1, config={"flush": "commit"})
    wait_for_brokers(service.url, 2)
    make_topic(service.url, "two", partitions=4, replication_factor=2)
    with load(service.kafka, "one", "two") as running:
        for killed in (1, 2):
            kill_one(service, killed, running)
        acked = running.stop()
    for topic in ("one", "two"):
        all_there(service.kafka, topic, 4, acked[topic])
    assert "was ended by signal 9" in service.output(400)


def kill_one(service: ServeProcess, killed: int, running: Load) -> None:
    """Returns when it is back."""
    other = 3 - killed
    there = url_of(service, other)
    running.more(1_000)
    pid = worker_pids(service)[killed]
    os.kill(pid, signal.SIGKILL)
    until(lambda: {each["leader"] for each in partitions(there, "two")} == {other}, "the other one leads")
    running.more(1_000)
    until(lambda: worker_pids(service).get(killed, pid) != pid, "it is started again")
    wait_for_brokers(there, 2)
    until(lambda: all(len(each["isr"]) == 2 for each in partitions(there, "two")), "it is in sync again")


def test_workers_end_with_a_killed_supervisor_and_all_is_found_again(service: ServeProcess) -> None:
    make_topic(service.url, "one", partitions=4, config={"flush": "commit"})
    pids = worker_pids(service)
    with load(service.kafka, "one") as running:
        running.more(1_000)
        service.kill()
        until(lambda: not any(map(is_running, pids.values())), "no worker is left", 10)
        service.start()
        running.more(1_000)
        acked = running.stop()
    all_there(service.kafka, "one", 4, acked["one"])


def test_workers_are_spread_over_disks_and_may_become_more_and_fewer(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"

    def several(count: int) -> ServeProcess:
        return ServeProcess(home, (*QUICK, "--data-dir", str(other), "--workers", str(count)))

    service = several(2)
    try:
        service.start()
        wait_for_brokers(service.url, 2)
        assert (home / "worker-1").is_dir() and (other / "worker-2").is_dir()
        make_topic(service.url, "t", partitions=6)
        with load(service.kafka, "t") as running:
            running.more(500)
            acked = running.stop()["t"]
        service.stop()

        service = several(3).start()
        wait_for_brokers(service.url, 3)
        operate(service, "rebalance")
        until(lambda: {each["leader"] for each in partitions(service.url, "t")} == {1, 2, 3}, "it has its share")
        until(lambda: all(len(each["replicas"]) == 1 for each in partitions(service.url, "t")), "nothing moves")
        operate(service, "decommission", "3")
        until(lambda: {each["leader"] for each in partitions(service.url, "t")} == {1, 2}, "it leads nothing")
        service.stop()

        with pytest.raises(ServeFailed, match="worker 3 has data here"):
            several(2).start()
        (home / "worker-3").rename(tmp_path / "away")
        service = several(2).start()
        all_there(service.kafka, "t", 6, acked)
    finally:
        service.kill()


def operate(service: ServeProcess, *words: str) -> None:
    command = [sys.executable, "-m", "tierlog", "cluster", *words, "--server", service.url]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def test_a_worker_that_cannot_start_stops_all(tmp_path: Path) -> None:
    (tmp_path / "data" / "worker-2").mkdir(parents=True)
    (tmp_path / "data" / "worker-2" / "format").write_text("99\n")
    service = workers(tmp_path / "data")
    (tmp_path / "data" / "metadata.db").touch()
    with pytest.raises(ServeFailed, match="a worker cannot start"):
        service.start()


def test_a_host_that_is_lost_loses_nothing(tmp_path: Path) -> None:
    """Two hosts, two workers each, and two copies of everything: never both on one host."""
    with ExitStack() as stack:
        metadata = stack.enter_context(etcd())
        hosts = {}
        for name, first in (("north", "1"), ("south", "3")):
            flags = (
                "--host",
                name,
                "--node-id",
                first,
                "--metadata",
                metadata,
                "--bucket",
                f"file://{tmp_path}/bucket",
            )
            hosts[name] = workers(tmp_path / name, *flags)
            stack.callback(hosts[name].kill)
            hosts[name].start()
        north, south = hosts["north"], hosts["south"]
        wait_for_brokers(north.url, 4)
        host_of = {each["id"]: each["host_name"] for each in cluster(north.url)["brokers"]}
        assert host_of == {1: "north", 2: "north", 3: "south", 4: "south"}
        make_topic(north.url, "both", partitions=8)
        placed = partitions(north.url, "both")
        assert all({host_of[node] for node in each["replicas"]} == {"north", "south"} for each in placed)
        assert {each["leader"] for each in placed} == {1, 2, 3, 4}

        with load(f"{north.kafka},{south.kafka}", "both") as running:
            running.more(2_000)
            lost = worker_pids(north)
            north.kill()
            until(lambda: not any(map(is_running, lost.values())), "the host is gone", 10)
            until(lambda: {each["leader"] for each in partitions(south.url, "both")} == {3, 4}, "every one is led")
            running.more(2_000)
            acked = running.stop()
        all_there(south.kafka, "both", 8, acked["both"])
        north.start()
        until(lambda: all(len(each["isr"]) == 2 for each in partitions(south.url, "both")), "both hosts are in sync")
        status = subprocess.run(
            [sys.executable, "-m", "tierlog", "cluster", "status", "--json", "--server", south.url],
            capture_output=True,
            check=False,
        )
        assert json.loads(status.stdout)["offline"] == []


def test_secured_workers_let_in_only_whom_they_know(tmp_path: Path) -> None:
    service = workers(tmp_path / "data", "--secure")
    service.environment["XDG_STATE_HOME"] = str(tmp_path / "state")
    service.scheme = "https"
    try:
        service.start()
        lines = (service.data_dir / "librdkafka.properties").read_text().splitlines()
        login = dict(line.split("=", 1) for line in lines if not line.startswith("#")) | {"log_level": "0"}
        admin = AdminClient(login)
        assert sorted(admin.list_topics(timeout=30).brokers) == [1, 2]
        admin.create_topics([NewTopic("both", 4, 2)])["both"].result(30)
        producer = Producer(login)
        told: list[KafkaError | None] = []
        for number in range(400):
            producer.produce(
                "both", b"%d" % number, key=b"%d" % number, on_delivery=lambda error, _: told.append(error)
            )
        assert producer.flush(60) == 0 and told == [None] * 400
        with pytest.raises(KafkaException):
            AdminClient({**login, "sasl.password": "wrong"}).list_topics(timeout=3)
        context = ssl.create_default_context(cafile=str(service.data_dir / "secure" / "ca.pem"))
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{service.url}/api/v1/topics", context=context, timeout=30)
        with refused.value:
            assert refused.value.code == 401
        shown = subprocess.run(
            [sys.executable, "-m", "tierlog", "cluster", "status", "--json", "--server", service.url],
            capture_output=True,
            check=False,
            env=service.environment,
        )
        found = json.loads(shown.stdout)
        assert found["healthy"] and [each["in_sync"] >= 4 for each in found["brokers"]] == [True, True]
    finally:
        service.kill()

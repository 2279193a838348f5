"""`tierlog cluster up --secure`: a closed cluster works as an open one does, and stays closed."""

import ssl
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from hot_tier.errors import SettingsError
from tests.support.waiting import wait_until
from tierlog.client import Client, path
from tierlog.cluster_process import LocalCluster
from tierlog.cluster_status import cluster_status
from tierlog.secured import Secured

MANY = 2_000


def properties(closed: Secured) -> dict[str, str]:
    lines = (closed.directory / "librdkafka.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def send(common: dict[str, str], first: int) -> None:
    failed = []
    producer = Producer({**common, "acks": "all", "enable.idempotence": "true"})
    for number in range(first, first + MANY):
        producer.produce("t", str(number), on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0)
    assert producer.flush(60) == 0 and not failed


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_fails_over_and_nobody_else_comes_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with LocalCluster(tmp_path / "cluster", 3, secure=True, usual_ports=False) as cluster:
        assert cluster.closed is not None
        cluster.closed.announce(cluster.kafka, [broker.http for broker in cluster.brokers.values()])
        common = properties(cluster.closed)
        with Client(cluster.url) as client:
            config = {"min.insync.replicas": "2"}
            client.post(path("topics"), {"name": "t", "partitions": 3, "replication_factor": 3, "config": config})
            send(common, 0)
            wait_until(lambda: cluster_status(client)["healthy"], "all replicas are in sync")
        for broker in cluster.brokers.values():
            with pytest.raises(KafkaException):
                AdminClient({"bootstrap.servers": broker.kafka, "log_level": "0"}).list_topics(timeout=2)
        authority_alone = ssl.create_default_context(cafile=str(cluster.closed.ca))
        with pytest.raises(OSError):
            urllib.request.urlopen(f"https://127.0.0.1:{cluster.plan.etcd_port}/version", context=authority_alone)
        cluster.brokers[1].kill()
        send(common, MANY)
        consumer = Consumer({**common, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        found: set[bytes] = set()
        wait_until(
            lambda: found.update(m.value() for m in consumer.consume(500, 1)) or len(found) == 2 * MANY, "all is read"
        )
        consumer.close()
        assert found == {str(number).encode() for number in range(2 * MANY)}
        cluster.brokers[1].start()
        with Client(cluster.brokers[2].url) as client:
            wait_until(lambda: cluster_status(client)["healthy"], "all replicas are in sync")
    with LocalCluster(tmp_path / "cluster") as again:
        assert again.closed is not None, "it stays closed without the word"
        again.closed.announce(again.kafka, [broker.http for broker in again.brokers.values()])
        assert "t" in AdminClient(properties(again.closed)).list_topics(timeout=20).topics


def test_settings_that_would_open_it_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LocalCluster(tmp_path, 3, secure=True, usual_ports=False)
    monkeypatch.setenv("TIERLOG_LISTENER__MORE__PROTOCOL", "http")
    monkeypatch.setenv("TIERLOG_LISTENER__MORE__BIND", "127.0.0.1:0")
    monkeypatch.setenv("TIERLOG_LISTENER__MORE__TAKES", "clients")
    for secure in (True, False):
        with pytest.raises(SettingsError, match="'more' would let in anybody"):
            LocalCluster(tmp_path, secure=secure)

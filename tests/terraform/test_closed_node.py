"""Brokers on machines that Terraform made, as they boot: who has what the scripts made comes in, and nobody else."""

import os
import shutil
import ssl
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.support.certificates import Authority
from tests.support.command import tierlog
from tests.support.etcd import Tls, etcd
from tests.support.s3 import free_ports
from tests.support.service import QUICK
from tests.support.waiting import wait_until
from tests.terraform.machine import SECRETS, Told, at, environment, load, put_by, slots
from tests.terraform.tool import SOURCE
from tierlog.process import ServeProcess

BOOT = ("files", "certificate", "environment")


@dataclass
class Booted:
    config: dict[str, Any]
    inside: str
    inside_http: str
    process: ServeProcess

    @property
    def certificates(self) -> Path:
        return Path(self.config["certificate"]["folder"])

    def serial(self) -> str:
        """Of the certificate that it shows."""
        host, _, port = self.process.http.partition(":")
        return ssl.get_server_certificate((host, int(port)))


@dataclass
class Closed:
    brokers: list[Booted]
    folder: Path
    """What the scripts made: the one who has it is admin."""
    profiles: Path

    @property
    def properties(self) -> dict[str, str]:
        return properties(self.folder / "librdkafka.properties")


def properties(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def boot(told: Told, aws: str, number: int, folder: Path, metadata: str) -> Booted:
    inside, inside_http = free_ports(2)
    with slots(told, aws) as machines:
        made = machines(number, folder)
        config = at(folder, told.node) | {"home": str(folder)}
        for command in BOOT:
            made.run(command, config)
    address = f"127.0.0.{number}"
    settings = {name: value for name, value in environment(told, config, folder).items() if name not in SECRETS}
    settings |= {
        "TIERLOG_CLUSTER__METADATA": metadata,
        "TIERLOG_STORE__BUCKET": f"file://{folder.parent}/bucket",
        "TIERLOG_LISTENER__INSIDE__BIND": f"{address}:{inside}",
        "TIERLOG_LISTENER__INSIDE_HTTP__BIND": f"{address}:{inside_http}",
    }
    process = ServeProcess(folder / "data", QUICK, settings)
    process.kafka = process.http = f"{address}:0"
    process.scheme = "https"
    return Booted(config, f"{address}:{inside}", f"{address}:{inside_http}", process)


@pytest.fixture(scope="module")
def closed(
    told: Told, aws: str, kept: Path, etcd_tls: Tls, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Closed]:
    """Two brokers and an etcd that takes nobody without a certificate."""
    folder = tmp_path_factory.mktemp("closed")
    with etcd(etcd_tls) as metadata, ExitStack() as started:
        brokers = [boot(told, aws, number, folder / f"machine-{number}", f"{metadata}/closed") for number in (1, 2)]
        for each in brokers:
            started.callback(each.process.kill)
            each.process.launch()
        for each in brokers:
            each.process.wait_until_ready()
        servers = ",".join(each.process.kafka for each in brokers)
        subprocess.run(
            [SOURCE / "modules/brokers/clients.sh", kept, "prod", servers, brokers[0].process.url],
            env={**os.environ, "XDG_CONFIG_HOME": str(folder)},
            check=True,
            capture_output=True,
            timeout=60,
        )
        yield Closed(brokers, kept, folder)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_who_has_the_password_comes_in(closed: Closed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(closed.profiles))
    tierlog("topic", "create", "orders", "--partitions", "2", "--replication-factor", "2", "--profile", "prod")
    producer = Producer({**closed.properties, "acks": "all"})
    for partition in (0, 1):
        producer.produce("orders", b"%d" % partition, partition=partition)
    assert producer.flush(30) == 0
    consumer = Consumer({**closed.properties, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert sorted(message.value() for message in consumer.consume(2, 30)) == [b"0", b"1"]
    consumer.close()
    assert tierlog("cluster", "status", "--profile", "prod").code == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nobody_else_comes_in(closed: Closed, tmp_path: Path) -> None:
    for wrong in (
        {"security.protocol": "PLAINTEXT"},
        {"security.protocol": "SSL"},
        {"sasl.password": "wrong"},
    ):
        with pytest.raises(KafkaException):
            AdminClient({**closed.properties, **wrong, "log_level": "0"}).list_topics(timeout=2)
    known = ssl.create_default_context(cafile=str(closed.folder / "ca.pem"))
    stranger = ssl.create_default_context(cafile=str(closed.folder / "ca.pem"))
    stranger.load_cert_chain(*Authority(tmp_path).issue("broker"))
    for broker in closed.brokers:
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{broker.process.url}/api/v1/topics", context=known, timeout=10)
        for context in (known, stranger):
            with pytest.raises(OSError):
                urllib.request.urlopen(f"https://{broker.inside_http}/metrics", context=context, timeout=10)
        with pytest.raises(KafkaException):
            inside = {"bootstrap.servers": broker.inside, "security.protocol": "SSL", "log_level": "0"}
            AdminClient({**inside, "ssl.ca.location": str(closed.folder / "ca.pem")}).list_topics(timeout=2)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_machine_itself_asks_for_metrics_by_the_brokers_certificate(closed: Closed) -> None:
    node, broker = load(), closed.brokers[0]
    with urllib.request.urlopen(
        f"https://{broker.inside_http}/metrics", context=node.as_broker(broker.config), timeout=10
    ) as answer:
        assert set(node.summary(answer.read().decode())) == set(node.METRICS)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_new_certificate_is_taken_up_while_the_broker_runs(
    closed: Closed, told: Told, aws: str, tmp_path: Path
) -> None:
    broker = closed.brokers[1]
    before = broker.serial()
    with slots(told, aws) as machines:
        again = machines(2, tmp_path)
        again.run("certificate", broker.config)
        assert list(tmp_path.rglob("ca.key")) == []
    wait_until(lambda: broker.serial() != before, "the broker shows its new certificate")
    assert sorted(path.name for path in broker.certificates.iterdir() if path.suffix == ".key") == ["broker.key"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in broker.certificates.iterdir() if path.is_file()} == {0o600}


def test_secrets_are_made_once_and_kept_from_others(tmp_path: Path) -> None:
    first = {
        name: path.read_text() for name, path in put_by("modules/brokers/secrets.sh", tmp_path / "1", "/a").items()
    }
    assert set(first) == {"/a/ca", "/a/ca-key", "/a/admin-password"} and len(first["/a/admin-password"]) == 48
    kept = tmp_path / "1" / "kept"
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept.iterdir()} == {0o600}
    shutil.copytree(kept, tmp_path / "2" / "kept")
    again = put_by("modules/brokers/secrets.sh", tmp_path / "2", "/a")
    assert {name: path.read_text() for name, path in again.items()} == first


def test_a_profile_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "admin.password").write_text("a-password")
    config = tmp_path / "tierlog" / "config.toml"
    for url in ("https://first:8080", "https://second:8080"):
        subprocess.run(
            [SOURCE / "modules/brokers/clients.sh", "kept", "prod", "first:9092", url],
            cwd=tmp_path,
            env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path)},
            check=True,
            capture_output=True,
        )
    assert "first" in config.read_text() and "second" not in config.read_text()
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    java = (tmp_path / "kept" / "client.properties").read_text()
    assert 'required username="admin" password="a-password";' in java
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "kept").glob("*.properties")} == {0o600}

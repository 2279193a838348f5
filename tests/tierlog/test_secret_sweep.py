"""Passwords, tokens and keys are nowhere but where they belong: a broker is given distinctive ones, made to fail in
many ways, and everything that it wrote, answered or started is searched."""

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from gateway.logins import LoginSettings
from hot_tier.cluster.etcd_settings import EtcdSettings
from hot_tier.errors import SettingsError
from tests.support.modes import open_to_others
from tests.support.s3 import free_ports
from tests.support.service import services
from tests.support.waiting import wait_until
from tierlog.process import ServeFailed, ServeProcess
from tierlog.settings import Given, load_settings

FIRST, SECOND, THIRD, WRONG = "first-pw-Aq71xzzz", "second-pw-Bw82yyyy", "third-pw-Ce93wwww", "wrong-pw-Dr04vvvv"
S3_KEY, S3_TOKEN, ETCD, BEARER = "s3-key-Et15uuuu", "s3-token-Fy26tttt", "etcd-pw-Gu37ssss", "bearer-Hi48rrrr"
SECRETS = (FIRST, SECOND, THIRD, WRONG, S3_KEY, S3_TOKEN, ETCD, BEARER)


def processes(pid: int) -> Iterator[int]:
    """Yields the process and those that it has started."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from processes(int(child))


def search(what: str, data: bytes) -> list[tuple[str, str]]:
    return [(secret, what) for secret in SECRETS if secret.encode() in data]


def test_secrets_are_nowhere(tmp_path: Path) -> None:
    found: list[tuple[str, str]] = []
    doors = f"127.0.0.1:{free_ports(1)[0]}"
    with services(tmp_path) as serve:
        service = serve(
            *("--broker.log-level", "debug"),
            *("--listener.doors.protocol", "sasl_plaintext", "--listener.doors.bind", doors),
            *("--listener.doors.mechanisms", "PLAIN,SCRAM-SHA-256", "--listener.doors.takes", "clients"),
            *("--audit.enabled", "true", "--audit.kinds", "authenticate,admin,produce,consume,describe,group"),
            *("--audit.interval-ms", "200", "--archive.check-ms", "100"),
            TIERLOG_LOGIN__FIRST_USER="ada",
            TIERLOG_LOGIN__FIRST_PASSWORD=FIRST,
            AWS_ACCESS_KEY_ID="a-key-id",
            AWS_SECRET_ACCESS_KEY=S3_KEY,
            AWS_SESSION_TOKEN=S3_TOKEN,
        )
        writes(service)
        logins(service, doors)
        for pid in processes(service.pid):
            found += search(f"arguments of {pid}", Path(f"/proc/{pid}/cmdline").read_bytes())
        found += answers_of(service)
        service.stop()
        found += search("what it logged", service.output_path.read_bytes())
        for file in service.data_dir.rglob("*"):
            if file.is_file():
                found += search(str(file), file.read_bytes())
        assert open_to_others(service.data_dir) == []
        written = b"".join(file.read_bytes() for file in logs_of(service))
        assert b"AlterUserScramCredentials" in written, "these acts are in the audit"
        assert b"setPassword" in written
        away = serve(
            *(
                "--broker.log-level",
                "debug",
                "--bucket",
                "s3://no-such-bucket/p",
                "--s3-endpoint",
                "http://127.0.0.1:1",
            ),
            AWS_ACCESS_KEY_ID="a-key-id",
            AWS_SECRET_ACCESS_KEY=S3_KEY,
            AWS_SESSION_TOKEN=S3_TOKEN,
        )
        assert b"works" in ask(f"{away.url}/api/v1/archive")
        found += search("a bucket that does not answer", ask(f"{away.url}/api/v1/archive") + ask(f"{away.url}/readyz"))
        away.stop()
        found += search("its log", away.output_path.read_bytes())
    assert found == []


def ask(url: str, method: str = "GET", body: bytes | None = None, shown: str = "") -> bytes:
    """Returns the answer, whatever its status."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": shown} if shown else {})
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method), timeout=30) as reply:
            return bytes(reply.read())
    except urllib.error.HTTPError as refused:
        return refused.read()


def logs_of(service: ServeProcess) -> list[Path]:
    return list(service.data_dir.rglob("*__audit*/**/*.log")) + list(service.data_dir.rglob("__audit*/**/*.log"))


def answers_of(service: ServeProcess) -> list[tuple[str, str]]:
    found = []
    for path in ("/metrics", "/api/v1/cluster", "/api/v1/users", "/api/v1/archive", "/readyz", "/openapi.json"):
        found += search(path, ask(service.url + path))
    admin = AdminClient({"bootstrap.servers": service.kafka})
    broker = str(next(iter(admin.list_topics(timeout=10).brokers)))
    for kind, name in ((ResourceType.BROKER, broker), (ResourceType.TOPIC, "__audit")):
        resource = ConfigResource(kind, name)
        settings = admin.describe_configs([resource])[resource].result(10)
        found += search(f"settings of {name}", repr([(each.name, each.value) for each in settings.values()]).encode())
    return found


def logins(service: ServeProcess, address: str) -> None:
    """Each way to show a secret, right and wrong, and where none is asked for."""
    for user, password in (("ada", FIRST), ("ada", WRONG), (WRONG, "")):
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
            config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
            client = AdminClient(
                {"bootstrap.servers": address, "sasl.username": user or "x", "sasl.password": password or "x", **config}
            )
            try:
                client.list_topics(timeout=1)
            except KafkaException:
                pass
    admin = AdminClient({"bootstrap.servers": service.kafka})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    changed = admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", info, password=SECOND.encode())])
    changed["bob"].result(10)
    users = f"{service.url}/api/v1/users"
    for body in ({"password": THIRD}, {"pasword": THIRD}, {"password": [THIRD]}, {"password": THIRD, "also": THIRD}):
        ask(f"{users}/eve/password", "PUT", orjson.dumps(body))
    ask(f"{users}/eve/password", "PUT", f'{{"password": "{THIRD}'.encode())
    for shown in (f"Bearer {BEARER}", f"Basic {BEARER}", BEARER):
        for path in ("/api/v1/topics", "/nowhere", "/api/v1/topics/none"):
            ask(f"{service.url}{path}?token={BEARER}", shown=shown)


def writes(service: ServeProcess) -> None:
    """Starts the archive's worker, a process of its own."""
    config = {"remote.storage.enable": "true", "segment.bytes": "1024", "file.delete.delay.ms": "1"}
    made = {"name": "orders", "partitions": 1, "config": config}
    assert b"orders" in ask(f"{service.url}/api/v1/topics", "POST", orjson.dumps(made))
    producer = Producer({"bootstrap.servers": service.kafka})
    for _ in range(20):
        producer.produce("orders", b"x" * 500)
        producer.flush(10)
    wait_until(lambda: len(list(processes(service.pid))) > 1, "the archive's worker")


class _Refuses(BaseHTTPRequestHandler):
    """An etcd that knows nobody."""

    asked: list[bytes]

    def do_POST(self) -> None:
        self.asked.append(self.rfile.read(int(self.headers.get("Content-Length", "0"))))
        body = b'{"error": "etcdserver: authentication failed, invalid user ID or password", "code": 3}'
        self.send_response(400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def etcd_that_refuses() -> Iterator[tuple[str, list[bytes]]]:
    handler = type("Refuses", (_Refuses,), {"asked": []})
    server = HTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}", handler.asked  # type: ignore[attr-defined]
    server.shutdown()


def test_a_password_that_etcd_refuses_is_not_shown(tmp_path: Path) -> None:
    with etcd_that_refuses() as (address, asked):
        flags = ("--metadata", f"etcd://{address}/x", "--bucket", f"file://{tmp_path}/bucket", "--node-id", "1")
        service = ServeProcess(
            tmp_path / "node", flags, {"TIERLOG_ETCD__USER": "broker", "TIERLOG_ETCD__PASSWORD": ETCD}
        )
        with pytest.raises(ServeFailed):
            service.start()
        assert any(ETCD.encode() in each for each in asked), "it was used"
        assert search("the log", service.output_path.read_bytes()) == []


@pytest.mark.parametrize("key", ["login.first_password", "etcd.password"])
def test_a_secret_is_no_flag_and_no_part_of_an_error(key: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="see the flags") as refused:
        load_settings(flags=[Given(key, FIRST, f"--{key}")])
    assert FIRST not in str(refused.value)
    section, name = key.split(".")
    file = tmp_path / "config.toml"
    file.touch(0o600)
    file.write_text(f'[{section}]\n{name} = ["{FIRST}"]\n')
    with pytest.raises(SettingsError) as wrong:
        load_settings(config=str(file))
    assert FIRST not in str(wrong.value)
    assert FIRST not in repr(LoginSettings("ada", FIRST)) + repr(EtcdSettings(user="u", password=FIRST))

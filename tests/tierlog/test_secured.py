"""`tierlog serve --secure`: nobody comes in whom the broker does not know; who made it comes in by what it wrote."""

import os
import shutil
import signal
import ssl
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from benchmarks.peer.jars import PeerUnavailable, jars_dir, java
from benchmarks.peer.tools import run_tool
from hot_tier.errors import SettingsError
from spark.gateway import GatewayUnavailable, hot_batches, hot_topic, open_gateway
from tests.support.command import tierlog
from tests.support.service import QUICK, services
from tests.support.waiting import wait_until
from tierlog.certificates import Wanted, prepare_certificates
from tierlog.process import ServeFailed, ServeProcess
from tierlog.secured import Secured, close_alone, is_secured
from tierlog.settings import Given, load_settings, parse_address


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    directory = tmp_path_factory.mktemp("closed")
    with services(directory) as make:
        service = make("--secure", XDG_STATE_HOME=str(directory / "state"))
        service.scheme = "https"
        yield service


@pytest.fixture
def as_its_user(closed: ServeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", closed.environment["XDG_STATE_HOME"])


def properties(service: ServeProcess, name: str = "librdkafka.properties") -> dict[str, str]:
    lines = (service.data_dir / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def password(service: ServeProcess) -> str:
    return (service.data_dir / "secure" / "admin.password").read_text().strip()


def test_nobody_comes_in_at_either_port(closed: ServeProcess) -> None:
    ca = str(closed.data_dir / "secure" / "ca.pem")
    right = properties(closed)
    for wrong in (
        {"security.protocol": "PLAINTEXT"},
        {"security.protocol": "SSL"},
        {"security.protocol": "SASL_PLAINTEXT"},
        {"sasl.password": "wrong"},
        {"sasl.username": "broker", "sasl.password": ""},
    ):
        with pytest.raises((KafkaException, ValueError)):
            AdminClient({**right, **wrong, "log_level": "0"}).list_topics(timeout=2)
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(*(closed.data_dir / "secure" / f"broker.{end}" for end in ("pem", "key")))
    for path in ("/api/v1/topics", "/metrics", "/openapi.json", "/api/v1/users"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(closed.url + path, context=context, timeout=10)
        with refused.value:
            assert refused.value.code == 401
        with pytest.raises(OSError):
            urllib.request.urlopen(f"http://{closed.http}{path}", timeout=10)


def test_librdkafka_comes_in(closed: ServeProcess) -> None:
    producer = Producer(properties(closed))
    producer.produce("t", b"value")
    assert producer.flush(20) == 0
    consumer = Consumer({**properties(closed), "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    assert [message.value() for message in consumer.consume(1, 20)] == [b"value"]
    consumer.close()


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (apt install kcat)")
def test_kcat_comes_in(closed: ServeProcess) -> None:
    command = ["kcat", "-F", str(closed.data_dir / "librdkafka.properties"), "-q"]
    sent = subprocess.run([*command, "-P", "-t", "k"], input=b"hello\n", capture_output=True, timeout=60, check=False)
    assert sent.returncode == 0, sent.stderr
    read = [*command, "-C", "-t", "k", "-e", "-o", "beginning"]
    assert subprocess.run(read, capture_output=True, timeout=60, check=True).stdout == b"hello\n"


@pytest.mark.java
@pytest.mark.timeout(180)
def test_java_comes_in(closed: ServeProcess) -> None:
    try:
        java()
        jars_dir()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    config = str(closed.data_dir / "client.properties")
    made = run_tool(
        "kafka-topics", "--bootstrap-server", closed.kafka, "--command-config", config, "--create", "--topic", "j"
    )
    assert made.code == 0, made.err
    to = ("--bootstrap-server", closed.kafka, "--topic", "j")
    sent = run_tool("kafka-console-producer", *to, "--command-config", config, stdin="hello\n")
    assert sent.code == 0, sent.err
    read = ("--command-config", config, "--from-beginning", "--max-messages", "1")
    assert run_tool("kafka-console-consumer", *to, *read).out.strip() == "hello"


def test_the_command_line_of_its_user_finds_it(
    closed: ServeProcess, as_its_user: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tierlog("topic", "create", "cli", "--partitions", "1", server=closed.url)
    tierlog("produce", "cli", server=closed.http, stdin="hello\n")
    assert "hello" in tierlog("consume", "cli", "--from-beginning", server=closed.url).out
    assert tierlog("user", "list", server=closed.url).lines[1].startswith("admin")
    refused = tierlog("topic", "list", server=f"http://{closed.http}", code=5)
    assert "https://" in refused.err
    monkeypatch.setenv("XDG_STATE_HOME", os.devnull)
    assert "not trusted" in tierlog("topic", "list", server=closed.url, code=5).err


def test_spark_reads_the_hot_tail(closed: ServeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer(properties(closed))
    for number in range(10):
        producer.produce("spark", str(number), partition=0)
    assert producer.flush(20) == 0
    ca, secret = str(closed.data_dir / "secure" / "ca.pem"), f"file:{closed.data_dir / 'secure' / 'admin.password'}"
    gateway = open_gateway(closed.url, ca, "admin", secret)
    assert password(closed) not in repr(gateway)
    assert hot_topic(gateway, "spark").ranges[0].end_offset == 10
    assert sum(batch.num_rows for batch in hot_batches(gateway, "spark", 0, 0, 10)) == 10
    with pytest.raises(GatewayUnavailable, match=r"answered 401.*gatewayUser"):
        hot_topic(open_gateway(closed.url, ca), "spark")
    with pytest.raises(GatewayUnavailable, match="certificate verify failed"):
        hot_topic(open_gateway(closed.url), "spark")
    with pytest.raises(SettingsError, match="unencrypted"):
        open_gateway(f"http://{closed.http}", ca, "admin", secret)
    monkeypatch.setenv("TIERLOG_CA", ca)
    monkeypatch.setenv("TIERLOG_USER", "admin")
    monkeypatch.setenv("TIERLOG_PASSWORD", secret)
    assert open_gateway(closed.url) == gateway
    assert open_gateway(f"http://{closed.http}").headers == {}


@pytest.mark.parametrize("signalled", [True, False])
def test_a_renewed_certificate_is_served_without_a_restart(closed: ServeProcess, signalled: bool) -> None:
    def shown() -> set[str]:
        return {ssl.get_server_certificate(parse_address(each, "")) for each in (closed.kafka, closed.http)}

    before = shown()
    assert len(before) == 1
    named = Wanted("broker", (f"renewed-{signalled}.example",))
    mask = os.umask(0o077)  # As the broker's own.
    _, broker = prepare_certificates(closed.data_dir / "secure", [named])
    os.umask(mask)
    assert broker.what == "renewed"
    if signalled:
        os.kill(closed.pid, signal.SIGHUP)
    wait_until(lambda: not shown() & before, "both ports show the new certificate")
    assert shown() == {broker.path.read_text()}
    AdminClient(properties(closed)).list_topics(timeout=20)


def test_what_it_wrote_is_for_its_owner_alone(closed: ServeProcess) -> None:
    secret = password(closed)
    assert len(secret) >= 32
    written = [*closed.data_dir.rglob("*"), *Path(closed.environment["XDG_STATE_HOME"]).rglob("*")]
    holders = set()
    for path in written:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
        if path.is_file() and secret.encode() in path.read_bytes():
            holders.add(path.name)
    assert holders == {"admin.password", "client.properties", "librdkafka.properties"}
    assert secret not in closed.output(10_000)


def test_started_without_the_word_it_stays_closed(tmp_path: Path) -> None:
    """The second start takes no --secure, keeps authority and password, and the record is there."""
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    service = ServeProcess(tmp_path / "data", (*QUICK, "--secure"), state).start()
    try:
        producer = Producer(properties(service))
        producer.produce("t", b"value")
        assert producer.flush(20) == 0
        service.stop()
        assert not list((tmp_path / "state").rglob("*.toml")), "who stops takes the note away"
        first = {name: (tmp_path / "data" / "secure" / name).read_bytes() for name in ("ca.pem", "admin.password")}
        service.flags = QUICK
        service.start()
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": service.kafka, "log_level": "0"}).list_topics(timeout=2)
        assert "t" in AdminClient(properties(service)).list_topics(timeout=20).topics
        assert {name: (tmp_path / "data" / "secure" / name).read_bytes() for name in first} == first
        service.stop()
        service.flags = (*QUICK, "--listener.kafka.protocol", "plaintext")
        with pytest.raises(ServeFailed, match="would let in anybody"):
            service.start()
    finally:
        service.kill()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"listener.kafka.protocol": "plaintext"}, "'kafka' would let in anybody"),
        ({"listener.kafka.protocol": "sasl_plaintext"}, "'kafka' would let in anybody"),
        ({"listener.kafka.protocol": "tls"}, "'kafka' would let in anybody"),
        ({"listener.http.protocol": "https", "listener.http.login": "none"}, "'http' would let in anybody"),
        ({"listener.more.protocol": "http", "listener.more.bind": "127.0.0.1:0"}, "'more' would let in anybody"),
        ({"tls.certificate": "a", "tls.key": "b"}, "has tls.certificate of its own"),
        ({"login.first_user": "u", "login.first_password": "env:HOME"}, "has login.first_user of its own"),
        ({"cluster.metadata": "etcd://h:1"}, "one machine alone"),
    ],
)
def test_settings_that_would_open_it_are_refused(given: dict[str, str], said: str, tmp_path: Path) -> None:
    flags = [Given(key, value, f"--{key}") for key, value in given.items()]

    def load(beneath: list[Given] = []) -> object:  # noqa: B006 — it is only read
        return load_settings(flags=flags, beneath=beneath)

    with pytest.raises(SettingsError) as refused:
        close_alone(Secured(tmp_path), load(), load)  # type: ignore[arg-type]
    assert said in refused.value.what


def test_a_listener_with_certificates_is_closed_too(tmp_path: Path) -> None:
    given = {"protocol": "tls", "bind": "127.0.0.1:0", "client_certificate": "required"}
    flags = [Given(f"listener.more.{key}", value, "--x") for key, value in given.items()]
    closed = close_alone(
        Secured(tmp_path), load_settings(flags=flags), lambda **beneath: load_settings(flags=flags, **beneath)
    )
    assert closed.listener["kafka"].protocol == "sasl_tls"


def test_a_password_that_is_gone_is_not_made_up(tmp_path: Path) -> None:
    closed = Secured(tmp_path)
    closed.prepare([])
    (tmp_path / "secure" / "admin.password").unlink()
    with pytest.raises(SettingsError, match=r"admin\.password cannot be read"):
        closed.prepare([])


def test_an_empty_directory_does_what_the_word_does(tmp_path: Path) -> None:
    assert not is_secured(tmp_path)
    (tmp_path / "secure").mkdir(mode=0o700)
    assert is_secured(tmp_path)
    settings = close_alone(Secured(tmp_path), load_settings(), load_settings)
    assert settings.login.first_password == (tmp_path / "secure" / "admin.password").read_text().strip()
    assert settings.listener["http"].login == "required"

"""Every client by every mechanism that it has, over TLS, and what each is told when the login is wrong.

`test_login.py`, `test_token_login.py` and `test_tls.py` have more of librdkafka and of the mechanisms themselves.
"""

import asyncio
import json
import os
import shutil
import ssl
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiokafka.errors
import kafka.errors
import pytest
from aiohttp import web
from aiokafka import AIOKafkaProducer
from cryptography.hazmat.primitives import serialization
from kafka import KafkaProducer

from benchmarks.peer.jars import PeerUnavailable, fetch_connector, java
from benchmarks.peer.tools import run_tool
from gateway.logins import FailedLogins
from tests.support.certificates import Authority, Files
from tests.support.identity_provider import Provider
from tests.tierlog.test_token_login import PythonTokens, Tokens
from tierlog.broker import Broker

WITH_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
needs_kcat = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (apt install kcat)")


def at(broker: Broker, name: str = "kafka") -> str:
    (found,) = [each for each in broker.kafka.listeners if each.name == name]
    return "{}:{}".format(*found.socket.getsockname())


def names(broker: Broker) -> set[str]:
    return {each.principal.name for each in broker.kafka.connections}


# kcat


@pytest.fixture
async def token_endpoint(provider: Provider) -> AsyncIterator[str]:
    async def give(_: web.Request) -> web.Response:
        return web.json_response({"access_token": provider.token(), "token_type": "bearer", "expires_in": 300})

    app = web.Application()
    app.router.add_post("/token", give)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield "http://{}:{}/token".format(*runner.addresses[0][:2])
    await runner.cleanup()


async def kcat(bootstrap: str, authority: Authority, *properties: str) -> tuple[int | None, str]:
    """Writes a record and reads it back. Returns the exit code and what it said."""
    flags = [flag for each in (f"ssl.ca.location={authority.ca}", *properties) for flag in ("-X", each)]
    said = ""
    for arguments, given in ((("-P", "-t", "t"), b"value\n"), (("-C", "-t", "t", "-o", "-1", "-e", "-q"), b"")):
        process = await asyncio.create_subprocess_exec(
            *("timeout", "30", "kcat", "-b", bootstrap, *arguments, "-X", "message.timeout.ms=10000", *flags),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate(given)
        said += out.decode()
        if process.returncode:
            return process.returncode, said
    return 0, said


def by_password(mechanism: str, password: str = "bobs") -> tuple[str, ...]:
    return (
        "security.protocol=sasl_ssl",
        f"sasl.mechanisms={mechanism}",
        "sasl.username=bob",
        f"sasl.password={password}",
    )


@needs_kcat
@pytest.mark.parametrize("mechanism", [*WITH_PASSWORD, "OAUTHBEARER", "certificate"])
async def test_kcat(secured: Broker, authority: Authority, token_endpoint: str, mechanism: str) -> None:
    bootstrap, how = at(secured), by_password(mechanism)
    if mechanism == "OAUTHBEARER":
        how = (
            "security.protocol=sasl_ssl",
            "sasl.mechanisms=OAUTHBEARER",
            "sasl.oauthbearer.method=oidc",
            "sasl.oauthbearer.client.id=ada",
            "sasl.oauthbearer.client.secret=x",
            f"sasl.oauthbearer.token.endpoint.url={token_endpoint}",
        )
    elif mechanism == "certificate":
        own = authority.issue("carol")
        bootstrap = at(secured, "certificates")
        how = ("security.protocol=ssl", f"ssl.certificate.location={own.certificate}", f"ssl.key.location={own.key}")
    code, said = await kcat(bootstrap, authority, *how)
    if "not supported in this build" in said:
        pytest.skip(said.strip())
    assert code == 0 and "value" in said, said


@needs_kcat
async def test_kcat_is_told(secured: Broker, authority: Authority) -> None:
    _, said = await kcat(at(secured), authority, *by_password("SCRAM-SHA-256", "wrong"))
    assert "Authentication failed" in said, said
    _, said = await kcat(at(secured, "open"), authority, "security.protocol=sasl_plaintext", *_scram_512())
    assert "Broker: Unsupported SASL mechanism" in said or "SCRAM-SHA-512" in said, said


def _scram_512() -> tuple[str, ...]:
    return by_password("SCRAM-SHA-512")[1:]


# kafka-python and aiokafka


def python_options(broker: Broker, authority: Authority, mechanism: str, own: Files | None = None) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=authority.ca)
    if own is not None:
        context.load_cert_chain(*own)
        return {"bootstrap_servers": at(broker, "certificates"), "security_protocol": "SSL", "ssl_context": context}
    return {
        "bootstrap_servers": at(broker),
        "security_protocol": "SASL_SSL",
        "ssl_context": context,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "bob",
        "sasl_plain_password": "bobs",
    }


async def test_python_clients_by_certificate(secured: Broker, authority: Authority) -> None:
    options = python_options(secured, authority, "", authority.issue("carol"))
    async with AIOKafkaProducer(**options) as producer:
        await producer.send_and_wait("t", b"one")
        assert names(secured) == {"carol"}

    def use() -> None:
        producer = KafkaProducer(**options)
        producer.send("t", b"two").get(20)
        producer.close()

    await asyncio.to_thread(use)


def failing(
    broker: Broker, authority: Authority, tokens: type[Tokens | PythonTokens], token: str
) -> dict[str, dict[str, Any]]:
    """Logins that fail, by the error that Kafka answers."""
    no_tls = {"bootstrap_servers": at(broker, "open"), "security_protocol": "SASL_PLAINTEXT"}
    return {
        f"{WRONG} SCRAM-SHA-256": python_options(broker, authority, "SCRAM-SHA-256") | {"sasl_plain_password": "wrong"},
        f"{WRONG} PLAIN": python_options(broker, authority, "PLAIN") | {"sasl_plain_password": "wrong"},
        f"{WRONG} OAUTHBEARER": python_options(broker, authority, "OAUTHBEARER")
        | {"sasl_oauth_token_provider": tokens(token)},
        "UnsupportedSaslMechanismError": python_options(broker, authority, "SCRAM-SHA-512") | no_tls,
    }


WRONG = "Authentication failed during authentication with SASL mechanism"


async def test_aiokafka_is_told(
    secured: Broker, authority: Authority, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    expired = provider.token(exp=int(time.time()) - 60)
    for error, options in failing(secured, authority, Tokens, expired).items():
        caplog.clear()
        producer = AIOKafkaProducer(**options)
        with pytest.raises(aiokafka.errors.KafkaError):
            await asyncio.wait_for(producer.start(), 20)
        await producer.stop()
        # It does not read why its token is refused, and goes on until the connection ends.
        assert "OAUTHBEARER" in error or error in caplog.text, caplog.text
    assert secured.node.failed_logins.total == 3, "an unknown mechanism is no attempt"


async def test_kafka_python_is_told(
    secured: Broker,
    authority: Authority,
    provider: Provider,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    note = FailedLogins.note
    monkeypatch.setattr(FailedLogins, "note", lambda self, address: 0 * note(self, address))

    def try_it(options: dict[str, Any]) -> None:
        with pytest.raises(kafka.errors.KafkaError):
            KafkaProducer(**options, bootstrap_timeout_ms=1_000)

    expired = provider.token(exp=int(time.time()) - 60)
    for error, options in failing(secured, authority, PythonTokens, expired).items():
        caplog.clear()
        await asyncio.to_thread(try_it, options)
        assert error in caplog.text, caplog.text
    assert secured.node.failed_logins.total >= 3


# The Java client

MODULES = "org.apache.kafka.common.security"
TRUST = "ssl.truststore.type=PEM\nssl.truststore.location={ca}\n"
SASL = "security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\nsasl.jaas.config={module} required {options};\n"


def properties(
    directory: Path, authority: Authority, mechanism: str, *, password: str = "bobs", token: str = ""
) -> str:
    if mechanism == "certificate":
        own = authority.issue("carol")
        store = directory / "carol-store.pem"
        # Java reads private keys in PKCS #8 alone.
        key = serialization.load_pem_private_key(Path(own.key).read_bytes(), None).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        store.write_bytes(key + Path(own.certificate).read_bytes())
        text = f"security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.location={store}\n"
    elif mechanism == "OAUTHBEARER":
        (directory / "token").write_text(token)
        text = SASL.format(mechanism=mechanism, module=f"{MODULES}.oauthbearer.OAuthBearerLoginModule", options="")
        text += f"sasl.oauthbearer.token.endpoint.url=file://{directory}/token\n"
        text += f"sasl.login.callback.handler.class={MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler\n"
    else:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        options = f'username="bob" password="{password}"'
        text = SASL.format(mechanism=mechanism, module=f"{MODULES}.{module}", options=options)
    (directory / "client.properties").write_text(text + TRUST.format(ca=authority.ca))
    return str(directory / "client.properties")


@pytest.fixture
def allowed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Java client reads a token from a file only if a property of the JVM names it."""
    named = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{tmp_path}/token"
    monkeypatch.setitem(os.environ, "JAVA_TOOL_OPTIONS", named)


async def list_topics(bootstrap: str, config: str) -> tuple[int, str]:
    try:
        java()
        done = await asyncio.to_thread(
            run_tool, "kafka-topics", "--bootstrap-server", bootstrap, "--list", "--command-config", config
        )
    except PeerUnavailable as error:
        pytest.skip(str(error))
    return done.code, done.out + done.err


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.usefixtures("allowed_file")
@pytest.mark.parametrize("mechanism", [*WITH_PASSWORD, "OAUTHBEARER", "certificate"])
async def test_java(secured: Broker, authority: Authority, provider: Provider, tmp_path: Path, mechanism: str) -> None:
    listener = "certificates" if mechanism == "certificate" else "kafka"
    config = properties(tmp_path, authority, mechanism, token=provider.token())
    code, said = await list_topics(at(secured, listener), config)
    assert code == 0, said


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.usefixtures("allowed_file")
async def test_java_is_told(secured: Broker, authority: Authority, provider: Provider, tmp_path: Path) -> None:
    for config in (
        {"mechanism": "SCRAM-SHA-512", "password": "wrong"},
        {"mechanism": "OAUTHBEARER", "token": provider.token(aud="other")},
    ):
        code, said = await list_topics(at(secured), properties(tmp_path, authority, **config))
        assert code != 0 and "SaslAuthenticationException" in said, said
    config = properties(tmp_path, authority, "SCRAM-SHA-512")
    with open(config, "a") as file:
        file.write("default.api.timeout.ms=5000\nrequest.timeout.ms=5000\n")  # Java tries on until then.
    code, said = await list_topics(at(secured, "open"), config)
    assert code != 0, "the listener does not speak TLS"


# Spark's Kafka source


def spark_options(bootstrap: str, config: str) -> dict[str, str]:
    lines = [line.partition("=") for line in Path(config).read_text().splitlines()]
    options = {f"kafka.{name}": value for name, _, value in lines}
    return {**options, "kafka.bootstrap.servers": bootstrap, "subscribe": "t", "startingOffsets": "earliest"}


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_sparks_kafka_source(secured: Broker, authority: Authority, provider: Provider, tmp_path: Path) -> None:
    """All mechanisms in one session: a start of Spark is dear."""
    async with AIOKafkaProducer(**python_options(secured, authority, "SCRAM-SHA-256")) as producer:
        await producer.send_and_wait("t", b"value")
    reads = {}
    for mechanism in (*WITH_PASSWORD, "OAUTHBEARER", "certificate"):
        (tmp_path / mechanism).mkdir()
        config = properties(tmp_path / mechanism, authority, mechanism, token=provider.token())
        listener = "certificates" if mechanism == "certificate" else "kafka"
        reads[mechanism] = spark_options(at(secured, listener), config)
    (tmp_path / "wrong").mkdir()
    wrong = properties(tmp_path / "wrong", authority, "SCRAM-SHA-256", password="wrong")
    token = f"file://{tmp_path}/OAUTHBEARER/token"
    try:
        java()
        jars = await asyncio.to_thread(fetch_connector)
    except PeerUnavailable as error:
        pytest.skip(str(error))
    asked = {
        "jars": [str(jar) for jar in jars],
        "java": f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token}",
        "reads": {**reads, "wrong": {**spark_options(at(secured), wrong), "failOnDataLoss": "true"}},
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.tierlog.spark_kafka_source"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(json.dumps(asked).encode())
    assert process.returncode == 0, err.decode()[-4000:]
    found = json.loads(out.splitlines()[-1])
    told = found.pop("wrong")
    assert found == {name: ["value"] for name in reads}
    assert "SaslAuthenticationException" in told or "Authentication failed" in told, told

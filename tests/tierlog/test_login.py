"""Logins with a password: clients of both protocols, and what somebody gets who does not know it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from kafka import KafkaProducer

from gateway import logins
from gateway.coordinators.settings import GroupSettings
from gateway.http.settings import HttpSettings
from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.messages.api_versions import ApiVersionsRequest
from gateway.kafka.protocol.messages.metadata import MetadataRequest
from gateway.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from gateway.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from gateway.kafka_settings import KafkaSettings
from gateway.listener import ListenerSettings
from gateway.logins import FailedLogins, LoginSettings
from gateway.tls import TlsSettings
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.errors import SettingsError
from hot_tier.log.settings import LogSettings
from tests.gateway.kafka.wire import Wire
from tests.support.certificates import Authority
from tests.support.waiting import until
from tierlog.broker import Broker
from tierlog.listeners import plan_listeners
from tierlog.settings import Given, Settings, load_settings

CLIENTS = ("clients",)
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
GONE = (asyncio.IncompleteReadError, ConnectionError)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
async def broker(tmp_path: Path, authority: Authority) -> AsyncIterator[Broker]:
    files = authority.issue("broker")
    made = Broker(
        Settings(
            log=LogSettings(data_dir=str(tmp_path / "data"), min_free_bytes=0),
            kafka=KafkaSettings(port=0, io_timeout_ms=2_000, max_login_ms=60_000),
            http=HttpSettings(port=0),
            tls=TlsSettings(files.certificate, files.key, authority.ca),
            login=LoginSettings("ada", "sécret"),
            cluster=ClusterSettings(num_partitions=1),
            groups=GroupSettings(offsets_topic_partitions=1, initial_rebalance_delay_ms=0),
            listener={
                "kafka": ListenerSettings("sasl_tls", takes=CLIENTS),
                "open": ListenerSettings("sasl_plaintext", "127.0.0.1:0", takes=CLIENTS),
                "http": ListenerSettings("https", takes=CLIENTS, login="required"),
            },
        )
    )
    await made.start()
    yield made
    await made.stop()


def at(broker: Broker, name: str) -> tuple[str, int]:
    (found,) = [each for each in broker.kafka.listeners if each.name == name]
    host, port = found.socket.getsockname()
    return host, port


def librdkafka(broker: Broker, authority: Authority, mechanism: str, password: str = "sécret") -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.kafka_address,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": authority.ca,
        "sasl.mechanism": mechanism,
        "sasl.username": "ada",
        "sasl.password": password,
    }


@pytest.mark.parametrize("mechanism", [*SCRAM, "PLAIN"])
async def test_librdkafka(broker: Broker, authority: Authority, mechanism: str) -> None:
    common = librdkafka(broker, authority, mechanism)

    def use() -> list[bytes]:
        producer = Producer(common)
        producer.produce("t", b"value")
        assert producer.flush(20) == 0
        consumer = Consumer({**common, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        found = [message.value() for message in consumer.consume(1, 20)]
        consumer.close()
        return found

    assert await asyncio.to_thread(use) == [b"value"]


@pytest.mark.parametrize("mechanism", [*SCRAM, "PLAIN"])
async def test_aiokafka_and_kafka_python(broker: Broker, authority: Authority, mechanism: str) -> None:
    context = ssl.create_default_context(cafile=authority.ca)
    common: dict[str, Any] = {
        "bootstrap_servers": broker.kafka_address,
        "security_protocol": "SASL_SSL",
        "ssl_context": context,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "ada",
        "sasl_plain_password": "sécret",
    }
    async with AIOKafkaProducer(**common) as producer:
        await producer.send_and_wait("t", b"one")
        assert {each.principal.name for each in broker.kafka.connections} == {"ada"}

    def use() -> None:
        producer = KafkaProducer(**common)
        producer.send("t", b"two").get(20)
        producer.close()

    await asyncio.to_thread(use)
    async with AIOKafkaConsumer("t", auto_offset_reset="earliest", **common) as consumer:
        assert [(await asyncio.wait_for(consumer.getone(), 10)).value for _ in range(2)] == [b"one", b"two"]


async def test_a_wrong_password_is_told(broker: Broker, authority: Authority) -> None:
    def try_it() -> list[str]:
        told: list[str] = []
        client = AdminClient(
            {**librdkafka(broker, authority, "SCRAM-SHA-256", "wrong"), "error_cb": lambda e: told.append(e.str())}
        )
        try:
            client.list_topics(timeout=3)
        except Exception:
            client.poll(0)
        return told

    told = await asyncio.to_thread(try_it)
    assert any("Authentication failed" in each for each in told), told
    assert broker.node.failed_logins.total


async def salts(broker: Broker) -> list[bytes]:
    """What the broker tells of two users, of whom one exists."""
    told = []
    for user in ("ada", "nobody"):
        async with Wire(*at(broker, "open")) as wire:
            await wire.ask(SaslHandshakeRequest(SCRAM[0]), 1)
            reply = await wire.ask(SaslAuthenticateRequest(f"n,,n={user},r=abc".encode()), 2)
            told.append(bytes(reply.auth_bytes).split(b",")[1])
    return told


async def test_a_restart_does_not_tell_who_exists(broker: Broker) -> None:
    before = await salts(broker)
    await broker.stop()
    again = Broker(broker.settings)
    await again.start()
    assert await salts(again) == before
    await again.stop()


async def test_going_away_does_not_make_guessing_faster(
    broker: Broker, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "AT_ONCE", 2)
    context, failed = ssl.create_default_context(cafile=authority.ca), broker.node.failed_logins

    async def guess_over_kafka(password: str) -> None:
        async with Wire(*at(broker, "kafka"), context) as wire:
            await wire.ask(SaslHandshakeRequest("PLAIN"), 1)
            await wire.send(SaslAuthenticateRequest(f"\0ada\0{password}".encode()), 2)

    async def guess_over_http(client: aiohttp.ClientSession, password: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.get("/metrics", headers=basic("ada", password))

    async with aiohttp.ClientSession(
        f"https://{broker.http_address}", connector=aiohttp.TCPConnector(ssl=context)
    ) as client:
        for n in range(20):
            await asyncio.gather(guess_over_kafka(f"k{n}"), guess_over_http(client, f"h{n}"))
        tried = failed.total
        assert tried <= 14, "by then two at once have waited for 0.1, 0.2, 0.4 seconds and so on"
        async with client.get("/metrics", headers=basic("ada", "sécret")) as reply:
            assert reply.status == 200
        assert failed.total <= tried + 4, "who is gone is not tried"


async def test_users_by_kafkas_own_requests(broker: Broker, authority: Authority) -> None:
    def use() -> tuple[set[str], set[str]]:
        admin = AdminClient(librdkafka(broker, authority, "SCRAM-SHA-512"))
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        for future in admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("bob", info, b"bobs", b"salt-of-bob")]
        ).values():
            future.result(20)
        found = admin.describe_user_scram_credentials().result(20)
        as_bob = {
            **librdkafka(broker, authority, "SCRAM-SHA-256", "bobs"),
            "sasl.username": "bob",
        }
        return set(found), set(AdminClient(as_bob).list_topics(timeout=20).topics)

    users, topics = await asyncio.to_thread(use)
    assert users == {"ada", "bob"}
    assert topics == set()


async def test_nothing_is_answered_before_a_login(broker: Broker) -> None:
    host, port = at(broker, "open")
    async with Wire(host, port) as wire:
        assert (await wire.ask(ApiVersionsRequest(), 2)).error_code == 0
        with pytest.raises(GONE):
            await wire.ask(MetadataRequest(topics=[]), 9)
    async with Wire(host, port) as wire:
        await wire.send_bytes((1 << 20).to_bytes(4, "big") + b"\0" * 100)
        with pytest.raises(GONE):
            await wire.receive_bytes()
    async with Wire(host, port) as wire:
        assert (await wire.ask(SaslAuthenticateRequest(b"x"), 2)).error_code == ErrorCode.ILLEGAL_SASL_STATE
    async with Wire(host, port) as wire:
        refused = await wire.ask(SaslHandshakeRequest("PLAIN"), 1)
        assert refused.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert refused.mechanisms == list(SCRAM)
        with pytest.raises(GONE):
            await wire.ask(SaslHandshakeRequest(SCRAM[0]), 1)
    async with Wire(host, port) as wire:
        async with asyncio.timeout(10):
            assert await wire.incoming.read(1) == b""
    await until(lambda: not broker.kafka.connections)


async def log_in(wire: Wire, user: str, password: str) -> Any:
    assert (await wire.ask(SaslHandshakeRequest("PLAIN"), 1)).error_code == 0
    return await wire.ask(SaslAuthenticateRequest(f"\0{user}\0{password}".encode()), 2)


async def test_a_login_has_its_time(broker: Broker, authority: Authority) -> None:
    broker.kafka.settings = KafkaSettings(io_timeout_ms=2_000, max_login_ms=300)
    await broker.node.users.set_password("bob", "bobs")
    context = ssl.create_default_context(cafile=authority.ca)
    host, port = at(broker, "kafka")
    async with Wire(host, port, context) as wire:
        assert (await log_in(wire, "ada", "sécret")).session_lifetime_ms == 300
        assert (await wire.ask(MetadataRequest(topics=[]), 9)).topics == []
        await asyncio.sleep(0.2)
        assert (await log_in(wire, "ada", "sécret")).error_code == 0
        await asyncio.sleep(0.2)
        assert (await wire.ask(MetadataRequest(topics=[]), 9)).topics == []
        assert (await log_in(wire, "bob", "bobs")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    async with Wire(host, port, context) as wire:
        await log_in(wire, "ada", "sécret")
        await asyncio.sleep(1.5)
        with pytest.raises(GONE):
            await wire.ask(MetadataRequest(topics=[]), 9)


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": aiohttp.encode_basic_auth(user, password, "utf-8")}


async def test_http(broker: Broker, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    note = FailedLogins.note
    monkeypatch.setattr(FailedLogins, "note", lambda self, address: 0 * note(self, address))
    url = f"https://{broker.http_address}"
    tls = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=authority.ca))
    ada, wrong, eve = basic("ada", "sécret"), basic("ada", "secret"), basic("eve", "eves")
    async with aiohttp.ClientSession(url, connector=tls) as client:

        async def status(path: str, method: str = "GET", **options: Any) -> int:
            async with client.request(method, path, **options) as reply:
                return reply.status

        assert await status("/healthz") == await status("/readyz") == 200
        for path in ("/api/v1/topics", "/metrics", "/openapi.json"):
            assert await status(path) == await status(path, headers=wrong) == 401
            assert await status(path, headers=ada) == 200
        for header in ("Bearer x", "Basic !", "Basic", "Basic YQ=="):
            assert await status("/metrics", headers={"Authorization": header}) == 401
        assert await status("/api/v1/users/eve/password", "PUT", json={"password": "eves"}, headers=ada) == 204
        assert await status("/metrics", headers=eve) == 200
        async with client.get("/api/v1/users", headers=eve) as reply:
            assert await reply.json() == {
                "users": [{"name": each, "mechanisms": list(SCRAM)} for each in ("ada", "eve")]
            }
        assert await status("/api/v1/users/eve", "DELETE", headers=ada) == 204
        assert await status("/metrics", headers=eve) == 401
        assert await status("/api/v1/users/eve", "DELETE", headers=ada) == 404


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([("listener.kafka.mechanisms", "PLAIN")], "mechanisms has no effect"),
        ([("listener.kafka.protocol", "sasl_plaintext")], "takes peers, which do not log in"),
        ([("listener.http.login", "required")], "would let passwords pass unencrypted"),
        ([("login.first_user", "ada")], "go together"),
        ([("listener.kafka.mechanisms", "GSSAPI")], "cannot be 'GSSAPI'"),
    ],
)
def test_settings_that_are_refused(given: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        plan_listeners(load_settings(flags=[Given(key, value, f"--{key}") for key, value in given]))
    assert said in str(refused.value)

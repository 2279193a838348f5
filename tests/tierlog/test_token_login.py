"""Logins with tokens of an identity provider over Kafka: real clients, and Kafka's answers to wrong tokens."""

import asyncio
import ssl
import time
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider

from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.messages.metadata import MetadataRequest
from gateway.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from gateway.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from hot_tier.errors import SettingsError
from tests.gateway.kafka.wire import Wire
from tests.support.certificates import Authority
from tests.support.identity_provider import Provider
from tierlog.broker import Broker
from tierlog.listeners import plan_listeners
from tierlog.settings import Given, load_settings

GONE = (asyncio.IncompleteReadError, ConnectionError)


def librdkafka(secured: Broker, authority: Authority, token: str, until_s: float) -> dict[str, Any]:
    return {
        "bootstrap.servers": secured.kafka_address,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": authority.ca,
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, until_s),
    }


async def test_librdkafka(secured: Broker, authority: Authority, provider: Provider) -> None:
    common = librdkafka(secured, authority, provider.token(), time.time() + 300)

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


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


class PythonTokens(PythonTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


async def test_aiokafka_and_kafka_python(secured: Broker, authority: Authority, provider: Provider) -> None:
    common: dict[str, Any] = {
        "bootstrap_servers": secured.kafka_address,
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=authority.ca),
        "sasl_mechanism": "OAUTHBEARER",
    }
    mine = {**common, "sasl_oauth_token_provider": Tokens(provider.token())}
    async with AIOKafkaProducer(**mine) as producer:
        await producer.send_and_wait("t", b"one")
        assert {(each.principal.name, each.principal.kind) for each in secured.kafka.connections} == {("ada", "token")}

    def use() -> None:
        producer = KafkaProducer(**common, sasl_oauth_token_provider=PythonTokens(provider.token("eve")))
        producer.send("t", b"two").get(20)
        producer.close()

    await asyncio.to_thread(use)
    async with AIOKafkaConsumer("t", auto_offset_reset="earliest", **mine) as consumer:
        assert [(await asyncio.wait_for(consumer.getone(), 10)).value for _ in range(2)] == [b"one", b"two"]
    expired = {**common, "sasl_oauth_token_provider": Tokens(provider.token(exp=int(time.time()) - 60))}
    with pytest.raises(KafkaError):
        async with AIOKafkaProducer(**expired):
            pass


@pytest.mark.parametrize("claims", [{"exp": 1000}, {"aud": "other"}])
async def test_librdkafka_is_told(
    secured: Broker, authority: Authority, provider: Provider, claims: dict[str, Any]
) -> None:
    def try_it() -> list[str]:
        told: list[str] = []
        common = librdkafka(secured, authority, provider.token(**claims), time.time() + 300)
        client = AdminClient({**common, "error_cb": lambda error: told.append(error.str())})
        until_s = time.monotonic() + 10
        while not told and time.monotonic() < until_s:
            client.poll(0.2)
        return told

    told = await asyncio.to_thread(try_it)
    assert any("uthentication failed" in each for each in told), told


def first(token: str, acting_as: str = "") -> bytes:
    return f"n,{'a=' + acting_as if acting_as else ''},\1auth=Bearer {token}\1\1".encode()


async def begin(secured: Broker, authority: Authority) -> Wire:
    host, port = secured.kafka_address.split(":")
    return Wire(host, int(port), ssl.create_default_context(cafile=authority.ca))


async def test_kafkas_answers(secured: Broker, authority: Authority, provider: Provider) -> None:
    """The error comes as JSON first; the client acknowledges it, and only then the login has failed."""
    forged = Provider().token()
    for message in (
        first(provider.token(exp=int(time.time()) - 1)),
        first(provider.token(aud="other")),
        first(forged),
        first("garbage"),
        first(provider.token(), "eve"),
        first("x" * 60_000),
    ):
        async with await begin(secured, authority) as wire:
            assert (await wire.ask(SaslHandshakeRequest("OAUTHBEARER"), 1)).error_code == 0
            answer = await wire.ask(SaslAuthenticateRequest(message), 2)
            assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b'{"status":"invalid_token"}')
            answer = await wire.ask(SaslAuthenticateRequest(b"\1"), 2)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "OAUTHBEARER" in str(answer.error_message)
            with pytest.raises(GONE):
                await wire.ask(MetadataRequest(topics=[]), 9)
        secured.node.failed_logins._by_address.clear()
    assert secured.node.failed_logins.total == 6, "each is counted once, whether the client acknowledges or not"


async def test_after_a_refused_token_there_is_no_second(
    secured: Broker, authority: Authority, provider: Provider
) -> None:
    async with await begin(secured, authority) as wire:
        await wire.ask(SaslHandshakeRequest("OAUTHBEARER"), 1)
        await wire.ask(SaslAuthenticateRequest(first("garbage")), 2)
        answer = await wire.ask(SaslAuthenticateRequest(first(provider.token())), 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_login_ends_with_its_token(secured: Broker, authority: Authority, provider: Provider) -> None:
    async with await begin(secured, authority) as wire:

        async def log_in(token: str) -> Any:
            assert (await wire.ask(SaslHandshakeRequest("OAUTHBEARER"), 1)).error_code == 0
            return await wire.ask(SaslAuthenticateRequest(first(token)), 2)

        done = await log_in(provider.token(exp=time.time() + 2))
        assert done.error_code == 0
        assert 0 < done.session_lifetime_ms <= 2_000
        assert (await log_in(provider.token(exp=time.time() + 2))).error_code == 0
        assert (await wire.ask(MetadataRequest(topics=[]), 9)).topics == []
        await asyncio.sleep(3.5)
        with pytest.raises(GONE):
            await wire.ask(MetadataRequest(topics=[]), 9)


async def test_another_users_token_does_not_prolong(secured: Broker, authority: Authority, provider: Provider) -> None:
    async with await begin(secured, authority) as wire:
        for user, error in (("ada", 0), ("eve", ErrorCode.SASL_AUTHENTICATION_FAILED)):
            assert (await wire.ask(SaslHandshakeRequest("OAUTHBEARER"), 1)).error_code == 0
            assert (await wire.ask(SaslAuthenticateRequest(first(provider.token(user))), 2)).error_code == error


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([("listener.kafka.mechanisms", "OAUTHBEARER"), ("listener.kafka.protocol", "sasl_plaintext")], "no setting"),
    ],
)
def test_settings_that_are_refused(given: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        plan_listeners(load_settings(flags=[Given(key, value, f"--{key}") for key, value in given]))
    assert said in str(refused.value)

"""What somebody can do who has not logged in: nothing is reached, nothing grows, and nobody stays."""

import asyncio
import os
import random
import ssl
import struct
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import gateway.handshakes
from gateway.http.operation import Operation
from gateway.http.settings import HttpSettings
from gateway.kafka.login import MAX_FRAME_BYTES
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.api_versions import ApiVersionsRequest
from gateway.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from gateway.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from gateway.kafka.taken import LOGIN_APIS
from gateway.kafka_settings import KafkaSettings
from gateway.logins import FailedLogins
from tests.fuzz.test_frames import mutate, real_request
from tests.gateway.kafka.wire import request_frame
from tests.support.certificates import Authority
from tests.support.identity_provider import Provider
from tests.support.secured import secured_settings
from tests.support.waiting import until
from tierlog.broker import Broker

PATIENCE_S = 15
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
async def broker(tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Broker]:
    """Its deadlines are short, and failures are answered at once: the delay is another test's."""
    note = FailedLogins.note
    monkeypatch.setattr(FailedLogins, "note", lambda self, address: 0 * note(self, address))
    monkeypatch.setattr(gateway.handshakes, "HANDSHAKE_S", 1.0)
    settings = secured_settings(tmp_path, authority, Provider())
    made = Broker(
        replace(
            settings,
            kafka=KafkaSettings(port=0, io_timeout_ms=1_500),
            http=HttpSettings(port=0, header_timeout_ms=1_500),
        )
    )
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def reached(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> set[Any]:
    """The APIs and the operations whose handlers were called."""
    found: set[Any] = set()
    apis, run = broker.kafka.apis, Operation.run
    for key, handler in list(apis.handlers.items()):

        def noting(request: Any, context: Any, key: int = key, function: Any = handler.function) -> Any:
            found.add(key)
            return function(request, context)

        apis.handlers[key] = handler._replace(function=noting)  # type: ignore[index]
    apis._routes.clear()

    async def run_noting(self: Operation, api: Any, request: Any) -> Any:
        found.add(self.name)
        return await run(self, api, request)

    monkeypatch.setattr(Operation, "run", run_noting)
    return found


def at(broker: Broker, name: str) -> tuple[str, int]:
    (found,) = [each for each in (*broker.kafka.listeners, *broker.http.listeners) if each.name == name]
    host, port = found.socket.getsockname()
    return host, port


async def shoot(address: tuple[str, int], data: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    """Sends it, says that nothing follows, and returns all that comes back."""
    reader, writer = await asyncio.open_connection(*address, ssl=tls)
    try:
        async with asyncio.timeout(PATIENCE_S):
            writer.write(data)
            if tls is None:
                writer.write_eof()
            return await reader.read()
    except (ConnectionError, ssl.SSLError):
        return b""
    finally:
        writer.close()


def exchange(rng: random.Random) -> bytes:
    """A login that is wrong somewhere, and then a request that needs one."""
    mechanism = rng.choice((*MECHANISMS, "GSSAPI", "", "x" * 1000))
    token = rng.choice((b"x", b"." * 100, b"[" * 5000, b"e30.e30.e30", rng.randbytes(200).replace(b"\1", b"")))
    messages = (
        b"",
        b"\1",
        rng.randbytes(rng.randrange(300)),
        b"\0bob\0wrong",
        b"bob\0bob\0" + b"x" * 50_000,
        b"\0" * 60_000,
        b"n,,n=bob,r=x",
        b"n,,n=" + b"=2C" * 10_000 + b",r=x",
        b"n,,\1auth=Bearer " + token + b"\1\1",
        b"n,a=bob,\1auth=Bearer " + token + b"\1x=y\1\1",
        b"n,,\1" + b"a=b\1" * 10_000 + b"\1",
        b"c=biws,r=x,p=" + b64encode(rng.randbytes(32)),
    )
    frames = [request_frame(SaslHandshakeRequest(mechanism), rng.choice((0, 1)), 1)]
    frames += [request_frame(SaslAuthenticateRequest(rng.choice(messages)), 2, 2) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.5:
        wounded = rng.randrange(len(frames))
        frames[wounded] = mutate(bytearray(frames[wounded]), rng)
    if rng.random() < 0.2:
        rng.shuffle(frames)
    key = rng.choice((ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS))
    return b"".join(map(bytes, frames)) + bytes(real_request(key, 7 if key != ApiKey.DELETE_TOPICS else 4, 1))


async def test_kafka(broker: Broker, reached: set[Any]) -> None:
    rng, address = random.Random(7), at(broker, "open")
    before = psutil.Process(os.getpid()).memory_info().rss
    for key, handler in sorted(broker.kafka.apis.handlers.items()):
        for version in {handler.min_version, handler.max_version}:
            began = time.monotonic()
            await shoot(address, bytes(real_request(key, version, 3)))
            assert time.monotonic() - began < 5, (key, version)
    assert reached <= LOGIN_APIS, reached - LOGIN_APIS
    for _ in range(40):
        await asyncio.gather(*(shoot(address, exchange(rng)) for _ in range(10)))
    assert reached == LOGIN_APIS
    assert broker.kafka.unexpected_errors == 0
    await until(lambda: not broker.kafka.connections)
    assert broker.kafka.buffers.receiving.used == 0
    assert psutil.Process(os.getpid()).memory_info().rss - before < 200 * 1024 * 1024
    assert not broker.node.image.find_topic("fuzz-a")


@pytest.mark.parametrize("length", [-1, MAX_FRAME_BYTES + 1, 2**31 - 1])
async def test_no_memory_for_a_length(broker: Broker, length: int) -> None:
    assert await shoot(at(broker, "open"), struct.pack(">i", length) + bytes(100)) == b""
    assert broker.kafka.buffers.receiving.used == 0


def logins(rng: random.Random) -> bytes:
    noise = bytes(rng.choices(range(33, 256), k=rng.randrange(1, 400)))
    shown = (
        noise,
        b"x" * 15_000,
        b"",
        b64encode(noise),
        b64encode(b"bob:" + noise),
        b64encode(b"\xff\xfe:"),
        b64encode(b":"),
        b"tlk_" + noise,
        b"tlk_" + b"_" * 5_000,
        b"." * 15_000,
        b64encode(b"[" * 8_000).rstrip(b"=") + b".e30.e30",
        b64encode(b'{"alg":"none"}').rstrip(b"=") + b".e30.",
        b64encode(b'{"alg":"RS256","kid":"../../x"}').rstrip(b"=") + b".e30.e30",
    )
    scheme = rng.choice((b"Basic ", b"Bearer ", b"bearer  ", b"", b"Negotiate ", b"\t"))
    lines = b"Authorization: " + scheme + rng.choice(shown) + b"\r\n"
    if rng.random() < 0.2:
        lines += rng.choice((lines, b"X-Api-Key: " + rng.choice(shown) + b"\r\n"))
    return rng.choice((lines, lines, b"X-Api-Key: " + rng.choice(shown) + b"\r\n"))


async def test_http(broker: Broker, authority: Authority, reached: set[Any]) -> None:
    rng, address = random.Random(8), at(broker, "http")
    tls = ssl.create_default_context(cafile=authority.ca)
    before = psutil.Process(os.getpid()).memory_info().rss
    for _ in range(30):
        ends = [b"", *(logins(rng) for _ in range(9))]
        answers = await asyncio.gather(
            *(
                shoot(
                    address,
                    b"POST /api/v1/topics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%bContent-Length: 2\r\n\r\n{}"
                    % end,
                    tls,
                )
                for end in ends
            )
        )
        for end, answer in zip(ends, answers, strict=True):
            assert answer[9:12] in (b"401", b"400"), (end[:100], answer[:200])
    assert not reached
    await until(lambda: not broker.http.connections)
    assert psutil.Process(os.getpid()).memory_info().rss - before < 200 * 1024 * 1024


async def gone_after_s(reader: asyncio.StreamReader) -> float:
    began = time.monotonic()
    async with asyncio.timeout(PATIENCE_S):
        try:
            while await reader.read(1 << 16):
                pass
        except (ConnectionError, ssl.SSLError):
            pass
    return time.monotonic() - began


@pytest.mark.parametrize("listener", ["kafka", "http"])
async def test_a_handshake_has_its_time(broker: Broker, listener: str) -> None:
    silent, held = await asyncio.open_connection(*at(broker, listener))
    slow, trickle = await asyncio.open_connection(*at(broker, listener))
    trickle.write(b"\x16\x03\x01")
    assert await gone_after_s(silent) < 4
    assert await gone_after_s(slow) < 4
    held.close()
    trickle.close()


@pytest.mark.parametrize("listener", ["kafka", "http"])
async def test_handshakes_are_few(
    broker: Broker, authority: Authority, monkeypatch: pytest.MonkeyPatch, listener: str
) -> None:
    """Who opens connections and says nothing takes no more files than the limits allow, and keeps nobody out."""
    monkeypatch.setattr(gateway.handshakes, "HANDSHAKE_S", 60.0)
    monkeypatch.setattr(gateway.handshakes, "MOST", 30)
    monkeypatch.setattr(gateway.handshakes, "MOST_OF_ADDRESS", 20)
    here, server = psutil.Process(os.getpid()), getattr(broker, listener)
    address, before = at(broker, listener), here.num_fds()
    silent = [await asyncio.open_connection(*address, local_addr=("127.0.0.2", 0)) for _ in range(60)]
    silent += [await asyncio.open_connection(*address, local_addr=("127.0.0.3", 0)) for _ in range(60)]
    # This side's files are in this process too.
    await until(lambda: here.num_fds() - before <= len(silent) + 30)
    assert getattr(server, "refused" if listener == "kafka" else "refused_connections") == 90
    tls = ssl.create_default_context(cafile=authority.ca)
    for own in ("127.0.0.1", "127.0.0.3"):
        _, writer = await asyncio.open_connection(*address, ssl=tls, local_addr=(own, 0))
        writer.close()
    for _, held in silent:
        held.close()
    await until(lambda: here.num_fds() <= before + 5)


@pytest.mark.parametrize("listener", ["kafka", "open", "http"])
async def test_who_does_not_log_in_is_dropped(broker: Broker, authority: Authority, listener: str) -> None:
    """Also who keeps asking what needs no login."""
    tls = None if listener == "open" else ssl.create_default_context(cafile=authority.ca)
    reader, writer = await asyncio.open_connection(*at(broker, listener), ssl=tls)

    async def ask_on() -> None:
        while listener != "http":
            writer.write(request_frame(ApiVersionsRequest(), 2, 1))
            await asyncio.sleep(0.2)

    asking = asyncio.create_task(ask_on())
    assert await gone_after_s(reader) < 6
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    writer.close()

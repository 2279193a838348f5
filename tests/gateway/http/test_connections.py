"""Connections that dawdle, talk nonsense or never listen are closed, and the others never notice."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.gateway.http.conftest import Serve, Served
from tests.support.waiting import until

MESSAGES = b"/api/v1/topics/orders/messages"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(served: Served) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection(served.host, served.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def rest(reader: asyncio.StreamReader) -> bytes:
    """All that is sent until the node closes; fails if it does not."""
    async with asyncio.timeout(10):
        return await reader.read()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "])
async def test_a_connection_without_whole_headers_is_closed(serve: Serve, sent: bytes) -> None:
    served = await serve(header_timeout_ms=200)
    began = time.monotonic()
    async with connected(served) as (reader, writer):
        writer.write(sent)
        assert await rest(reader) == b""
    # The clock of the loop is coarser than this one.
    assert 0.19 <= time.monotonic() - began < 3
    await until(lambda: served.http.connections == 0)


async def test_dripping_headers_do_not_help(serve: Serve) -> None:
    served = await serve(header_timeout_ms=300)
    began = time.monotonic()
    async with connected(served) as (reader, writer):

        async def drip() -> None:
            for byte in b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: " + b"a" * 1000:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        # What is still sent to a closed connection is answered with a reset.
        with suppress(ConnectionResetError):
            assert await rest(reader) == b""
        dripping.cancel()
    assert time.monotonic() - began < 3


async def test_a_second_request_that_stops_in_its_headers_is_closed(serve: Serve) -> None:
    served = await serve(header_timeout_ms=200)
    async with connected(served) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        await asyncio.sleep(0.5)
        # Idle between requests is fine; half a request is not.
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
        writer.write(b"GET /healthz HTT")
        assert await rest(reader) == b""


async def test_an_idle_connection_is_closed_after_its_time(serve: Serve) -> None:
    served = await serve(keepalive_timeout_ms=300)
    async with connected(served) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await rest(reader)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "sent",
    [
        b"POST " + MESSAGES + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf",
        b"POST " + MESSAGES + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ],
)
async def test_half_a_body_is_answered_408_and_closed(serve: Serve, sent: bytes) -> None:
    served = await serve(body_timeout_ms=200)
    await served.make_topic("orders")
    async with connected(served) as (reader, writer):
        writer.write(sent)
        answer = await rest(reader)
    assert status(answer) == 408
    assert b"body-timeout" in answer
    assert served.api.bodies.buffered_bytes == 0
    assert (await served.messages("orders"))["messages"] == []


async def test_half_a_body_for_an_address_that_takes_none(serve: Serve) -> None:
    served = await serve()
    async with connected(served) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
        assert status(await rest(reader)) == 200


async def test_a_client_that_goes_away_in_its_body_leaves_nothing(served: Served) -> None:
    await served.make_topic("orders")
    async with connected(served) as (_, writer):
        writer.write(b"POST " + MESSAGES + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
        await until(lambda: served.api.bodies.buffered_bytes == 4)
    await until(lambda: served.api.bodies.buffered_bytes == 0)
    await until(lambda: served.http.connections <= 1)
    assert (await served.messages("orders"))["messages"] == []


async def test_a_client_that_reads_nothing_is_dropped(serve: Serve) -> None:
    served = await serve(send_timeout_ms=300)
    await served.make_topic("orders")
    await served.produce("orders", *[b"x" * 1_000_000 for _ in range(24)])
    async with connected(served) as (_, writer):
        address = b"/api/v1/topics/orders/partitions/0/messages"
        writer.transport.pause_reading()
        writer.write(b"GET " + address + b" HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\n\r\n")
        await until(lambda: served.http.connections == 2)
        await until(lambda: served.http.connections == 1)


async def test_one_connection_too_many_is_told_so(serve: Serve) -> None:
    served = await serve(max_connections=3)
    assert (await served.get("/healthz")).status == 200
    async with connected(served), connected(served):
        await until(lambda: served.http.connections == 3)
        async with connected(served) as (reader, writer):
            writer.write(b"GET /api/v1/topics HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = await rest(reader)
    assert status(answer) == 503
    assert orjson.loads(answer.split(b"\r\n\r\n")[1])["type"] == "urn:tierlog:problem:overloaded"
    assert served.http.refused_connections == 1
    await until(lambda: served.http.connections == 1)
    async with connected(served) as (reader, writer):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert status(await rest(reader)) == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello\r\n\r\n",
        b"\x00\x00\x00\x14\x00\x12\x00\x00\x00\x00\x00\x01\x00\x04test a kafka request\r\n\r\n",
        b"GET\r\n\r\n",
        b"BREW /pot HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nBad Header\r\n\r\n",
        b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nX-Long: " + b"a" * 40_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(500)) + b"\r\n",
    ],
)
async def test_what_is_not_http_is_a_problem_and_closed(served: Served, sent: bytes) -> None:
    async with connected(served) as (reader, writer):
        writer.write(sent)
        answer = await rest(reader)
    assert status(answer) == 400
    assert b"application/problem+json" in answer
    assert b"\r\nServer: tierlog\r\n" in answer and b"aiohttp" not in answer and b"Python" not in answer
    document = orjson.loads(answer.split(b"\r\n\r\n", 1)[1])
    assert (document["status"], document["type"]) == (400, "urn:tierlog:problem:bad-request")
    assert (await served.get("/healthz")).status == 200


async def test_bad_chunks_are_a_problem(served: Served) -> None:
    await served.make_topic("orders")
    async with connected(served) as (reader, writer):
        writer.write(b"POST " + MESSAGES + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
        answer = await rest(reader)
    assert status(answer) == 400
    assert (await served.messages("orders"))["messages"] == []


async def test_a_body_too_large_is_refused_before_it_is_sent(serve: Serve) -> None:
    served = await serve(max_message_bytes=10)
    await served.make_topic("orders")
    head = b"POST " + MESSAGES + b" HTTP/1.1\r\nHost: x\r\nExpect: %b\r\nContent-Length: %d\r\n\r\n"
    async with connected(served) as (reader, writer):
        writer.write(head % (b"100-continue", 1_000_000))
        assert status(await rest(reader)) == 413
    async with connected(served) as (reader, writer):
        writer.write(head % (b"100-continue", 4))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"body")
        assert b'"offset":0' in await reader.readuntil(b"}")
    async with connected(served) as (reader, writer):
        writer.write(head % (b"magic", 4) + b"body")
        answer = await rest(reader)
        assert status(answer) == 417
        assert b"bad-expectation" in answer


async def test_pipelined_requests_are_answered_in_order(served: Served) -> None:
    await served.make_topic("orders")
    async with connected(served) as (reader, writer):
        for number in range(20):
            writer.write(b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n%d" % (MESSAGES, number % 10))
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = await rest(reader)
    offsets = [answer.index(b'"offset":%d,' % number) for number in range(20)]
    assert offsets == sorted(offsets)


@pytest.mark.parametrize(
    ("method", "path", "status", "problem", "allow"),
    [
        ("GET", "/", 404, "not-found", None),
        ("GET", "/api/v1/", 404, "not-found", None),
        ("GET", "/api/v2/topics", 404, "not-found", None),
        ("GET", "/api/v1/topics/", 404, "not-found", None),
        ("PUT", "/api/v1/topics", 405, "wrong-method", "GET, POST"),
        ("DELETE", "/api/v1/topics/a/messages", 405, "wrong-method", "POST"),
        ("OPTIONS", "/healthz", 405, "wrong-method", "GET, HEAD"),
        ("TRACE", "/api/v1/cluster", 405, "wrong-method", "GET"),
    ],
)
async def test_no_such_address_or_method(
    served: Served, method: str, path: str, status: int, problem: str, allow: str | None
) -> None:
    reply = await served.call(method, path)
    assert (reply.status, reply.problem, reply.headers.get("Allow")) == (status, problem, allow)
    assert reply.json["instance"] == path


async def test_a_failure_inside_is_a_problem_without_details(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served.node.image, "topics", lambda: 1 / 0)
    reply = await served.get("/api/v1/topics")
    assert (reply.status, reply.problem) == (500, "internal-error")
    assert b"division" not in reply.body
    assert (await served.get("/healthz")).status == 200


async def test_requests_in_progress_are_finished_at_the_end(served: Served) -> None:
    await served.make_topic("orders")
    posts = [
        asyncio.create_task(served.post("/api/v1/topics/orders/messages", data=b"%d" % number)) for number in range(50)
    ]
    await until(lambda: served.api.producer.messages > 0)
    await served.http.stop()
    replies = await asyncio.gather(*posts, return_exceptions=True)
    stored = [reply for reply in replies if not isinstance(reply, BaseException) and reply.status == 200]
    assert stored
    assert served.node.partitions.get("orders", 0).log.log_end_offset >= len(stored)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(min_size=1, max_size=200), max_size=4), st.booleans())
async def test_any_bytes_give_an_answer_or_a_closed_connection(
    served: Served, pieces: list[bytes], as_request: bool
) -> None:
    async with connected(served) as (reader, writer):
        if as_request:
            writer.write(b"POST /api/v1/topics HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        for piece in pieces:
            writer.write(piece)
        writer.write(b"\r\n\r\n")
        writer.write_eof()
        answer = b""
        with suppress(ConnectionResetError):
            answer = await rest(reader)
    assert answer == b"" or b"HTTP/1" in answer[:6]
    assert b"HTTP/1.1 5" not in answer
    assert (await served.get("/healthz")).status == 200

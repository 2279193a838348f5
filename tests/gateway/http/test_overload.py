"""Clients that do not read, and clients without number, cost bounded memory and leave the others their room."""

import asyncio
from contextlib import AsyncExitStack

import orjson
import pytest

from gateway.http.budget import Budget
from tests.gateway.http.conftest import Serve, Served
from tests.gateway.http.test_connections import connected, rest, status
from tests.support.waiting import until

MB = 1024 * 1024
READ = b"GET /api/v1/topics/orders/partitions/0/messages?limit=100 HTTP/1.1\r\nHost: x\r\nAccept: %b\r\n\r\n"


async def unread(served: Served, stack: AsyncExitStack, count: int, media: bytes) -> None:
    """Connections that ask again and again and read nothing."""
    for _ in range(count):
        _, writer = await stack.enter_async_context(connected(served))
        writer.transport.pause_reading()
        writer.write((READ % media) * 3)


@pytest.mark.parametrize(
    "media", [b"application/json", b"application/x-ndjson", b"application/vnd.apache.arrow.stream"]
)
async def test_answers_that_nobody_reads_are_bounded(serve: Serve, media: bytes) -> None:
    served = await serve(max_unsent_bytes=16 * MB)
    await served.make_topic("orders")
    await served.produce("orders", *[b"x" * 900_000 for _ in range(12)])
    async with AsyncExitStack() as stack:
        await unread(served, stack, 40, media)
        await until(lambda: served.api.answers.used > 4 * MB)
        for _ in range(50):
            await asyncio.sleep(0.01)
            assert served.api.answers.used <= 16 * MB // 2
            waiting = [each.transport for each in served.http._runner.server.connections]
            assert sum(each.get_write_buffer_size() for each in waiting if each is not None) < 40 * 4 * 64 * 1024
        assert (await served.get("/healthz")).status == 200
    await until(lambda: served.api.answers.used == 0)
    assert len((await served.messages("orders", limit=3))["messages"]) == 3


async def test_where_memory_is_short_an_answer_is_shorter_and_says_where_to_go_on(serve: Serve) -> None:
    served = await serve(max_unsent_bytes=8 * MB)
    await served.make_topic("orders")
    await served.produce("orders", *[b"%d" % number + b"x" * 400_000 for number in range(12)])
    seen, offset = [], 0
    while offset < 12:
        got = await served.messages("orders", offset=offset, limit=100)
        seen += [each["offset"] for each in got["messages"]]
        offset = got["next_offset"]
        assert len(got["messages"]) < 12
    assert seen == list(range(12))


async def test_an_answer_without_room_for_its_first_record_is_refused(serve: Serve) -> None:
    served = await serve(max_unsent_bytes=1 * MB)
    await served.make_topic("orders")
    await served.produce("orders", b"x" * 500_000)
    reply = await served.get("/api/v1/topics/orders/partitions/0/messages")
    assert reply.status in (429, 503)
    assert reply.problem in ("too-much-at-once", "overloaded")
    assert reply.headers["Retry-After"] == "1"


def test_one_address_leaves_half_to_the_others() -> None:
    async def check() -> None:
        budget = Budget("answers", 100)
        assert budget.take("a", 50) and not budget.take("a", 1)
        assert budget.refusal("a").kind.status == 429
        assert budget.take("b", 50) and not budget.take("c", 1)
        assert budget.refusal("c").kind.status == 503
        budget.give_back("a", 50)
        assert budget.take("c", 1)

    asyncio.run(check())


@pytest.mark.parametrize(
    ("limits", "refusal"),
    [({"max_connections": 20}, 503), ({"max_connections": 50, "max_connections_per_ip": 20}, 429)],
)
async def test_long_polls_without_number_do_not_shut_out_who_watches(
    serve: Serve, limits: dict[str, int], refusal: int
) -> None:
    served = await serve(**limits)
    await served.make_topic("orders")
    poll = b"GET /api/v1/topics/orders/partitions/0/messages?wait_ms=8000 HTTP/1.1\r\nHost: x\r\n\r\n"
    async with AsyncExitStack() as stack:
        for _ in range(120):
            _, writer = await stack.enter_async_context(connected(served))
            writer.write(poll)
        # Silent ones on top: they must not hold the places that are kept free.
        for _ in range(100):
            await stack.enter_async_context(connected(served))
        await until(lambda: served.api.metrics.long_polls == 19)
        for path in (b"/healthz", b"/readyz", b"/metrics"):
            async with connected(served) as (reader, writer):
                writer.write(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
                assert status(await rest(reader)) == 200
        async with connected(served) as (reader, writer):
            writer.write(b"GET /api/v1/topics HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = await rest(reader)
        assert status(answer) == refusal
        assert b"Retry-After: 1" in answer
        assert orjson.loads(answer.split(b"\r\n\r\n")[1])["hint"]
        assert served.http.connections <= 20 + 64

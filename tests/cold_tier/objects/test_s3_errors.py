"""What S3 says, whatever digits and words its address and the object's key are made of."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from cold_tier.errors import (
    ObjectMissing,
    StoreDenied,
    StoreError,
    StoreMisconfigured,
    StoreThrottled,
    StoreUnavailable,
)
from cold_tier.objects.s3 import S3Store
from tests.support.s3 import credentials

KEY = "416/429/501/503/404/NoSuchBucket/SlowDown/ExpiredToken"


@pytest.fixture
async def answering(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[S3Store, list[Any]]]:
    """A store, and the status and code that its server answers with."""
    for name, value in credentials().items():
        monkeypatch.setenv(name, value)
    said = [500, "Code"]

    async def answer(request: web.Request) -> web.Response:
        text = f"<Error><Code>{said[1]}</Code></Error>"
        return web.Response(status=said[0], text=text, content_type="application/xml")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield S3Store("bucket", endpoint=f"http://127.0.0.1:{runner.addresses[0][1]}"), said
    await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (500, "Code", StoreUnavailable),
        (502, "Code", StoreUnavailable),
        (503, "Code", StoreThrottled),
        (429, "Code", StoreThrottled),
        (500, "SlowDown", StoreThrottled),
        (403, "Code", StoreDenied),
        (400, "ExpiredToken", StoreDenied),
        (404, "Code", ObjectMissing),
        (404, "NoSuchBucket", StoreMisconfigured),
        (501, "Code", StoreError),
    ],
)
async def test_each_status_is_its_own_error(
    status: int, code: str, error: type[Exception], answering: tuple[S3Store, list[Any]]
) -> None:
    store, said = answering
    said[:] = status, code
    with pytest.raises(error) as read:
        [part async for part in store.stream(KEY, 10, 10)]
    with pytest.raises(error) as written:
        await store.put(KEY, b"data")
    assert type(read.value) is type(written.value) is error


async def test_a_range_beyond_the_end_is_empty(answering: tuple[S3Store, list[Any]]) -> None:
    store, said = answering
    said[0] = 416
    assert [part async for part in store.stream("key", 10, 10)] == []


async def test_a_conflict_under_way_is_not_an_object_that_is_there(answering: tuple[S3Store, list[Any]]) -> None:
    store, said = answering
    said[0] = 409
    with pytest.raises(StoreUnavailable):
        await store.put_if_absent(KEY, b"data")
    said[0] = 412
    assert await store.put_if_absent(KEY, b"data") is False

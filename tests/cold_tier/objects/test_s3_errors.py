"""What S3 says, whatever digits its address and the object's key are made of."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from cold_tier.errors import ObjectMissing, StoreDenied, StoreError, StoreThrottled, StoreUnavailable
from cold_tier.objects.s3 import S3Store
from tests.support.s3 import credentials

KEY = "416/429/501/503/404"


@pytest.fixture
async def answering(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[S3Store, list[int]]]:
    for name, value in credentials().items():
        monkeypatch.setenv(name, value)
    status = [500]

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status[0], text="<Error><Code>Code</Code></Error>", content_type="application/xml")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield S3Store("bucket", endpoint=f"http://127.0.0.1:{runner.addresses[0][1]}"), status
    await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (500, StoreUnavailable),
        (502, StoreUnavailable),
        (503, StoreThrottled),
        (429, StoreThrottled),
        (403, StoreDenied),
        (404, ObjectMissing),
        (501, StoreError),
    ],
)
async def test_each_status_is_its_own_error(
    status: int, error: type[Exception], answering: tuple[S3Store, list[int]]
) -> None:
    store, said = answering
    said[0] = status
    with pytest.raises(error) as read:
        [part async for part in store.stream(KEY, 10, 10)]
    with pytest.raises(error) as written:
        await store.put(KEY, b"data")
    assert type(read.value) is type(written.value) is error


async def test_a_range_beyond_the_end_is_empty(answering: tuple[S3Store, list[int]]) -> None:
    store, said = answering
    said[0] = 416
    assert [part async for part in store.stream("key", 10, 10)] == []


async def test_a_conflict_under_way_is_not_an_object_that_is_there(answering: tuple[S3Store, list[int]]) -> None:
    store, said = answering
    said[0] = 409
    with pytest.raises(StoreUnavailable):
        await store.put_if_absent(KEY, b"data")
    said[0] = 412
    assert await store.put_if_absent(KEY, b"data") is False

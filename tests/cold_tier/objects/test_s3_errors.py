"""What S3 says, whatever digits and words its address and the object's key are made of."""

from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
from aiohttp import web

from cold_tier.errors import (
    NoSuchBucket,
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
        (400, "RequestTimeout", StoreUnavailable),
        (403, "Code", StoreDenied),
        (401, "Code", StoreDenied),
        (403, "SignatureDoesNotMatch", StoreDenied),
        (403, "InvalidAccessKeyId", StoreDenied),
        (400, "ExpiredToken", StoreDenied),
        (404, "Code", ObjectMissing),
        (404, "NoSuchBucket", NoSuchBucket),
        (301, "PermanentRedirect", StoreMisconfigured),
        (400, "AuthorizationHeaderMalformed", StoreMisconfigured),
        (400, "InvalidRequest", StoreError),
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
    # A folder that is not there is an empty listing; an address that has none is no store.
    of_a_listing = StoreMisconfigured if error is ObjectMissing else error
    with pytest.raises(of_a_listing) as listed:
        [info async for info in store.list("416/")]
    with pytest.raises(of_a_listing) as folders:
        await store.folders("416/")
    assert type(listed.value) is type(folders.value) is of_a_listing
    for raised in (read, written, listed, folders):
        assert "<" not in str(raised.value), "no raw XML"
        assert raised.value.retriable or raised.value.hint or error is ObjectMissing, "what to do"


async def test_a_refusal_says_what_to_change(answering: tuple[S3Store, list[Any]]) -> None:
    store, said = answering

    async def hint(code: str, work: Awaitable[Any]) -> str:
        said[:] = 403, code
        with pytest.raises(StoreDenied) as refused:
            await work
        return refused.value.hint

    assert "AWS_ACCESS_KEY_ID" in await hint("InvalidAccessKeyId", store.put("k", b""))
    assert "AWS_SECRET_ACCESS_KEY" in await hint("SignatureDoesNotMatch", store.put("k", b""))
    assert "s3:PutObject" in await hint("AccessDenied", store.put("k", b""))
    assert "s3:ListBucket" in await hint("AccessDenied", store.folders(""))
    assert "s3:DeleteObject" in await hint("AccessDenied", store.delete(["k"]))
    assert "s3:GetObject" in await hint("AccessDenied", store.head("k"))


async def test_the_region_that_the_store_names_is_named(answering: tuple[S3Store, list[Any]]) -> None:
    store, said = answering
    said[:] = 400, "AuthorizationHeaderMalformed</Code><Region>eu-west-3</Region><Code"
    with pytest.raises(StoreMisconfigured) as refused:
        await store.folders("")
    assert "AWS_REGION=eu-west-3" in refused.value.hint


async def test_addresses_at_which_no_store_is(answering: tuple[S3Store, list[Any]]) -> None:
    store, said = answering
    said[:] = 200, "a page</Error>"
    with pytest.raises(StoreMisconfigured, match="no S3 store"):
        await store.folders("")
    port = str(store._bucket.config["endpoint"]).rpartition(":")[2]
    with pytest.raises(StoreMisconfigured, match="does not speak TLS") as not_tls:
        await S3Store("bucket", endpoint=f"https://127.0.0.1:{port}").folders("")
    assert "http://" in not_tls.value.hint
    with pytest.raises(StoreUnavailable, match="Connection refused"):
        await S3Store("bucket", endpoint="http://127.0.0.1:1").folders("")
    with pytest.raises(StoreUnavailable, match="lookup"):
        await S3Store("bucket", endpoint="http://nosuchhost.invalid:1").folders("")


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

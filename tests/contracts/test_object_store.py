"""One behaviour, every object store: memory, a directory, moto, a real S3 server.

.venv/bin/pytest tests/contracts/test_object_store.py -k weed
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from cold_tier.errors import ObjectMissing, StoreDenied, StoreMisconfigured
from cold_tier.objects.bucket import Bucket, RetryPolicy
from cold_tier.objects.directory import DirectoryStore
from cold_tier.objects.memory import MemoryStore
from cold_tier.objects.open import StoreSettings, open_store, probe
from cold_tier.objects.s3 import S3Store
from cold_tier.objects.store import ObjectStore
from hot_tier.errors import SettingsError
from tests.support.s3 import S3Server, credentials, weed

KINDS = ["memory", "directory", "moto", "weed"]


@pytest.fixture(scope="module")
def weed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with weed(tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture(scope="module")
def moto_endpoint() -> Iterator[str]:
    """moto looks whether an object is there and then stores it, without a lock: it is asked one thing at a time."""
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=False)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


@pytest.fixture(params=KINDS)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Bucket]:
    raw: ObjectStore
    match request.param:
        case "memory":
            raw = MemoryStore()
        case "directory":
            raw = DirectoryStore(str(tmp_path / "bucket"), create=True)
        case kind:
            for name, value in credentials().items():
                monkeypatch.setenv(name, value)
            if kind == "moto":
                endpoint = request.getfixturevalue("moto_endpoint")
                bucket = S3Server(endpoint, [], tmp_path).new_bucket()
            else:
                server = request.getfixturevalue("weed_server")
                endpoint, bucket = server.endpoint, server.new_bucket()
            raw = S3Store(bucket, "some/prefix", endpoint=endpoint)
    store = Bucket(raw, RetryPolicy(deadline_ms=10_000))
    yield store
    await store.close()


async def keys(store: Bucket, prefix: str, start_after: str = "") -> list[str]:
    return [info.key async for info in store.list(prefix, start_after)]


async def test_what_was_put_is_read_back(store: Bucket) -> None:
    data = os.urandom(3 << 20)
    await store.put("topic=orders/partition=3/a b+c.parquet", data)
    key = "topic=orders/partition=3/a b+c.parquet"
    assert bytes(await store.get(key)) == data
    info = await store.head(key)
    assert info is not None and (info.key, info.size) == (key, len(data))
    assert await keys(store, "topic=orders/") == [key]


async def test_a_later_put_replaces(store: Bucket) -> None:
    await store.put("k", b"one, and longer")
    await store.put("k", memoryview(b"two"))
    assert bytes(await store.get("k")) == b"two"


async def test_ranges(store: Bucket) -> None:
    data = bytes(range(256)) * 64
    await store.put("k", data)
    assert bytes(await store.get("k", 100)) == data[100:]
    assert bytes(await store.get("k", 100, 7)) == data[100:107]
    assert bytes(await store.get("k", len(data) - 3, 100)) == data[-3:]
    assert bytes(await store.get("k", 5, 0)) == b""


async def test_an_empty_object(store: Bucket) -> None:
    await store.put("k", b"")
    assert bytes(await store.get("k")) == b""
    info = await store.head("k")
    assert info is not None and info.size == 0


async def test_what_is_not_there(store: Bucket) -> None:
    with pytest.raises(ObjectMissing):
        await store.get("nothing/here")
    with pytest.raises(ObjectMissing):
        await store.get("nothing/here", 3, 4)
    assert await store.head("nothing/here") is None
    assert await keys(store, "nothing/") == []
    await store.delete(["nothing/here"])


async def test_put_if_absent_lets_one_of_many_win(store: Bucket) -> None:
    bodies = [f"writer {n}".encode() for n in range(8)]
    won = await asyncio.gather(*(store.put_if_absent("race", body) for body in bodies))
    assert won.count(True) == 1
    assert bytes(await store.get("race")) == bodies[won.index(True)]
    assert not await store.put_if_absent("race", b"late")


async def test_a_folder_is_listed_in_order_and_resumes(store: Bucket) -> None:
    ordered = [f"x/a/{name}" for name in ("-", ".b", "0", "1", "10", "2", "A", "a", "a b", "a-b", "b", "z", "ä")]
    for name in reversed(ordered):
        await store.put(name, name.encode())
    assert await keys(store, "x/a/") == ordered
    for key in ordered:
        assert await keys(store, "x/a/", start_after=key) == ordered[ordered.index(key) + 1 :]


async def test_all_below_a_folder_is_listed_once(store: Bucket) -> None:
    names = ["a/1", "a-b/1", "a.b/1", "a/10", "a/b/c", "a0", "b/z", "b/c/d/e"]
    for name in names:
        await store.put(f"x/{name}", name.encode())
    everything = [f"x/{name}" for name in names]
    assert sorted(await keys(store, "x/")) == sorted(await keys(store, "")) == sorted(everything)
    assert sorted(await keys(store, "x/a/")) == ["x/a/1", "x/a/10", "x/a/b/c"]


async def test_a_folder_is_no_prefix_of_its_neighbour(store: Bucket) -> None:
    await store.put("t/orders.1/0/m", b"1")
    await store.put("t/orders.1/01/m", b"2")
    assert await keys(store, "t/orders.1/0/") == ["t/orders.1/0/m"]


async def test_the_folders_inside_a_folder(store: Bucket) -> None:
    for key in ("f/a/1", "f/a/b/2", "f/a-b/3", "f/file", "g/x/4"):
        await store.put(key, b"")
    assert sorted(await store.folders("f/")) == ["a", "a-b"]
    assert sorted(await store.folders("")) == ["f", "g"]
    assert list(await store.folders("nothing/")) == []


async def test_delete_many(store: Bucket) -> None:
    names = [f"d/{n:04}" for n in range(30)]
    for name in names:
        await store.put(name, b"x")
    await store.delete([*names[5:], "d/never-there"])
    assert await keys(store, "d/") == names[:5]
    await store.delete([])


async def test_put_file_large_and_small(store: Bucket, tmp_path: Path) -> None:
    for size in (0, 1000, 40 << 20):
        data = os.urandom(size)
        path = tmp_path / "source"
        path.write_bytes(data)
        await store.put_file("f/file", str(path))
        assert bytes(await store.get("f/file")) == data
    assert await keys(store, "f/") == ["f/file"]


async def test_the_probe_finds_everything_and_leaves_nothing(store: Bucket) -> None:
    found = await probe(store)
    assert found.ranged_get and found.put_if_absent and not found.warnings
    assert await keys(store, "") == []


async def test_wrong_credentials_are_denied(weed_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = weed_server.new_bucket()
    for name, value in {**credentials(), "AWS_SECRET_ACCESS_KEY": "wrong"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreDenied, match="AWS_SECRET_ACCESS_KEY"):
        await Bucket(S3Store(bucket, endpoint=weed_server.endpoint)).get("k")


async def test_a_missing_bucket_is_named(moto_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in credentials().items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreMisconfigured, match="no-such-bucket"):
        await Bucket(S3Store("no-such-bucket", endpoint=moto_endpoint)).put("k", b"")


async def test_no_credentials_say_how_to_give_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in credentials():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(StoreDenied, match="AWS_ACCESS_KEY_ID"):
        open_store(StoreSettings(bucket="s3://some-bucket/x"))


@pytest.mark.parametrize("url", ["orders", "http://x/y", "file://relative/path", "s3://", "ftp://a/b"])
def test_a_url_that_is_no_bucket(url: str) -> None:
    with pytest.raises(SettingsError, match="file:///"):
        StoreSettings(bucket=url)


async def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreMisconfigured, match="file"):
        open_store(StoreSettings(bucket=f"file://{tmp_path}/file/bucket"), create=True)

"""A store behind a socket, where the contract of all stores ends: lost connections, restarts, and strange clients."""

import asyncio
import gc
import stat
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hot_tier.cluster import served_wire as wire
from hot_tier.cluster import socket_store
from hot_tier.cluster.served import StoreServer
from hot_tier.cluster.socket_store import SocketStore
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.cluster.store import ABSENT, Compare, Event, Put, Revision
from hot_tier.errors import MetadataAnswerLost, MetadataCompacted, MetadataUnavailable, StorageFailure

SOON_S = 10


class Service:
    """The store, its server and any number of clients, each of which can be ended by itself."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "metadata.sock")
        self.file = str(directory / "metadata.db")
        self.store: SqliteStore
        self.server: StoreServer
        self.clients = AsyncExitStack()

    async def start(self) -> None:
        self.store = SqliteStore(self.file)
        await self.store.open()
        await self.serve()

    async def serve(self) -> None:
        self.server = StoreServer(self.store, self.path)
        await self.server.start()

    async def stop(self) -> None:
        await self.server.close()
        await self.store.close()

    async def client(self) -> SocketStore:
        client = SocketStore(self.path)
        await client.open()
        self.clients.push_async_callback(client.close)
        return client


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    made = Service(tmp_path)
    await made.start()
    yield made
    await made.clients.aclose()
    await made.stop()


async def eventually_get(client: SocketStore, key: str) -> bytes | None:
    async with asyncio.timeout(SOON_S):
        while True:
            try:
                item = await client.get(key)
                return None if item is None else item.value
            except MetadataUnavailable:
                await asyncio.sleep(0.02)


async def test_only_this_user_may_connect(service: Service) -> None:
    assert stat.S_IMODE(Path(service.path).stat().st_mode) == 0o600


async def test_the_directory_may_be_deep(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    made = Service(deep)
    await made.start()
    client = await made.client()
    assert await client.transact([], [Put("a", b"1")]) == 1
    await client.close()
    await made.stop()
    assert not Path(made.path).exists()


async def test_a_socket_that_a_killed_process_left_is_replaced(service: Service) -> None:
    service.server._server.close()
    await service.serve()
    client = await service.client()
    assert await client.get("a") is None


async def test_without_a_server_the_store_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(MetadataUnavailable, match="nobody serves"):
        await SocketStore(str(tmp_path / "metadata.sock")).open()


async def test_a_client_goes_on_when_the_server_is_there_again(service: Service) -> None:
    client, other = await service.client(), await service.client()
    lease = await client.grant_lease(60_000)
    await client.transact([], [Put("a", b"1", lease)])
    async with aclosing(client.watch("", ABSENT)) as watch:
        assert await anext(watch) == (Event("a", b"1", Revision(1)),)
        await service.server.close()
        with pytest.raises(MetadataUnavailable):
            await client.get("a")
        await service.serve()
        assert await eventually_get(client, "a") == b"1", "a lost connection ends no lease"
        await other.transact([], [Put("b", b"2")])
        async with asyncio.timeout(SOON_S):
            assert await anext(watch) == (Event("b", b"2", Revision(2)),), "nothing is missing, nothing comes twice"
    assert await client.keep_alive(lease)


async def test_a_new_server_process_ends_leases_and_says_so(service: Service) -> None:
    client = await service.client()
    lease = await client.grant_lease(60_000)
    await client.transact([], [Put("brokers/1", b"{}", lease), Put("kept", b"1")])
    watch = client.watch("", Revision(1))
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0.05)
    await service.stop()
    await service.start()
    assert await eventually_get(client, "brokers/1") is None
    assert await eventually_get(client, "kept") == b"1"
    assert not await client.keep_alive(lease)
    with pytest.raises(MetadataCompacted):
        async with asyncio.timeout(SOON_S):
            await waiting


async def test_a_store_that_went_back_is_noticed(service: Service) -> None:
    client = await service.client()
    with pytest.raises(MetadataCompacted, match="an older state was restored"):
        await anext(client.watch("", Revision(7)))


async def test_a_lease_ends_with_the_time_of_a_client_that_is_gone(service: Service) -> None:
    gone, other = await service.client(), await service.client()
    lease = await gone.grant_lease(300)
    await gone.transact([], [Put("brokers/1", b"{}", lease)])
    async with aclosing(other.watch("brokers/", Revision(1))) as watch:
        await gone.close()
        assert await other.get("brokers/1") is not None
        async with asyncio.timeout(SOON_S):
            assert await anext(watch) == (Event("brokers/1", None, Revision(2)),)


async def test_a_write_whose_answer_is_lost_is_not_called_unwritten(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await service.client()
    written = asyncio.Event()
    transact = service.store.transact

    async def slow(compares: Sequence[Compare], writes: Sequence[Put]) -> None:
        await transact(compares, writes)
        written.set()
        await asyncio.sleep(60)

    monkeypatch.setattr(service.store, "transact", slow)
    writing = asyncio.ensure_future(client.transact([], [Put("a", b"1")]))
    await written.wait()
    await service.server.close()
    with pytest.raises(MetadataAnswerLost):
        await writing
    await service.serve()
    assert await eventually_get(client, "a") == b"1"


async def test_a_server_that_hangs_is_unavailable_soon(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(socket_store, "CALL_S", 0.1)
    monkeypatch.setattr(service.store, "get", never)
    monkeypatch.setattr(service.store, "transact", never)
    client = await service.client()
    with pytest.raises(MetadataUnavailable):
        await client.get("a")
    with pytest.raises(MetadataAnswerLost):
        await client.transact([], [Put("a", b"1")])
    assert (await client.range("")).items == (), "other calls of the same connection are answered"


async def test_a_disk_that_fails_leaves_a_write_unknown(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object) -> None:
        raise StorageFailure("the metadata store failed: disk I/O error", where=service.file)

    monkeypatch.setattr(service.store, "get", fails)
    monkeypatch.setattr(service.store, "transact", fails)
    client = await service.client()
    with pytest.raises(MetadataUnavailable, match="disk I/O error"):
        await client.get("a")
    with pytest.raises(MetadataAnswerLost, match="disk I/O error"):
        await client.transact([], [Put("a", b"1")])


def framed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


junk = st.recursive(
    st.one_of(st.none(), st.integers(-5, 5), st.text(max_size=3)),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(["get", "range", "transact", "watch", "grant_lease", "keep_alive", "revoke_lease", "x"])
strange = st.one_of(
    st.binary(max_size=200),
    st.binary(max_size=200).map(framed),
    st.lists(junk, max_size=5).map(lambda values: wire.frame(*values)),
    st.builds(lambda name, arguments: wire.frame(1, name, *arguments), names, st.lists(junk, min_size=1, max_size=2)),
    st.just(struct.pack(">I", wire.LONGEST_CALL + 1)),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=st.lists(strange, min_size=1, max_size=4))
def test_whatever_a_client_sends_holds_up_nobody_else(tmp_path: Path, sent: list[bytes]) -> None:
    async def run() -> list[dict[str, object]]:
        problems: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, problem: problems.append(problem))
        made = Service(tmp_path)
        await made.start()
        good = await made.client()
        reader, writer = await SocketStore(made.path)._connect()
        writer.write(b"".join(sent))
        await asyncio.sleep(0.01)  # calls of a client that is gone are not begun
        writer.write_eof()
        async with asyncio.timeout(SOON_S):
            await reader.read()
        before = (await good.range("")).revision
        assert await good.transact([Compare("good", ABSENT)], []) == before
        writer.close()
        await good.close()
        await made.stop()
        gc.collect()  # what a task that nobody awaits has raised is told when it goes
        return problems

    assert asyncio.run(run()) == []

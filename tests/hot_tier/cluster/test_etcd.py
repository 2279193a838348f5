"""What a store in etcd adds to the contract: endpoints that fail, members that hang, answers that are lost."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Self

import pytest

from hot_tier.cluster import etcd, etcd_client
from hot_tier.cluster.etcd import EtcdStore
from hot_tier.cluster.store import ABSENT, Compare, Event, MetadataStore, Put, Revision
from hot_tier.errors import MetadataAnswerLost, MetadataCompacted, MetadataUnavailable
from tests.support.etcd import EtcdCluster, Member, etcd_cluster
from tests.support.faulty_s3 import Act, Fault, FaultyS3, faulty
from tests.support.waiting import until

DEADLINE_S = 30


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_client, "OPERATION_S", 1.0)


@pytest.fixture
def one() -> Iterator[EtcdCluster]:
    with etcd_cluster(1) as cluster:
        yield cluster


@pytest.fixture
def three() -> Iterator[EtcdCluster]:
    with etcd_cluster(3) as cluster:
        yield cluster


@asynccontextmanager
async def opened(*endpoints: str, prefix: str = "/tierlog/") -> AsyncIterator[EtcdStore]:
    store = EtcdStore(endpoints, prefix)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def endpoints_of(cluster: EtcdCluster) -> list[str]:
    return [member.endpoint for member in cluster.members]


async def put(store: MetadataStore, key: str, value: bytes) -> Revision:
    revision = await store.transact([], [Put(key, value)])
    assert revision is not None
    return revision


async def put_somehow(store: MetadataStore, key: str, value: bytes) -> Revision:
    """While a leader is being elected."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                return await put(store, key, value)
            except MetadataAnswerLost:
                continue


async def revision_of(store: MetadataStore) -> Revision:
    return (await store.range("")).revision


class Counting:
    """Adds one to a key by compare-and-swap, over and over, and remembers what it was told."""

    def __init__(self, store: EtcdStore) -> None:
        self._store = store
        self.acknowledged: dict[Revision, bytes] = {}
        self.unknown = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await stop(self._task)

    async def _run(self) -> None:
        while True:
            try:
                item = await self._store.get("n")
                held, revision = (int(item.value), item.revision) if item is not None else (0, ABSENT)
                value = str(held + 1).encode()
                self.unknown += 1
                written = await self._store.transact([Compare("n", revision)], [Put("n", value)])
                self.unknown -= 1
                if written is not None:
                    self.acknowledged[written] = value
            except MetadataUnavailable:
                await asyncio.sleep(0.01)

    async def more(self, count: int) -> None:
        """Until so many more are acknowledged."""
        target = len(self.acknowledged) + count
        await until(lambda: len(self.acknowledged) >= target)


class Watching:
    def __init__(self, store: EtcdStore) -> None:
        self._store = store
        self.batches: list[Sequence[Event]] = []

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._run(await revision_of(self._store)))
        return self

    async def __aexit__(self, *_: object) -> None:
        await stop(self._task)

    async def _run(self, start: Revision) -> None:
        async for batch in self._store.watch("", start):
            self.batches.append(batch)

    async def reach(self, revision: Revision) -> None:
        await until(lambda: bool(self.batches) and self.batches[-1][0].revision >= revision)

    def check(self, counting: Counting) -> None:
        """One history: it counts up by one, and what was acknowledged is in it where it was said to be."""
        history = {batch[0].revision: batch[0].value for batch in self.batches if batch[0].key == "n"}
        assert list(history) == sorted(history)
        assert list(history.values()) == [str(n + 1).encode() for n in range(len(history))]
        assert counting.acknowledged.items() <= history.items()
        assert len(history) <= len(counting.acknowledged) + counting.unknown


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# Sharing


async def test_clusters_share_an_etcd_without_seeing_each_other(one: EtcdCluster) -> None:
    (endpoint,) = endpoints_of(one)
    async with opened(endpoint, prefix="/a/") as a, opened(endpoint, prefix="/a/b/") as inner, opened(endpoint) as b:
        start = await revision_of(b)
        await put(a, "x", b"of a")
        await put(inner, "x", b"inner")
        last = await put(b, "x", b"of b")
        assert [item.value for item in (await b.range("")).items] == [b"of b"]
        assert [item.value for item in (await inner.range("")).items] == [b"inner"]
        assert await anext(b.watch("", start)) == (Event("x", b"of b", last),)


# Long ranges


async def test_a_range_of_many_pages_is_of_one_moment(one: EtcdCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while that moment is written over and its history is dropped."""
    monkeypatch.setattr(etcd, "PAGE_KEYS", 3)
    async with opened(*endpoints_of(one)) as store:
        writes = 0

        async def write() -> None:
            nonlocal writes
            while True:
                value = str(writes).encode()
                last = await store.transact([], [Put(f"k{i}", value) for i in range(10)])
                writes += 1
                if writes % 5 == 0 and last is not None:
                    await asyncio.to_thread(one.compact, last)

        before = await put(store, "j", b"")
        writing = asyncio.ensure_future(write())
        try:
            await until(lambda: writes > 0)
            for _ in range(30):
                found = await store.range("k")
                assert [item.key for item in found.items] == [f"k{i}" for i in range(10)]
                assert len({(item.value, item.revision) for item in found.items}) == 1
                assert before < found.items[0].revision <= found.revision
        finally:
            await stop(writing)
        assert writes > 30


# Members that go


async def test_the_endpoint_in_use_goes(three: EtcdCluster) -> None:
    """Also when it leads: writes and the watch go on elsewhere, nothing is missed or seen twice."""
    async with opened(*endpoints_of(three)) as store, Watching(store) as watching:
        async with Counting(store) as counting:
            for _ in range(2):
                await counting.more(20)
                used = next(m for m in three.members if m.endpoint == store._client.endpoint)
                used.kill()
                await counting.more(20)
                used.start()
                used.wait_until_ready()
        await watching.reach(await put(store, "end", b""))
        watching.check(counting)


async def test_the_leader_goes_while_another_is_asked(three: EtcdCluster) -> None:
    leader = three.leader
    followers = [member.endpoint for member in three.members if member is not leader]
    async with opened(*followers) as store, Watching(store) as watching:
        async with Counting(store) as counting:
            await counting.more(20)
            lease = await store.grant_lease(60_000)
            leader.kill()
            await counting.more(20)
            assert await store.keep_alive(lease)
        await watching.reach(await put(store, "end", b""))
        watching.check(counting)


async def test_a_leader_that_hangs_is_replaced(three: EtcdCluster) -> None:
    """What it had taken in and not answered may be done when it wakes up; nothing else may."""
    leader = three.leader
    others = [member.endpoint for member in three.members if member is not leader]
    async with opened(leader.endpoint, *others) as store, Watching(store) as watching:
        async with Counting(store) as counting:
            await counting.more(20)
            leader.pause()
            await counting.more(20)
            leader.resume()
            await counting.more(20)
        await watching.reach(await put_somehow(store, "end", b""))
        watching.check(counting)


async def test_a_member_that_hangs_is_left(three: EtcdCluster) -> None:
    """Its connections stay open, so only silence tells; the watch on it must notice without any event."""
    follower = next(member for member in three.members if member is not three.leader)
    others = [member.endpoint for member in three.members if member is not follower]
    async with (
        opened(follower.endpoint, *others) as store,
        opened(*others) as elsewhere,
        Watching(store) as watching,
    ):
        await watching.reach(await put(store, "a", b"1"))
        follower.pause()
        await watching.reach(await put(elsewhere, "a", b"2"))
        item = await store.get("a")
        assert item is not None and item.value == b"2"
        follower.resume()
        await watching.reach(await put(store, "a", b"3"))
        assert [batch[0].value for batch in watching.batches] == [b"1", b"2", b"3"]


async def test_a_member_without_a_majority_says_nothing(three: EtcdCluster) -> None:
    """A cut-off member still has data; showing it as the present would be a lie."""
    kept, *others = three.members
    async with opened(kept.endpoint) as store:
        await put(store, "a", b"1")
        for member in others:
            member.pause()
        with pytest.raises(MetadataUnavailable):
            await store.get("a")
        with pytest.raises(MetadataAnswerLost):
            await store.transact([], [Put("a", b"2")])
        for member in others:
            member.resume()
        last = await put_somehow(store, "a", b"3")
        item = await store.get("a")
        assert item is not None and (item.value, item.revision) == (b"3", last)


@pytest.mark.usefixtures("impatient")
async def test_all_of_etcd_goes_and_comes_back(one: EtcdCluster) -> None:
    (member,) = one.members
    async with opened(member.endpoint) as store, Watching(store) as watching:
        first = await put(store, "a", b"1")
        await watching.reach(first)
        member.kill()
        with pytest.raises(MetadataUnavailable, match="is etcd running"):
            await store.get("a")
        with pytest.raises(MetadataUnavailable) as caught:
            await store.transact([], [Put("a", b"never")])
        assert not isinstance(caught.value, MetadataAnswerLost), "it cannot have been written: nobody was there"
        member.start()
        member.wait_until_ready()
        second = await put(store, "a", b"2")
        await watching.reach(second)
        assert watching.batches == [(Event("a", b"1", first),), (Event("a", b"2", second),)]


@pytest.mark.usefixtures("impatient")
async def test_nobody_there_at_all() -> None:
    with pytest.raises(MetadataUnavailable, match="is etcd running"):
        async with opened("http://127.0.0.1:1", "http://127.0.0.1:2"):
            pass


# Answers that are lost


@pytest.fixture
def proxied(one: EtcdCluster) -> Iterator[tuple[EtcdCluster, FaultyS3]]:
    with faulty(one.members[0].endpoint) as proxy:
        yield one, proxy


@pytest.mark.parametrize(
    ("fault", "happened"),
    [
        (Fault(Act.LOSE_ANSWER, containing="/txn"), True),
        (Fault(Act.REFUSE, containing="/txn"), False),
        (Fault(Act.ANSWER, containing="/txn", status=502), False),
        (Fault(Act.ANSWER, containing="/txn", status=200), False),
    ],
    ids=["answer lost", "cut before it arrived", "an error page", "another page"],
)
async def test_a_write_without_an_answer_is_never_called_undone(
    proxied: tuple[EtcdCluster, FaultyS3], fault: Fault, happened: bool
) -> None:
    cluster, proxy = proxied
    async with opened(proxy.endpoint) as store, opened(cluster.members[0].endpoint) as truth:
        proxy.faults = (fault,)
        with pytest.raises(MetadataAnswerLost, match="may or may not"):
            await store.transact([Compare("a", ABSENT)], [Put("a", b"1")])
        assert proxy.met == 1, "it was sent once"
        assert (await truth.get("a") is not None) == happened


async def test_what_may_be_repeated_is(proxied: tuple[EtcdCluster, FaultyS3]) -> None:
    _, proxy = proxied
    async with opened(proxy.endpoint) as store:
        first = await put(store, "a", b"1")
        proxy.faults = (Fault(Act.LOSE_ANSWER, every=2),)
        item = await store.get("a")
        assert item is not None and item.revision == first
        assert [each.key for each in (await store.range("")).items] == ["a"]
        assert await store.transact([Compare("a", first)], []) == first
        lease = await store.grant_lease(60_000)
        assert await store.keep_alive(lease)
        await store.revoke_lease(lease)
        assert not await store.keep_alive(lease)
        assert proxy.met >= 4


class OneWay:
    """Between a client and etcd. Once it is `deaf`, what the client sends arrives and nothing comes back."""

    def __init__(self, member: Member) -> None:
        self.deaf = False
        self.renewals = 0
        """Since then."""
        self._member = member
        self._relays: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return "http://{}:{}".format(*self._server.sockets[0].getsockname())

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for relay in self._relays:
            relay.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.deaf:  # its first packet arrives, and the answer to that does not
            writer.transport.abort()
            return
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._member.port)
        for source, target, back in ((reader, there_writer, False), (there_reader, writer, True)):
            self._relays.add(asyncio.ensure_future(self._relay(source, target, back)))

    async def _relay(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, back: bool) -> None:
        try:
            while data := await source.read(1 << 16):
                if not (back and self.deaf):
                    target.write(data)
                    self.renewals += self.deaf and b"/lease/keepalive" in data
        finally:
            target.close()


async def test_a_lease_is_renewed_once_more_by_a_client_that_hears_nothing(
    one: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_client, "OPERATION_S", 2.0)
    monkeypatch.setattr(etcd_client, "SILENCE_S", 0.3)
    between = OneWay(one.members[0])
    async with between as endpoint, opened(endpoint) as store:
        lease = await store.grant_lease(60_000)
        await asyncio.gather(*(store.get("a") for _ in range(5)))
        assert await store.keep_alive(lease)
        between.deaf = True
        with pytest.raises(MetadataUnavailable):
            await store.keep_alive(lease)
        assert between.renewals == 1


@pytest.mark.usefixtures("impatient")
async def test_damaged_answers_are_not_believed(proxied: tuple[EtcdCluster, FaultyS3]) -> None:
    _, proxy = proxied
    async with opened(proxy.endpoint) as store:
        proxy.faults = (Fault(Act.ANSWER, status=200),)
        with pytest.raises(MetadataUnavailable):
            await store.get("a")


# History


async def test_compaction_behind_a_watch_is_not_noticed(one: EtcdCluster) -> None:
    async with opened(*endpoints_of(one)) as store, Watching(store) as watching:
        for n in range(5):
            last = await put(store, "a", str(n).encode())
        await watching.reach(last)
        one.compact(last)
        await watching.reach(await put(store, "a", b"after"))
        assert len(watching.batches) == 6


async def test_compaction_while_a_watch_was_away_is_told(three: EtcdCluster) -> None:
    watched, *others = three.members
    async with opened(watched.endpoint) as store, opened(*(each.endpoint for each in others)) as elsewhere:
        watch = store.watch("", await revision_of(store))
        first = await put(store, "a", b"first")
        assert await anext(watch) == (Event("a", b"first", first),)
        watched.kill()
        for n in range(5):
            last = await put_somehow(elsewhere, "a", str(n).encode())
        three.compact(last)
        watched.start()
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(MetadataCompacted):
                await anext(watch)


async def test_a_watch_ahead_of_the_store_is_told(one: EtcdCluster) -> None:
    """As after a backup was restored: what it saw is no longer so."""
    async with opened(*endpoints_of(one)) as store:
        ahead = Revision(await revision_of(store) + 100)
        with pytest.raises(MetadataCompacted, match="restored"):
            await anext(store.watch("", ahead))


async def test_a_watch_takes_any_amount_at_once(one: EtcdCluster) -> None:
    """etcd splits 16 MB of history into messages, and those between the writes of a transaction."""
    async with opened(*endpoints_of(one)) as store:
        start = await revision_of(store)
        for n in range(16):
            value = bytes([n]) * 60_000
            assert await store.transact([], [Put(f"k{i}", value) for i in range(17)])
        watch = store.watch("", start)
        async with asyncio.timeout(DEADLINE_S):
            for n in range(16):
                batch = await anext(watch)
                assert [event.key for event in batch] == [f"k{i}" for i in range(17)]
                assert {event.value for event in batch} == {bytes([n]) * 60_000}
                assert len({event.revision for event in batch}) == 1

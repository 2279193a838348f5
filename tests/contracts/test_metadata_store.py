"""One behaviour, every metadata store.

A new store is one more `Backend`; no test may ask which one it has.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hot_tier.cluster.etcd import EtcdStore
from hot_tier.cluster.served import StoreServer
from hot_tier.cluster.socket_store import SocketStore
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.cluster.store import (
    ABSENT,
    MAX_OPERATIONS,
    MAX_TRANSACTION_BYTES,
    Compare,
    Delete,
    Event,
    LeaseId,
    MetadataStore,
    Put,
    Revision,
)
from hot_tier.errors import LeaseExpired, MetadataUnavailable
from tests.support.etcd import etcd_cluster

DEADLINE_S = 20
LEASE_TTL_MS = 1000
"""The shortest that etcd grants exactly, and far longer than a busy machine stands still."""


@dataclass(frozen=True)
class Backend:
    open: Callable[[Path], Awaitable[MetadataStore]]
    """A store that is empty in an empty directory and holds what it held in one used before."""


async def open_sqlite(directory: Path) -> MetadataStore:
    store = SqliteStore(str(directory / "metadata.db"))
    await store.open()
    return store


@pytest.fixture(scope="module")
def sqlite() -> Backend:
    return Backend(open_sqlite)


@pytest.fixture(scope="module")
def etcd() -> Iterator[Backend]:
    """One server for all tests; what would be a directory's file is a prefix named after it."""
    with etcd_cluster(1) as cluster:

        async def open_etcd(directory: Path) -> MetadataStore:
            store = EtcdStore([cluster.members[0].endpoint], f"{directory}/")
            await store.open()
            return store

        yield Backend(open_etcd)


class Served:
    """A store of this process's own behind a socket, as the workers of a host see it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._stack = AsyncExitStack()

    async def open(self) -> MetadataStore:
        owned = await open_sqlite(self._directory)
        self._stack.push_async_callback(owned.close)
        server = StoreServer(owned, str(self._directory / "metadata.sock"))
        await server.start()
        self._stack.push_async_callback(server.close)
        store = SocketStore(str(self._directory / "metadata.sock"))
        await store.open()
        ended = store.close

        async def close() -> None:
            await ended()
            await self._stack.aclose()

        store.close = close  # type: ignore[method-assign]
        return store


@pytest.fixture(scope="module")
def served() -> Backend:
    return Backend(lambda directory: Served(directory).open())


@pytest.fixture(scope="module", params=["sqlite", "served", "etcd"])
def backend(request: pytest.FixtureRequest) -> Backend:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Backend)
    return found


@pytest.fixture
async def store(backend: Backend, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    opened = await backend.open(tmp_path)
    yield opened
    await opened.close()


async def take(watch: AsyncIterator[Sequence[Event]], count: int) -> list[tuple[Event, ...]]:
    async with asyncio.timeout(DEADLINE_S):
        return [tuple(await anext(watch)) for _ in range(count)]


async def put(store: MetadataStore, key: str, value: bytes, lease: LeaseId | None = None) -> Revision:
    revision = await store.transact([], [Put(key, value, lease)])
    assert revision is not None
    return revision


async def revision_of(store: MetadataStore) -> Revision:
    return (await store.range("")).revision


# Reading and writing


async def test_a_missing_key_is_none(store: MetadataStore) -> None:
    assert await store.get("nothing") is None


async def test_a_write_is_read_back_with_its_revision(store: MetadataStore) -> None:
    first = await put(store, "a", b"1")
    second = await put(store, "a", b"\x00\xff")
    assert second > first
    item = await store.get("a")
    assert item is not None
    assert (item.key, item.value, item.revision) == ("a", b"\x00\xff", second)


async def test_a_range_is_ordered_and_stops_at_its_prefix(store: MetadataStore) -> None:
    for key in ("topics/b", "topics", "topics0", "topics/a", "topics/~", "topic/z"):
        await put(store, key, key.encode())
    last = await put(store, "zzz", b"")
    found = await store.range("topics/")
    assert [item.key for item in found.items] == ["topics/a", "topics/b", "topics/~"]
    assert found.revision == last
    assert [item.key for item in (await store.range("")).items] == sorted(
        ["topics/b", "topics", "topics0", "topics/a", "topics/~", "topic/z", "zzz"]
    )


async def test_all_writes_of_a_transaction_share_its_revision(store: MetadataStore) -> None:
    revision = await store.transact([], [Put("a", b"1"), Put("b", b"2")])
    assert {item.revision for item in (await store.range("")).items} == {revision}


async def test_a_swap_needs_the_revision_it_read(store: MetadataStore) -> None:
    first = await put(store, "a", b"1")
    second = await store.transact([Compare("a", first)], [Put("a", b"2")])
    assert second is not None
    assert await store.transact([Compare("a", first)], [Put("a", b"3"), Put("b", b"3")]) is None
    assert (await store.range("")).items[0].value == b"2"
    assert await store.get("b") is None
    assert await revision_of(store) == second


async def test_absent_compares_only_with_a_missing_key(store: MetadataStore) -> None:
    assert await store.transact([Compare("a", ABSENT)], [Put("a", b"1")]) is not None
    assert await store.transact([Compare("a", ABSENT)], [Put("a", b"2")]) is None
    await store.transact([], [Delete("a")])
    assert await store.transact([Compare("a", ABSENT)], [Put("a", b"3")]) is not None


async def test_every_comparison_must_hold(store: MetadataStore) -> None:
    first = await put(store, "a", b"1")
    assert await store.transact([Compare("a", first), Compare("b", first)], [Delete("a")]) is None
    assert await store.get("a") is not None


async def test_a_transaction_that_changes_nothing_keeps_the_revision(store: MetadataStore) -> None:
    before = await put(store, "a", b"1")
    assert await store.transact([Compare("a", before)], []) == before
    assert await store.transact([], [Delete("missing")]) == before
    assert await revision_of(store) == before


async def test_of_many_racing_swaps_one_wins(store: MetadataStore) -> None:
    before = await put(store, "a", b"0")
    results = await asyncio.gather(
        *(store.transact([Compare("a", before)], [Put("a", str(n).encode())]) for n in range(50))
    )
    winners = [n for n, revision in enumerate(results) if revision is not None]
    assert len(winners) == 1
    item = await store.get("a")
    assert item is not None and item.value == str(winners[0]).encode()


async def test_a_transaction_may_be_as_large_as_promised_and_no_larger(store: MetadataStore) -> None:
    keys = [f"k{n:03}" for n in range(MAX_OPERATIONS + 1)]
    compares = [Compare(key, ABSENT) for key in keys]
    writes = [Put(key, b"") for key in keys]
    with pytest.raises(ValueError, match="at most 128"):
        await store.transact([], writes)
    with pytest.raises(ValueError, match="at most 128"):
        await store.transact(compares, [])
    assert (await store.range("")).items == ()
    assert await store.transact(compares[:-1], writes[:-1]) is not None
    assert len((await store.range("k")).items) == MAX_OPERATIONS


@pytest.mark.parametrize("writes", [[Put("a", b""), Delete("a")], [Put("", b"")], [Put("ä", b"")]])
async def test_bad_writes_are_refused(store: MetadataStore, writes: list[Put | Delete]) -> None:
    with pytest.raises(ValueError):
        await store.transact([], [Put("good", b""), *writes])
    assert (await store.range("")).items == ()


async def test_a_transaction_may_be_as_heavy_as_promised_and_no_heavier(store: MetadataStore) -> None:
    half = MAX_TRANSACTION_BYTES // 2
    with pytest.raises(ValueError, match="bytes"):
        await store.transact([], [Put("a", bytes(half)), Put("b", bytes(half))])
    assert (await store.range("")).items == ()
    assert await store.transact([], [Put("a", bytes(half - 1)), Put("b", bytes(half - 1))]) is not None
    assert [len(item.value) for item in (await store.range("")).items] == [half - 1, half - 1]


async def test_values_of_a_megabyte_are_kept(store: MetadataStore) -> None:
    value = bytes(range(256)) * 4096
    await put(store, "large", value)
    item = await store.get("large")
    assert item is not None and item.value == value


async def test_what_was_written_is_there_after_reopening(backend: Backend, tmp_path: Path) -> None:
    store = await backend.open(tmp_path)
    first = await put(store, "a", b"1")
    second = await put(store, "b", b"2")
    await store.close()
    store = await backend.open(tmp_path)
    found = await store.range("")
    assert [(item.key, item.value, item.revision) for item in found.items] == [
        ("a", b"1", first),
        ("b", b"2", second),
    ]
    assert await put(store, "c", b"3") > second
    await store.close()


async def test_a_closed_store_refuses(backend: Backend, tmp_path: Path) -> None:
    store = await backend.open(tmp_path)
    await store.close()
    await store.close()
    for call in (store.get("a"), store.range(""), store.transact([], []), store.grant_lease(1000)):
        with pytest.raises(MetadataUnavailable):
            await call


# Watching


async def test_a_watch_delivers_one_batch_per_transaction_in_order(store: MetadataStore) -> None:
    start = await revision_of(store)
    watch = store.watch("", start)
    first = await store.transact([], [Put("a", b"1"), Put("b", b"2")])
    second = await store.transact([], [Delete("a"), Put("b", b"3")])
    assert first is not None and second is not None
    assert await take(watch, 2) == [
        (Event("a", b"1", first), Event("b", b"2", first)),
        (Event("a", None, second), Event("b", b"3", second)),
    ]


async def test_a_watch_waits_for_what_comes_later(store: MetadataStore) -> None:
    watch = store.watch("", await revision_of(store))
    waiting = asyncio.ensure_future(take(watch, 1))
    await asyncio.sleep(0)
    assert not waiting.done()
    revision = await put(store, "a", b"1")
    assert await waiting == [(Event("a", b"1", revision),)]


async def test_a_watch_starts_after_its_revision(store: MetadataStore) -> None:
    await put(store, "a", b"1")
    second = await put(store, "a", b"2")
    third = await put(store, "a", b"3")
    assert await take(store.watch("a", second), 1) == [(Event("a", b"3", third),)]


async def test_a_watch_shows_its_prefix_alone(store: MetadataStore) -> None:
    watch = store.watch("topics/", await revision_of(store))
    await put(store, "brokers/1", b"")
    revision = await store.transact([], [Put("topics", b""), Put("topics/a", b"1"), Put("zzz", b"")])
    assert revision is not None
    assert await take(watch, 1) == [(Event("topics/a", b"1", revision),)]


async def test_failed_and_empty_transactions_are_not_seen(store: MetadataStore) -> None:
    watch = store.watch("", await revision_of(store))
    await store.transact([Compare("a", Revision(99))], [Put("a", b"lost")])
    await store.transact([], [Delete("missing")])
    revision = await put(store, "a", b"won")
    assert await take(watch, 1) == [(Event("a", b"won", revision),)]


async def test_many_watches_see_the_same(store: MetadataStore) -> None:
    start = await revision_of(store)
    watches = [store.watch("", start) for _ in range(5)]
    takers = [asyncio.ensure_future(take(watch, 20)) for watch in watches]
    for n in range(20):
        await put(store, f"k{n % 3}", str(n).encode())
    seen = await asyncio.gather(*takers)
    assert [batch[0].value for batch in seen[0]] == [str(n).encode() for n in range(20)]
    assert all(one == seen[0] for one in seen)


async def test_a_watch_ends_with_its_store(backend: Backend, tmp_path: Path) -> None:
    store = await backend.open(tmp_path)
    start = await revision_of(store)
    seen: asyncio.Queue[Sequence[Event]] = asyncio.Queue()

    async def collect() -> None:
        async for events in store.watch("", start):
            seen.put_nowait(events)

    collecting = asyncio.ensure_future(collect())
    revision = await put(store, "a", b"1")
    async with asyncio.timeout(DEADLINE_S):
        assert await seen.get() == (Event("a", b"1", revision),)
        await store.close()
        await collecting
    assert seen.empty()


async def test_an_idle_watch_ends_with_its_store(backend: Backend, tmp_path: Path) -> None:
    store = await backend.open(tmp_path)
    watch = store.watch("", await revision_of(store))
    waiting = asyncio.ensure_future(anext(watch, None))
    await asyncio.sleep(0)
    await store.close()
    async with asyncio.timeout(DEADLINE_S):
        assert await waiting is None


# Leases


async def test_keys_go_with_an_expired_lease(store: MetadataStore) -> None:
    watch = store.watch("", await revision_of(store))
    lease = await store.grant_lease(LEASE_TTL_MS)
    await store.transact([], [Put("a", b"", lease), Put("b", b"", lease), Put("c", b"")])
    _, (first, second) = await take(watch, 2)
    assert {(first.key, first.value), (second.key, second.value)} == {("a", None), ("b", None)}
    assert [item.key for item in (await store.range("")).items] == ["c"]
    assert await store.keep_alive(lease) is False


async def test_keys_go_with_a_revoked_lease(store: MetadataStore) -> None:
    lease = await store.grant_lease(60_000)
    await put(store, "a", b"", lease)
    await store.revoke_lease(lease)
    assert await store.get("a") is None
    assert await store.keep_alive(lease) is False
    await store.revoke_lease(lease)


async def test_a_lease_kept_alive_outlives_its_time(store: MetadataStore) -> None:
    lease = await store.grant_lease(LEASE_TTL_MS * 2)
    await put(store, "a", b"", lease)
    for _ in range(5):
        await asyncio.sleep(LEASE_TTL_MS / 2000)
        assert await store.keep_alive(lease) is True
    assert await store.get("a") is not None
    await store.revoke_lease(lease)


async def test_the_last_write_decides_the_lease(store: MetadataStore) -> None:
    old, new = await store.grant_lease(60_000), await store.grant_lease(60_000)
    await store.transact([], [Put("moved", b"", old), Put("freed", b"", old)])
    await store.transact([], [Put("moved", b"", new), Put("freed", b"")])
    await store.revoke_lease(old)
    assert {item.key for item in (await store.range("")).items} == {"moved", "freed"}
    await store.revoke_lease(new)
    assert {item.key for item in (await store.range("")).items} == {"freed"}


async def test_nothing_hangs_on_a_lease_that_is_gone(store: MetadataStore) -> None:
    lease = await store.grant_lease(60_000)
    await store.revoke_lease(lease)
    with pytest.raises(LeaseExpired):
        await store.transact([], [Put("a", b"", lease), Put("b", b"")])
    assert (await store.range("")).items == ()


# Anything, against a model


@dataclass(frozen=True)
class Step:
    compares: dict[str, int]
    """Key → how many of its revisions back is compared; 0 is the current one, or absence."""
    writes: dict[str, bytes | None]


keys = st.sampled_from(["a", "a/", "a/b", "a/b/c", "b", "~"])
steps = st.lists(
    st.builds(
        Step,
        compares=st.dictionaries(keys, st.integers(0, 2), max_size=2),
        writes=st.dictionaries(keys, st.none() | st.binary(max_size=3), max_size=3),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps)
def test_any_history_is_that_of_a_map(backend: Backend, steps: list[Step]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as directory:
            store = await backend.open(Path(directory))
            start = await revision_of(store)
            model: dict[str, tuple[bytes, Revision]] = {}
            past: dict[str, list[Revision]] = {}
            revision = start
            expected: list[tuple[Event, ...]] = []
            for step in steps:
                compares = []
                for key, back in step.compares.items():
                    seen = [ABSENT, *past.get(key, []), model[key][1] if key in model else ABSENT]
                    compares.append(Compare(key, seen[max(0, len(seen) - 1 - back)]))
                writes = [Delete(k) if v is None else Put(k, v) for k, v in step.writes.items()]
                answer = await store.transact(compares, writes)
                if any(c.revision != model.get(c.key, (b"", ABSENT))[1] for c in compares):
                    assert answer is None
                    continue
                assert answer is not None
                changed = [w for w in writes if isinstance(w, Put) or w.key in model]
                if not changed:
                    assert answer == revision
                    continue
                assert answer > revision
                revision = answer
                expected.append(tuple(Event(w.key, w.value if isinstance(w, Put) else None, revision) for w in changed))
                for write in changed:
                    if isinstance(write, Put):
                        model[write.key] = (write.value, revision)
                        past.setdefault(write.key, []).append(revision)
                    else:
                        del model[write.key]
            for prefix in ("", "a", "a/", "b", "x"):
                found = await store.range(prefix)
                assert [(i.key, i.value, i.revision) for i in found.items] == [
                    (k, *model[k]) for k in sorted(model) if k.startswith(prefix)
                ]
                assert found.revision == revision
                shown = [tuple(e for e in batch if e.key.startswith(prefix)) for batch in expected]
                shown = [batch for batch in shown if batch]
                assert await take(store.watch(prefix, start), len(shown)) == shown
            await store.close()

    asyncio.run(run())


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps)
def test_what_runs_at_once_happens_in_some_order(backend: Backend, steps: list[Step]) -> None:
    """A watch from the start tells one history: each transaction is in it as answered, and its end is the range."""

    async def run() -> None:
        with tempfile.TemporaryDirectory() as directory:
            store = await backend.open(Path(directory))
            start = await revision_of(store)
            calls = [
                (
                    [Compare(key, ABSENT) for key in step.compares],
                    [Delete(k) if v is None else Put(k, v) for k, v in step.writes.items()],
                )
                for step in steps
            ]
            answers = await asyncio.gather(*(store.transact(*call) for call in calls))
            puts = {
                answer: {Event(w.key, w.value, answer) for w in writes if isinstance(w, Put)}
                for (_, writes), answer in zip(calls, answers, strict=True)
                if answer is not None and any(isinstance(w, Put) for w in writes)
            }
            await put(store, "end", b"")
            history: list[tuple[Event, ...]] = []
            watch = store.watch("", start)
            while not history or history[-1][0].key != "end":
                history += await take(watch, 1)
            model: dict[str, Event] = {}
            for batch in history:
                (revision,) = {event.revision for event in batch}
                for event in batch:
                    if event.value is None:
                        del model[event.key]
                    else:
                        model[event.key] = event
                assert puts.pop(revision, set()) == {e for e in batch if e.value is not None and e.key != "end"}
            assert not puts
            items = (await store.range("")).items
            assert [Event(i.key, i.value, i.revision) for i in items] == [model[key] for key in sorted(model)]
            await store.close()

    asyncio.run(run())

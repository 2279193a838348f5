"""Which workers there are, where they keep their data and where they listen; what is refused before any starts."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hot_tier.cluster.settings import ClusterSettings
from hot_tier.errors import CorruptMetadata, SettingsError
from tierlog.exclusive import bind
from tierlog.listeners import Plan, bind_listeners, plan_listeners
from tierlog.restore import restore_offline
from tierlog.settings import Given, Settings, load_settings
from tierlog.workers import supervisor
from tierlog.workers.layout import check_home, refuse_workers_home, spread_workers, worker_directory, workers_in
from tierlog.workers.plan import check_ports, count_workers, data_dirs_of, own_ports, plan_workers, usable_cores


def settings_of(**keys: object) -> Settings:
    return load_settings(flags=[Given(key.replace("__", "."), value, f"--{key}") for key, value in keys.items()])


def ran(data_dir: Path, *numbers: int) -> None:
    for number in numbers:
        (data_dir / f"worker-{number}").mkdir(parents=True)


# How many


@pytest.mark.parametrize(
    ("affinity", "quotas", "cores"),
    [
        (8, [], 8),
        (8, ["max 100000\n"], 8),
        (8, ["250000 100000", "max 100000"], 2),
        (8, ["400000 100000", "200000 100000"], 2),
        (8, ["50000 100000"], 1),
        (2, ["1600000 100000"], 2),
        (4, ["", "strange", "1 0"], 4),
    ],
)
def test_cores_are_those_that_may_be_used(affinity: int, quotas: list[str], cores: int) -> None:
    assert usable_cores(affinity, quotas) == cores


def test_auto_is_never_fewer_than_have_data() -> None:
    assert count_workers("auto", 4, [], 1) == 4
    assert count_workers("auto", 2, [11, 12, 13], 11) == 3
    assert count_workers("3", 8, [], 1) == 3


@pytest.mark.parametrize("asked", ["0", "-1", "two", "1.5", "1025", " "])
def test_what_is_no_number_of_workers_is_refused(asked: str) -> None:
    with pytest.raises(SettingsError, match=r"cluster\.workers cannot be"):
        count_workers(asked, 4, [], 1)


# Where their data is


@given(
    st.lists(st.sets(st.integers(1, 9), max_size=4), min_size=1, max_size=3),
    st.integers(1, 12),
)
def test_each_stays_where_it_is_and_new_ones_fill_up(found: list[set[int]], count: int) -> None:
    there = {f"/d{index}": sorted(numbers - set().union(*found[:index])) for index, numbers in enumerate(found)}
    known = set().union(*found)
    numbers = range(1, max([count, *known]) + 1)
    placed = spread_workers(numbers, there)
    assert list(placed) == list(numbers)
    for data_dir, held in there.items():
        assert all(placed[number] == worker_directory(data_dir, number) for number in held)
    counts = {d: sum(placed[n] == worker_directory(d, n) for n in numbers) for d in there}
    most_before = max(len(held) for held in there.values())
    assert max(counts.values()) <= max(most_before, min(counts.values()) + 1)


def test_one_that_would_be_left_out_is_refused() -> None:
    with pytest.raises(SettingsError, match="worker 3 has data here, and only the workers 1 to 2 are to start"):
        spread_workers([1, 2], {"/a": [1, 2, 3]})
    with pytest.raises(SettingsError, match="worker 1 has data here, and only the workers 5 to 6"):
        spread_workers([5, 6], {"/a": [1]})
    with pytest.raises(SettingsError, match="worker 1 has two data directories"):
        spread_workers([1], {"/a": [1], "/b": [1]})


def test_data_directories_are_several_and_different() -> None:
    assert data_dirs_of(settings_of(log__data_dir="/a, /b,")) == ["/a", "/b"]
    for bad in ("/a,/a", ",", "/a,/x/../a"):
        with pytest.raises(SettingsError, match=r"log\.data_dir cannot be"):
            data_dirs_of(settings_of(log__data_dir=bad))


def test_nobody_starts_empty_beside_data(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    dirs = [str(home), str(other)]
    check_home(dirs, embedded=True)
    (other / "logs").mkdir(parents=True)
    with pytest.raises(SettingsError, match="one broker without workers keeps its data here"):
        check_home(dirs, embedded=True)
    (other / "logs").rmdir()
    ran(other, 2)
    with pytest.raises(CorruptMetadata, match=r"metadata\.db is not there"):
        check_home(dirs, embedded=True)
    check_home(dirs, embedded=False)
    home.mkdir()
    (home / "metadata.db").touch()
    check_home(dirs, embedded=True)
    with pytest.raises(SettingsError, match=r"keep their metadata in metadata\.db, not in etcd"):
        check_home(dirs, embedded=False)
    assert workers_in(str(other)) == [2]
    with pytest.raises(SettingsError, match="1 workers keep their data here"):
        refuse_workers_home(str(other))
    refuse_workers_home(str(tmp_path / "nowhere"))


async def test_topics_are_not_restored_beside_workers(tmp_path: Path) -> None:
    ran(tmp_path / "home", 1)
    (tmp_path / "bucket").mkdir()
    settings = settings_of(log__data_dir=str(tmp_path / "home"), store__bucket=f"file://{tmp_path}/bucket")
    with pytest.raises(SettingsError, match="1 workers keep their data here"):
        async for _ in restore_offline(settings, [], {}):
            pass
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == ["worker-1"]


# Where they listen


def test_each_worker_has_the_next_port() -> None:
    kafka, http = plan_listeners(settings_of(kafka__port=9092, http__port=8080))
    assert own_ports(kafka, 3) == [9093, 9094, 9095]
    assert own_ports(http, 2) == [8081, 8082]
    check_ports([kafka, http], 64)
    (free, _) = plan_listeners(settings_of(kafka__port=0))
    assert own_ports(free, 3) == [0, 0, 0]


def listeners(*ports: int) -> list[Plan]:
    (kafka, _) = plan_listeners(Settings())
    return [kafka._replace(name=f"l{index}", port=port) for index, port in enumerate(ports)]


@given(st.lists(st.integers(0, 300), min_size=1, max_size=4), st.integers(1, 20))
def test_listeners_that_meet_are_refused(ports: list[int], count: int) -> None:
    plans = listeners(*ports)
    used = [range(port, port + count + 1) for port in ports if port]
    meet = any(set(one) & set(two) for index, one in enumerate(used) for two in used[:index])
    if meet:
        with pytest.raises(SettingsError, match="needs the ports"):
            check_ports(plans, count)
    else:
        check_ports(plans, count)


def test_ports_end_somewhere() -> None:
    check_ports(listeners(65531), 4)
    with pytest.raises(SettingsError, match="65536 is none"):
        check_ports(listeners(65532), 4)


async def test_workers_share_an_address_and_have_one_of_their_own() -> None:
    settings = settings_of(kafka__port=0, http__port=0, kafka__host="127.0.0.1", kafka__advertised_port=19092)
    async with AsyncExitStack() as parts:
        ports, kafka, http = supervisor._reserve(plan_listeners(settings), 2, parts)
        seen = []
        for mine in ports:
            bound = bind_listeners(settings, parts, mine)
            own, shared = (each.socket.getsockname()[1] for each in bound.kafka)
            assert kafka == f"127.0.0.1:{shared}" and http == f"127.0.0.1:{bound.http[1].socket.getsockname()[1]}"
            seen.append(own)
            assert bound.endpoints["http"].port == bound.http[0].socket.getsockname()[1]
            assert bound.endpoints["kafka"].port == 19092 + len(seen)
            for each in (*bound.kafka, *bound.http):
                each.socket.listen()
        assert len({*seen, shared}) == 3
        with pytest.raises(SettingsError, match="cannot listen"):
            bind("127.0.0.1", shared, "kafka.port", "--kafka")
        with pytest.raises(SettingsError, match="cannot listen"):
            supervisor._reserve(plan_listeners(settings_of(kafka__port=shared, http__port=0)), 1, parts)


async def test_a_listener_for_brokers_alone_is_not_shared() -> None:
    settings = settings_of(
        kafka__port=0,
        http__port=0,
        cluster__workers="2",
        listener__inside__bind="127.0.0.1:0",
        listener__inside__protocol="plaintext",
        listener__inside__takes="peers",
    )
    async with AsyncExitStack() as parts:
        (one, two), _, _ = supervisor._reserve(plan_listeners(settings), 2, parts)
        assert [len(mine["inside"].listens) for mine in (one, two)] == [1, 1]
        assert one["inside"].listens != two["inside"].listens


# What each is told


def test_what_a_host_has_once_is_shared_out(tmp_path: Path) -> None:
    given = settings_of(
        log__data_dir=f"{tmp_path}/a,{tmp_path}/b",
        cluster__workers="4",
        cache__memory_bytes=1000,
        cache__disk_bytes=4000,
        kafka__port=9092,
    )
    workers = plan_workers(given)
    assert [worker.number for worker in workers] == [1, 2, 3, 4]
    assert [worker.settings.cluster.node_id for worker in workers] == [1, 2, 3, 4]
    directories = [worker.settings.log.data_dir for worker in workers]
    assert directories == [f"{tmp_path}/{d}/worker-{n}" for n, d in enumerate("abab", 1)]
    assert {worker.settings.cluster.metadata for worker in workers} == {f"unix:{tmp_path}/a/metadata.sock"}
    assert {worker.settings.store.bucket for worker in workers} == {f"file://{tmp_path}/a/bucket"}
    assert len({worker.settings.cluster.host for worker in workers}) == 1
    assert workers[0].settings.cluster.host
    assert [worker.settings.cache.memory_bytes for worker in workers] == [250] * 4
    assert [worker.settings.cache.disk_bytes for worker in workers] == [1000] * 4


def test_with_etcd_they_are_brokers_like_any_other(tmp_path: Path) -> None:
    given = settings_of(
        log__data_dir=str(tmp_path),
        cluster__workers="2",
        cluster__node_id=7,
        cluster__host="north",
        cluster__metadata="etcd://e:2379",
        store__bucket="s3://b/p",
    )
    for number, worker in enumerate(plan_workers(given), 7):
        cluster = worker.settings.cluster
        assert (cluster.node_id, cluster.host, cluster.metadata) == (number, "north", "etcd://e:2379")
        assert worker.settings.store.bucket == "s3://b/p"


def test_workers_are_no_cluster_of_one() -> None:
    assert ClusterSettings().alone
    assert not ClusterSettings(workers="2").alone
    assert ClusterSettings(workers="2").embedded


def test_pauses_grow_and_begin_again() -> None:
    pauses = [0.0]
    for _ in range(12):
        pauses.append(supervisor.next_pause_s(pauses[-1], 1.0))
    assert pauses[1] == supervisor.FIRST_PAUSE_S
    assert pauses[-1] == supervisor.LONGEST_PAUSE_S
    assert pauses == sorted(pauses)
    assert supervisor.next_pause_s(30.0, supervisor.STEADY_S) == supervisor.FIRST_PAUSE_S

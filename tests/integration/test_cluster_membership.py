"""Real brokers on a real etcd: they find each other, replace each other, and refuse what would lose records."""

import shutil
from collections.abc import Iterator
from typing import Any

import confluent_kafka as ck
import pytest

from tests.support.brokers import Brokers, cluster, make_topic, partitions
from tests.support.waiting import wait_until
from tierlog.client import Client, path
from tierlog.process import ServeFailed, ServeProcess

WAIT_S = 60.0


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with cluster(tmp_path_factory.mktemp("cluster")) as brokers:
        yield brokers


def seen(brokers: Brokers, through: int) -> dict[str, Any]:
    with Client(brokers[through].url) as client:
        found: dict[str, Any] = client.get(path("cluster"))
        return found


def produce(brokers: Brokers, topic: str, count: int) -> None:
    producer = ck.Producer({"bootstrap.servers": brokers.bootstrap, "acks": "all"})
    failed: list[Any] = []
    for number in range(count):
        producer.produce(topic, f"{number}", on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(WAIT_S) == 0
    assert not failed


@pytest.mark.timeout(180)
def test_all_brokers_see_the_same_cluster_and_default_topics_have_three_replicas(brokers: Brokers) -> None:
    views = [seen(brokers, node) for node in (1, 2, 3)]
    for view in views:
        assert [broker["id"] for broker in view["brokers"]] == [1, 2, 3]
        assert view["cluster_id"] == views[0]["cluster_id"]
        assert view["controller"] == views[0]["controller"]
    make_topic(brokers, "usual")
    assert all(sorted(each["replicas"]) == [1, 2, 3] for each in partitions(brokers, "usual", 1))


@pytest.mark.timeout(180)
def test_a_number_that_is_in_use(brokers: Brokers) -> None:
    other = ServeProcess(brokers.directory / "other", brokers[1].flags)
    with pytest.raises(ServeFailed, match="broker 1 runs already"):
        other.start()


@pytest.mark.timeout(180)
def test_the_controller_is_killed_and_comes_back_on_an_empty_disk(brokers: Brokers) -> None:
    make_topic(brokers, "kept", partitions=3, replication_factor=3, config={"min.insync.replicas": 2})
    produce(brokers, "kept", 1_000)
    killed = seen(brokers, 1)["controller"]
    other = next(node for node in (1, 2, 3) if node != killed)
    brokers[killed].kill()
    wait_until(lambda: seen(brokers, other)["controller"] not in (None, killed), "another one governs")
    wait_until(
        lambda: all(each["leader"] not in (None, killed) for each in partitions(brokers, "kept", other)),
        "the others lead",
    )
    produce(brokers, "kept", 1_000)

    shutil.rmtree(brokers[killed].data_dir)
    brokers[killed].start()
    wait_until(
        lambda: all(sorted(each["isr"]) == [1, 2, 3] for each in partitions(brokers, "kept", other)),
        "it has caught up with everything",
    )
    for node in (1, 2, 3):
        if node != killed:
            brokers[node].stop()
            brokers[node].start()
    assert sum(each["high_watermark"] for each in partitions(brokers, "kept", killed)) == 2_000


@pytest.mark.timeout(180)
def test_a_log_that_lost_synced_records_is_filled_again_before_it_counts(brokers: Brokers) -> None:
    """Its broker is the preferred leader: trusted, it would lead, and the others would cut what it lacks."""
    make_topic(brokers, "torn", partitions=1, replication_factor=3)
    produce(brokers, "torn", 1_000)
    (before,) = partitions(brokers, "torn", 1)
    torn = before["replicas"][0]
    other = next(node for node in (1, 2, 3) if node != torn)
    brokers[torn].kill()
    (log,) = (brokers[torn].data_dir / "logs").glob("torn.*/0/*.log")
    size = log.stat().st_size
    with log.open("r+b") as file:
        file.truncate(size // 2)
    brokers[torn].start()
    wait_until(lambda: sorted(partitions(brokers, "torn", other)[0]["isr"]) == [1, 2, 3], "it has caught up")
    assert partitions(brokers, "torn", other)[0]["high_watermark"] == 1_000
    copies = [next((brokers[node].data_dir / "logs").glob("torn.*/0/*.log")).read_bytes() for node in (1, 2, 3)]
    assert copies[0] == copies[1] == copies[2]
    assert len(copies[0]) == size


@pytest.mark.timeout(180)
def test_a_disk_that_alone_held_records_is_asked_for(brokers: Brokers) -> None:
    with Client(brokers[1].url) as client:
        client.post(path("topics"), {"name": "single", "partitions": 6, "replication_factor": 1})
    produce(brokers, "single", 100)
    brokers[3].stop()
    aside = brokers.directory / "aside"
    brokers[3].data_dir.rename(aside)
    with pytest.raises(ServeFailed):
        brokers[3].start()
    assert "alone held the committed records of 2 partitions" in brokers[3].output()
    assert sorted({each["leader"] or 0 for each in partitions(brokers, "single", 1)}) == [0, 1, 2]
    shutil.rmtree(brokers[3].data_dir)
    aside.rename(brokers[3].data_dir)
    brokers[3].start()
    wait_until(lambda: all(each["leader"] for each in partitions(brokers, "single", 1)), "all are led again")
    assert sum(each["high_watermark"] for each in partitions(brokers, "single", 1)) == 100

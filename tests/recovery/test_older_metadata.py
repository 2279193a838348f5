"""An old copy of etcd that is put back is noticed."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from hot_tier.cluster.etcd import EtcdStore
from hot_tier.cluster.store import KeyValue, Put
from tests.golden.releases import records
from tests.support.brokers import Brokers, make_topic
from tests.support.etcd import EtcdCluster, etcd_cluster
from tierlog.process import ServeFailed


async def states(cluster: EtcdCluster, put_back: list[KeyValue] | None = None) -> list[KeyValue]:
    store = EtcdStore([cluster.members[0].endpoint], "/tierlog/")
    await store.open()
    try:
        for item in put_back or ():
            assert await store.transact([], [Put(item.key, item.value)])
        return list((await store.range("partitions/")).items)
    finally:
        await store.close()


def produce(kafka: str) -> None:
    producer = Producer({"bootstrap.servers": kafka, "acks": "all"})
    producer.produce("events", b"value", partition=0)
    assert producer.flush(30) == 0


def test_a_broker_refuses_metadata_that_is_older_than_its_logs(tmp_path: Path) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(etcd_cluster(1))
        brokers = Brokers(tmp_path, cluster.url, stack, {})
        node = brokers.add(1).start()
        make_topic(brokers, "events", partitions=1)
        produce(node.kafka)
        old = asyncio.run(states(cluster))
        for _ in range(2):
            node.stop()
            node.start()
            produce(node.kafka)
        node.stop()
        new = asyncio.run(states(cluster))
        asyncio.run(states(cluster, old))
        with pytest.raises(ServeFailed):
            node.start()
        assert "cluster metadata is older than the logs" in node.output_path.read_text()
        asyncio.run(states(cluster, new))
        node.start()
        assert len(records(node.kafka, "events")) == 3, "nothing was changed"

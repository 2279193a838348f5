"""A node whose etcd is away goes on with what it knows, and catches up when etcd is back."""

import asyncio
from collections.abc import Iterator

import pytest

from hot_tier.cluster import etcd_client, model
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.etcd import EtcdStore
from hot_tier.cluster.image import ClusterImage, ImageChange
from hot_tier.cluster.model import BrokerInfo
from hot_tier.cluster.store import Delete, Put, Revision
from hot_tier.errors import MetadataUnavailable
from hot_tier.ids import NodeId
from tests.support.etcd import EtcdCluster, etcd_cluster

DEADLINE_S = 30


@pytest.fixture
def cluster() -> Iterator[EtcdCluster]:
    with etcd_cluster(1) as started:
        yield started


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_client, "OPERATION_S", 1.0)


def registration(node: int) -> Put:
    broker = BrokerInfo(NodeId(node), simple_endpoints("127.0.0.1", 9092 + node))
    return Put(model.broker_key(broker.id), model.encode(broker))


async def write(store: EtcdStore, *writes: Put | Delete) -> Revision:
    revision = await store.transact([], writes)
    assert revision is not None
    return revision


async def test_an_outage_of_etcd(cluster: EtcdCluster) -> None:
    (member,) = cluster.members
    store, other = EtcdStore([member.endpoint]), EtcdStore([member.endpoint])
    await store.open()
    await other.open()
    image = ClusterImage(store)
    await image.open()
    changes: list[ImageChange] = []
    image.subscribe(changes.append)
    try:
        async with asyncio.timeout(DEADLINE_S):
            await image.reached(await write(other, registration(1), registration(2)))
            before = image.revision

            member.kill()
            waiting = asyncio.ensure_future(image.wait_for(lambda: image.broker(NodeId(3)) is not None))
            with pytest.raises(MetadataUnavailable):
                await other.get("anything")
            assert [broker.id for broker in image.brokers()] == [1, 2]
            assert image.revision == before and not waiting.done()

            member.start()
            member.wait_until_ready()
            await image.reached(await write(other, registration(3), Delete(model.broker_key(NodeId(1)))))
            await waiting
            assert [broker.id for broker in image.brokers()] == [2, 3]
            assert len(changes) == 2, "resumed where it was, not read anew"
    finally:
        await image.close()
        await store.close()
        await other.close()


async def test_an_outage_during_which_history_was_dropped() -> None:
    with etcd_cluster(3) as cluster:
        watched, *rest = cluster.members
        store, other = EtcdStore([watched.endpoint]), EtcdStore([each.endpoint for each in rest])
        await store.open()
        await other.open()
        image = ClusterImage(store)
        await image.open()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await image.reached(await write(other, registration(1), registration(2)))
                watched.kill()
                assert cluster.leader is not watched
                await write(other, Delete(model.broker_key(NodeId(1))))
                cluster.compact(await write(other, registration(3)))
                watched.start()
                watched.wait_until_ready()
                await image.reached(await write(other, registration(4)))
                assert [broker.id for broker in image.brokers()] == [2, 3, 4]
        finally:
            await image.close()
            await store.close()
            await other.close()

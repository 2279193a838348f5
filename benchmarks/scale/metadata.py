"""A real broker in a cluster with many partitions. All other brokers are entries in a real etcd, and lead nothing real.

The real broker is the controller. One of the others is lost, and the partitions that it led get new leaders.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.client import load
from benchmarks.process import wait_for
from benchmarks.service import TierlogServer
from gateway.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from hot_tier.cluster import model
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.etcd import EtcdStore
from hot_tier.cluster.store import MAX_OPERATIONS, Put
from hot_tier.ids import NodeId
from tests.gateway.kafka.wire import Wire
from tests.support.etcd import EtcdCluster, etcd_cluster

BROKERS = 390
"""Between the two plans of docs/CAPACITY.md for a million records a second."""
PARTITIONS_PER_TOPIC = 100
LOAD_TOPIC = "load"
LEASE_MS = 600_000
METADATA_VERSION = 12


def measure(directory: Path, partitions: int) -> dict[str, Any]:
    with etcd_cluster(1) as etcd:
        shared = ["--metadata", etcd.url, "--bucket", f"file://{directory}/bucket"]
        broker = TierlogServer(directory, arguments=[*shared, "--node-id", "1"])
        try:
            broker.start()
            empty_mb, empty_start_s = broker.rss_bytes() / 1e6, broker.start_seconds
            asyncio.run(_in_wire(broker, _create_load_topic))
            quiet = _p99(broker)
            leases = asyncio.run(_write_cluster(etcd, partitions))
            wait_for(lambda: asyncio.run(_seen(broker, partitions)), "the broker to know all partitions", 300, 1.0)
            grown_mb = broker.rss_bytes() / 1e6
            whole = asyncio.run(_ask(broker, None))
            one = asyncio.run(_ask(broker, "topic-0"))
            found = {
                "partitions": partitions,
                "brokers": BROKERS,
                "memory without, MB": empty_mb,
                "memory with, MB": grown_mb,
                "answer with all topics, ms": whole[0] * 1000,
                "answer with all topics, MB": whole[1] / 1e6,
                "answer with one topic, ms": one[0] * 1000,
                "p99 without, ms": quiet,
                "p99 with, ms": _p99(broker),
                **asyncio.run(_lose_a_broker(etcd, leases, broker)),
            }
            broker.stop()
            broker.start()
            return {**found, "start without, s": empty_start_s, "start with, s": broker.start_seconds}
        finally:
            broker.kill()


def _p99(broker: TierlogServer) -> float:
    settings = {"producer:acks": "all", "producer:linger.ms": "0"}
    return load.latency(broker.bootstrap, LOAD_TOPIC, 4, 1000, 500, 5, settings).p99_ms


async def _in_wire(broker: TierlogServer, use: Any) -> Any:
    async with Wire(broker.host, broker.port) as wire:
        return await use(wire)


async def _create_load_topic(wire: Wire) -> None:
    """Asks for the topic, so that the broker makes it with the default of four partitions."""
    while True:
        answer = await wire.ask(MetadataRequest([MetadataRequestTopic(name=LOAD_TOPIC)]), METADATA_VERSION)
        if answer.topics[0].error_code == 0 and all(each.leader_id == 1 for each in answer.topics[0].partitions):
            return
        await asyncio.sleep(0.1)


async def _ask(broker: TierlogServer, topic: str | None) -> tuple[float, int]:
    """Returns seconds and bytes of a Metadata answer."""
    names = None if topic is None else [MetadataRequestTopic(name=topic)]
    async with Wire(broker.host, broker.port) as wire:
        began = time.perf_counter()
        await wire.send(MetadataRequest(names), METADATA_VERSION)
        answer = await wire.receive_bytes()
        return time.perf_counter() - began, len(answer)


async def _seen(broker: TierlogServer, partitions: int) -> bool:
    async with Wire(broker.host, broker.port) as wire:
        last = f"topic-{partitions // PARTITIONS_PER_TOPIC - 1}"
        answer = await wire.ask(MetadataRequest([MetadataRequestTopic(name=last)], False), METADATA_VERSION)
        return len(answer.topics[0].partitions) == PARTITIONS_PER_TOPIC


async def _open(etcd: EtcdCluster) -> EtcdStore:
    store = EtcdStore([etcd.members[0].endpoint], "/tierlog/")
    await store.open()
    return store


async def _write_cluster(etcd: EtcdCluster, partitions: int) -> dict[NodeId, Any]:
    """Writes brokers, and topics with three replicas each, as brokers do. Returns the leases by broker."""
    store = await _open(etcd)
    others = [NodeId(number) for number in range(2, BROKERS + 1)]
    leases = {}
    for node in others:
        lease = leases[node] = await store.grant_lease(LEASE_MS)
        info = model.BrokerInfo(node, simple_endpoints("127.0.0.1", 1), lease=lease)
        await store.transact([], [Put(model.broker_key(node), model.encode(info), lease)])
    for number in range(partitions // PARTITIONS_PER_TOPIC):
        topic = model.Topic(f"topic-{number}", model.new_topic_id(), PARTITIONS_PER_TOPIC, 3, {}, 0)
        states = [
            Put(model.partition_key(topic.id, index), model.encode(model.initial_state(replicas)))
            for index in range(PARTITIONS_PER_TOPIC)
            if (replicas := _placed(others, number * PARTITIONS_PER_TOPIC + index))
        ]
        assert len(states) < MAX_OPERATIONS
        await store.transact([], states)
        await store.transact([], [Put(model.topic_key(topic.name), model.encode(topic))])
    await store.close()
    return leases


def _placed(nodes: Sequence[NodeId], number: int) -> list[NodeId]:
    return [nodes[(number + each) % len(nodes)] for each in range(3)]


async def _lose_a_broker(etcd: EtcdCluster, leases: dict[NodeId, Any], broker: TierlogServer) -> dict[str, Any]:
    """Measures from the end of its lease until no partition in etcd counts on it."""
    store = await _open(etcd)
    lost = NodeId(2)
    began = time.perf_counter()
    await store.revoke_lease(leases[lost])
    while True:
        states = [
            model.decode_partition(item.key, item.value, item.revision)
            for item in (await store.range(model.PARTITIONS_PREFIX)).items
        ]
        if not any(state.leader == lost for state in states):
            break
        assert time.perf_counter() - began < 120, "partitions of the lost broker are still led by it"
    took = time.perf_counter() - began
    changed = sum(state.leader_epoch > 0 for state in states if lost in state.replicas)
    await store.close()
    return {"leaders that a lost broker had": changed, "new leaders after, s": took}

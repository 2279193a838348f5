"""One node with its Kafka listener inside the test process, on a directory of its own."""

import asyncio
import os
import threading
import time
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace

import uvloop

from gateway.coordinators.coordinator import GroupCoordinator
from gateway.coordinators.settings import GroupSettings
from gateway.fetch.reader import Reader
from gateway.kafka.server import KafkaServer
from gateway.kafka_settings import KafkaSettings
from gateway.listener import Listener
from gateway.node import Node
from gateway.quotas import Quotas
from hot_tier.cluster.admin import TopicAdmin
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import BrokerInfo
from hot_tier.cluster.producer_ids import ProducerIds
from hot_tier.cluster.quotas import QuotaAdmin
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.cluster.standalone import take_over
from hot_tier.ids import NodeId
from hot_tier.log.manager import LogManager
from hot_tier.log.settings import LogSettings
from hot_tier.replication.table import PartitionTable
from tests.gateway.kafka.wire import Wire, free_port

NODE_ID = NodeId(0)
KAFKA = KafkaSettings(port=0)
GROUPS = GroupSettings(initial_rebalance_delay_ms=0, offsets_topic_partitions=4)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Running:
    node: Node
    server: KafkaServer
    host: str
    port: int
    loop: asyncio.AbstractEventLoop

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def connect(self) -> Wire:
        return Wire(self.host, self.port)


@asynccontextmanager
async def running_node(
    directory: str,
    kafka: KafkaSettings = KAFKA,
    flush: str = "commit",
    clock=now_ms,
    groups: GroupSettings = GROUPS,
):
    listener = free_port()
    host, port = listener.getsockname()
    log_settings = LogSettings(data_dir=directory, flush=flush, min_free_bytes=0)
    cluster = ClusterSettings(num_partitions=1)
    async with AsyncExitStack() as parts:
        os.makedirs(directory, exist_ok=True)
        store = SqliteStore(os.path.join(directory, "metadata.db"))
        await store.open()
        parts.push_async_callback(store.close)
        await take_over(store, BrokerInfo(NODE_ID, simple_endpoints(host, port)), clock())
        image = ClusterImage(store)
        await image.open()
        parts.push_async_callback(image.close)
        logs = LogManager(directory, log_settings, clock)
        await logs.open()
        parts.push_async_callback(logs.close)
        defaults = log_settings.topic_defaults
        partitions = PartitionTable(image, logs, NODE_ID, defaults)
        partitions.open()
        parts.callback(partitions.close)
        admin = TopicAdmin(store, image, defaults=defaults, settings=cluster, clock=clock)
        coordinator = GroupCoordinator(
            node_id=NODE_ID, image=image, admin=admin, partitions=partitions, settings=groups, clock=clock
        )
        coordinator.start()
        parts.push_async_callback(coordinator.stop)
        node = Node(
            node_id=NODE_ID,
            cluster_id=image.cluster_id,
            kafka=kafka,
            store=store,
            image=image,
            admin=admin,
            partitions=partitions,
            logs=logs,
            reader=Reader(),
            groups=coordinator,
            quotas=Quotas(image),
            quota_admin=QuotaAdmin(store, image),
            producer_ids=ProducerIds(store),
            clock=clock,
        )
        server = KafkaServer(node, replace(kafka, port=port))
        await server.start([Listener("kafka", listener)])
        parts.push_async_callback(server.stop)
        yield Running(node, server, host, port, asyncio.get_running_loop())


@contextmanager
def node_in_thread(directory: str, loop_factory=uvloop.new_event_loop, **settings):
    """For clients that block: the node runs on a loop in a thread of its own, which is named "node"."""
    ready: asyncio.Future | None = None
    started = threading.Event()
    found: list = []

    async def serve() -> None:
        nonlocal ready
        ready = asyncio.get_running_loop().create_future()
        async with running_node(directory, **settings) as running:
            found.append(running)
            started.set()
            await ready

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                runner.run(serve())
        finally:
            started.set()

    thread = threading.Thread(target=run, name="node")
    thread.start()
    started.wait(20)
    assert found, "the node did not start"
    running = found[0]
    try:
        yield running
    finally:
        running.loop.call_soon_threadsafe(ready.set_result, None)
        thread.join(20)
        assert not thread.is_alive()

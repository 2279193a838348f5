"""One node with its Kafka listener inside the test process, on a directory of its own."""

import asyncio
import os
import threading
import time
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace

import uvloop

from gateway.authorizer import AuthorizationSettings
from gateway.coordinators.settings import GroupSettings
from gateway.kafka.server import KafkaServer
from gateway.kafka_settings import KafkaSettings
from gateway.listener import Listener
from gateway.node import Node
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.model import BrokerInfo
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.cluster.standalone import take_over
from hot_tier.ids import NodeId
from hot_tier.log.config import TopicConfig
from hot_tier.log.settings import LogSettings
from hot_tier.replication.table import PartitionTable
from tests.gateway.kafka.wire import Wire, free_port
from tierlog.assembly import NO_AUTHORIZATION, open_image, open_logs, open_node

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
    authorization: AuthorizationSettings = NO_AUTHORIZATION,
):
    listener = free_port()
    host, port = listener.getsockname()
    log_settings = LogSettings(data_dir=directory, min_free_bytes=0)
    cluster = ClusterSettings(num_partitions=1)
    async with AsyncExitStack() as parts:
        os.makedirs(directory, exist_ok=True)
        store = SqliteStore(os.path.join(directory, "metadata.db"))
        await store.open()
        parts.push_async_callback(store.close)
        await take_over(store, BrokerInfo(NODE_ID, simple_endpoints(host, port)), clock())
        image = await open_image(parts, store)
        logs = await open_logs(parts, directory, log_settings, clock)
        topic = TopicConfig(flush=flush)
        node = open_node(
            parts,
            store,
            image,
            logs,
            PartitionTable(image, logs, NODE_ID, topic),
            node_id=NODE_ID,
            topic=topic,
            cluster=cluster,
            groups=groups,
            kafka=kafka,
            clock=clock,
            authorization=authorization,
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

"""A coordinator over real partitions on a directory of its own, without any listener."""

import asyncio
import os
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from gateway.coordinators.coordinator import GroupCoordinator
from gateway.coordinators.group_members import new_member_id
from gateway.coordinators.groups.messages import JoinAnswer, JoinRequest, Protocol, SyncAnswer, SyncRequest
from gateway.coordinators.settings import GroupSettings, TransactionSettings
from gateway.coordinators.transactions.coordinator import TransactionCoordinator
from gateway.kafka_settings import KafkaSettings
from hot_tier.cluster.admin import TopicAdmin
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import BrokerInfo
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.cluster.standalone import take_over
from hot_tier.ids import NodeId, PartitionId, TopicPartition
from hot_tier.log.config import TopicConfig
from hot_tier.log.manager import LogManager
from hot_tier.log.settings import LogSettings
from hot_tier.replication.table import PartitionTable
from tierlog.assembly import open_image, open_logs, open_node

NODE_ID = NodeId(0)
SETTINGS = GroupSettings(initial_rebalance_delay_ms=0, offsets_topic_partitions=4)
RANGE = (Protocol("range", b"\0\0\0\0\0\1\0\1t"),)
"""A consumer's subscription to the topic "t"."""


class Clock:
    """Wall time that a test may push forward."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


@dataclass
class Coordinated:
    groups: GroupCoordinator
    store: SqliteStore
    image: ClusterImage
    admin: TopicAdmin
    partitions: PartitionTable
    logs: LogManager
    clock: Clock
    transactions: TransactionCoordinator

    async def join(self, group_id: str = "g", member_id: str = "", **options: object) -> JoinAnswer:
        request = {
            "member_id": member_id,
            "fresh_id": new_member_id("test", None),
            "instance_id": None,
            "client_id": "test",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": RANGE,
            "must_know_id": False,
        }
        async with asyncio.timeout(10):
            return await self.groups.join(group_id, JoinRequest(**(request | options)))  # type: ignore[arg-type]

    async def sync(self, member_id: str, generation: int, group_id: str = "g", **options: object) -> SyncAnswer:
        async with asyncio.timeout(10):
            return await self.groups.sync(group_id, SyncRequest(member_id, generation, **options))  # type: ignore[arg-type]

    async def member(self, group_id: str = "g", **options: object) -> str:
        """A member of a stable group of one, whose assignment is its own id."""
        joined = await self.join(group_id, **options)
        assert joined.error is None
        me = joined.member_id
        synced = await self.sync(me, joined.generation, group_id, assignments={me: me.encode()})
        assert synced.error is None
        return me


@asynccontextmanager
async def coordinated(directory: str, settings: GroupSettings = SETTINGS, clock: Clock | None = None, flush="commit"):
    clock = clock or Clock()
    log_settings = LogSettings(data_dir=directory, min_free_bytes=0)
    async with AsyncExitStack() as parts:
        os.makedirs(directory, exist_ok=True)
        store = SqliteStore(os.path.join(directory, "metadata.db"))
        await store.open()
        parts.push_async_callback(store.close)
        await take_over(store, BrokerInfo(NODE_ID, simple_endpoints("127.0.0.1", 9092)), clock())
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
            cluster=ClusterSettings(),
            groups=settings,
            transactions=TransactionSettings(topic_partitions=4),
            kafka=KafkaSettings(),
            clock=clock,
        )
        yield Coordinated(node.groups, store, image, node.admin, node.partitions, logs, clock, node.transactions)


def tp(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, PartitionId(partition))

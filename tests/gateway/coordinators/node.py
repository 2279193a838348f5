"""A coordinator over real partitions on a directory of its own, without any listener."""

import asyncio
import os
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from gateway.coordinators.coordinator import GroupCoordinator
from gateway.coordinators.groups.messages import JoinAnswer, JoinRequest, Protocol, SyncAnswer, SyncRequest
from gateway.coordinators.membership import new_member_id
from gateway.coordinators.settings import GroupSettings
from hot_tier.cluster.admin import TopicAdmin
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import BrokerInfo
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.cluster.standalone import take_over
from hot_tier.ids import NodeId, PartitionId, TopicPartition
from hot_tier.log.manager import LogManager
from hot_tier.log.settings import LogSettings
from hot_tier.replication.table import PartitionTable

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
    log_settings = LogSettings(data_dir=directory, flush=flush, min_free_bytes=0)
    async with AsyncExitStack() as parts:
        os.makedirs(directory, exist_ok=True)
        store = SqliteStore(os.path.join(directory, "metadata.db"))
        await store.open()
        parts.push_async_callback(store.close)
        await take_over(store, BrokerInfo(NODE_ID, simple_endpoints("127.0.0.1", 9092)), clock())
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
        admin = TopicAdmin(store, image, defaults=defaults, settings=ClusterSettings(), clock=clock)
        groups = GroupCoordinator(
            node_id=NODE_ID, image=image, admin=admin, partitions=partitions, settings=settings, clock=clock
        )
        groups.start()
        parts.push_async_callback(groups.stop)
        yield Coordinated(groups, store, image, admin, partitions, logs, clock)


def tp(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, PartitionId(partition))

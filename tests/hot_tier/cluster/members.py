"""Brokers of a cluster without logs and servers: membership, image and controller over one store, each with an address
where something listens as long as its process is thought to run."""

import asyncio
import socket
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from hot_tier.cluster.admin import TopicAdmin
from hot_tier.cluster.controller import Controller
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.membership import Membership
from hot_tier.cluster.model import BrokerInfo, Identity, PartitionState
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.cluster.store import MetadataStore
from hot_tier.ids import NodeId, PartitionId, TopicPartition
from hot_tier.log.config import TopicConfig

RUNS: Counter[str] = Counter()
"""How often each data directory was used."""
NOW_MS = 1_700_000_000_000
SETTINGS = ClusterSettings(lease_ttl_ms=60_000, leader_rebalance_interval_ms=0)
"""Leases outlast the tests: what happens, happens because of the rules under test."""


@dataclass
class Member:
    store: MetadataStore
    node: int
    data_id: str = ""
    runs: int | None = None
    """How often the directory was used, by its own file; None for what is true."""
    boot_id: str = "boot"
    settings: ClusterSettings = SETTINGS
    rack: str | None = None
    defaults: TopicConfig = field(default_factory=TopicConfig)

    def __post_init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        port = self.listener.getsockname()[1]
        info = BrokerInfo(NodeId(self.node), simple_endpoints("127.0.0.1", port), self.rack)
        data_id = self.data_id or f"disk-{self.node}"
        loop = asyncio.get_running_loop()
        self.image = ClusterImage(self.store)
        self.membership = Membership(
            self.store,
            info,
            self.settings,
            identity=Identity(data_id, RUNS[data_id] if self.runs is None else self.runs),
            boot_id=self.boot_id,
            defaults=self.defaults,
            clock=lambda: int(loop.time() * 1000),
        )
        self.controller = Controller(
            self.store,
            self.image,
            self.membership,
            self.settings,
            defaults=self.defaults,
            internal_replication_factors={"__consumer_offsets": 3},
            clock=lambda: NOW_MS,
        )
        self.admin = TopicAdmin(
            self.store, self.image, defaults=self.defaults, settings=self.settings, clock=lambda: NOW_MS
        )

    async def join(self, *, stopped_cleanly: bool = True, govern: bool = True) -> "Member":
        await self.membership.prepare(stopped_cleanly=stopped_cleanly)
        RUNS[self.membership.identity.data_id] = self.membership.identity.runs
        await self.image.open()
        await self.membership.register(self.image)
        if govern:
            self.controller.start()
        return self

    async def leave(self) -> None:
        """As on SIGTERM."""
        await self.controller.stop()
        await self.membership.leave()
        await self._end()

    async def die(self) -> None:
        """As by kill -9: nothing is told to anybody, the kernel closes the sockets."""
        tasks = [task for task in (self.controller._running, self.membership._keeping) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._end()

    async def _end(self) -> None:
        self.listener.close()
        with suppress(ValueError):
            self.image.unsubscribe(self.membership._image_changed)
        await self.image.close()

    def state(self, topic: str, partition: int = 0) -> PartitionState:
        return self.image.partition_state(TopicPartition(topic, PartitionId(partition)))

    async def until(self, topic: str, leader: int, partition: int = 0) -> PartitionState:
        async with asyncio.timeout(20):
            await self.image.wait_for(lambda: self.state(topic, partition).leader == leader)
        return self.state(topic, partition)

"""Brokers of one cluster inside the test's process, on a real etcd, and callers of their HTTP ports."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from cold_tier.objects.open import StoreSettings
from gateway.audit.settings import AuditSettings
from gateway.authorizer import AuthorizationSettings
from gateway.coordinators.settings import GroupSettings
from gateway.http.api import Api
from gateway.http.settings import HttpSettings
from gateway.kafka_settings import KafkaSettings
from gateway.tls import TlsSettings
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.ids import PartitionId, TopicPartition
from hot_tier.log.config import TopicConfig
from hot_tier.log.settings import LogSettings
from offloader.settings import OffloadSettings
from tests.gateway.http.conftest import Reply
from tests.support.etcd import etcd
from tests.support.waiting import until
from tierlog.broker import Broker
from tierlog.settings import Settings


@dataclass
class Member:
    broker: Broker
    client: aiohttp.ClientSession

    @property
    def node_id(self) -> int:
        return self.broker.node.node_id

    @property
    def api(self) -> Api:
        return self.broker.http.app[Api.KEY]

    async def call(self, method: str, path: str, **options: Any) -> Reply:
        async with self.client.request(method, path, **options) as response:
            return Reply(response.status, response.headers, await response.read())

    async def get(self, path: str, **options: Any) -> Reply:
        return await self.call("GET", path, **options)

    async def post(self, path: str, **options: Any) -> Reply:
        return await self.call("POST", path, **options)


@dataclass
class Members:
    directory: Path
    metadata: str
    stack: AsyncExitStack
    settings: dict[str, Any]
    by_id: dict[int, Member] = field(default_factory=dict)

    async def start(self, node_id: int) -> Member:
        broker = Broker(
            Settings(
                log=LogSettings(data_dir=str(self.directory / str(node_id)), min_free_bytes=0),
                kafka=KafkaSettings(port=0),
                http=HttpSettings(port=0, **self.settings.get("http", {})),
                cluster=ClusterSettings(
                    node_id=node_id, metadata=self.metadata, num_partitions=3, **self.settings.get("cluster", {})
                ),
                groups=GroupSettings(offsets_topic_partitions=6, initial_rebalance_delay_ms=0),
                topic=TopicConfig(retention_ms=-1),
                store=StoreSettings(bucket=f"file://{self.directory}/bucket"),
                archive=OffloadSettings(check_ms=50, **self.settings.get("archive", {})),
                listener=self.settings.get("listener", {}),
                tls=self.settings.get("tls", TlsSettings()),
                audit=self.settings.get("audit", AuditSettings()),
                authorization=self.settings.get("authorization", AuthorizationSettings()),
            )
        )
        await broker.start()
        self.stack.push_async_callback(broker.stop)
        client = await self.stack.enter_async_context(aiohttp.ClientSession(f"http://{broker.http_address}"))
        self.by_id[node_id] = Member(broker, client)
        return self.by_id[node_id]

    def __getitem__(self, node_id: int) -> Member:
        return self.by_id[node_id]

    def __iter__(self):
        return iter(self.by_id.values())

    async def stop(self, node_id: int) -> None:
        """A clean stop: it hands its leaderships over."""
        await self.by_id.pop(node_id).broker.stop()

    async def make_topic(self, name: str, partitions: int = 3, replicas: int = 1, **config: str) -> None:
        document = {
            "name": name,
            "partitions": partitions,
            "replication_factor": replicas,
            "config": {key.replace("_", "."): value for key, value in config.items()},
        }
        made = await next(iter(self)).post("/api/v1/topics", json=document)
        assert made.status == 201, made
        await self.agree()

    async def agree(self) -> None:
        """All have seen what the newest has seen."""
        revision = max(member.broker.node.image.revision for member in self)
        for member in self:
            await asyncio.wait_for(member.broker.node.image.reached(revision), 10)

    def leader_of(self, topic: str, partition: int) -> int:
        image = next(iter(self)).broker.node.image
        return image.partition_state(TopicPartition(topic, PartitionId(partition))).leader

    def not_leading(self, topic: str, partition: int) -> Member:
        return next(member for member in self if member.node_id != self.leader_of(topic, partition))


@asynccontextmanager
async def members(directory: Path, size: int = 3, **settings: Any) -> AsyncIterator[Members]:
    """`members(path, http={"max_deliveries": 2}, cluster={…})`: brokers 1 to `size`."""
    with etcd() as metadata:
        async with AsyncExitStack() as stack:
            found = Members(directory, metadata, stack, settings)
            for node_id in range(1, size + 1):
                await found.start(node_id)
            await until(lambda: all(len(each.broker.node.image.brokers()) == size for each in found))
            await until(lambda: all(each.broker.node.image.controller > 0 for each in found))
            yield found

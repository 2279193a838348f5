"""A cluster's metadata on disk with as many registered brokers as a test wants."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hot_tier.cluster import model
from hot_tier.cluster.admin import TopicAdmin
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import BrokerInfo
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.cluster.standalone import take_over
from hot_tier.cluster.store import Put
from hot_tier.ids import NodeId
from hot_tier.log.config import TopicConfig

NOW_MS = 1_700_000_000_000


@dataclass
class Metadata:
    store: SqliteStore
    image: ClusterImage
    admin: TopicAdmin

    async def add_broker(self, node: int, rack: str | None = None) -> None:
        broker = BrokerInfo(NodeId(node), simple_endpoints("127.0.0.1", 9092 + node), rack)
        revision = await self.store.transact([], [Put(model.broker_key(broker.id), model.encode(broker))])
        assert revision is not None
        await self.image.reached(revision)


@pytest.fixture
async def metadata(tmp_path: Path) -> AsyncIterator[Metadata]:
    """One broker, number 0."""
    store = SqliteStore(str(tmp_path / "metadata.db"))
    await store.open()
    await take_over(store, BrokerInfo(NodeId(0), simple_endpoints("127.0.0.1", 9092)), NOW_MS)
    image = ClusterImage(store)
    await image.open()
    admin = TopicAdmin(store, image, defaults=TopicConfig(), settings=ClusterSettings(), clock=lambda: NOW_MS)
    yield Metadata(store, image, admin)
    await image.close()
    await store.close()

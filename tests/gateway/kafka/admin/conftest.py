"""Calls a handler as a client would: the request through the codec, the answer through it as well."""

from collections.abc import AsyncIterator
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

from gateway.kafka.handler import RequestContext
from gateway.kafka.handlers import (
    client_quotas,
    configs,
    describe_cluster,
    elect_leaders,
    log_dirs,
    reassignments,
    topics,
)
from gateway.kafka.protocol.readers import reader
from gateway.kafka.protocol.schema import message_info
from gateway.kafka.protocol.writers import writer
from gateway.kafka_settings import KafkaSettings
from gateway.node import Node
from gateway.principal import anonymous
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
from hot_tier.log.config import TopicConfig
from hot_tier.log.manager import LogManager
from hot_tier.log.settings import LogSettings
from hot_tier.replication.table import PartitionTable

NOW_MS = 1_700_000_000_000
NODE = NodeId(3)

HANDLERS = {
    **topics.HANDLERS,
    **configs.HANDLERS,
    **describe_cluster.HANDLERS,
    **client_quotas.HANDLERS,
    **log_dirs.HANDLERS,
    **reassignments.HANDLERS,
    **elect_leaders.HANDLERS,
}


class Caller:
    def __init__(self, node: Node) -> None:
        self.node = node

    async def __call__(self, request: Any, version: int) -> Any:
        handler = HANDLERS[message_info(type(request)).api_key]
        assert handler.min_version <= version <= handler.max_version
        received = reader(type(request), version)(memoryview(_encode(request, version)))
        about = (version, "client", anonymous("kafka", "127.0.0.1"), "127.0.0.1:1", None)
        context = RequestContext(self.node, *about, *[None] * 6)  # type: ignore[arg-type]
        answer = handler.function(received, context)
        if isawaitable(answer):
            answer = await answer
        return reader(type(answer), version)(memoryview(_encode(answer, version)))


def _encode(message: Any, version: int) -> bytes:
    parts: list[Any] = []
    writer(type(message), version)(message, parts.append)
    return b"".join(parts)


@pytest.fixture
async def call(tmp_path: Path) -> AsyncIterator[Caller]:
    """A node of its own, number 3, whose topics keep records for an hour by default."""
    defaults = TopicConfig(retention_ms=3_600_000)
    store = SqliteStore(str(tmp_path / "metadata.db"))
    await store.open()
    await take_over(store, BrokerInfo(NODE, simple_endpoints("broker.example", 19092), "rack-b"), NOW_MS)
    image = ClusterImage(store)
    await image.open()
    logs = LogManager(str(tmp_path / "data"), LogSettings(min_free_bytes=0), clock=lambda: NOW_MS)
    partitions = PartitionTable(image, logs, NODE, defaults)
    await logs.open()
    partitions.open()
    node = Node(
        node_id=NODE,
        cluster_id=image.cluster_id,
        kafka=KafkaSettings(),
        store=store,
        image=image,
        admin=TopicAdmin(store, image, defaults=defaults, settings=ClusterSettings(node_id=NODE), clock=lambda: NOW_MS),
        partitions=partitions,
        logs=logs,
        reader=None,  # type: ignore[arg-type]
        groups=None,  # type: ignore[arg-type]
        transactions=None,  # type: ignore[arg-type]
        quotas=Quotas(image),
        quota_admin=QuotaAdmin(store, image),
        producer_ids=ProducerIds(store),
        clock=lambda: NOW_MS,
    )
    yield Caller(node)
    partitions.close()
    await logs.close()
    await image.close()
    await store.close()

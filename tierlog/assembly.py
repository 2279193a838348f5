"""The parts of a broker between its metadata store and its listeners. Each is opened after those below it.

`tierlog.broker` and the tests that run a broker inside their own process put them together by the same functions. The
caller's stack closes them in the opposite order.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from ssl import SSLContext
from typing import Final

from gateway.authorizer import AuthorizationSettings
from gateway.coordinators.coordinator import GroupCoordinator
from gateway.coordinators.settings import GroupSettings, TransactionSettings
from gateway.coordinators.transactions.coordinator import TransactionCoordinator
from gateway.fetch.reader import Archive, Reader
from gateway.kafka.transaction_peers import TransactionPeers
from gateway.kafka_settings import KafkaSettings
from gateway.node import Node
from gateway.quotas import Quotas
from gateway.tokens.tokens import Tokens
from hot_tier.cluster.admin import TopicAdmin
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.producer_ids import ProducerIds
from hot_tier.cluster.quotas import QuotaAdmin
from hot_tier.cluster.restart_isr import disown
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.cluster.store import MetadataStore
from hot_tier.ids import NodeId
from hot_tier.log.config import TopicConfig
from hot_tier.log.manager import LogManager
from hot_tier.log.settings import LogSettings
from hot_tier.replication.table import PartitionTable

NO_AUTHORIZATION: Final = AuthorizationSettings()
TRANSACTIONS: Final = TransactionSettings()


async def open_image(parts: AsyncExitStack, store: MetadataStore) -> ClusterImage:
    image = ClusterImage(store)
    await image.open()
    parts.push_async_callback(image.close)
    return image


async def open_logs(
    parts: AsyncExitStack, data_dir: str, settings: LogSettings, clock: Callable[[], int]
) -> LogManager:
    logs = LogManager(data_dir, settings, clock)
    await logs.open()
    parts.push_async_callback(logs.close)
    return logs


async def settle_doubts(store: MetadataStore, image: ClusterImage, logs: LogManager, member: NodeId | None) -> None:
    """Keeps in doubt the damaged logs that nobody counts on: each is copied anew once its leader answers. `member` is
    None on a node that is its own cluster."""
    doubts = logs.disk.doubts
    known = doubts.cut | doubts.damaged
    elsewhere = set() if member is None else await disown(store, image, member, known, doubts.emptied)
    doubts.settle(known - (elsewhere & doubts.damaged))


def open_node(
    parts: AsyncExitStack,
    store: MetadataStore,
    image: ClusterImage,
    logs: LogManager,
    partitions: PartitionTable,
    *,
    node_id: NodeId,
    topic: TopicConfig,
    cluster: ClusterSettings,
    groups: GroupSettings,
    kafka: KafkaSettings,
    clock: Callable[[], int],
    transactions: TransactionSettings = TRANSACTIONS,
    archive: Archive | None = None,
    tls: SSLContext | None = None,
    tokens: Tokens | None = None,
    authorization: AuthorizationSettings = NO_AUTHORIZATION,
    peers: frozenset[str] = frozenset(),
    peer_listeners: frozenset[str] = frozenset(),
) -> Node:
    """Takes up partitions, consumer groups and transactions, and returns what handlers need of all parts."""
    partitions.open()
    parts.callback(partitions.close)
    admin = TopicAdmin(store, image, defaults=topic, settings=cluster, clock=clock)
    producer_ids = ProducerIds(store)
    of_groups = GroupCoordinator(
        node_id=node_id, image=image, admin=admin, partitions=partitions, settings=groups, clock=clock
    )
    of_transactions = TransactionCoordinator(
        of_groups, producer_ids, TransactionPeers(node_id, tls), node_id, image, admin, partitions, transactions, clock
    )
    for coordinator in (of_groups, of_transactions):
        coordinator.start()
        parts.push_async_callback(coordinator.stop)
    return Node(
        node_id=node_id,
        cluster_id=image.cluster_id,
        kafka=kafka,
        store=store,
        image=image,
        admin=admin,
        partitions=partitions,
        logs=logs,
        reader=Reader(archive),
        groups=of_groups,
        transactions=of_transactions,
        quotas=Quotas(image),
        quota_admin=QuotaAdmin(store, image),
        producer_ids=producer_ids,
        clock=clock,
        tls=tls,
        tokens=tokens,
        authorization=authorization,
        peers=peers,
        peer_listeners=peer_listeners,
    )

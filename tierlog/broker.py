"""One broker: the place where the parts are put together, in the order they need each other.

    sockets      bound, not listening: a port in use is found before anything is touched
    data lock    one broker per data directory
    bucket       tried: one that refuses this broker ends the start, one that is away does not
    store        cluster metadata: SQLite on one node, etcd in a cluster
    take over    one node registers itself and takes every partition in a new leader epoch;
                 a member of a cluster ends what its last process was known by, and is not counted yet
    image        that metadata in memory
    logs         the data directory, recovered if the last stop was unclean
    partitions   what this node leads or follows, as the image says; it fetches from leaders once it is registered
    archive      the bucket: what it holds of these partitions, and the offloader that adds to it
    groups       consumer groups, read back from `__consumer_offsets` while the rest goes on
    servers      Kafka and HTTP begin to listen: from here on clients are answered
    membership   in a cluster: registered, others count on this broker from now on; it may be elected controller

Stopping goes the other way round: a member of a cluster hands its leaderships to others and is gone from it; no new
connections, requests in flight are answered, groups and partitions let go of their waiters, logs are synced and marked
as cleanly closed, metadata is closed, the lock is released. A start that fails half-way stops what had started, in the
same order.

Nothing outside this module knows all the parts. What handlers need of them is `gateway.node.Node`.
"""

import asyncio
import os
import signal
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib.metadata import version
from typing import Final
from urllib.parse import quote

import structlog
import uvloop

from cold_tier.catalog import Catalog
from cold_tier.errors import StoreUnavailable
from cold_tier.objects.open import StoreSettings, open_store, probe
from cold_tier.objects.retrying import RetryingStore
from cold_tier.reader import ColdReader
from gateway.coordinators.coordinator import GroupCoordinator
from gateway.fetch.reader import Archive, Reader
from gateway.http.server import HttpServer
from gateway.kafka.replica_client import replica_links
from gateway.kafka.segment_client import copy_batches
from gateway.kafka.server import KafkaServer
from gateway.node import Node
from gateway.quotas import Quotas
from hot_tier.cluster.admin import TopicAdmin
from hot_tier.cluster.controller import Controller
from hot_tier.cluster.directory import boot_id, read_identity, stopped_cleanly, write_identity
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.membership import Membership
from hot_tier.cluster.model import BrokerInfo
from hot_tier.cluster.open import metadata_store
from hot_tier.cluster.producer_ids import ProducerIds
from hot_tier.cluster.quotas import QuotaAdmin
from hot_tier.cluster.restart_isr import disown
from hot_tier.cluster.standalone import check_knows, take_over, topics_on_disk
from hot_tier.cluster.store import MetadataStore
from hot_tier.errors import SettingsError
from hot_tier.ids import NodeId
from hot_tier.log.manager import LogManager
from hot_tier.replication.fetchers import Fetchers
from hot_tier.replication.isr import IsrKeeper
from hot_tier.replication.mender import Mender
from hot_tier.replication.table import PartitionTable
from offloader.control import Control
from offloader.follower_archive import ArchivedStart
from offloader.offloader import Offloader
from tierlog.exclusive import address, lock_directory
from tierlog.interpreter import collect_garbage, freeze, prepare
from tierlog.listeners import bind_listeners
from tierlog.memory import keep_freed_memory
from tierlog.settings import Settings

log = structlog.get_logger()

BUCKET_FOLDER: Final = "bucket"
CACHE_FOLDER: Final = "cold-cache"
SCRATCH_FOLDER: Final = "scratch"
PROBE_MS: Final = 3_000
"""How long a start waits for the bucket."""


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. What keeps the broker from starting is raised as a `TierlogError`."""
    keep_freed_memory()
    prepare()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: log.info("SIGHUP is ignored: settings are read at start"))
    broker = Broker(settings)
    log.info("starting", version=version("tierlog"), node=settings.cluster.node_id, data_dir=settings.log.data_dir)
    began_s = time.monotonic()
    await broker.start()
    freeze()
    collecting = asyncio.create_task(collect_garbage())
    try:
        print(f"tierlog ready kafka={broker.kafka_address} http={broker.http_address}", flush=True)
        log.info("serving", start_seconds=round(time.monotonic() - began_s, 1))
        await broker.serve_until(stopping)
        log.info("stopping")
        # A second signal ends the process at once.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    finally:
        collecting.cancel()
        await broker.stop()
    log.info("stopped")


class Broker:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.node: Node
        self.kafka: KafkaServer
        self.http: HttpServer
        self.offloader: Offloader
        self.membership: Membership | None = None
        """None on a node that is its own cluster."""
        self.fetchers: Fetchers
        self.isr: IsrKeeper
        self.kafka_address = ""
        self.http_address = ""
        self._parts = AsyncExitStack()

    async def start(self) -> None:
        try:
            await self._start()
        except BaseException:
            await self._parts.aclose()
            raise

    async def stop(self) -> None:
        await self._parts.aclose()

    async def serve_until(self, stopping: asyncio.Event) -> None:
        """Raises what makes it impossible to go on."""
        told = asyncio.ensure_future(stopping.wait())
        if self.membership is None:
            await told
        else:
            await asyncio.wait((told, self.membership.failure), return_when=asyncio.FIRST_COMPLETED)
            if self.membership.failure.done():
                told.cancel()
                await self.membership.failure

    async def _start(self) -> None:
        settings, parts = self.settings, self._parts
        node_id = NodeId(settings.cluster.node_id)
        listeners = bind_listeners(settings, parts)
        self.kafka_address, self.http_address = address(listeners.kafka[0].socket), address(listeners.http[0].socket)

        data_dir = os.path.abspath(settings.log.data_dir)
        parts.enter_context(lock_directory(data_dir))
        store = metadata_store(settings.cluster.metadata, settings.etcd, data_dir)
        bucket = _bucket(settings, data_dir)
        objects = open_store(bucket, create=True)
        parts.push_async_callback(objects.close)
        await _try_bucket(objects)
        await store.open()
        parts.push_async_callback(store.close)
        info = BrokerInfo(node_id, listeners.endpoints, settings.cluster.rack or None)
        if settings.cluster.alone:
            on_disk = topics_on_disk(data_dir)
            if on_disk is not None:
                await check_knows(store, data_dir, on_disk)
            await take_over(store, info, now_ms(), on_disk or ())
            write_identity(data_dir, identity := read_identity(data_dir))
            directory = identity.data_id
        else:
            directory = ""  # Metadata is no part of it, and knows who leads.
            self.membership = self._membership(store, info, data_dir)
            await self.membership.prepare(stopped_cleanly=stopped_cleanly(data_dir))
            write_identity(data_dir, self.membership.identity)
        image = ClusterImage(store)
        await image.open()
        parts.push_async_callback(image.close)

        logs = LogManager(data_dir, settings.log, now_ms)
        await logs.open()
        parts.push_async_callback(logs.close)
        await self._settle_doubts(store, image, logs)
        partitions = self._partitions(store, image, logs, objects)
        partitions.open()
        parts.callback(partitions.close)

        admin = TopicAdmin(store, image, defaults=settings.topic, settings=settings.cluster, clock=now_ms)
        quotas = Quotas(image)
        groups = GroupCoordinator(
            node_id=node_id,
            image=image,
            admin=admin,
            partitions=partitions,
            settings=settings.groups,
            clock=now_ms,
        )
        groups.start()
        parts.push_async_callback(groups.stop)
        reading = objects.within(bucket.read_deadline_ms)
        archive = Archive(
            Catalog(objects, reading), ColdReader(reading, settings.cache, os.path.join(data_dir, CACHE_FOLDER))
        )
        parts.push_async_callback(archive.reader.close)
        scratch = os.path.join(data_dir, SCRATCH_FOLDER)
        self.offloader = Offloader(
            partitions, image, store, archive.catalog, bucket, settings.archive, scratch, now_ms, node_id, directory
        )
        producer_ids = ProducerIds(store)
        self.node = Node(
            node_id=node_id,
            cluster_id=image.cluster_id,
            kafka=settings.kafka,
            store=store,
            image=image,
            admin=admin,
            partitions=partitions,
            logs=logs,
            reader=Reader(archive),
            groups=groups,
            quotas=quotas,
            quota_admin=QuotaAdmin(store, image),
            producer_ids=producer_ids,
            clock=now_ms,
            archive=Control(
                node_id=node_id,
                image=image,
                metadata=store,
                admin=admin,
                partitions=partitions,
                logs=logs,
                producer_ids=producer_ids,
                catalog=archive.catalog,
                reader=archive.reader,
                offloader=self.offloader,
                clock=now_ms,
            ),
        )
        self.node.loop_delay.start()
        parts.callback(self.node.loop_delay.stop)
        self.kafka = KafkaServer(self.node, settings.kafka)
        self.http = HttpServer(self.node, settings.http, self.kafka)
        parts.push_async_callback(self._stop_servers)
        await self.kafka.start(listeners.kafka)
        await self.http.start(listeners.http)
        parts.push_async_callback(self.offloader.close)
        self.offloader.start()
        if self.membership is not None:
            await self._join(self.membership, store, image)

    def _membership(self, store: MetadataStore, info: BrokerInfo, data_dir: str) -> Membership:
        return Membership(
            store,
            info,
            self.settings.cluster,
            identity=read_identity(data_dir),
            boot_id=boot_id(),
            defaults=self.settings.topic,
            clock=steady_clock_ms,
        )

    async def _settle_doubts(self, store: MetadataStore, image: ClusterImage, logs: LogManager) -> None:
        """What is damaged here and nobody counts on stays in doubt: it is copied anew once its leader answers."""
        doubts = logs.disk.doubts
        known = doubts.cut | doubts.damaged
        elsewhere = set()
        if self.membership is not None:
            elsewhere = await disown(store, image, NodeId(self.settings.cluster.node_id), known, doubts.emptied)
        doubts.settle(known - (elsewhere & doubts.damaged))

    def _partitions(
        self, store: MetadataStore, image: ClusterImage, logs: LogManager, objects: RetryingStore
    ) -> PartitionTable:
        settings, membership = self.settings, self.membership
        node_id = NodeId(settings.cluster.node_id)
        if membership is None:
            return PartitionTable(image, logs, node_id, settings.topic)
        self.fetchers = Fetchers(
            image,
            replica_links(node_id, settings.replication, lambda: membership.registration_epoch),
            settings.replication,
            clock=now_ms,
            suspect=membership.suspect,
            restore=ArchivedStart(objects, image),
            reassignment_bytes_per_s=lambda: self._reassignment_rate(image),
        )
        self._parts.push_async_callback(self.fetchers.close)
        self.isr = IsrKeeper(store, image, settings.replication)
        lease_ms = settings.cluster.lease_ttl_ms * 3 // 4
        return PartitionTable(
            image,
            logs,
            node_id,
            settings.topic,
            fetchers=self.fetchers,
            isr_due=self.isr.due,
            lease_valid=lambda: membership.lease_age_ms < lease_ms,
        )

    def _reassignment_rate(self, image: ClusterImage) -> int:
        settings = self.settings.cluster
        record = image.node(NodeId(settings.node_id))
        asked = None if record is None else record.reassignment_bytes_per_second
        return settings.reassignment_bytes_per_second if asked is None else asked

    async def _join(self, membership: Membership, store: MetadataStore, image: ClusterImage) -> None:
        self.isr.start(self.node.partitions, self.kafka.replica_sessions.heard_ms)
        self._parts.push_async_callback(self.isr.stop)
        self._parts.push_async_callback(membership.leave)
        await membership.register(image)
        self.fetchers.start()
        settings = self.settings
        mender = Mender(self.node.partitions, image, self.node.node_id, copy_batches)
        mender.start()
        self._parts.push_async_callback(mender.stop)
        controller = Controller(
            store,
            image,
            membership,
            settings.cluster,
            defaults=settings.topic,
            internal_replication_factor=settings.groups.offsets_topic_replication_factor,
            clock=now_ms,
        )
        controller.start()
        self._parts.push_async_callback(controller.stop)

    async def _stop_servers(self) -> None:
        await asyncio.gather(self.kafka.stop(), self.http.stop())


async def _try_bucket(objects: RetryingStore) -> None:
    """Raises what stays wrong until a person changes it: credentials, permissions, a bucket that is not there."""
    try:
        found = await probe(objects.within(PROBE_MS))
    except StoreUnavailable as error:
        log.warning("the bucket does not answer: records wait on the local disk until it does", error=str(error))
        return
    log.info("the bucket works", bucket=objects.url)
    for warning in found.warnings:
        log.warning("the bucket lacks something", bucket=objects.url, what=warning)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def steady_clock_ms() -> int:
    """Goes on while the machine sleeps, and never back."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def _bucket(settings: Settings, data_dir: str) -> StoreSettings:
    if settings.store.bucket:
        return settings.store
    if not settings.cluster.alone:
        raise SettingsError(
            "a cluster needs a bucket that all its brokers share",
            where="store.bucket",
            hint="name it with --bucket s3://BUCKET/PREFIX, or file:///DIRECTORY on one machine",
        )
    return replace(settings.store, bucket=f"file://{quote(os.path.join(data_dir, BUCKET_FOLDER))}")

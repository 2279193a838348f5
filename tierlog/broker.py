"""One broker: the place where the parts are put together, in the order they need each other.

    sockets      bound, not listening: a port in use is found before anything is touched
    data lock    one broker per data directory
    bucket       tried: one that refuses this broker ends the start, one that is away does not
    store        cluster metadata: SQLite on one node, etcd in a cluster
    take over    one node registers itself and takes every partition in a new leader epoch;
                 a member of a cluster ends the registration of its last process, and is not counted yet
    image        that metadata in memory
    logs         the data directory, recovered if the last stop was unclean
    partitions   what this node leads or follows, as the image says; it fetches from leaders once it is registered
    archive      the bucket: what it holds of these partitions, and the offloader that adds to it
    groups       consumer groups, read back from `__consumer_offsets` while the rest goes on
    transactions transactional ids, read back from `__transaction_state` likewise
    audit        if it is on: it notes what the servers answer
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
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from ssl import SSLContext
from typing import Final
from urllib.parse import quote

import structlog
import uvloop

from cold_tier.catalog import Catalog
from cold_tier.errors import StoreUnavailable
from cold_tier.objects.bucket import Bucket
from cold_tier.objects.open import StoreSettings, open_store, probe
from cold_tier.reader import ColdReader
from gateway.coordinators.offsets_topic.topic import OFFSETS_TOPIC
from gateway.coordinators.transactions.topic import TRANSACTIONS_TOPIC
from gateway.fetch.reader import Archive
from gateway.http.server import HttpServer
from gateway.kafka.replica_client import replica_links
from gateway.kafka.segment_client import copy_batches
from gateway.kafka.server import KafkaServer
from gateway.node import Node
from gateway.sql.queries import Queries
from gateway.tls import Identity
from gateway.tokens.tokens import Tokens
from hot_tier.clock import since_boot_ms, steady_s, wall_ms
from hot_tier.cluster.controller import Controller
from hot_tier.cluster.directory import boot_id, read_identity, stopped_cleanly
from hot_tier.cluster.directory_format import begin_run, check_format
from hot_tier.cluster.endpoints import PEERS
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.internal_topics import AUDIT_TOPIC
from hot_tier.cluster.membership import Membership
from hot_tier.cluster.model import BrokerInfo
from hot_tier.cluster.open import metadata_store
from hot_tier.cluster.standalone import check_knows, take_over, topics_on_disk
from hot_tier.cluster.store import MetadataStore
from hot_tier.errors import SettingsError
from hot_tier.ids import NodeId
from hot_tier.log.manager import LogManager
from hot_tier.replication.fetchers import Fetchers
from hot_tier.replication.isr import IsrKeeper
from hot_tier.replication.mender import Mender
from hot_tier.replication.metadata_age import refuse_older_metadata
from hot_tier.replication.table import PartitionTable
from offloader.control import Control
from offloader.encryption import demands
from offloader.follower_archive import ArchivedStart
from offloader.offloader import Offloader
from tierlog.assembly import open_image, open_logs, open_node, settle_doubts
from tierlog.auditing import open_audit
from tierlog.exclusive import address, lock_directory
from tierlog.interpreter import collect_garbage, freeze, prepare
from tierlog.listeners import NOT_A_WORKER, Listeners, WorkerPorts, bind_listeners
from tierlog.memory import keep_freed_memory
from tierlog.process import print_ready
from tierlog.settings import Settings
from tierlog.workers.layout import refuse_workers_home

_log = structlog.get_logger()

BUCKET_FOLDER: Final = "bucket"
CACHE_FOLDER: Final = "cold-cache"
SCRATCH_FOLDER: Final = "scratch"
CERTIFICATES_S: Final = 5.0
"""How often the files of certificates are looked at."""
PROBE_MS: Final = 3_000
"""How long a start waits for the bucket."""


def run(
    settings: Settings,
    ready: Callable[[str, str], None] = print_ready,
    ports: Mapping[str, WorkerPorts] = NOT_A_WORKER,
) -> None:
    """Serve until SIGTERM or SIGINT. What keeps the broker from starting is raised as a `TierlogError`.

    `ready` is told the addresses for Kafka and HTTP once clients can come in. `ports`: of a worker."""
    keep_freed_memory()
    prepare()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(Broker(settings, ports), ready))


async def _serve(broker: "Broker", ready: Callable[[str, str], None]) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    settings = broker.settings
    loop.add_signal_handler(signal.SIGHUP, broker.hang_up)
    _log.info("starting", version=version("tierlog"), node=settings.cluster.node_id, data_dir=settings.log.data_dir)
    began_s = steady_s()
    await broker.start()
    freeze()
    upkeep = [asyncio.create_task(collect_garbage()), asyncio.create_task(_watch_certificates(broker))]
    try:
        ready(broker.kafka_address, broker.http_address)
        _log.info("serving", start_seconds=round(steady_s() - began_s, 1))
        await broker.serve_until(stopping)
        _log.info("stopping")
        # A second signal ends the process at once.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    finally:
        for task in upkeep:
            task.cancel()
        await broker.stop()
    _log.info("stopped")


async def _watch_certificates(broker: "Broker") -> None:
    while True:
        await asyncio.sleep(CERTIFICATES_S)
        broker.read_certificates()


class Broker:
    def __init__(self, settings: Settings, ports: Mapping[str, WorkerPorts] = NOT_A_WORKER) -> None:
        self.settings = settings
        self._ports = ports
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
        self._identities: list[Identity] = []
        self._calls: SSLContext | None = None
        self._parts = AsyncExitStack()

    def hang_up(self) -> None:
        _log.info("SIGHUP: certificates are read again if they have changed; settings are read at start")
        self.read_certificates()

    def read_certificates(self) -> None:
        """Reads certificates again if their files have changed."""
        for each in self._identities:
            each.refresh()

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
        listeners = bind_listeners(settings, parts, self._ports)
        self._identities, self._calls = listeners.identities, listeners.calls
        tokens = self._open_tokens()
        self.kafka_address, self.http_address = address(listeners.kafka[0].socket), address(listeners.http[0].socket)

        data_dir = self._own_directory()
        store = metadata_store(settings.cluster.metadata, settings.etcd, data_dir, self._tls_of_etcd())
        bucket = _bucket(settings, data_dir)
        objects = open_store(bucket, create=True)
        parts.push_async_callback(objects.close)
        await _try_bucket(objects)
        await store.open()
        parts.push_async_callback(store.close)
        directory = await self._take_over(store, self._described(listeners), data_dir)
        image = await open_image(parts, store)
        logs = await open_logs(parts, data_dir, settings.log, wall_ms)
        await settle_doubts(store, image, logs, None if self.membership is None else node_id)
        reading = objects.within(bucket.read_deadline_ms)
        cache_folder = os.path.join(data_dir, CACHE_FOLDER)
        archive = Archive(Catalog(objects, reading), ColdReader(reading, settings.cache, cache_folder, demands(image)))
        parts.push_async_callback(archive.reader.close)
        self.node = open_node(
            parts,
            store,
            image,
            logs,
            self._partitions(store, image, logs, objects),
            node_id=node_id,
            topic=settings.topic,
            cluster=settings.cluster,
            groups=settings.groups,
            transactions=settings.transactions,
            kafka=settings.kafka,
            clock=wall_ms,
            archive=archive,
            tls=listeners.calls,
            tokens=tokens,
            authorization=settings.authorization,
            peers=frozenset(settings.tls.peers),
            peer_listeners=frozenset(name for name, each in listeners.endpoints.items() if PEERS in each.takes),
        )
        self.node.authorizer.check_somebody_may_begin()
        refuse_older_metadata(image, logs)
        self.offloader = self._offloader(archive.catalog, bucket, os.path.join(data_dir, SCRATCH_FOLDER), directory)
        self.node.archive = self._control(archive)
        queries = Queries(settings.sql, bucket, settings.cost.get_per_1000)
        parts.push_async_callback(queries.close)
        await self._open_logins(listeners)
        open_audit(parts, self.node, settings.audit)
        await self._listen(listeners, queries)
        parts.push_async_callback(self.offloader.close)
        self.offloader.start()
        if self.membership is not None:
            await self._join(self.membership, store, image)

    def _own_directory(self) -> str:
        data_dir = os.path.abspath(self.settings.log.data_dir)
        self._parts.enter_context(lock_directory(data_dir))
        check_format(data_dir)
        if self.settings.cluster.alone:
            refuse_workers_home(data_dir)
        return data_dir

    def _described(self, listeners: Listeners) -> BrokerInfo:
        own = self.settings.cluster
        info = BrokerInfo(NodeId(own.node_id), listeners.endpoints, own.rack or None, version=version("tierlog"))
        return replace(info, host_name=own.host or None)

    async def _listen(self, listeners: Listeners, queries: Queries) -> None:
        node, settings, parts = self.node, self.settings, self._parts
        node.loop_delay.start()
        parts.callback(node.loop_delay.stop)
        self.kafka = KafkaServer(node, settings.kafka)
        self.http = HttpServer(node, settings.http, self.kafka, queries)
        parts.push_async_callback(self._stop_servers)
        await self.kafka.start(listeners.kafka)
        await self.http.start(listeners.http)

    def _tls_of_etcd(self) -> SSLContext | None:
        etcd = self.settings.etcd
        if not etcd.cert:
            return None
        self._identities.append(own := Identity(etcd.cert, etcd.key, etcd.ca, "etcd.cert, etcd.key, etcd.ca"))
        return own.call()

    def _open_tokens(self) -> Tokens | None:
        """A file of keys that cannot be used ends the start before anything is touched."""
        if not self.settings.oauth.enabled:
            return None
        tokens = Tokens(self.settings.oauth)
        tokens.start()
        self._parts.push_async_callback(tokens.stop)
        return tokens

    async def _open_logins(self, listeners: Listeners) -> None:
        asked, node = self.settings.login, self.node
        if any(each.mechanisms for each in (*listeners.kafka, *listeners.http)):
            await node.users.prepare()
        if asked.first_user and not node.image.users:
            await node.users.set_password(asked.first_user, asked.first_password)
            _log.info("the first user is made", user=asked.first_user)
        elif asked.first_user and asked.first_user not in node.image.users:
            _log.warning("the first user is not made: there are other users, who can make it", user=asked.first_user)

    async def _take_over(self, store: MetadataStore, info: BrokerInfo, data_dir: str) -> str:
        """Ends the registration of the last process. Returns the id of the directory that holds the metadata."""
        if not self.settings.cluster.alone:
            self.membership = self._membership(store, info, data_dir)
            await self.membership.prepare(stopped_cleanly=stopped_cleanly(data_dir))
            begin_run(data_dir, self.membership.identity)
            return ""  # It is in no data directory.
        on_disk = topics_on_disk(data_dir)
        if on_disk is not None:
            await check_knows(store, data_dir, on_disk)
        await take_over(store, info, wall_ms(), on_disk or ())
        begin_run(data_dir, identity := read_identity(data_dir))
        return identity.data_id

    def _membership(self, store: MetadataStore, info: BrokerInfo, data_dir: str) -> Membership:
        return Membership(
            store,
            info,
            self.settings.cluster,
            identity=read_identity(data_dir),
            boot_id=boot_id(),
            defaults=self.settings.topic,
            clock=since_boot_ms,
        )

    def _partitions(
        self, store: MetadataStore, image: ClusterImage, logs: LogManager, objects: Bucket
    ) -> PartitionTable:
        settings, membership = self.settings, self.membership
        node_id = NodeId(settings.cluster.node_id)
        if membership is None:
            return PartitionTable(image, logs, node_id, settings.topic)
        self.fetchers = Fetchers(
            image,
            replica_links(node_id, settings.replication, lambda: membership.registration_epoch, self._calls),
            settings.replication,
            clock=wall_ms,
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

    def _offloader(self, catalog: Catalog, bucket: StoreSettings, scratch: str, directory: str) -> Offloader:
        node = self.node
        settings = self.settings.archive
        return Offloader(
            node.partitions,
            node.image,
            node.store,
            catalog,
            bucket,
            settings,
            scratch,
            wall_ms,
            node.node_id,
            directory,
        )

    def _control(self, archive: Archive) -> Control:
        node = self.node
        return Control(
            node_id=node.node_id,
            image=node.image,
            metadata=node.store,
            admin=node.admin,
            partitions=node.partitions,
            logs=node.logs,
            producer_ids=node.producer_ids,
            catalog=archive.catalog,
            reader=archive.reader,
            offloader=self.offloader,
            clock=wall_ms,
            prices=self.settings.cost,
            garbage_check_ms=self.settings.archive.garbage_check_ms,
        )

    async def _join(self, membership: Membership, store: MetadataStore, image: ClusterImage) -> None:
        self.isr.start(self.node.partitions, self.kafka.replica_sessions.heard_ms)
        self._parts.push_async_callback(self.isr.stop)
        self._parts.push_async_callback(membership.leave)
        await membership.register(image)
        self.fetchers.start()
        settings = self.settings
        mender = Mender(self.node.partitions, image, self.node.node_id, partial(copy_batches, tls=self._calls))
        mender.start()
        self._parts.push_async_callback(mender.stop)
        controller = Controller(
            store,
            image,
            membership,
            settings.cluster,
            defaults=settings.topic,
            internal_replication_factors={
                OFFSETS_TOPIC: settings.groups.offsets_topic_replication_factor,
                TRANSACTIONS_TOPIC: settings.transactions.topic_replication_factor,
                AUDIT_TOPIC: settings.audit.replication_factor,
            },
            clock=wall_ms,
        )
        controller.start()
        self._parts.push_async_callback(controller.stop)

    async def _stop_servers(self) -> None:
        await asyncio.gather(self.kafka.stop(), self.http.stop())


async def _try_bucket(objects: Bucket) -> None:
    """Raises what stays wrong until a person changes it: credentials, permissions, a bucket that is not there."""
    try:
        found = await probe(objects.within(PROBE_MS))
    except StoreUnavailable as error:
        _log.warning("the bucket does not answer: records wait on the local disk until it does", error=str(error))
        return
    _log.info("the bucket works", bucket=objects.url)
    for warning in found.warnings:
        _log.warning("the bucket lacks something", bucket=objects.url, what=warning)


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

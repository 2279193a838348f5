"""One broker: the place where the parts are put together, in the order they need each other.

    sockets      bound, not listening: a port in use is found before anything is touched
    data lock    one broker per data directory
    store        cluster metadata (SQLite)
    take over    this node registers itself and takes every partition in a new leader epoch
    image        that metadata in memory
    logs         the data directory, recovered if the last stop was unclean
    partitions   what this node serves; follows the image
    archive      the bucket: what it holds of these partitions, and the offloader that adds to it
    groups       consumer groups, read back from `__consumer_offsets` while the rest goes on
    servers      Kafka and HTTP begin to listen: from here on clients are answered

Stopping goes the other way round: no new connections, requests in flight are answered, groups and partitions let go
of their waiters, logs are synced and marked as cleanly closed, metadata is closed, the lock is released. A start that
fails half-way stops what had started, in the same order.

Nothing outside this module knows all the parts. What handlers need of them is `gateway.node.Node`.
"""

import asyncio
import fcntl
import gc
import os
import signal
import socket
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import IO, Final
from urllib.parse import quote

import uvloop

from cold_tier.catalog import Catalog
from cold_tier.objects.open import StoreSettings, open_store
from cold_tier.reader import ColdReader
from gateway.coordinators.coordinator import GroupCoordinator
from gateway.fetch.reader import Archive, Reader
from gateway.http.server import HttpServer
from gateway.kafka.server import KafkaServer
from gateway.node import Node
from gateway.quotas import Quotas
from hot_tier.cluster.admin import TopicAdmin
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import BrokerInfo
from hot_tier.cluster.producer_ids import ProducerIds
from hot_tier.cluster.quotas import QuotaAdmin
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.cluster.standalone import take_over
from hot_tier.errors import SettingsError, StorageFailure
from hot_tier.ids import NodeId
from hot_tier.log.manager import LogManager
from hot_tier.replication.table import PartitionTable
from offloader.control import Control
from offloader.offloader import Offloader
from tierlog.logging import configure_logging
from tierlog.memory import keep_freed_memory
from tierlog.settings import Settings

LOCK_FILE: Final = "broker.lock"
METADATA_FILE: Final = "metadata.db"
BUCKET_FOLDER: Final = "bucket"
CACHE_FOLDER: Final = "cold-cache"
SCRATCH_FOLDER: Final = "scratch"


def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. What keeps the broker from starting is raised as a `TierlogError`."""
    configure_logging(settings.broker.log_level)
    keep_freed_memory()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    broker = Broker(settings)
    await broker.start()
    # What was made so far lives as long as the process and need not be walked by every collection.
    gc.collect()
    gc.freeze()
    try:
        print(f"tierlog ready kafka={broker.kafka_address} http={broker.http_address}", flush=True)
        await stopping.wait()
        # A second signal ends the process at once.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    finally:
        await broker.stop()


class Broker:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.node: Node
        self.kafka: KafkaServer
        self.http: HttpServer
        self.offloader: Offloader
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

    async def _start(self) -> None:
        settings, parts = self.settings, self._parts
        node_id = NodeId(settings.cluster.node_id)
        kafka_socket = _bind(settings.kafka.host, settings.kafka.port, "kafka")
        parts.callback(kafka_socket.close)
        http_socket = _bind(settings.http.host, settings.http.port, "http")
        parts.callback(http_socket.close)
        self.kafka_address, self.http_address = _address(kafka_socket), _address(http_socket)

        data_dir = os.path.abspath(settings.log.data_dir)
        parts.enter_context(_lock(data_dir))
        store = metadata_store(settings, data_dir)
        await store.open()
        parts.push_async_callback(store.close)
        await take_over(store, self._info(node_id, kafka_socket, http_socket), now_ms())
        image = ClusterImage(store)
        await image.open()
        parts.push_async_callback(image.close)

        logs = LogManager(data_dir, settings.log, now_ms)
        await logs.open()
        parts.push_async_callback(logs.close)
        partitions = PartitionTable(image, logs, node_id, settings.topic)
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
        bucket = _bucket(settings.store, data_dir)
        objects = open_store(bucket)
        parts.push_async_callback(objects.close)
        archive = Archive(Catalog(objects), ColdReader(objects, settings.cache, os.path.join(data_dir, CACHE_FOLDER)))
        parts.push_async_callback(archive.reader.close)
        scratch = os.path.join(data_dir, SCRATCH_FOLDER)
        self.offloader = Offloader(partitions, image, store, archive.catalog, bucket, settings.archive, scratch, now_ms)
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
        self.kafka = KafkaServer(self.node, settings.kafka)
        self.http = HttpServer(self.node, settings.http, self.kafka)
        parts.push_async_callback(self._stop_servers)
        await self.kafka.start(kafka_socket)
        await self.http.start(http_socket)
        parts.push_async_callback(self.offloader.close)
        self.offloader.start()

    async def _stop_servers(self) -> None:
        await asyncio.gather(self.kafka.stop(), self.http.stop())

    def _info(self, node_id: NodeId, kafka: socket.socket, http: socket.socket) -> BrokerInfo:
        asked = self.settings.kafka
        return BrokerInfo(
            id=node_id,
            host=asked.advertised_host or _reachable(asked.host),
            port=asked.advertised_port or kafka.getsockname()[1],
            rack=self.settings.cluster.rack or None,
            http_host=_reachable(self.settings.http.host),
            http_port=http.getsockname()[1],
        )


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _bucket(settings: StoreSettings, data_dir: str) -> StoreSettings:
    if settings.bucket:
        return settings
    return replace(settings, bucket=f"file://{quote(os.path.join(data_dir, BUCKET_FOLDER))}")


def metadata_store(settings: Settings, data_dir: str) -> SqliteStore:
    where = settings.cluster.metadata
    if where == "sqlite":
        return SqliteStore(os.path.join(data_dir, METADATA_FILE))
    if where.startswith("etcd://"):
        raise SettingsError(
            "clusters with etcd are not available yet",
            where="cluster.metadata",
            hint="leave it at sqlite: this version serves one node",
        )
    raise SettingsError(f"cluster.metadata cannot be {where!r}", hint="it is sqlite or etcd://HOST:PORT[,…]")


def _lock(data_dir: str) -> IO[str]:
    """Held while the file is open; the kernel releases it however the process ends."""
    try:
        os.makedirs(data_dir, exist_ok=True)
        file = open(os.path.join(data_dir, LOCK_FILE), "a+")  # noqa: SIM115 — the caller closes it
    except OSError as error:
        raise StorageFailure(
            f"cannot be used: {error.strerror}",
            where=data_dir,
            hint="name a directory that is writable with --data-dir",
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise StorageFailure(
            f"another broker (process {holder}) runs on this data directory",
            where=data_dir,
            hint="stop it, or give this one its own --data-dir",
        ) from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def _bind(host: str, port: int, section: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"cannot listen on {host}:{port}: {os.strerror(error.errno) if error.errno else error}",
            where=f"{section}.host, {section}.port",
            hint=f"stop what uses it, or choose another with --{section} HOST:PORT",
        ) from None
    listener.setblocking(False)
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _reachable(host: str) -> str:
    """An address to hand out: a wildcard is where this node listens, not where others find it."""
    return socket.gethostname() if host in ("0.0.0.0", "::", "") else host

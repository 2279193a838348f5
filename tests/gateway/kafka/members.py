"""Several brokers of one cluster inside the test process: real logs, sockets, links and in-sync sets, one store.

Who leads is written by the test, as a controller would write it; so is which brokers are registered.
"""

import os
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gateway.coordinators.settings import GroupSettings
from gateway.kafka.replica_client import replica_links
from gateway.kafka.server import KafkaServer
from gateway.kafka_settings import KafkaSettings
from gateway.listener import Listener
from gateway.node import Node
from hot_tier.cluster import model
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import BrokerInfo, PartitionState, Topic
from hot_tier.cluster.settings import ClusterSettings
from hot_tier.cluster.sqlite import SqliteStore
from hot_tier.cluster.store import Compare, Delete, Put
from hot_tier.ids import LeaderEpoch, NodeId, PartitionId, TopicPartition
from hot_tier.log.config import TopicConfig
from hot_tier.log.manager import LogManager
from hot_tier.log.settings import LogSettings
from hot_tier.record.batch import read_header
from hot_tier.record.records import NewRecord, encode_records
from hot_tier.replication.fetchers import Fetchers
from hot_tier.replication.followed_partition import FollowedPartition
from hot_tier.replication.isr import IsrKeeper
from hot_tier.replication.led_partition import LedPartition
from hot_tier.replication.settings import ReplicationSettings
from hot_tier.replication.table import PartitionTable
from tests.gateway.kafka.node import now_ms
from tests.gateway.kafka.wire import Wire, free_port
from tests.support.waiting import until
from tierlog.assembly import open_image, open_logs, open_node, settle_doubts

REPLICATION = ReplicationSettings(lag_time_max_ms=1_000)


@dataclass
class Member:
    node_id: NodeId
    node: Node
    server: KafkaServer
    table: PartitionTable
    image: ClusterImage
    fetchers: Fetchers
    isr: IsrKeeper
    logs: LogManager
    host: str
    port: int
    suspected: list[int]
    stack: AsyncExitStack

    def partition(self, index: int = 0, topic: str = "t") -> LedPartition:
        return self.table.get(topic, index)

    def replica(self, index: int = 0, topic: str = "t") -> FollowedPartition:
        found = self.table.readable(topic, index)
        assert isinstance(found, FollowedPartition)
        return found

    def log(self, index: int = 0, topic: str = "t") -> Any:
        found = self.table.find_local(topic, index)
        return None if found is None else found.log

    def append(self, *values: bytes, index: int = 0, acks: int = -1) -> int:
        """The end offset of one batch."""
        batch = encode_records([NewRecord(now_ms(), None, value) for value in values])
        return self.partition(index).append(batch, read_header(batch), now_ms(), acks).end_offset

    def connect(self) -> Wire:
        return Wire(self.host, self.port)

    async def bytes(self, index: int = 0) -> bytes:
        """All of its log."""
        log = self.log(index)
        data, offset = b"", log.local_log_start_offset
        while offset < log.log_end_offset:
            chunk = bytes(await log.read(log.locate(offset, 1 << 20, log.log_end_offset)))
            data += chunk
            position = 0
            while position < len(chunk):
                header = read_header(chunk, position)
                position += header.size
                offset = header.end_offset
        return data


@dataclass
class Members:
    directory: Path
    store: SqliteStore
    settings: ReplicationSettings
    flush: str
    by_node: dict[int, Member] = field(default_factory=dict)

    def __getitem__(self, node: int) -> Member:
        return self.by_node[node]

    async def start(self, node: int, rack: str | None = None) -> Member:
        node_id = NodeId(node)
        stack = AsyncExitStack()
        listener = free_port()
        host, port = listener.getsockname()
        directory = str(self.directory / f"node-{node}")
        image = await open_image(stack, self.store)
        logs = await open_logs(stack, directory, LogSettings(data_dir=directory, min_free_bytes=0), now_ms)
        await settle_doubts(self.store, image, logs, node_id)
        suspected: list[int] = []

        def epoch() -> int:
            broker = image.broker(node_id)
            return 0 if broker is None else broker.epoch

        fetchers = Fetchers(
            image, replica_links(node_id, self.settings, epoch), self.settings, clock=now_ms, suspect=suspected.append
        )
        stack.push_async_callback(fetchers.close)
        isr = IsrKeeper(self.store, image, self.settings)
        topic = TopicConfig(flush=self.flush)
        table = PartitionTable(image, logs, node_id, topic, fetchers=fetchers, isr_due=isr.due)
        kafka = KafkaSettings(port=port, drain_timeout_ms=200)
        made = open_node(
            stack,
            self.store,
            image,
            logs,
            table,
            node_id=node_id,
            topic=topic,
            cluster=ClusterSettings(),
            groups=GroupSettings(),
            kafka=kafka,
            clock=now_ms,
        )
        server = KafkaServer(made, kafka)
        await server.start([Listener("kafka", listener)])
        stack.push_async_callback(server.stop)
        isr.start(table, server.replica_sessions.heard_ms)
        stack.push_async_callback(isr.stop)
        member = Member(node_id, made, server, table, image, fetchers, isr, logs, host, port, suspected, stack)
        self.by_node[node] = member
        await self.write(
            Put(model.broker_key(node_id), model.encode(BrokerInfo(node_id, simple_endpoints(host, port), rack)))
        )
        fetchers.start()
        return member

    async def stop(self, node: int) -> None:
        """Its process ends: the others see it go."""
        member = self.by_node.pop(node)
        await member.stack.aclose()
        if self.by_node:
            await self.write(Delete(model.broker_key(NodeId(node))))

    async def write(self, *writes: Put | Delete) -> None:
        revision = await self.store.transact([], writes)
        assert revision is not None
        await self._shown(revision)

    async def _shown(self, revision: int) -> None:
        for member in self.by_node.values():
            await member.image.reached(revision)

    async def create(self, *replicas: int, partitions: int = 1, topic: str = "t", **config: str) -> Topic:
        """A topic whose partitions are all led by the first of `replicas`."""
        made = Topic(topic, model.new_topic_id(), partitions, len(replicas), config, now_ms())
        state = model.initial_state(map(NodeId, replicas))
        puts = [Put(model.partition_key(made.id, index), model.encode(state)) for index in range(partitions)]
        await self.write(*puts)
        await self.write(Put(model.topic_key(topic), model.encode(made)))
        return made

    def state(self, index: int = 0, topic: str = "t") -> PartitionState:
        image = next(iter(self.by_node.values())).image
        return image.partition_state(TopicPartition(topic, PartitionId(index)))

    async def elect(
        self, leader: int, isr: tuple[int, ...], index: int = 0, topic: str = "t", **changes: Any
    ) -> PartitionState:
        """As a controller does it: by compare-and-swap, in a new epoch."""
        while True:
            image = next(iter(self.by_node.values())).image
            state = self.state(index, topic)
            key = model.partition_key(image.topic(topic).id, index)
            successor = replace(
                state,
                leader=NodeId(leader),
                leader_epoch=LeaderEpoch(state.leader_epoch + 1),
                isr=tuple(map(NodeId, isr)),
                **changes,
            )
            revision = await self.store.transact([Compare(key, state.version)], [Put(key, model.encode(successor))])
            if revision is not None:
                await self._shown(revision)
                return successor
            await image.reached(state.version + 1)

    async def copied(self, end: int, index: int = 0, topic: str = "t") -> None:
        """Every broker's log of the partition goes as far."""
        logs = [member.log(index, topic) for member in self.by_node.values()]
        await until(lambda: all(log is None or log.log_end_offset >= end for log in logs))


@asynccontextmanager
async def members(directory: Path, *nodes: int, flush: str = "commit", settings: ReplicationSettings = REPLICATION):
    os.makedirs(directory, exist_ok=True)
    store = SqliteStore(str(directory / "metadata.db"))
    await store.open()
    cluster = Members(directory, store, settings, flush)
    try:
        for node in nodes:
            await cluster.start(node)
        yield cluster
    finally:
        for node in list(cluster.by_node):
            await cluster.by_node.pop(node).stack.aclose()
        await store.close()


def cut_off(cluster: Members, lone: int) -> Callable[[], None]:
    """Cuts the links between a broker and the others, both ways. All still reach the store. Returns what heals it."""
    whole = [(member.fetchers, member.fetchers.connect) for member in cluster.by_node.values()]

    def unless_cut(member):
        connect = member.fetchers.connect

        async def connect_unless_cut(broker, name, listener):
            if lone in (broker.id, member.node_id):
                raise TimeoutError("cut")
            return await connect(broker, name, listener)

        return connect_unless_cut

    for member in cluster.by_node.values():
        member.fetchers.connect = unless_cut(member)
        for (leader, _), fetcher in member.fetchers._fetchers.items():
            if lone in (leader, member.node_id):
                fetcher.lost(TimeoutError("cut"))

    def heal() -> None:
        for fetchers, connect in whole:
            fetchers.connect = connect

    return heal

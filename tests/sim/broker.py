"""One broker process: how it joins, follows the image, elects when it is the controller, and leaves.

The image, the roles of its partitions and the in-sync sets are kept by production code (`ClusterImage`,
`PartitionTable`, `IsrKeeper`), on an event loop in virtual time. The order of the other steps is that of
`hot_tier.cluster.membership`, whose decisions come by way of `rules`. A broker that restarts is a new `Broker` on the
same disk.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from hot_tier.cluster.elections import Kept, prefer
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.image import ClusterImage, ImageChange
from hot_tier.cluster.model import NO_NODE, BrokerInfo, NodeRecord, PartitionState, broker_key, node_key
from hot_tier.cluster.store import ABSENT
from hot_tier.errors import MetadataUnavailable
from hot_tier.ids import NodeId, Offset, TopicId
from hot_tier.log.config import TopicConfig
from hot_tier.replication.followed_partition import FollowedPartition
from hot_tier.replication.isr import IsrKeeper
from hot_tier.replication.local_partition import LocalPartition
from hot_tier.replication.settings import ReplicationSettings
from hot_tier.replication.table import PartitionTable
from tests.sim import store as keys
from tests.sim.archive import BrokerArchive
from tests.sim.checker import Checker
from tests.sim.disk import Disk, Log
from tests.sim.loop import Loop
from tests.sim.metadata import Metadata
from tests.sim.network import Network, Reply
from tests.sim.roles import FETCH_WAIT_MS, NOT_LEADER, Consume, Failed, Fetch, Fetching, Leading, Produce, Served
from tests.sim.rules import Rules
from tests.sim.store import CONTROLLER, STORE, TOPIC, Store, Transaction
from tests.sim.world import Process, Resume, Step, Work, World

LEASE_TTL_MS: Final = 1_000.0
STORE_TIMEOUT_MS: Final = 400.0


@dataclass(frozen=True)
class Settings:
    flush_before_ack: bool = True
    min_in_sync: int = 2
    lag_max_ms: int = 700
    archives: bool = False


class Logs:
    """In the place of `hot_tier.log.manager.LogManager`: opens the logs of a disk, and syncs them."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._open: dict[int, Log] = {}
        self._syncing: set[Log] = set()

    def topics_on_disk(self) -> list[Any]:
        return []

    def log(self, topic: str, topic_id: TopicId, partition: int, config: TopicConfig) -> Log:
        log = self._broker.disk.log(partition)
        if self._open.get(partition) is not log:
            log.open(config, partial(self._request_flush, log))
            log.when_dropped = partial(self._broker.dropped, partition)
            self._open[partition] = log
        return log

    def delete_partition(self, topic: str, topic_id: TopicId, partition: int) -> None:
        self._broker.disk.logs.pop(partition, None)
        self._broker.world.listener("drops", self._broker.node)

    def _request_flush(self, log: Log) -> None:
        if log not in self._syncing:
            self._syncing.add(log)
            broker = self._broker
            took_ms = broker.disk.sync_ms * (0.5 + broker.world.random.random())
            broker.after(took_ms, self._flushed, log, log.log_end_offset, log.cuts)

    def _flushed(self, log: Log, end: Any, cuts: int) -> None:
        self._syncing.discard(log)
        log.settle_flush(end, cuts)
        if log.flushed_offset < log.log_end_offset and self._broker.settings.flush_before_ack:
            self._request_flush(log)


class Broker(Process):
    def __init__(
        self,
        world: World,
        network: Network,
        store: Store,
        disk: Disk,
        node: NodeId,
        settings: Settings,
        rules: Rules,
        checker: Checker,
        incarnation: int,
    ) -> None:
        super().__init__(world, node)
        self.node = node
        self.network = network
        self.store = store
        self.disk = disk
        self.settings = settings
        self.rules = rules
        self.checker = checker
        self.incarnation = incarnation
        self.when_dropped: Callable[[NodeId, int, int, int], None] = lambda node, start, end, log_start: None
        self.loop = Loop(self)
        self.metadata = Metadata(self)
        self.image = ClusterImage(self.metadata)  # type: ignore[arg-type]
        replication = ReplicationSettings(lag_time_max_ms=settings.lag_max_ms, fetch_wait_max_ms=FETCH_WAIT_MS)
        self.keeper = IsrKeeper(self.metadata, self.image, replication)  # type: ignore[arg-type]
        self.table = PartitionTable(
            self.image,
            Logs(self),  # type: ignore[arg-type]
            node,
            TopicConfig(),
            fetchers=Fetching(self),  # type: ignore[arg-type]
            isr_due=self.keeper.due,
        )
        self.archive = BrokerArchive(self) if settings.archives else None
        self.heard_ms: dict[NodeId, int] = {}
        """When each follower last asked for something."""
        self.registration_epoch = ABSENT
        self.lease = 0
        self.stopping = False
        network.add(self)
        self.spawn(self._join())

    def call(self, target: object, method: str, request: Any, timeout_ms: float = STORE_TIMEOUT_MS) -> Step:
        return self.network.call(self, target, method, request, timeout_ms)

    def do(self, action: Callable[..., None], *arguments: Any) -> None:
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self.loop)
        try:
            super().do(action, *arguments)
        finally:
            asyncio._set_running_loop(before)

    @property
    def live(self) -> dict[NodeId, int]:
        return {info.id: info.epoch for info in self.image.brokers()}

    @property
    def draining(self) -> set[NodeId]:
        return {info.id for info in self.image.brokers() if info.draining}

    @property
    def states(self) -> list[PartitionState]:
        """Of all partitions, as this broker knows them."""
        topic = self.image.find_topic(TOPIC)
        return [] if topic is None else list(self.image.partition_states(topic))

    def role(self, partition: int) -> LocalPartition | None:
        return self.table.find_local(TOPIC, partition)

    def leading(self, partition: int) -> Leading | None:
        role = self.table.find(TOPIC, partition)
        return role if isinstance(role, Leading) else None

    # Joining

    def _join(self) -> Work:
        while True:
            answer = yield self.call(STORE, "range", None)
            previous = answer and answer.get(broker_key(self.node))
            if answer is not None and (previous is None or not self.rules.ends_old_registration):
                break
            if previous is not None:
                yield self.call(STORE, "revoke", previous.lease)
        settled: set[str] = set()
        while True:
            answer = yield self.call(STORE, "range", None)
            if answer is None:
                continue
            values = answer
            left = self._restarted(values, settled)
            if not left:
                break
            for key, state in left:
                written = yield self.call(STORE, "transact", Transaction([(key, state.version)], key, state))
                if isinstance(written, int):
                    settled.add(key)
        yield from self._register()
        self.disk.tail_doubtful = False
        self.loop.create_task(self._serve())

    async def _serve(self) -> None:
        while True:
            try:
                await self.image.open()
                break
            except MetadataUnavailable:
                pass
        self.image.subscribe(self._image_changed)
        self.table.open()
        self.keeper.start(self.table, self.heard_ms)
        self.spawn(self._keep_alive())
        self.spawn(self._control())
        if self.archive is not None:
            self.archive.offloader.start()

    def _restarted(self, values: dict[str, Any], settled: set[str]) -> list[tuple[str, PartitionState]]:
        same = values.get(node_key(self.node)) == NodeRecord(str(self.disk.data_id))
        doubtful = self.disk.tail_doubtful and not self.settings.flush_before_ack
        kept = Kept.NOTHING if not same else Kept.MAYBE_NOT_TAIL if doubtful else Kept.ALL
        live = [info.id for info in values.values() if isinstance(info, BrokerInfo)]
        return [
            (key, changed)
            for key, state in values.items()
            if isinstance(state, PartitionState) and key not in settled
            if (changed := self.rules.restart(state, self.node, live, kept)) is not None
        ]

    def _register(self) -> Work:
        key = broker_key(self.node)
        while True:
            lease = yield self.call(STORE, "grant", LEASE_TTL_MS)
            if lease is None:
                continue
            info = BrokerInfo(self.node, simple_endpoints("", 0), lease=lease, draining=self.stopping)
            known = [(node_key(self.node), NodeRecord(str(self.disk.data_id)))]
            yield self.call(STORE, "transact", Transaction([(key, ABSENT)], key, info, lease, known))
            while (answer := (yield self.call(STORE, "range", None))) is None:
                pass
            registered = answer.get(key)
            if registered is not None and registered.lease == lease:
                self.lease, self.registration_epoch = lease, registered.epoch
                self.world.listener("registers", self.node)
                return
            if registered is not None:
                yield self.call(STORE, "revoke", registered.lease)

    def _keep_alive(self) -> Work:
        while True:
            yield self.sleep(LEASE_TTL_MS / 3)
            renewed = yield self.call(STORE, "keep_alive", self.lease)
            if renewed is False and not self.stopping:
                yield from self._register()

    # The image, and what follows from it

    def _image_changed(self, change: ImageChange) -> None:
        shown = self.image.broker(self.node)
        if change.brokers and shown is not None and shown.lease == self.lease:
            self.registration_epoch = shown.epoch

    # The controller

    def _control(self) -> Work:
        while True:
            yield self.sleep(60 + 80 * self.world.random.random())
            if self.image.controller == NO_NODE:
                yield self.call(
                    STORE, "transact", Transaction([(CONTROLLER, ABSENT)], CONTROLLER, {"node": self.node}, self.lease)
                )
            elif self.image.controller == self.node:
                for partition, state in enumerate(self.states):
                    changed = self._decided(state)
                    if changed is not None:
                        key = keys.partition_key(partition)
                        yield self.call(STORE, "transact", Transaction([(key, state.version)], key, changed))

    def _decided(self, state: PartitionState) -> PartitionState | None:
        live, draining = self.live, self.draining
        decided = self.rules.elect(state, live, draining) or self.rules.advance(state, live)
        if decided is None and self.world.random.random() < 0.03:
            decided = prefer(state, [node for node in live if node not in draining])
        return decided

    # Leaving

    def leave(self) -> Work:
        """Clean: leaderships handed over as far as that goes in time, everything synced, the lease given back."""
        self.stopping = True
        key = broker_key(self.node)
        shown = self.image.broker(self.node)
        if shown is not None:
            marked = replace(shown, draining=True)
            yield self.call(STORE, "transact", Transaction([(key, shown.epoch)], key, marked, shown.lease))
        for _ in range(3):
            for partition, state in enumerate(self.states):
                changed = self.rules.resign(state, self.node, self.live, self.draining)
                if changed is not None:
                    where = keys.partition_key(partition)
                    yield self.call(STORE, "transact", Transaction([(where, state.version)], where, changed))
            yield self.sleep(20)
        yield self.call(STORE, "revoke", self.lease)
        for log in self.disk.logs.values():
            log.flushed_offset = log.log_end_offset
        self.alive = False
        self.world.note("broker", self.node, "stopped")

    # Requests

    def produce(self, request: Produce, reply: Reply) -> None:
        leading = self.leading(request.partition)
        if leading is not None:
            leading.produce(request, reply)
        else:
            reply(Failed("not leader", definite=True))

    def fetch(self, request: Fetch, reply: Reply) -> None:
        if self.live.get(request.node) == request.broker_epoch:
            self.heard_ms[request.node] = self.clock_ms()
        leading = self.leading(request.partition)
        if leading is not None:
            leading.fetch(request, reply)
        else:
            reply(NOT_LEADER)

    def consume(self, request: Consume, reply: Reply) -> None:
        role = self.role(request.partition)
        if role is None:
            return
        log: Any = role.log
        if request.offset < log.log_start_offset:
            reply(Served(log.log_start_offset, [], skipped=True))
        elif self.archive is not None and request.offset < log.local_log_start_offset:
            self.loop.create_task(self._consume_archived(self.archive, request, reply))
        elif request.offset < role.high_watermark:
            reply(Served(request.offset, log.read(request.offset, min(role.high_watermark, request.offset + 20))))
        else:
            reply(Served(request.offset, []))

    async def _consume_archived(self, archive: BrokerArchive, request: Consume, reply: Reply) -> None:
        records = await archive.read(request.partition, Offset(request.offset))
        if records:
            self.checker.cold_reads += 1
            reply(Served(request.offset, records))

    # The archive

    def dropped(self, partition: int, start: int, end: int, log_start: int) -> None:
        self.world.note("broker", self.node, "drops", start, "to", end, "of", partition)
        self.world.listener("drops locally", self.node)
        self.when_dropped(self.node, start, end, log_start)

    def begin_at_archive(self, replica: FollowedPartition) -> Step:
        assert self.archive is not None
        archive = self.archive

        def start(resume: Resume) -> None:
            self.loop.create_task(archive.begin_at_archive(replica)).add_done_callback(lambda _: resume(None))

        return start

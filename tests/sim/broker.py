"""One broker process: how it joins, follows the image, elects when it is the controller, and leaves.

The order of steps is that of `hot_tier.cluster.membership` and `hot_tier.replication`; the decisions are theirs too, by
way of `rules`. A broker that restarts is a new `Broker` on the same disk.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Final

from hot_tier.cluster.elections import Kept, prefer
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.model import NO_NODE, BrokerInfo, PartitionState
from hot_tier.cluster.store import ABSENT
from hot_tier.ids import NodeId, Offset
from hot_tier.replication.leadership import Silence
from tests.sim import store as keys
from tests.sim.checker import Checker
from tests.sim.disk import Disk, Log
from tests.sim.network import Network, Reply
from tests.sim.roles import Consume, Failed, Fetch, Following, Leading, Produce, Served
from tests.sim.rules import Rules
from tests.sim.store import CONTROLLER, STORE, Store, Transaction
from tests.sim.world import Process, Resume, Step, Work, World

LEASE_TTL_MS: Final = 1_000.0
STORE_TIMEOUT_MS: Final = 400.0


@dataclass
class Image:
    partitions: dict[int, PartitionState] = field(default_factory=dict)
    brokers: dict[NodeId, BrokerInfo] = field(default_factory=dict)
    controller: NodeId | None = None

    def put(self, key: str, value: Any) -> None:
        kind, _, number = key.partition(" ")
        match kind:
            case "partition":
                self.partitions[int(number)] = value
            case "broker" if value is None:
                self.brokers.pop(NodeId(int(number)), None)
            case "broker":
                self.brokers[NodeId(int(number))] = value
            case "controller":
                self.controller = value

    @property
    def live(self) -> dict[NodeId, int]:
        return {node: info.epoch for node, info in self.brokers.items()}

    @property
    def draining(self) -> set[NodeId]:
        return {node for node, info in self.brokers.items() if info.draining}


@dataclass(frozen=True)
class Settings:
    flush_before_ack: bool = True
    min_in_sync: int = 2
    lag_max_ms: int = 700


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
        self.image = Image()
        self.roles: dict[int, Leading | Following] = {}
        self.high_watermarks: dict[int, Offset] = {}
        """As this process knows them, over changes of role."""
        self.heard_ms: dict[NodeId, int] = {}
        """When each follower last asked for something."""
        self.registration_epoch = ABSENT
        self.lease = 0
        self.stopping = False
        network.add(self)
        self.spawn(self._join())

    def call(self, target: object, method: str, request: Any, timeout_ms: float = STORE_TIMEOUT_MS) -> Step:
        return self.network.call(self, target, method, request, timeout_ms)

    def log(self, partition: int) -> Log:
        return self.disk.log(partition)

    # Joining

    def _join(self) -> Work:
        while True:
            answer = yield self.call(STORE, "range", None)
            previous = answer and answer[0].get(keys.broker_key(self.node))
            if answer is not None and (previous is None or not self.rules.ends_old_registration):
                break
            if previous is not None:
                yield self.call(STORE, "revoke", previous.lease)
        settled: set[str] = set()
        while True:
            answer = yield self.call(STORE, "range", None)
            if answer is None:
                continue
            values, _ = answer
            left = self._restarted(values, settled)
            if not left:
                break
            for key, state in left:
                written = yield self.call(STORE, "transact", Transaction([(key, state.version)], key, state))
                if isinstance(written, int):
                    settled.add(key)
        yield from self._register()
        self.disk.tail_doubtful = False
        while (answer := (yield self.call(STORE, "range", None))) is None:
            pass
        values, revision = answer
        for key, value in values.items():
            self.image.put(key, value)
        self.store.watch(self, revision, self._image_changed)
        self.spawn(self._keep_alive())
        self.spawn(self._control())
        for partition in self.image.partitions:
            self._take_role(partition)

    def _restarted(self, values: dict[str, Any], settled: set[str]) -> list[tuple[str, PartitionState]]:
        same = values.get(keys.node_key(self.node)) == self.disk.data_id
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
        key = keys.broker_key(self.node)
        while True:
            lease = yield self.call(STORE, "grant", LEASE_TTL_MS)
            if lease is None:
                continue
            info = BrokerInfo(self.node, simple_endpoints("", 0), lease=lease, draining=self.stopping)
            known = (keys.node_key(self.node), self.disk.data_id)
            yield self.call(STORE, "transact", Transaction([(key, ABSENT)], key, info, lease, known))
            while (answer := (yield self.call(STORE, "range", None))) is None:
                pass
            registered = answer[0].get(key)
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

    def _image_changed(self, events: list[tuple[str, Any]]) -> None:
        for key, value in events:
            self.image.put(key, value)
            kind, _, number = key.partition(" ")
            if kind == "partition":
                self._take_role(int(number))
            elif kind == "broker" and int(number) == self.node and value is not None and value.lease == self.lease:
                self.registration_epoch = value.epoch

    def _take_role(self, partition: int) -> None:
        state = self.image.partitions[partition]
        role = self.roles.get(partition)
        same = role is not None and (role.leader_epoch, role.led_by) == (state.leader_epoch, state.leader)
        if role is not None and same and self.node in state.replicas:
            role.confirm(state)
            return
        if role is not None:
            del self.roles[partition]
            role.close()
        if self.node not in state.replicas:
            self.disk.logs.pop(partition, None)
            self.high_watermarks.pop(partition, None)
            self.world.listener("drops", self.node)
        elif state.leader == self.node:
            self.roles[partition] = role = Leading(self, partition, state)
            role.start()
        elif state.leader != NO_NODE:
            self.roles[partition] = role = Following(self, partition, state)
            role.start()

    def silence(self, silent_ms: int) -> Silence:
        since_ms = self.clock_ms() - silent_ms
        return Silence(since_ms, {node for node in self.image.live if self.heard_ms.get(node, 0) < since_ms})

    # The controller

    def _control(self) -> Work:
        while True:
            yield self.sleep(60 + 80 * self.world.random.random())
            if self.image.controller is None:
                yield self.call(
                    STORE, "transact", Transaction([(CONTROLLER, ABSENT)], CONTROLLER, self.node, self.lease)
                )
            elif self.image.controller == self.node:
                for partition, state in tuple(self.image.partitions.items()):
                    changed = self._decided(state)
                    if changed is not None:
                        key = keys.partition_key(partition)
                        yield self.call(STORE, "transact", Transaction([(key, state.version)], key, changed))

    def _decided(self, state: PartitionState) -> PartitionState | None:
        live, draining = self.image.live, self.image.draining
        decided = self.rules.elect(state, live, draining) or self.rules.advance(state, live)
        if decided is None and self.world.random.random() < 0.03:
            decided = prefer(state, [node for node in live if node not in draining])
        return decided

    # Leaving

    def leave(self) -> Work:
        """Clean: leaderships handed over as far as that goes in time, everything synced, the lease given back."""
        self.stopping = True
        key = keys.broker_key(self.node)
        shown = self.image.brokers.get(self.node)
        if shown is not None:
            marked = replace(shown, draining=True)
            yield self.call(STORE, "transact", Transaction([(key, shown.epoch)], key, marked, shown.lease))
        for _ in range(3):
            for partition, state in tuple(self.image.partitions.items()):
                changed = self.rules.resign(state, self.node, self.image.live, self.image.draining)
                if changed is not None:
                    where = keys.partition_key(partition)
                    yield self.call(STORE, "transact", Transaction([(where, state.version)], where, changed))
            yield self.sleep(20)
        yield self.call(STORE, "revoke", self.lease)
        for log in self.disk.logs.values():
            log.synced = log.log_end_offset
        self.alive = False
        self.world.note("broker", self.node, "stopped")

    # Requests

    def produce(self, request: Produce, reply: Reply) -> None:
        role = self.roles.get(request.partition)
        if isinstance(role, Leading):
            role.produce(request, reply)
        else:
            reply(Failed("not leader", definite=True))

    def fetch(self, request: Fetch, reply: Reply) -> None:
        if self.image.live.get(request.node) == request.broker_epoch:
            self.heard_ms[request.node] = self.clock_ms()
        role = self.roles.get(request.partition)
        if isinstance(role, Leading):
            role.fetch(request, reply)
        else:
            reply(Following.not_leader())

    def consume(self, request: Consume, reply: Reply) -> None:
        role = self.roles.get(request.partition)
        if role is None:
            return
        log = self.log(request.partition)
        end = self.high_watermarks.get(request.partition, log.log_start_offset)
        if request.offset < log.log_start_offset:
            reply(Served(log.log_start_offset, [], skipped=True))
        elif request.offset < end:
            reply(Served(request.offset, log.read(request.offset, min(end, request.offset + 20))))
        else:
            reply(Served(request.offset, []))

    # The disk

    def sync(self, log: Log, then: Resume) -> None:
        """Everything written until now is durable when `then` is called."""
        end, cuts = log.log_end_offset, log.cuts

        def settle(_: Any) -> None:
            if log.cuts == cuts:
                log.synced = max(log.synced, end)
            then(None)

        self.after(self.disk.sync_ms * (0.5 + self.world.random.random()), settle, None)

    def synced(self, log: Log) -> Step:
        def start(resume: Resume) -> None:
            if self.settings.flush_before_ack and log.synced < log.log_end_offset:
                self.sync(log, resume)
            else:
                resume(None)

        return start

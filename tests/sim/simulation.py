"""One run: a cluster, its clients and its faults from a seed; then all heals, and the checker has the last word."""

import random
from collections.abc import Mapping
from typing import Any, Final

from hot_tier.cluster.elections import begin_reassignment, cancel_reassignment
from hot_tier.cluster.model import (
    CLUSTER_KEY,
    BrokerInfo,
    NodeRecord,
    PartitionState,
    Topic,
    initial_state,
    node_key,
    parse_partition_key,
    topic_key,
)
from hot_tier.ids import NodeId, Offset
from tests.sim import store as keys
from tests.sim.broker import Broker, Settings
from tests.sim.checker import Checker, Violation
from tests.sim.clients import Consumer, PlainProducer, Producer
from tests.sim.disk import Disk
from tests.sim.faults import (
    Ambush,
    CancelReassignment,
    Cut,
    Fault,
    Kill,
    Pause,
    PowerLoss,
    Reassign,
    Skew,
    SlowDisk,
    Stop,
    StoreOutage,
    Swing,
    Trim,
    Weather,
    Wipe,
    plan,
)
from tests.sim.loop import Loop
from tests.sim.network import Network
from tests.sim.report import Report
from tests.sim.rules import RULES, Rules
from tests.sim.store import STORE, TOPIC, TOPIC_ID, Store, Transaction
from tests.sim.world import World

FAULTS_END_MS: Final = 7_000.0
HEALING_MS: Final = 20_000.0
LATEST_MESSAGE_MS: Final = 3_100.0
"""After this long nothing that was sent is still under way."""


class Simulation:
    archives = False

    def __init__(self, seed: int, rules: Rules = RULES, *, tracing: bool = False) -> None:
        self.seed = seed
        chance = random.Random(f"shape of {seed}")
        self.world = World(seed)
        self.world.tracing = tracing
        self.network = Network(self.world)
        self.store = Store(self.world, self.network)
        self.checker = Checker(self.world)
        self.store.watchers += [self.checker.stored, self._replicas_changed]
        self.rules = rules
        self.nodes = [NodeId(node) for node in range(chance.choice([3, 3, 4, 5]))]
        self.replication_factor = chance.choice([2, 3, 3])
        self.settings = Settings(
            flush_before_ack=chance.random() < 0.8, min_in_sync=chance.choice([1, 2, 2]), archives=self.archives
        )
        self.partitions = range(1 if self.archives else chance.choice([1, 2]))
        self.disks = {node: Disk(100 * (node + 1), chance.choice([1.0, 1.0, 10.0, 40.0])) for node in self.nodes}
        self.brokers: dict[NodeId, Broker] = {}
        self.rates = dict.fromkeys(self.nodes, 1.0)
        self.incarnations = 0
        self._loops: list[Loop] = []
        self.lost: set[NodeId] = set()
        """Brokers whose disk has lost something and who have not said so yet."""
        self.healed = False
        self.ambushes: list[Ambush] = []
        self.proposed_ms = 0.0
        self.swings: dict[int, Swing] = {}
        self.world.listener = self._happens
        self._prepare()
        self._make_topic()
        for partition in self.partitions:
            placed = chance.sample(self.nodes, self.replication_factor)
            self.store.write(Transaction([], keys.partition_key(partition), initial_state(placed)))
        for node in self.nodes:
            self.store.write(Transaction([], node_key(node), NodeRecord(str(self.disks[node].data_id))))
            self.start(node)
        self.faults = self._plan_faults(chance)
        self.producers: list[Producer | PlainProducer] = []
        self.consumers: list[Consumer] = []
        self.world.after(300, self._start_clients)
        for at_ms, fault in self.faults:
            self.world.after(at_ms, self.apply, fault)

    def _prepare(self) -> None:
        """What is there before the brokers start."""

    def _plan_faults(self, chance: random.Random) -> list[tuple[float, Any]]:
        return list(plan(chance, self.nodes, len(self.partitions), self.replication_factor, FAULTS_END_MS))

    def topic_config(self) -> dict[str, str]:
        return {
            "flush": "commit" if self.settings.flush_before_ack else "os",
            "min.insync.replicas": str(self.settings.min_in_sync),
        }

    def _make_topic(self) -> None:
        config = self.topic_config()
        self.store.write(Transaction([], CLUSTER_KEY, {"id": "sim"}))
        topic = Topic(TOPIC, TOPIC_ID, len(self.partitions), self.replication_factor, config, 0)
        self.store.write(Transaction([], topic_key(TOPIC), topic))

    def _start_clients(self) -> None:
        shared = (self.world, self.network, self._running, self.checker)
        for partition in self.partitions:
            self.producers += [
                Producer(*shared, partition, 10 * partition + 1),
                Producer(*shared, partition, 10 * partition + 2),
                PlainProducer(*shared, partition, 10 * partition + 3),
            ]
            for number in range(2):
                self.start_consumer(partition, 2 * partition + number)

    def start_consumer(self, partition: int, number: int) -> None:
        shared = (self.world, self.network, self._running, self.checker)
        self.consumers.append(Consumer(*shared, partition, number))

    def _running(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if broker.alive]

    def start(self, node: NodeId) -> None:
        running = self.brokers.get(node)
        if running is not None and running.alive:
            return
        self.incarnations += 1
        broker = Broker(
            self.world,
            self.network,
            self.store,
            self.disks[node],
            node,
            self.settings,
            self.rules,
            self.checker,
            self.incarnations,
        )
        broker.clock_rate = self.rates[node]
        self.brokers[node] = broker
        self._loops.append(broker.loop)
        self._started(broker)
        self.world.note("broker", node, "starts")

    def _started(self, broker: Broker) -> None:
        """It begins to run after this."""

    def kill(self, node: NodeId) -> bool:
        broker = self.brokers[node]
        was_alive, broker.alive = broker.alive, False
        return was_alive

    # Faults

    def _replicas_changed(self, key: str, before: object, after: object) -> None:
        if not isinstance(before, PartitionState) or not isinstance(after, PartitionState):
            return
        self._check_in_sync()
        gone = [node for node in before.replicas if node not in after.replicas]
        swing = self.swings.pop(parse_partition_key(key)[1], None) if gone else None
        if swing is not None:
            deaf = Cut(((STORE, gone[0]),), swing.deaf_ms)
            self.apply(deaf)
            self.world.after(1, self.apply, Reassign(swing.partition, before.replicas))
        if before.leader == after.leader >= 0:
            change = len(after.isr) - len(before.isr)
            if change:
                self.world.listener("grew" if change > 0 else "shrank", after.leader)

    def apply(self, fault: Fault) -> None:
        if self._would_be_too_much(fault):
            return
        self.world.note(fault)
        after = self.world.after
        match fault:
            case Kill(node, down_ms):
                if self.kill(node):
                    after(down_ms, self.start, node)
            case PowerLoss(nodes, down_ms):
                for node in nodes:
                    if self.kill(node):
                        self.disks[node].lose_power(self.world.random)
                        if not self.settings.flush_before_ack:
                            self.lost.add(node)
                        after(down_ms * (0.5 + self.world.random.random()), self.start, node)
            case Wipe(node, down_ms):
                if self.kill(node):
                    after(down_ms, self._wipe, node)
            case Stop(node, down_ms):
                broker = self.brokers[node]
                if broker.alive and not broker.stopping:
                    broker.spawn(broker.leave())
                    after(1_500 + down_ms, self._start_again, broker)
            case Pause(node, for_ms):
                broker = self.brokers[node]
                broker.paused = True
                after(for_ms, broker.go_on)
            case Cut(links, for_ms):
                self.network.cut.update(links)
                after(for_ms, self.network.cut.difference_update, links)
            case StoreOutage(for_ms):
                self.store.down = True
                after(for_ms, self.store.come_back)
            case Weather(lost, late, for_ms):
                self.network.lost, self.network.late = lost, late
                after(for_ms, self._clear_sky)
            case SlowDisk(node, sync_ms, for_ms):
                self.disks[node].sync_ms = sync_ms
                after(for_ms, self.disks[node].recover)
            case Skew(node, rate):
                self.rates[node] = rate
            case Reassign(partition, replicas):
                self._change(partition, begin_reassignment(self.state(partition), replicas))
            case Swing(partition):
                self.swings[partition] = fault
            case CancelReassignment(partition):
                self._change(partition, cancel_reassignment(self.state(partition), self._live()))
            case Trim(partition, share):
                self._trim(partition, share)
            case Ambush():
                self.ambushes.append(fault)

    def _happens(self, event: str, name: object) -> None:
        if event in ("commits", "cuts", "drops"):
            self._check_in_sync()
        elif event == "proposes":
            self.proposed_ms = self.world.now_ms
        for ambush in self.ambushes:
            if ambush.event == event:
                self.ambushes.remove(ambush)
                self.world.after(
                    self.world.random.choice([0, 0, 1, 3]), self.apply, self._struck(ambush, NodeId(int(str(name))))
                )
                return

    def _check_in_sync(self) -> None:
        self.lost -= {node for node in self.lost if self._said_so(node)}
        for partition in self.partitions:
            for node in self.state(partition).isr:
                if node not in self.lost:
                    log = self.disks[node].logs.get(partition)
                    written = 0 if log is None else log.log_end_offset
                    synced = 0 if log is None else log.flushed_offset
                    end = synced if self.settings.flush_before_ack else written
                    self.checker.in_sync(node, partition, log, end)

    def _struck(self, ambush: Ambush, node: NodeId) -> Fault:
        if ambush.strike is PowerLoss:
            return PowerLoss(tuple(self.nodes) if ambush.everyone else (node,), ambush.for_ms)
        if ambush.strike is Kill:
            return Kill(node, ambush.for_ms)
        if ambush.strike is Pause:
            return Pause(node, ambush.for_ms)
        if ambush.everyone:
            return Cut(((STORE, node),), 2 * ambush.for_ms)
        others = [STORE, *(other for other in self.nodes if other != node)]
        links = [(node, other) for other in others] + [(other, node) for other in others]
        return Cut(tuple(links), 2 * ambush.for_ms)

    def _would_be_too_much(self, fault: Fault) -> bool:
        """With `flush=os` a record is safe in the memory of several machines: not if the power of all of them goes.

        So one machine loses power at a time, in a cluster that is otherwise well, and nothing else happens until it
        has said so. Nor while a proposal may be under way: one that leaves a leader alone in sync and is written after
        its power went makes its memory the only one that counted, which `flush=os` does not promise to survive. The
        last whole copy of a partition is never wiped, unless a write under way makes it the last.
        """
        if self.healed:
            return True
        if self.settings.flush_before_ack:
            return False
        if self.lost and not isinstance(fault, Trim | SlowDisk | Skew):
            return True
        return isinstance(fault, PowerLoss) and (len(fault.nodes) > 1 or not self._all_well())

    def _said_so(self, node: NodeId) -> bool:
        broker = self.brokers[node]
        return broker.alive and broker.registration_epoch > 0

    def _all_well(self) -> bool:
        settled = self.world.now_ms - self.proposed_ms > LATEST_MESSAGE_MS
        weather = self.network.cut or self.network.lost or self.network.late or self.store.down
        return (
            settled
            and not weather
            and len(self._live()) == len(self.nodes)
            and not any(broker.paused or not broker.alive for broker in self.brokers.values())
            and all(
                set(self.state(partition).isr) == set(self.state(partition).replicas) for partition in self.partitions
            )
        )

    def _wipe(self, node: NodeId) -> None:
        copies = [set(self.state(partition).isr) for partition in self.partitions]
        if not self.healed and all(isr - self.lost - {node} for isr in copies if node in isr):
            self.world.note("disk of", node, "is wiped")
            self.disks[node].wipe()
            self.lost.add(node)
        self.start(node)

    def _start_again(self, broker: Broker) -> None:
        """Whether the clean stop came to its end or not."""
        broker.alive = False
        if self.brokers[broker.node] is broker:
            self.start(broker.node)

    def _clear_sky(self) -> None:
        self.network.lost = self.network.late = 0.0

    def _change(self, partition: int, state: PartitionState | None) -> None:
        if state is not None and not self.store.down:
            key = keys.partition_key(partition)
            self.store.write(Transaction([(key, state.version)], key, state))

    def _trim(self, partition: int, share: float) -> None:
        """The leader's log loses a part of what is committed and answered; followers hear of it by their fetches."""
        broker = self.brokers.get(self.state(partition).leader)
        role = None if broker is None or not broker.alive else broker.leading(partition)
        if broker is None or role is None:
            return
        start, told = role.log.log_start_offset, self.checker.told[partition]
        while start in told and start < role.leadership.high_watermark - 10 and self.world.random.random() < share:
            start = Offset(start + 1)
        broker.do(role.start_at, start)

    def state(self, partition: int) -> PartitionState:
        state = self.store.values[keys.partition_key(partition)]
        assert isinstance(state, PartitionState)
        return state

    def _live(self) -> list[NodeId]:
        return [info.id for info in self.store.values.values() if isinstance(info, BrokerInfo)]

    # The end

    def run(self) -> Report:
        violation = None
        try:
            self.world.run(FAULTS_END_MS)
            self._heal()
            self._wait_for_rest()
            for partition in self._kept():
                self._check_end(partition)
        except Violation as found:
            violation = str(found)
            self.world.note("violation", violation)
        finally:
            for loop in self._loops:
                loop.close()
        checker = self.checker
        return Report(
            self.seed,
            violation,
            checker.acks,
            checker.reads,
            checker.elections,
            len(self.partitions) - len(self._kept()),
            self.world.trace,
            self._did(),
        )

    def _did(self) -> Mapping[str, int]:
        return {}

    def _check_end(self, partition: int) -> None:
        self.checker.ends(partition, [self.disks[node].log(partition) for node in self.state(partition).replicas])

    def _heal(self) -> None:
        self.world.note("everything heals")
        self.healed = True
        self.network.cut.clear()
        self._clear_sky()
        self.store.come_back()
        for node in self.nodes:
            self.disks[node].recover()
            broker = self.brokers[node]
            broker.clock_rate = self.rates[node] = 1.0
            if broker.paused:
                broker.go_on()
            self.world.after(100, self.start, node)

    def _kept(self) -> list[int]:
        return [partition for partition in self.partitions if self.state(partition).isr]

    def _wait_for_rest(self) -> None:
        self.world.run(FAULTS_END_MS + 1_500)
        for producer in self.producers:
            producer.stopped = True
        while (why := self._restless()) is not None:
            if self.world.now_ms > FAULTS_END_MS + HEALING_MS:
                raise Violation(f"16: {why}")
            self.world.run(self.world.now_ms + 100)

    def _restless(self) -> str | None:
        for partition in self._kept():
            state = self.state(partition)
            if state.leader < 0 or set(state.isr) != set(state.replicas) or state.adding or state.removing:
                return f"{partition} does not come back: {state}"
            leader = self.brokers[state.leader].leading(partition)
            if leader is None or leader.leader_epoch != state.leader_epoch:
                return f"broker {state.leader} does not lead {partition}"
            for node in state.replicas:
                log, role = self.disks[node].log(partition), self.brokers[node].role(partition)
                known = 0 if role is None else role.high_watermark
                if log.log_end_offset != leader.log.log_end_offset or known != log.log_end_offset:
                    return f"broker {node} has {partition} up to {log.log_end_offset}, committed up to {known}"
            for producer in self.producers:
                if producer.partition == partition and isinstance(producer, Producer) and producer.open:
                    return f"{producer.name} waits for {producer.open}"
            for consumer in self.consumers:
                if consumer.partition == partition and consumer.position < leader.log.log_end_offset:
                    return f"{consumer.name} is at {consumer.position} of {leader.log.log_end_offset}"
        return None


def run(seed: int, rules: Rules = RULES, *, tracing: bool = False) -> Report:
    return run_one(Simulation, seed, rules, tracing=tracing)


def run_one(kind: type[Simulation], seed: int, rules: Rules, *, tracing: bool) -> Report:
    with rules.decide_for_production_code():
        simulation = kind(seed, rules, tracing=tracing)
        with simulation.world.hears_production_code():
            try:
                return simulation.run()
            except Exception as error:
                error.add_note(f"in seed {seed} of {kind.__name__}")
                raise

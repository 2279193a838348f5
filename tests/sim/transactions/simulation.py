"""One run: applications, readers and an archive under faults from a seed; then all heals, and all is compared."""

from collections import defaultdict

from gateway.coordinators.transactions.transaction import Producer
from tests.chaos.transactions.checker import SAFETY, violations
from tests.chaos.transactions.history import Ending, History, Row
from tests.sim.report import Report
from tests.sim.world import World

from .clients import Application, Reader
from .coordinator import Coordinator
from .network import Network
from .partition import Fetched, Partition, committed_rows
from .rules import RULES, Rules

FAULTS_END_MS = 4_000.0
FAR_EPOCH = 1_000
"""None gets there in a run. With the epoch and sequence of a producer, a batch of a stranger would stand for its own:
that is a flaw of Kafka's protocol."""
HEALED_MS = 14_000.0
"""Later than the latest message, and than what takes too long."""


class Simulation:
    def __init__(self, seed: int, rules: Rules = RULES, *, tracing: bool = False) -> None:
        self.world = World(seed)
        self.world.tracing = tracing
        self.rules = rules
        self.history = History()
        self.network = Network(self.world)
        self.sequences: dict[tuple[Producer, int], int] = defaultdict(int)
        chance = self.world.random
        self.partitions = [Partition(self, number) for number in range(chance.choice([2, 3]))]
        self.coordinator = Coordinator(self)
        self.applications = [Application(self, f"app {n}", chance.random() < 0.5) for n in range(3)]
        self.readers = [Reader(self, partition, n) for partition in self.partitions for n in range(2)]
        self.leaders_changed = 0
        for _ in range(chance.randint(0, 6)):
            self.world.after(chance.random() * FAULTS_END_MS, self.coordinator.fail_over)
        for _ in range(chance.randint(0, 20)):
            self.world.after(chance.random() * FAULTS_END_MS, self._change_leader)
        for _ in range(chance.randint(0, 3)):
            self.world.after(chance.random() * FAULTS_END_MS, self._name_a_producer)
        for at in range(0, int(HEALED_MS), 150):
            self.world.after(at + chance.random() * 150, chance.choice(self.partitions).archive_some)

    @property
    def now_ns(self) -> int:
        return int(self.world.now_ms * 1e6)

    def _change_leader(self) -> None:
        self.leaders_changed += 1
        self.world.random.choice(self.partitions).change_leader()

    def _name_a_producer(self) -> None:
        if self.sequences:
            producer, number = self.world.random.choice(list(self.sequences)[-4:])
            self.partitions[number].write_as(producer.id, FAR_EPOCH)

    def run(self) -> list[str]:
        """Returns what is wrong."""
        self.world.run(FAULTS_END_MS)
        self.network.calm = True
        for application in self.applications:
            application.stopped = True
        self.world.run(HEALED_MS)
        return [*self._unsettled(), *violations(self._finished(), SAFETY)]

    def _unsettled(self) -> list[str]:
        """What was open has been aborted by now, and all that was written is committed."""
        return [
            f"{partition.place} is stable up to {partition.stable}, of {len(partition.entries)}"
            for partition in self.partitions
            if partition.stable != len(partition.entries)
        ]

    def _finished(self) -> History:
        history = self.history
        archive = history.tables["the archive"] = {}
        for partition in self.partitions:
            rows = [Row(entry.header.base_offset, entry.identity) for entry in partition.entries if entry.identity]
            history.everything[partition.place] = rows
            partition.archive_some()
            archive[partition.place] = partition.archive
            history.archived[partition.place] = partition.archived_end
            end = partition.stable
            aborted = self.rules.overlapping(partition.producers.transactions, 0, end)
            history.committed[partition.place] = committed_rows(Fetched(partition.entries[:end], aborted))
        return history


def run(seed: int, rules: Rules = RULES, *, tracing: bool = False) -> Report:
    simulation = Simulation(seed, rules, tracing=tracing)
    found = simulation.run()
    history = simulation.history
    return Report(
        seed=seed,
        violation="; ".join(found[:3]) if found else None,
        acks=history.count(Ending.COMMITTED),
        reads=len(history.seen),
        elections=simulation.leaders_changed + simulation.coordinator.epoch,
        abandoned=0,
        trace=simulation.world.trace,
        did={ending.value: history.count(ending) for ending in Ending},
    )

"""Applications with transactions, old and new ones, that give up, come again, and go on as zombies; and readers."""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from gateway.coordinators.transactions.transaction import Producer
from tests.chaos.transactions.history import Ending, Seen, Transaction, Write
from tests.chaos.values import Identity
from tests.sim.world import Process, Work

from .partition import NOT_NOW, Failed, Fetched, Partition, Produce, Stored, committed_rows

if TYPE_CHECKING:
    from .simulation import Simulation

PAUSE_MS = 60.0
TRIES = 40


class Application(Process):
    """One transactional id. Each of its instances fences the one before."""

    def __init__(self, simulation: "Simulation", name: str, tv2: bool) -> None:
        super().__init__(simulation.world, name)
        self._simulation, self._id, self._tv2 = simulation, name, tv2
        self._sequence = 0
        self._goes_back = False
        """Whether it takes the batch that it gave up for one that is not stored. Old clients do: librdkafka."""
        self.stopped = False
        self.instances = 0
        self.start_instance()

    def start_instance(self) -> None:
        self.instances += 1
        self.spawn(self._run(self.instances))

    def _run(self, instance: int) -> Work:
        chance = self.world.random
        producer = yield from self._begin(None)
        while producer is not None and not self.stopped:
            transaction = Transaction(self._id, self._simulation.now_ns)
            self._simulation.history.transactions.append(transaction)
            written = yield from self._write_some(producer, transaction)
            if chance.random() < 0.08:
                self.start_instance()
                yield self.sleep(chance.random() * 300)
            commits = written and chance.random() < 0.75
            if commits:
                transaction.commit_asked_ns, transaction.ending = self._simulation.now_ns, Ending.UNKNOWN
            answer = yield from self._end(producer, commits)
            transaction.ended_ns = self._simulation.now_ns
            if not isinstance(answer, Producer):
                break  # It is fenced, or does not know what became of it: another instance takes over.
            transaction.ending = Ending.COMMITTED if commits else Ending.ABORTED
            producer = answer if self._tv2 or written or self._goes_back else (yield from self._begin(producer))
            yield self.sleep(chance.random() * PAUSE_MS)
        yield self.sleep(PAUSE_MS)
        if not self.stopped and instance == self.instances:
            self.start_instance()

    def _end(self, producer: Producer, commits: bool) -> Work:
        """An old client that asks again may end its next transaction, which has the same epoch: that is a flaw of
        Kafka's older protocol, which no broker can mend. So here it gives up instead."""
        answer: Any = None
        for _ in range(TRIES):
            question = (self._id, producer, commits, self._tv2)
            answer = yield self._simulation.network.ask(self._simulation.coordinator.end, question, once=not self._tv2)
            if not _is_to_be_asked_again(answer) or (answer is None and not self._tv2):
                break
            yield self.sleep(self.world.random.random() * PAUSE_MS)
        return answer

    def _begin(self, expected: Producer | None) -> Work:
        answer = yield from self._persist(self._simulation.coordinator.begin, (self._id, expected))
        return answer if isinstance(answer, Producer) else None

    def _write_some(self, producer: Producer, transaction: Transaction) -> Work:
        """Returns whether all was written; what was not may still be on its way."""
        chance = self.world.random
        added: set[Partition] = set()
        self._goes_back = False
        for _ in range(chance.randint(1, 5)):
            partition = chance.choice(self._simulation.partitions)
            if not self._tv2 and partition not in added:
                question = (self._id, *producer, partition.tp, False)
                answer = yield from self._persist(self._simulation.coordinator.add, question)
                if not isinstance(answer, Producer):
                    return False
                added.add(partition)
            self._sequence += 1
            write = Write(Identity(self._id, self._sequence, ""), partition.place, None, self._simulation.now_ns)
            transaction.writes.append(write)
            sequence = self._simulation.sequences[producer, partition.place.number]
            self._simulation.sequences[producer, partition.place.number] += 1
            request = Produce(self._id, *producer, sequence, write.identity, self._tv2)
            tries = chance.choice([1, 2, 6])
            answer = yield from self._persist(partition.produce, request, tries, once=tries == 1 and not self._tv2)
            if not isinstance(answer, Stored):
                self._goes_back = not self._tv2 and tries == 1 and answer == NOT_NOW
                self._simulation.sequences[producer, partition.place.number] -= self._goes_back
                return False
            write.offset, write.ended_ns = answer.offset, self._simulation.now_ns
        return True

    def _persist(self, handle: Any, question: Any, tries: int = TRIES, *, once: bool = False) -> Work:
        """Returns the last answer; None or a failure if nobody would do it."""
        answer = None
        for _ in range(tries):
            answer = yield self._simulation.network.ask(handle, question, once=once)
            if not _is_to_be_asked_again(answer):
                break
            yield self.sleep(self.world.random.random() * PAUSE_MS)
        return answer


def _is_to_be_asked_again(answer: Any) -> bool:
    return answer is None or (isinstance(answer, Failed) and not answer.definite)


class Reader(Process):
    """Reads committed records of one partition, and after a while from another offset."""

    def __init__(self, simulation: "Simulation", partition: Partition, number: int) -> None:
        super().__init__(simulation.world, f"reader {number} of {partition.place.number}")
        self._simulation, self._partition = simulation, partition
        self._sessions: dict[str, int] = defaultdict(int)
        self.spawn(self._run())

    def _run(self) -> Work:
        chance = self.world.random
        position, session = 0, f"{self.name} 0"
        while True:
            if chance.random() < 0.03:
                self._sessions["all"] += 1
                position, session = chance.randint(0, position), f"{self.name} {self._sessions['all']}"
            answer = yield self._simulation.network.ask(self._partition.fetch, position)
            if isinstance(answer, Fetched) and answer.entries:
                now_ns = self._simulation.now_ns
                place = self._partition.place
                rows = committed_rows(answer)
                self._simulation.history.seen += [Seen(session, place, row, now_ns) for row in rows]
                position = answer.entries[-1].header.base_offset + 1
            yield self.sleep(chance.random() * 100)

"""Who uses the cluster: producers and consumers that look for the leader, try again, and report what they were told."""

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from hot_tier.ids import NO_PRODUCER
from tests.sim.checker import Checker, Violation
from tests.sim.network import Network
from tests.sim.roles import Acked, Consume, Failed, Produce, Served
from tests.sim.world import Process, Work, World

if TYPE_CHECKING:
    from tests.sim.broker import Broker

IN_FLIGHT: Final = 5
TIMEOUT_MS: Final = 500.0

Brokers = Callable[[], "list[Broker]"]


class Client(Process):
    def __init__(
        self,
        world: World,
        network: Network,
        brokers: Brokers,
        checker: Checker,
        name: str,
        partition: int,
    ) -> None:
        super().__init__(world, name)
        self.network = network
        self.brokers = brokers
        self.checker = checker
        self.partition = partition
        self._target = 0
        network.add(self)

    def find_leader(self) -> None:
        """From whatever a broker happens to know."""
        brokers = self.brokers()
        states = self.world.random.choice(brokers).states if brokers else []
        if states and states[self.partition].leader >= 0:
            self._target = states[self.partition].leader

    def pause(self, most_ms: float) -> Callable[..., None]:
        return self.sleep(most_ms * self.world.random.random())


class Producer(Client):
    """Idempotent, up to five records in flight; after a failure all that is open is sent again in order, one by one."""

    def __init__(
        self, world: World, network: Network, brokers: Brokers, checker: Checker, partition: int, producer: int
    ) -> None:
        super().__init__(world, network, brokers, checker, f"producer {producer}", partition)
        self.producer = producer
        self.stopped = False
        self._values = itertools.count(producer * 1_000_000)
        self._sequence = 0
        self.open: dict[int, tuple[int, int]] = {}
        """By sequence: the value, and the offset that it must at least get."""
        self._failed = True
        self._sent = 0
        self.spawn(self._run())

    def _run(self) -> Work:
        self.find_leader()
        while not self.stopped or self.open:
            if self._failed:
                if not self.open:
                    self._next()
                yield from self._send_again()
            elif not self.stopped and self._sequence - min(self.open, default=self._sequence) < IN_FLIGHT:
                sequence = self._next()
                self._sent += 1
                self.spawn(self._send(sequence))
            yield self.pause(60)

    def _next(self) -> int:
        sequence, self._sequence = self._sequence, self._sequence + 1
        self.open[sequence] = (next(self._values), self.checker.end_of_acked(self.partition))
        return sequence

    def _send_again(self) -> Work:
        while self._sent:
            yield self.sleep(20)
        while self.open:
            yield from self._try(min(self.open))
            if self._failed:
                yield self.pause(80)
        self._failed = False

    def _send(self, sequence: int) -> Work:
        yield from self._try(sequence)
        self._sent -= 1

    def _try(self, sequence: int) -> Work:
        value, at_least = self.open[sequence]
        request = Produce(self.partition, value, self.producer, sequence)
        answer = yield self.network.call(self, self._target, "produce", request, TIMEOUT_MS)
        if isinstance(answer, Acked):
            self.checker.was_acked(self.partition, answer.offset, value, at_least)
            self.open.pop(sequence, None)
            self._failed = self._failed and bool(self.open)
        else:
            self._failed = True
            self.find_leader()


class PlainProducer(Client):
    """Sends each record once: acknowledged, surely refused, or nobody knows."""

    def __init__(
        self, world: World, network: Network, brokers: Brokers, checker: Checker, partition: int, number: int
    ) -> None:
        super().__init__(world, network, brokers, checker, f"plain producer {number}", partition)
        self.stopped = False
        self._values = itertools.count(number * 1_000_000)
        self.spawn(self._run())

    def _run(self) -> Work:
        while not self.stopped:
            value, at_least = next(self._values), self.checker.end_of_acked(self.partition)
            request = Produce(self.partition, value, NO_PRODUCER)
            answer = yield self.network.call(self, self._target, "produce", request, TIMEOUT_MS)
            match answer:
                case Acked(offset):
                    self.checker.was_acked(self.partition, offset, value, at_least)
                case Failed(_, definite=True):
                    self.checker.was_refused(value)
                    self.find_leader()
                case _:
                    self.find_leader()
            yield self.pause(150)


class Consumer(Client):
    """Reads on from where it is, from the leader or, now and then, from any replica."""

    def __init__(
        self, world: World, network: Network, brokers: Brokers, checker: Checker, partition: int, number: int
    ) -> None:
        super().__init__(world, network, brokers, checker, f"consumer {number}", partition)
        self.position = 0
        self.spawn(self._run())

    def _run(self) -> Work:
        while True:
            answer = yield self.network.call(
                self, self._target, "consume", Consume(self.partition, self.position), TIMEOUT_MS
            )
            if isinstance(answer, Served):
                self._take(answer)
            if answer is None or self.world.random.random() < 0.2:
                self.find_leader()
            if self.world.random.random() < 0.1 and (brokers := self.brokers()):
                self._target = self.world.random.choice(brokers).node
            yield self.pause(120)

    def _take(self, served: Served) -> None:
        if served.skipped:
            if served.offset < self.position:
                raise Violation(f"7: {self.name} was at {self.position} and is sent back to {served.offset}")
            self.position = served.offset
        for offset, record in enumerate(served.records, self.position):
            self.checker.was_read(self.partition, offset, record)
        self.position += len(served.records)

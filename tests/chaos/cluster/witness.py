"""Workers that ask every broker by itself, whoever it says leads: one that was deposed has its chance to lie.

Each broker has a sender, whose records it alone may acknowledge, and a reader of partition ends. An answer may take
long: what a broker was asked before it stood still, it answers when it goes on.
"""

import random
import time
from collections.abc import Mapping
from uuid import uuid4

from benchmarks.process import BrokerProcess
from tests.chaos.history import EpochEnd, History, Outcome, Send
from tests.chaos.values import Identity, make_value
from tests.chaos.workload import Worker

from .wire import Refused, Wire

ANSWER_S = 15.0
EVERY_S = 0.03


class Witness(Worker):
    def __init__(
        self,
        name: str,
        node: int,
        broker: BrokerProcess,
        topic: str,
        partitions: int,
        history: History,
        login: Mapping[str, str],
    ):
        super().__init__(f"{name}-{node}")
        self._node, self._broker, self._topic = node, broker, topic
        self._partitions, self._history, self._login = partitions, history, login

    def run(self) -> None:
        wire, turn = None, 0
        while not self._stopping.wait(EVERY_S):
            try:
                wire = wire or self._connect()
                self._ask(wire, turn % self._partitions)
            except OSError:
                if wire:
                    wire.close()
                wire = None
            turn += 1
        if wire:
            wire.close()

    def _connect(self) -> Wire:
        try:
            return Wire(self._broker.host, self._broker.port, ANSWER_S, self._login)
        except Refused as refused:
            self._history.complaints.append(f"{self.name} could not log in: {refused}")
            raise ConnectionRefusedError from None

    def _ask(self, wire: Wire, partition: int) -> None:
        raise NotImplementedError


class PinnedSender(Witness):
    def __init__(
        self, node: int, broker: BrokerProcess, topic: str, partitions: int, history: History, login: Mapping[str, str]
    ):
        super().__init__("pinned", node, broker, topic, partitions, history, login)
        self._source = random.Random(node)
        self._connections = self._sequence = 0

    def _connect(self) -> Wire:
        # A new name: requests of two connections may be carried out in any order.
        self._connections += 1
        return super()._connect()

    def _ask(self, wire: Wire, partition: int) -> None:
        identity = Identity(f"{self.name}-{self._connections}", self._sequence, uuid4().hex[:12])
        self._sequence += 1
        value = make_value(identity, self._source)
        send = Send(identity, partition, outcome=Outcome.UNKNOWN)
        self._history.sends.append(send)
        try:
            send.offset = wire.produce(self._topic, partition, value)
        except Refused:
            return  # It may have been appended all the same, and survive.
        send.ended_ns, send.node, send.outcome = time.monotonic_ns(), self._node, Outcome.OK


class EndReader(Witness):
    def __init__(
        self, node: int, broker: BrokerProcess, topic: str, partitions: int, history: History, login: Mapping[str, str]
    ):
        super().__init__("ends", node, broker, topic, partitions, history, login)

    def _ask(self, wire: Wire, partition: int) -> None:
        try:
            end = wire.end(self._topic, partition)
        except Refused:
            return
        self._history.epoch_ends.append(EpochEnd(self._node, partition, end.leader_epoch, end.offset))

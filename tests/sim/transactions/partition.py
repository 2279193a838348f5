"""One partition: the producer state and the transactions of production over a list of batches of one record each."""

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from hot_tier.errors import ProducerFenced, TierlogError
from hot_tier.ids import PartitionId, TopicPartition
from hot_tier.log.transactions import Aborted, Hidden, Verification
from hot_tier.record.batch import CONTROL, TRANSACTIONAL, BatchHeader
from hot_tier.record.control import Marker, MarkerKind
from tests.chaos.transactions.history import Place, Row
from tests.chaos.values import Identity

from .network import Reply

if TYPE_CHECKING:
    from .simulation import Simulation

TOPIC = "t"
TV1, TV2 = 0, 2


class Produce(NamedTuple):
    transactional_id: str
    producer_id: int
    epoch: int
    sequence: int
    identity: Identity
    tv2: bool

    @property
    def header(self) -> BatchHeader:
        return _header(self.producer_id, self.epoch, self.sequence, TRANSACTIONAL)


class Mark(NamedTuple):
    producer_id: int
    epoch: int
    marker: Marker
    version: int


class Stored(NamedTuple):
    offset: int


class Failed(NamedTuple):
    error: str
    definite: bool = True
    """Asking again changes nothing."""


NOT_NEEDED = Failed("ProducerFenced")
"""A marker is older than what its producer has written: its transaction is not open there."""


NOT_NOW = Failed("not now", definite=False)


class Entry(NamedTuple):
    header: BatchHeader
    identity: Identity | None
    marker: Marker | None


class Fetched(NamedTuple):
    entries: Sequence[Entry]
    aborted: Sequence[Aborted]


def _header(producer_id: int, epoch: int, sequence: int, attributes: int, offset: int = 0) -> BatchHeader:
    return BatchHeader(offset, 0, 0, 2, 0, attributes, 0, 0, 0, producer_id, epoch, sequence, 1)


class Partition:
    def __init__(self, simulation: "Simulation", number: int) -> None:
        self._simulation, self._world = simulation, simulation.world
        self.place = Place(TOPIC, number)
        self.tp = TopicPartition(TOPIC, PartitionId(number))
        self.entries: list[Entry] = []
        self.high_watermark = 0
        self.leader_epoch = 0
        self.producers = simulation.rules.producers()
        self._waiting: list[tuple[int, object, Reply]] = []
        self.archived_end = 0
        self.archive: list[Row] = []

    # Producers

    def produce(self, request: Produce, reply: Reply) -> None:
        rules = self._simulation.rules
        try:
            verification = self.producers.begin_verification(request.header, request.transactional_id, tv2=request.tv2)
        except TierlogError as error:
            reply(Failed(type(error).__name__))
            return
        if verification is None or not (request.tv2 or rules.verifies):
            self._append(request, verification, reply)
            return
        epoch, coordinator = self.leader_epoch, self._simulation.coordinator

        def answered(answer: Any) -> None:
            if isinstance(answer, Failed):
                reply(answer)
            elif answer is None or epoch != self.leader_epoch:
                reply(NOT_NOW)
            else:
                self._append(request, verification, reply)

        ask = coordinator.add if request.tv2 else coordinator.verify
        question = (request.transactional_id, request.producer_id, request.epoch, self.tp, request.tv2)
        self._simulation.network.ask(ask, question)(answered)

    def _append(self, request: Produce, verification: Verification | None, reply: Reply) -> None:
        try:
            stored = self.producers.check(request.header, verification)
        except TierlogError as error:
            reply(Failed(type(error).__name__))
            return
        new = Entry(request.header, request.identity, None)
        offset = self._write(new) if stored is None else stored.base_offset
        self._when_committed(offset + 1, Stored(offset), reply)

    def mark(self, request: Mark, reply: Reply) -> None:
        try:
            self.producers.check_marker(request.producer_id, request.epoch, request.marker, request.version)
        except ProducerFenced:
            self._when_committed(len(self.entries), NOT_NEEDED, reply)
            return
        except TierlogError as error:
            reply(Failed(type(error).__name__))
            return
        header = _header(request.producer_id, request.epoch, -1, TRANSACTIONAL | CONTROL)
        offset = self._write(Entry(header, None, request.marker))
        end = offset + 1 if self._simulation.rules.marks_when_committed else 0
        self._when_committed(end, Stored(offset), reply)

    def write_as(self, producer_id: int, epoch: int) -> None:
        """A stranger names the producer, in no transaction."""
        header = _header(producer_id, epoch, 0, 0)
        with suppress(TierlogError):
            if self.producers.check(header) is None:
                self._write(Entry(header, None, None))

    # The log

    def _write(self, entry: Entry) -> int:
        offset = len(self.entries)
        self.entries.append(entry._replace(header=entry.header._replace(base_offset=offset)))
        self._learn(self.entries[-1])
        chance = self._world.random
        took_ms = chance.random() * (200 if chance.random() < 0.1 else 5)
        self._world.after(took_ms, self._commit, self.leader_epoch, offset + 1)
        return offset

    def _learn(self, entry: Entry) -> None:
        header = entry.header
        self.producers.wrote(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.base_offset,
            header.base_offset,
            header.attributes,
            int(self._world.now_ms),
            entry.marker,
        )

    def _commit(self, leader_epoch: int, end: int) -> None:
        if leader_epoch != self.leader_epoch or end <= self.high_watermark:
            return
        self.high_watermark = end
        self.producers.transactions.committed(end)
        done = [(answer, reply) for wanted, answer, reply in self._waiting if wanted <= end]
        self._waiting = [each for each in self._waiting if each[0] > end]
        for answer, reply in done:
            reply(answer)

    def _when_committed(self, end: int, answer: object, reply: Reply) -> None:
        if end <= self.high_watermark:
            reply(answer)
        else:
            self._waiting.append((end, answer, reply))

    def change_leader(self) -> None:
        """The next one has what is committed, and any part of the rest; some who wait are told that another leads."""
        keeps = self._world.random.randint(self.high_watermark, len(self.entries))
        del self.entries[keeps:]
        waiting, self._waiting = self._waiting, []
        for _, _, reply in waiting:
            if self._world.random.random() < 0.5:
                reply(NOT_NOW)
        self.leader_epoch += 1
        self.producers = self._simulation.rules.producers()
        for entry in self.entries:
            self._learn(entry)
        self.producers.transactions.committed(self.high_watermark)
        self._world.after(self._world.random.random() * 50, self._commit, self.leader_epoch, keeps)
        self._world.note(self.place.number, "has another leader from", self.high_watermark, "with", keeps)

    # Readers

    @property
    def stable(self) -> int:
        rules = self._simulation.rules
        return rules.stable(self.producers.transactions, self.high_watermark, len(self.entries))

    def fetch(self, position: int, reply: Reply) -> None:
        end = min(self.stable, position + self._world.random.randint(1, 20))
        aborted = self._simulation.rules.overlapping(self.producers.transactions, position, end)
        reply(Fetched(self.entries[position:end], aborted))

    def archive_some(self) -> None:
        """Like the offloader: whole stretches, the batches of aborted transactions left out."""
        rules, transactions = self._simulation.rules, self.producers.transactions
        start, end = self.archived_end, self.stable if rules.archives_to_stable else self.high_watermark
        if end <= start:
            return
        # In the order that `Hidden` wants, whatever order readers are given.
        hidden = Hidden(transactions.aborted.overlapping(start, end))
        for entry in self.entries[start:end]:
            if entry.identity is not None and entry.header not in hidden:
                self.archive.append(Row(entry.header.base_offset, entry.identity))
        self.archived_end = end


def committed_rows(fetched: Fetched) -> list[Row]:
    """What a client makes of an answer: it goes through batches and aborted transactions side by side."""
    waiting = list(fetched.aborted)
    aborting: set[int] = set()
    rows = []
    for entry in fetched.entries:
        header = entry.header
        while waiting and waiting[0].first_offset <= header.base_offset:
            aborting.add(waiting.pop(0).producer_id)
        if entry.marker is not None:
            if entry.marker.kind is MarkerKind.ABORT:
                aborting.discard(header.producer_id)
        elif header.producer_id not in aborting and entry.identity is not None:
            rows.append(Row(header.base_offset, entry.identity))
    return rows

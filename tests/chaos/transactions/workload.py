"""Load with transactions that goes on through faults. Each worker is a thread around librdkafka and writes its history.

What a worker was told decides what its history says. A commit that was answered is committed; one that librdkafka says
to abort, and whose abort was answered, is aborted; everything else that was asked for is unknown.
"""

import random
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from uuid import uuid4

import confluent_kafka as ck

from tests.chaos.values import Identity, make_value, read_value
from tests.chaos.workload import RECONNECT, Worker

from .history import Ending, Ends, History, Place, Row, Seen, Transaction, Write

ASK_S = 5.0
GIVE_UP_S = 60.0
PATIENCE_MS = 20_000
"""How long the coordinator lets a transaction be open."""
COMMITTED, ALL = "read_committed", "read_uncommitted"
NEVER = {ck.KafkaError.UNKNOWN, ck.KafkaError.UNKNOWN_PRODUCER_ID}
"""What no transaction may be told, whatever goes wrong around it. OUT_OF_ORDER_SEQUENCE_NUMBER is no such
thing: librdkafka goes back to the sequences of batches that it gave up in an abort, and some of them are stored."""


class NoAnswer(Exception):
    """The service was away for longer than any fault lasts, or the worker was asked to stop."""


class Fatal(Exception):
    """This producer is of no use any more: it was fenced, or does not know what became of its transaction."""


class Aborting(Exception):
    """The transaction cannot be committed any more and has to be aborted."""


class Sender:
    """A transactional producer as its application uses it: asks again where it may, and sorts the errors."""

    def __init__(self, name: str, client: Mapping[str, str], history: History, source: random.Random, patience_ms: int):
        self.name, self._history, self._source = name, history, source
        self.errors: Counter[str] = Counter()
        self._producer = ck.Producer(
            {
                **client,
                "transactional.id": name,
                "transaction.timeout.ms": patience_ms,
                "linger.ms": 2,
                "batch.num.messages": 20,
                "error_cb": lambda error: None,
                **RECONNECT,
            }
        )

    def start(self) -> None:
        """After it no older producer of this name can commit. Raises Fatal, NoAnswer."""
        self._ask(self._producer.init_transactions)

    def begin(self) -> None:
        self._ask(lambda _: self._producer.begin_transaction())

    def write(
        self, transaction: Transaction, sequence: int, place: Place, source: tuple[Place, Row] | None = None
    ) -> None:
        """Raises Fatal, Aborting."""
        identity = Identity(self.name, sequence, uuid4().hex[:12])
        value = make_value(identity, self._source)
        write = Write(identity, place, source)
        transaction.writes.append(write)

        def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
            write.ended_ns = time.monotonic_ns()
            if error is None:
                write.offset = message.offset()

        def produce(_: float) -> None:
            self._producer.produce(place.topic, value, partition=place.number, on_delivery=delivered)

        self._ask(produce)
        self._producer.poll(0)

    def flush(self) -> None:
        try:
            self._producer.flush(ASK_S)
        except SystemError as error:
            # confluent-kafka has called a delivery report amid an error of its own, once in hundreds of runs.
            self.errors[str(error)] += 1

    def send_positions(self, transaction: Transaction, member: object, positions: Mapping[Place, int]) -> None:
        wanted = [ck.TopicPartition(place.topic, place.number, offset) for place, offset in positions.items()]
        self._ask(lambda _: self._in_time(lambda: self._producer.send_offsets_to_transaction(wanted, member, ASK_S)))
        transaction.positions.update(positions)

    def commit(self, transaction: Transaction) -> None:
        """Says what became of it; raises Fatal, Aborting, NoAnswer where that is not known or not done."""
        transaction.ending, transaction.commit_asked_ns = Ending.UNKNOWN, time.monotonic_ns()
        self._ask(self._producer.commit_transaction)
        transaction.ended_ns = time.monotonic_ns()
        transaction.ending = Ending.COMMITTED

    def abort(self, transaction: Transaction) -> None:
        self._ask(self._producer.abort_transaction)
        transaction.ended_ns = time.monotonic_ns()
        transaction.ending = Ending.ABORTED

    def _in_time(self, action: Callable[[], object]) -> None:
        """librdkafka has no time-out where it waits for the coordinator of a group, and may wait for ever."""
        done: Future[object] = Future()

        def act() -> None:
            try:
                done.set_result(action())
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=act, daemon=True).start()
        try:
            done.result(2 * ASK_S)
        except TimeoutError:
            self.errors["hangs"] += 1
            raise Fatal(f"{self.name} hangs in librdkafka") from None

    def _ask(self, action: Callable[[float], object]) -> None:
        deadline = time.monotonic() + GIVE_UP_S
        while True:
            try:
                action(ASK_S)
                return
            except ck.KafkaException as raised:
                error = raised.args[0]
            except BufferError:
                self._producer.poll(0.05)
                continue
            self.errors[f"{error.name()}{' fatal' if error.fatal() else ''}"] += 1
            if error.code() in NEVER:
                self._history.complaints.append(f"{self.name} was told {error.name()}: {error.str()}")
            if error.txn_requires_abort():
                raise Aborting(error.str())
            if error.fatal() or not (error.retriable() or error.code() == ck.KafkaError._TIMED_OUT):
                raise Fatal(error.str())
            if time.monotonic() > deadline:
                raise NoAnswer(f"{self.name} gets no answer: {error.str()}")


def reader(client: Mapping[str, str], group: str, isolation: str, **config: object) -> ck.Consumer:
    return ck.Consumer(
        {
            **client,
            "group.id": group,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "error_cb": lambda error: None,
            **RECONNECT,
            **config,
        }
    )


def row_of(message: ck.Message) -> tuple[Place, Row]:
    return Place(message.topic(), message.partition()), Row(message.offset(), read_value(message.value()))


class TransactionalWorker(Worker):
    """What writers and streams have in common: a sender that is made anew whenever it has become useless."""

    def __init__(
        self, name: str, client: Mapping[str, str], history: History, source: random.Random, patience_ms: int
    ) -> None:
        super().__init__(name)
        self.client, self.history, self.source, self._patience_ms = client, history, source, patience_ms
        self.sequence = 0
        self.last_commit_ns = 0
        self.errors: Counter[str] = Counter()
        self.sender: Sender | None = None

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self.sender = self.sender or self.new_sender()
                    self.turn(self.sender)
                except Fatal:
                    self.sender = None
            # Whatever is open is aborted by a successor: nothing may hold readers up after the end.
            self.sender = None
            self.new_sender()
        except NoAnswer as error:
            self.history.complaints.append(str(error))
        finally:
            self.sender = None
            self.close()

    def new_sender(self) -> Sender:
        while True:
            made = Sender(self.name, self.client, self.history, self.source, self._patience_ms)
            made.errors = self.errors
            try:
                made.start()
                return made
            except (Fatal, Aborting):
                # Two starts of one name that overlap fence each other; the loser tries again.
                if self._stopping.wait(0.2):
                    raise NoAnswer(f"{self.name} could not start at the end: {dict(self.errors)}") from None

    def begun(self, sender: Sender, group: str = "") -> Transaction:
        sender.begin()
        transaction = Transaction(self.name, group=group)
        self.history.transactions.append(transaction)
        return transaction

    def write(
        self, sender: Sender, transaction: Transaction, place: Place, source: tuple[Place, Row] | None = None
    ) -> None:
        self.sequence += 1
        sender.write(transaction, self.sequence, place, source)

    def committed(self, sender: Sender, transaction: Transaction, work: Callable[[], None]) -> bool:
        """Does the work and commits it, or aborts."""
        try:
            work()
            sender.commit(transaction)
            self.last_commit_ns = transaction.ended_ns
            return True
        except Aborting:
            try:
                sender.abort(transaction)
            except Aborting as again:
                raise Fatal(str(again)) from None
            return False

    def turn(self, sender: Sender) -> None:
        raise NotImplementedError

    def state(self) -> str:
        """For the one who looks into why it does not go on."""
        ago_s = (time.monotonic_ns() - self.last_commit_ns) / 1e9
        where = sys._current_frames().get(self.ident or 0)
        at = [f"{each.name}:{each.lineno}" for each in traceback.extract_stack(where)[-4:]] if where else "ended"
        return f"{self.name} committed {ago_s:.1f} s ago, was told {dict(self.errors)}, is at {at}"

    def close(self) -> None:
        pass


class Writer(TransactionalWorker):
    """Writes to several partitions of several topics in each transaction, and reads some on the way.

    Commits most, aborts some on purpose, leaves some open for a successor to abort, after which it tries to commit.
    """

    def __init__(
        self,
        name: str,
        client: Mapping[str, str],
        places: Sequence[Place],
        history: History,
        source: random.Random,
        *,
        rate: float = 10,
        patience_ms: int = PATIENCE_MS,
    ) -> None:
        super().__init__(name, client, history, source, patience_ms)
        self._places, self._pause_s = places, 1 / rate
        self._consumer = reader(client, name, COMMITTED)
        self._session = ""
        self._look_at(source.choice(places))

    def _look_at(self, place: Place) -> None:
        self._session = f"{self.name}-{uuid4().hex[:6]}"
        self._consumer.assign([ck.TopicPartition(place.topic, place.number, 0)])

    def turn(self, sender: Sender) -> None:
        transaction = self.begun(sender)
        plan = self.source.random()
        if plan < 0.7:
            self.committed(sender, transaction, lambda: self._write_some(sender, transaction))
        elif plan < 0.92:
            try:
                self._write_some(sender, transaction)
            except Aborting:
                pass
            sender.abort(transaction)
        else:
            self._write_some_of(sender, transaction)
            self.sender = self.new_sender()
            self._go_on_as_a_zombie(sender, transaction)
        time.sleep(self._pause_s * self.source.uniform(0.3, 1.7))

    def _write_some(self, sender: Sender, transaction: Transaction) -> None:
        for _ in range(self.source.randint(2, 12)):
            self.write(sender, transaction, self.source.choice(self._places))
            if self.source.random() < 0.1:
                sender.flush()
                time.sleep(self.source.uniform(0, 0.2))
        if self.source.random() < 0.5:
            self._read_some(transaction)

    def _write_some_of(self, sender: Sender, transaction: Transaction) -> None:
        try:
            self._write_some(sender, transaction)
            if self.source.random() < 0.7:
                sender.flush()
        except Aborting:
            pass

    def _go_on_as_a_zombie(self, sender: Sender, transaction: Transaction) -> None:
        """Its successor has started: whatever it does now must be refused."""
        try:
            self.write(sender, transaction, self.source.choice(self._places))
            sender.commit(transaction)
            self.history.complaints.append(
                f"a successor of {self.name} had started, and it could commit: {transaction}"
            )
        except (Fatal, Aborting):
            transaction.ending = Ending.ABORTED

    def _read_some(self, transaction: Transaction) -> None:
        for message in self._consumer.consume(20, 0.1):
            if message.error() is None:
                place, row = row_of(message)
                self.history.seen.append(Seen(self._session, place, row, time.monotonic_ns()))
                transaction.taken.append((place, row))
        if self.source.random() < 0.05:
            self._look_at(self.source.choice(self._places))

    def close(self) -> None:
        self._consumer.close()


class Stream(TransactionalWorker):
    """A member of a group: for each record that it takes it writes one, and commits its position with them."""

    def __init__(
        self,
        name: str,
        client: Mapping[str, str],
        group: str,
        given: str,
        places: Sequence[Place],
        history: History,
        source: random.Random,
        *,
        patience_ms: int = PATIENCE_MS,
        stalls: bool = False,
    ) -> None:
        """`stalls`: now and then it stands still for longer than its group waits for a member."""
        super().__init__(name, client, history, source, patience_ms)
        self._group, self._given, self._places, self._stalls = group, given, places, stalls
        self._sessions: dict[Place, str] = {}
        self._consumer = reader(client, group, COMMITTED, **{"session.timeout.ms": 6000, "heartbeat.interval.ms": 500})
        self._consumer.subscribe([given], on_assign=self._assigned, on_revoke=self._gone, on_lost=self._gone)

    def _assigned(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self._new_sessions([Place(tp.topic, tp.partition) for tp in partitions])

    def _gone(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self._sessions = {}

    def _new_sessions(self, places: Sequence[Place]) -> None:
        self._sessions = {place: f"{self.name}-{uuid4().hex[:6]}" for place in places}

    def turn(self, sender: Sender) -> None:
        messages = [message for message in self._consumer.consume(50, 0.2) if message.error() is None]
        taken = [(place, row) for place, row in map(row_of, messages) if place in self._sessions]
        if not taken:
            return
        now_ns = time.monotonic_ns()
        self.history.seen += [Seen(self._sessions[place], place, row, now_ns) for place, row in taken]
        transaction = self.begun(sender, self._group)
        transaction.taken += taken
        aborts = self.source.random() < 0.15
        try:
            if aborts:
                try:
                    self._transform(sender, transaction, taken)
                except Aborting:
                    pass
                sender.abort(transaction)
            elif self.committed(sender, transaction, lambda: self._transform(sender, transaction, taken)):
                return
        except Fatal:
            self._rewind()
            raise
        self._rewind()

    def _transform(self, sender: Sender, transaction: Transaction, taken: Sequence[tuple[Place, Row]]) -> None:
        for each in taken:
            self.write(sender, transaction, self.source.choice(self._places), each)
        if self._stalls and self.source.random() < 0.05:
            time.sleep(8)
        positions = {place: row.offset + 1 for place, row in taken}
        sender.send_positions(transaction, self._consumer.consumer_group_metadata(), positions)
        if self._stalls and self.source.random() < 0.05:
            time.sleep(8)

    def _rewind(self) -> None:
        """To where the group is: the transaction was not committed, or nobody knows."""
        deadline = time.monotonic() + GIVE_UP_S
        while not self._stopping.is_set():
            try:
                places = list(self._sessions)
                wanted = [ck.TopicPartition(*place) for place in places]
                for found in self._consumer.committed(wanted, timeout=ASK_S) if wanted else ():
                    self._consumer.seek(ck.TopicPartition(found.topic, found.partition, max(found.offset, 0)))
                self._new_sessions(places)
                return
            except ck.KafkaException as error:
                self.errors[f"rewind {error.args[0].name()}"] += 1
                if error.args[0].code() == ck.KafkaError._STATE:
                    return  # The partition is somebody else's by now.
                if time.monotonic() > deadline:
                    raise NoAnswer(f"{self.name} cannot go back: {error}") from None

    def close(self) -> None:
        self._consumer.close()


class CommittedReader(Worker):
    """Reads all places from some offset on; after a while it begins again at another."""

    def __init__(
        self,
        name: str,
        client: Mapping[str, str],
        places: Sequence[Place],
        history: History,
        source: random.Random,
        isolation: str,
    ):
        super().__init__(name)
        self._places, self._history, self._source = places, history, source
        self._consumer = reader(client, name, isolation)

    def run(self) -> None:
        furthest: dict[Place, int] = {}
        while not self._stopping.is_set():
            session = f"{self.name}-{uuid4().hex[:6]}"
            share = self._source.choice((0.0, self._source.random(), 1.0))
            starts = {place: int(share * furthest.get(place, 0)) for place in self._places}
            self._consumer.assign([ck.TopicPartition(*place, offset) for place, offset in starts.items()])
            ends = time.monotonic() + self._source.uniform(0.5, 4)
            while time.monotonic() < ends and not self._stopping.is_set():
                for message in self._consumer.consume(500, 0.1):
                    if message.error() is None:
                        place, row = row_of(message)
                        self._history.seen.append(Seen(session, place, row, time.monotonic_ns()))
                        furthest[place] = max(furthest.get(place, 0), row.offset)
                    elif message.error().code() == ck.KafkaError.OFFSET_OUT_OF_RANGE:
                        self._history.complaints.append(f"{self.name} was told: {message.error().str()}")
        self._consumer.close()


class EndsReader(Worker):
    """Asks where each place ends for readers of committed records, and then for all."""

    def __init__(self, client: Mapping[str, str], places: Sequence[Place], history: History) -> None:
        super().__init__("ends")
        self._places, self._history = places, history
        self._consumers = [reader(client, "ends", isolation) for isolation in (COMMITTED, ALL)]

    def run(self) -> None:
        while not self._stopping.wait(0.05):
            for place in self._places:
                ends = self.ask(place)
                if ends is not None:
                    self._history.ends.append(ends)
        for consumer in self._consumers:
            consumer.close()

    def ask(self, place: Place) -> Ends | None:
        try:
            asked = ck.TopicPartition(*place)
            stable, high = (consumer.get_watermark_offsets(asked, timeout=ASK_S)[1] for consumer in self._consumers)
        except ck.KafkaException:
            return None
        return Ends(place, stable, high)

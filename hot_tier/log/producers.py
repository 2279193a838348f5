"""What a log knows of each idempotent producer: its epoch, its last five batches, its transaction. Pure logic.

A producer id writes batches whose sequence numbers follow each other without gaps; they wrap from 2^31 - 1 to 0.
It may have five batches in flight, so any of the last five may come again: a batch with the same first and last
sequence as one of them was stored already and is answered with its offsets. The rules, in order:

    what is known of the producer         batch is                         verdict
    nothing                               at any sequence                  new
    a higher epoch                        -                                ProducerFenced
    a lower epoch                         at sequence 0                    new, the older epoch is forgotten
    a lower epoch                         at another sequence              OutOfOrderSequence
    this epoch                            one of the last five             duplicate
    this epoch                            right after the last one         new
    this epoch, no batch of it            at sequence 0                    new
    this epoch                            anything else                    OutOfOrderSequence

A batch of a transaction repeats only one of the same transaction. Some clients (librdkafka) give a batch up when they
abort, and go back to its sequence in their next transaction, while the batch is stored: what they write next would be
taken for stored too, and be lost.

What is new must fit the producer's transaction too:

    transaction here                      batch is                         verdict
    none                                  without a transaction            stored
    none                                  of a transaction                 begins it, once the coordinator has said so
    open                                  of it, in the same epoch         stored
    open                                  anything else                    InvalidTransactionState

A marker ends the transaction. It tells an epoch, so that late batches of the transaction are fenced, and its
coordinator's, so that a coordinator that was replaced is fenced. As leader:

    epoch of the marker                   transaction here                 verdict
    lower than the producer's             -                                ProducerFenced
    the producer's, with an epoch         open                             ProducerFenced
    for each transaction
    anything else                         -                                stored

The state is saved as of an offset (`docs/formats/producers.md`) and brought up to date by replaying the batches from
there. What is in the log was judged by its leader, so a replay takes it as it is. A producer idle for long enough is
forgotten, unless it has an open transaction.
"""

from collections import deque
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from hot_tier.errors import InvalidTransactionState, OutOfOrderSequence, ProducerFenced, TransactionCoordinatorFenced
from hot_tier.log.transactions import NO_TRANSACTION, Ended, OpenTransaction, Transactions, Verification
from hot_tier.record.batch import CONTROL, TRANSACTIONAL, BatchHeader
from hot_tier.record.control import Marker, MarkerKind
from hot_tier.record.crc import crc32c

WINDOW: Final = 5
MADE_UP: Final = 1 << 62
"""Producer ids from here on are made from a key that a client gave to one request (`gateway.http.idempotency`). The
cluster counts its ids up from 0, and never gets there."""
MAX_SEQUENCE: Final = 2**31 - 1
NO_COORDINATOR: Final = -1
EPOCH_PER_TRANSACTION: Final = 2
"""Version of transactions from which on each has an epoch of its own."""

_MAGIC: Final = b"TLPS"
_SETTLED: Final = 1
_VERSION: Final = 2
_HEAD: Final = Struct("<4sHHqII")  # magic, version, zero, offset, producers, CRC-32C of the file with this field zero
_PRODUCER: Final = Struct(
    "<"
    "q"  # producer id
    "h"  # epoch
    "H"  # batches that follow
    "q"  # time of the last write, ms
    "q"  # first offset of the open transaction, -1 for none
    "i"  # epoch of the transaction coordinator that last wrote a marker, -1 for none
)
_BATCH: Final = Struct("<iiqq")  # first sequence, last sequence, base offset, end offset
_OPEN: Final = Struct("<qH")  # when it began, ms; bytes of the transactional id that follow
_COUNT: Final = Struct("<I")
_ENDED: Final = Struct("<qq")  # first offset of the transaction, offset of its marker


class Written(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    end_offset: int


class Producer:
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "first_offset",
        "last_write_ms",
        "started_ms",
        "transactional_id",
    )

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[Written] = deque(maxlen=WINDOW)
        self.last_write_ms = 0
        self.coordinator_epoch = NO_COORDINATOR
        self.first_offset = NO_TRANSACTION
        """Of the open transaction."""
        self.started_ms = 0
        self.transactional_id: str | None = None


class ProducerView(NamedTuple):
    """One producer as DescribeProducers shows it; -1 where nothing is known."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_write_ms: int
    transaction_start_offset: int
    coordinator_epoch: int


class Replayed(NamedTuple):
    """A stored batch of a producer."""

    producer_id: int
    epoch: int
    first_sequence: int
    base_offset: int
    last_offset: int
    attributes: int
    written_ms: int
    marker: Marker | None


class ProducerState:
    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._verifications: WeakValueDictionary[int, Verification] = WeakValueDictionary()
        self.transactions = Transactions()

    def __len__(self) -> int:
        return len(self._producers)

    # What is new

    def check(self, header: BatchHeader, verification: Verification | None = None) -> Written | None:
        """Returns the stored batch that `header` repeats, or None if it is new. `header.producer_id` is not -1."""
        producer = self._producers.get(header.producer_id)
        if producer is not None:
            epoch, batches = header.producer_epoch, producer.batches
            if epoch < producer.epoch:
                raise self._fenced(header.producer_id, epoch, producer)
            begins = epoch > producer.epoch or not batches
            expected = 0 if begins else (batches[-1].last_sequence + 1) & MAX_SEQUENCE
            if header.base_sequence != expected:
                stored = None if begins else _repeated(header, producer)
                if stored is None:
                    raise self._out_of_order(header, expected)
                return stored
        if header.attributes & TRANSACTIONAL:
            self._check_transaction(header, producer, verification)
        elif producer is not None and producer.first_offset != NO_TRANSACTION:
            raise InvalidTransactionState(
                f"producer {header.producer_id} has an open transaction and writes outside of it",
                hint="end the transaction first",
            )
        return None

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        """Returns the sequence of the producer's next batch, for those who write here for a producer."""
        producer = self._producers.get(producer_id)
        if producer is None or producer.epoch != epoch or not producer.batches:
            return 0
        return (producer.batches[-1].last_sequence + 1) & MAX_SEQUENCE

    def _check_transaction(
        self, header: BatchHeader, producer: Producer | None, verification: Verification | None
    ) -> None:
        if producer is not None and producer.first_offset != NO_TRANSACTION:
            if header.producer_epoch != producer.epoch:
                raise InvalidTransactionState(
                    f"producer {header.producer_id} writes with epoch {header.producer_epoch}, and its transaction of"
                    f" epoch {producer.epoch} is still open",
                    hint="try again when the transaction coordinator has ended it",
                )
            return
        if (
            verification is None
            or self._verifications.get(header.producer_id) is not verification
            or verification.producer_epoch != header.producer_epoch
        ):
            raise InvalidTransactionState(
                f"producer {header.producer_id} has no transaction here that goes on",
                hint="add the partition to the transaction first; if it was added, the transaction is over",
            )
        first = header.base_sequence
        if first > verification.lowest_sequence or (first and verification.tv2 and producer is None):
            raise self._out_of_order(header, verification.lowest_sequence if producer is not None else 0)

    def begin_verification(
        self, header: BatchHeader, transactional_id: str, *, tv2: bool = False
    ) -> Verification | None:
        """Returns None if the coordinator need not be asked: the batch belongs to an open transaction. Batches of one
        producer that arrive together share one verification."""
        producer = self._producers.get(header.producer_id)
        if producer is not None:
            if header.producer_epoch < producer.epoch:
                raise self._fenced(header.producer_id, header.producer_epoch, producer)
            if header.producer_epoch == producer.epoch and producer.first_offset != NO_TRANSACTION:
                return None
        running = self._verifications.get(header.producer_id)
        if running is not None and running.producer_epoch == header.producer_epoch:
            running.lowest_sequence = min(running.lowest_sequence, header.base_sequence)
            return running
        fresh = Verification(header.producer_id, header.producer_epoch, header.base_sequence, transactional_id, tv2)
        if running is None or running.producer_epoch < fresh.producer_epoch:
            self._verifications[header.producer_id] = fresh
        return fresh

    def check_marker(self, producer_id: int, epoch: int, marker: Marker, transaction_version: int) -> None:
        """Raises ProducerFenced or TransactionCoordinatorFenced if the marker is not to be written."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        if epoch < producer.epoch:
            raise self._fenced(producer_id, epoch, producer)
        if (
            epoch == producer.epoch
            and transaction_version >= EPOCH_PER_TRANSACTION
            and producer.first_offset != NO_TRANSACTION
        ):
            raise ProducerFenced(
                f"a marker for producer {producer_id} has the epoch {epoch} of its open transaction",
                hint="the marker is of an earlier transaction, which is over",
            )
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"a marker for producer {producer_id} is of coordinator epoch {marker.coordinator_epoch}, epoch"
                f" {producer.coordinator_epoch} has written already",
                hint="another broker coordinates this transaction now",
            )

    # What was stored

    def wrote(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        base_offset: int,
        last_offset: int,
        attributes: int,
        now_ms: int,
        marker: Marker | None = None,
    ) -> None:
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(epoch)
        elif epoch != producer.epoch:
            producer.epoch = epoch
            producer.batches.clear()
        producer.last_write_ms = now_ms
        if not attributes & CONTROL:
            last_sequence = (first_sequence + last_offset - base_offset) & MAX_SEQUENCE
            producer.batches.append(Written(first_sequence, last_sequence, base_offset, last_offset + 1))
            if attributes & TRANSACTIONAL and producer.first_offset == NO_TRANSACTION:
                self._begin(producer_id, producer, base_offset, now_ms)
        elif marker is not None:
            self._end(producer_id, producer, base_offset, marker)

    def _begin(self, producer_id: int, producer: Producer, first_offset: int, now_ms: int) -> None:
        producer.first_offset = first_offset
        producer.started_ms = now_ms
        verification = self._verifications.pop(producer_id, None)
        producer.transactional_id = None if verification is None else verification.transactional_id
        self.transactions.begin(producer_id, first_offset)

    def _end(self, producer_id: int, producer: Producer, offset: int, marker: Marker) -> None:
        self._verifications.pop(producer_id, None)
        producer.first_offset = NO_TRANSACTION
        producer.transactional_id = None
        producer.coordinator_epoch = max(producer.coordinator_epoch, marker.coordinator_epoch)
        self.transactions.end(producer_id, offset, aborted=marker.kind is MarkerKind.ABORT)

    def end_transactions(self) -> None:
        """Ends all transactions without a marker: the caller knows that nothing here is undecided."""
        self.forget_open()
        aborted, self.transactions = self.transactions.aborted, Transactions()
        self.transactions.aborted = aborted

    def forget_open(self) -> int | None:
        """Forgets the open transactions: it is not known how they ended. Returns where the first of them began."""
        forgotten = self.transactions.forget_open()
        for producer in [self._producers[each] for each in forgotten]:
            producer.first_offset, producer.transactional_id = NO_TRANSACTION, None
        return min(forgotten.values(), default=None)

    def expire(self, now_ms: int, idle_ms: int, made_up_idle_ms: int) -> int:
        """Forgets producers that wrote nothing for `idle_ms` and have no open transaction; those with a made-up id
        after `made_up_idle_ms`. Returns how many."""
        idle = [
            producer_id
            for producer_id, producer in self._producers.items()
            if now_ms - producer.last_write_ms >= (idle_ms if producer_id < MADE_UP else made_up_idle_ms)
            and producer.first_offset == NO_TRANSACTION
        ]
        for producer_id in idle:
            del self._producers[producer_id]
        return len(idle)

    # What is known

    @property
    def transactional(self) -> bool:
        """Returns whether any producer is known to have had a transaction here."""
        return bool(self.transactions.open) or any(
            producer.coordinator_epoch != NO_COORDINATOR for producer in self._producers.values()
        )

    def open_transactions(self) -> Iterator[OpenTransaction]:
        """Yields them in the order of their first offsets."""
        for producer_id, first_offset in self.transactions.open.items():
            producer = self._producers[producer_id]
            yield OpenTransaction(
                producer_id,
                producer.epoch,
                first_offset,
                producer.started_ms,
                producer.last_write_ms,
                producer.transactional_id,
            )

    def last_offsets(self) -> frozenset[int]:
        """Returns the last offset of each producer's last batch. Compaction keeps a trace of these batches."""
        return frozenset(
            producer.batches[-1].end_offset - 1 for producer in self._producers.values() if producer.batches
        )

    def without_batches(self) -> frozenset[tuple[int, int]]:
        """Returns id and epoch of each producer of whose epoch only markers tell. Compaction keeps these markers."""
        return frozenset((each, producer.epoch) for each, producer in self._producers.items() if not producer.batches)

    def describe(self) -> Iterator[ProducerView]:
        for producer_id, producer in self._producers.items():
            last_sequence = producer.batches[-1].last_sequence if producer.batches else -1
            yield ProducerView(
                producer_id,
                producer.epoch,
                last_sequence,
                producer.last_write_ms,
                producer.first_offset,
                producer.coordinator_epoch,
            )

    def _fenced(self, producer_id: int, epoch: int, producer: Producer) -> ProducerFenced:
        return ProducerFenced(
            f"producer {producer_id} writes with epoch {epoch}, epoch {producer.epoch} has written already",
            hint="another instance took over this producer id; start anew with a new one",
        )

    def _out_of_order(self, header: BatchHeader, expected: int) -> OutOfOrderSequence:
        return OutOfOrderSequence(
            f"producer {header.producer_id} sent sequence {header.base_sequence}, {expected} was expected",
            hint="a batch before this one was lost or refused, or this one was stored too long ago to compare",
        )

    # As a file

    def write(self, offset: int) -> bytes:
        """Returns the state as of `offset`, in the form of a snapshot file. Where no transaction is undecided it is one
        that 0.1.0 can read."""
        transactions = self.transactions
        version = _SETTLED if transactions.first_unstable is None else _VERSION
        body = bytearray()
        for producer_id, producer in self._producers.items():
            body += _PRODUCER.pack(
                producer_id,
                producer.epoch,
                len(producer.batches),
                producer.last_write_ms,
                producer.first_offset,
                producer.coordinator_epoch,
            )
            if producer.first_offset != NO_TRANSACTION:
                name = (producer.transactional_id or "").encode()
                body += _OPEN.pack(producer.started_ms, len(name)) + name
            for written in producer.batches:
                body += _BATCH.pack(*written)
        if version == _VERSION:
            body += _COUNT.pack(len(transactions.ended))
            for ended in transactions.ended:
                body += _ENDED.pack(*ended)
        head = _HEAD.pack(_MAGIC, version, 0, offset, len(self._producers), 0)
        crc = crc32c(body, crc32c(head))
        return head[:-4] + crc.to_bytes(4, "little") + body


def _repeated(header: BatchHeader, producer: Producer) -> Written | None:
    """Returns the stored batch that has the same sequences, and belongs to the same transaction if it is of one."""
    since = 0
    if header.attributes & TRANSACTIONAL:
        if producer.first_offset == NO_TRANSACTION:
            return None
        since = producer.first_offset
    first, last = header.base_sequence, header.last_sequence
    for written in producer.batches:
        if written.first_sequence == first and written.last_sequence == last and written.base_offset >= since:
            return written
    return None


def read_producers(content: bytes) -> tuple[int, ProducerState] | None:
    """Returns the offset and the state of a snapshot, or None if it is not whole and undamaged."""
    if len(content) < _HEAD.size:
        return None
    magic, version, _, offset, count, crc = _HEAD.unpack_from(content)
    head = content[: _HEAD.size - 4] + bytes(4)
    if magic != _MAGIC or version not in (_SETTLED, _VERSION) or crc32c(content[_HEAD.size :], crc32c(head)) != crc:
        return None
    state = ProducerState()
    at = _HEAD.size
    for _ in range(count):
        at = _read_producer(content, at, state)
    for producer_id, producer in sorted(state._producers.items(), key=lambda item: item[1].first_offset):
        if producer.first_offset != NO_TRANSACTION:
            state.transactions.begin(producer_id, producer.first_offset)
    if version == _VERSION:
        (ended,) = _COUNT.unpack_from(content, at)
        for first, last in _ENDED.iter_unpack(content[at + _COUNT.size : at + _COUNT.size + ended * _ENDED.size]):
            state.transactions.add_ended(Ended(first, last))
    return offset, state


def _read_producer(content: bytes, at: int, state: ProducerState) -> int:
    """Reads the producer at `at`. Returns where it ends."""
    producer_id, epoch, batches, last_write_ms, first_offset, coordinator_epoch = _PRODUCER.unpack_from(content, at)
    at += _PRODUCER.size
    producer = state._producers[producer_id] = Producer(epoch)
    producer.last_write_ms = last_write_ms
    producer.first_offset, producer.coordinator_epoch = first_offset, coordinator_epoch
    if first_offset != NO_TRANSACTION:
        producer.started_ms, name_bytes = _OPEN.unpack_from(content, at)
        at += _OPEN.size
        producer.transactional_id = content[at : at + name_bytes].decode() or None
        at += name_bytes
    for _ in range(batches):
        producer.batches.append(Written(*_BATCH.unpack_from(content, at)))
        at += _BATCH.size
    return at

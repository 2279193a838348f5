"""One transactional id as a pure machine: what a request changes, or why it is refused.

A `Transaction` is what the journal stores of a transactional id. Each function here takes the stored value and returns
a `Decision`; its driver stores the new value, and acts on it when its record is committed. So an epoch that a producer
is given, or that a marker carries, is always one that was written.

- A producer's epoch only grows. `LAST_EPOCH` is the last that a producer is given, one more is only for markers; after
  that there is a new producer id with epoch 0. Nothing of an older epoch or id is accepted.
- With TV2 (KIP-890) each decided transaction ends an epoch: the marker carries the next epoch, and the producer goes
  on with it. So a late request of one transaction never meets the next. With TV1 the epoch stays.
- What is decided stays: PrepareCommit and PrepareAbort lead only to the state that completes them.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from gateway.coordinators.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    ProducerFencedByNewer,
    TransactionAbortable,
    TransactionError,
    TransactionTooLarge,
    WrongTransactionState,
)
from gateway.coordinators.transactions.states import IDLE, PREPARED, State
from hot_tier.ids import TopicPartition

NONE: Final = -1
LAST_EPOCH: Final = 32_766
MARKER_EPOCH: Final = 32_767
"""The largest number that an epoch can be."""
MAX_PARTITIONS: Final = 10_000


class Producer(NamedTuple):
    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    producer_id: int
    epoch: int
    timeout_ms: int
    state: State
    updated_ms: int
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NONE
    """When the first partition was added; of what was decided last, until another begins."""
    previous_id: int = NONE
    """The producer id of the value before this one. A producer that missed its new id is known by it."""
    next_id: int = NONE
    """With which producer id the producer goes on once this transaction is complete; NONE: with the same."""
    tv2: bool = False
    """Whether the producer gets a new epoch with each transaction."""
    last_epoch: int = NONE
    """The producer's epoch before an InitProducerId that named it, so that a retry is known. It is not stored."""

    @property
    def producer(self) -> Producer:
        return Producer(self.producer_id, self.epoch)

    @property
    def after(self) -> Producer:
        """Returns who goes on when this transaction is complete."""
        return self.producer if self.next_id == NONE else Producer(self.next_id, 0)

    @property
    def exhausted(self) -> bool:
        return self.epoch >= LAST_EPOCH


class Refused(NamedTuple):
    error: type[TransactionError]


class Accepted(NamedTuple):
    """Nothing changes."""

    answer: Producer


class Change(NamedTuple):
    to: Transaction
    answer: Producer | None
    """What to answer once the change is committed. None: decide again once the transaction is complete."""


class NeedsId(NamedTuple):
    """Decide again with a new producer id."""


Decision = Refused | Accepted | Change | NeedsId


# A producer begins


def begin(
    known: Transaction | None, expected: Producer | None, timeout_ms: int, new_id: int | None, now_ms: int
) -> Decision:
    """InitProducerId. `expected` is what the producer has, if it only wants its next epoch."""
    if known is None:
        if new_id is None:
            return NeedsId()
        first = Transaction(new_id, 0, timeout_ms, State.EMPTY, now_ms)
        return Change(first, first.producer)
    if expected is not None and not _continues(known, expected):
        return Refused(ProducerFencedByNewer)
    if known.state in PREPARED:
        return Refused(ConcurrentTransactions)
    if known.state is State.ONGOING:
        if expected is not None and expected.epoch != known.epoch:
            return Refused(ProducerFencedByNewer)
        return fence(known, new_id, now_ms, last_epoch=NONE if expected is None else expected.epoch)
    is_current = expected is None or expected == known.producer
    # The answer to the first try was lost. Nobody else has the epoch: another producer would have raised it.
    is_retry = expected is not None and expected.epoch == known.last_epoch
    if not is_current and not is_retry:
        return Refused(ProducerFencedByNewer)
    if known.exhausted and (is_current or known.epoch > LAST_EPOCH):
        if new_id is None:
            return NeedsId()
        return _begun(known, Producer(new_id, 0), expected, timeout_ms, now_ms)
    if is_current:
        return _begun(known, Producer(known.producer_id, known.epoch + 1), expected, timeout_ms, now_ms)
    return Change(_next(known, State.EMPTY, now_ms, timeout_ms=timeout_ms), known.producer)


def _continues(known: Transaction, expected: Producer) -> bool:
    renewed = expected.id == known.previous_id and expected.epoch >= LAST_EPOCH
    return expected.id == known.producer_id or renewed


def _begun(known: Transaction, producer: Producer, expected: Producer | None, timeout_ms: int, now_ms: int) -> Change:
    value = replace(
        _next(known, State.EMPTY, now_ms, timeout_ms=timeout_ms),
        producer_id=producer.id,
        epoch=producer.epoch,
        last_epoch=NONE if expected is None else expected.epoch,
    )
    return Change(value, producer)


# Partitions


def add(
    known: Transaction | None, producer: Producer, partitions: Collection[TopicPartition], tv2: bool, now_ms: int
) -> Decision:
    """AddPartitionsToTxn, AddOffsetsToTxn, and the first batch on a partition with TV2."""
    refused = _refuse(known, producer)
    if refused is not None:
        return Refused(refused)
    assert known is not None
    ongoing = known.state is State.ONGOING
    if ongoing and known.partitions.issuperset(partitions):
        return Accepted(producer)
    every = known.partitions.union(partitions) if ongoing else frozenset(partitions)
    if len(every) > MAX_PARTITIONS:
        return Refused(TransactionTooLarge)
    started_ms = known.started_ms if ongoing else now_ms
    value = _next(known, State.ONGOING, now_ms, partitions=every, started_ms=started_ms)
    return Change(replace(value, tv2=tv2, last_epoch=known.last_epoch), producer)


def verify(
    known: Transaction | None, producer: Producer, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, type[TransactionError] | None]:
    """Returns why a batch of this producer may not begin a transaction on each partition; None where it may."""
    refused = _refuse(known, producer)
    if refused is not None:
        return dict.fromkeys(partitions, refused)
    assert known is not None
    there = known.partitions if known.state is State.ONGOING else frozenset()
    return {tp: None if tp in there else TransactionAbortable for tp in partitions}


def _refuse(known: Transaction | None, producer: Producer) -> type[TransactionError] | None:
    if known is None:
        return InvalidProducerIdMapping
    if known.state in PREPARED and producer == known.after:
        return ConcurrentTransactions
    if producer.id != known.producer_id:
        return InvalidProducerIdMapping
    return None if producer.epoch == known.epoch else ProducerFencedByNewer


# The end


def end(
    known: Transaction | None, producer: Producer, commit: bool, tv2: bool, new_id: int | None, now_ms: int
) -> Decision:
    """EndTxn."""
    if known is None:
        return Refused(InvalidProducerIdMapping)
    return _end_tv2(known, producer, commit, new_id, now_ms) if tv2 else _end_tv1(known, producer, commit, now_ms)


def _end_tv1(known: Transaction, producer: Producer, commit: bool, now_ms: int) -> Decision:
    if producer.id != known.producer_id:
        return Refused(InvalidProducerIdMapping)
    if producer.epoch != known.epoch:
        return Refused(ProducerFencedByNewer)
    if known.state is State.ONGOING:
        return Change(_decided(known, commit, now_ms, tv2=False), producer)
    if known.tv2 and known.state not in PREPARED:
        return Refused(WrongTransactionState)  # what was decided last was of another epoch
    if known.state not in _same_outcome(commit):
        return Refused(WrongTransactionState)
    return Refused(ConcurrentTransactions) if known.state in PREPARED else Accepted(producer)


def _end_tv2(known: Transaction, producer: Producer, commit: bool, new_id: int | None, now_ms: int) -> Decision:
    if _is_retry(known, producer):
        return _repeated(known, commit)
    if known.state in PREPARED and producer == known.after:
        return Refused(ConcurrentTransactions)
    if producer.id != known.producer_id:
        return Refused(InvalidProducerIdMapping)
    if producer.epoch != known.epoch or known.state in PREPARED:
        return Refused(ProducerFencedByNewer)
    if known.state in IDLE and commit:
        return Refused(WrongTransactionState)
    # An abort of nothing ends the epoch too: a batch may still be under way that the coordinator has not heard of.
    if known.exhausted and new_id is None:
        return NeedsId()
    next_id = new_id if known.exhausted and new_id is not None else NONE
    decided = _decided(known, commit, now_ms, tv2=True, epoch=known.epoch + 1, next_id=next_id)
    return Change(decided, decided.after)


def _is_retry(known: Transaction, producer: Producer) -> bool:
    """Returns whether the request is for the transaction that was decided last, by its producer."""
    if not known.tv2 or known.state in (State.EMPTY, State.ONGOING):
        return False
    if known.producer_id == producer.id:
        return known.epoch == producer.epoch + 1
    return known.previous_id == producer.id and producer.epoch == LAST_EPOCH and known.epoch == 0


def _repeated(known: Transaction, commit: bool) -> Decision:
    if known.state in _same_outcome(commit):
        return Refused(ConcurrentTransactions) if known.state in PREPARED else Accepted(known.producer)
    # The coordinator aborts what takes too long. A producer that commits at this moment was fenced, and did no wrong.
    return Refused(ProducerFencedByNewer if commit else WrongTransactionState)


def _same_outcome(commit: bool) -> tuple[State, State]:
    if commit:
        return State.PREPARE_COMMIT, State.COMPLETE_COMMIT
    return State.PREPARE_ABORT, State.COMPLETE_ABORT


def abort(known: Transaction | None, new_id: int | None, now_ms: int) -> Decision:
    """Aborts an open transaction as an operator asks. The answer is the producer that may not go on."""
    if known is None or known.state is not State.ONGOING:
        return Refused(WrongTransactionState)
    decision = fence(known, new_id, now_ms)
    return decision._replace(answer=known.producer) if isinstance(decision, Change) else decision


def time_out(known: Transaction | None, new_id: int | None, now_ms: int) -> Decision:
    """Does the same with a transaction that takes longer than its producer allowed."""
    if known is None or not is_timed_out(known, now_ms):
        return Refused(WrongTransactionState)
    return abort(known, new_id, now_ms)


def fence(known: Transaction, new_id: int | None, now_ms: int, *, last_epoch: int = NONE) -> Decision:
    """Aborts an open transaction that its producer did not end: it took too long, or another producer begins.

    The epoch is raised by the record of the abort itself, once."""
    assert known.state is State.ONGOING
    renewed = known.tv2 and known.exhausted
    if renewed and new_id is None:
        return NeedsId()
    aborted = _decided(
        known,
        False,
        now_ms,
        tv2=known.tv2,
        epoch=min(known.epoch + 1, MARKER_EPOCH),
        next_id=new_id if renewed and new_id is not None else NONE,
    )
    return Change(replace(aborted, last_epoch=last_epoch), None)


def _decided(
    known: Transaction, commit: bool, now_ms: int, *, tv2: bool, epoch: int | None = None, next_id: int = NONE
) -> Transaction:
    ongoing = known.state is State.ONGOING
    return replace(
        _next(
            known,
            State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
            now_ms,
            partitions=known.partitions if ongoing else frozenset(),
            started_ms=known.started_ms if ongoing else now_ms,
        ),
        epoch=known.epoch if epoch is None else epoch,
        next_id=next_id,
        tv2=tv2,
    )


def completed(known: Transaction, now_ms: int) -> Transaction:
    """Returns what follows when all markers are committed."""
    committed = known.state is State.PREPARE_COMMIT
    assert committed or known.state is State.PREPARE_ABORT
    value = _next(
        known,
        State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT,
        now_ms,
        started_ms=known.started_ms,
    )
    producer = known.after
    return replace(value, producer_id=producer.id, epoch=producer.epoch, last_epoch=known.last_epoch)


# Time


def is_timed_out(known: Transaction, now_ms: int) -> bool:
    return known.state is State.ONGOING and known.started_ms + known.timeout_ms < now_ms


def is_expired(known: Transaction, expiration_ms: int, now_ms: int) -> bool:
    return known.state in IDLE and known.updated_ms + expiration_ms <= now_ms


def _next(
    known: Transaction,
    state: State,
    now_ms: int,
    *,
    timeout_ms: int | None = None,
    partitions: frozenset[TopicPartition] = frozenset(),
    started_ms: int = NONE,
) -> Transaction:
    return replace(
        known,
        state=state,
        updated_ms=now_ms,
        timeout_ms=known.timeout_ms if timeout_ms is None else timeout_ms,
        partitions=partitions,
        started_ms=started_ms,
        previous_id=known.producer_id,
        next_id=NONE,
    )

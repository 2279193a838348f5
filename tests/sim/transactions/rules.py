"""Which functions decide in a run: those of production, or one of them broken as somebody could break it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from gateway.coordinators.transactions import transaction
from gateway.coordinators.transactions.transaction import Decision, Producer, Transaction
from hot_tier.ids import Offset
from hot_tier.log.producers import ProducerState
from hot_tier.log.transactions import Aborted, Transactions, Verification
from hot_tier.record.batch import BatchHeader
from hot_tier.record.control import Marker
from hot_tier.replication.watermark import last_stable_offset

End = Callable[[Transaction | None, Producer, bool, bool, int | None, int], Decision]


def _stable(transactions: Transactions, high_watermark: int, end: int) -> int:
    first = transactions.first_unstable
    return high_watermark if first is None else last_stable_offset(Offset(high_watermark), first, Offset(0))


def _overlapping(transactions: Transactions, start: int, end: int) -> Sequence[Aborted]:
    return transactions.aborted.overlapping(start, end)


@dataclass(frozen=True)
class Rules:
    producers: type[ProducerState] = ProducerState
    end: End = transaction.end
    stable: Callable[[Transactions, int, int], int] = _stable
    overlapping: Callable[[Transactions, int, int], Sequence[Aborted]] = _overlapping
    verifies: bool = True
    archives_to_stable: bool = True
    decides_when_written: bool = True
    marks_when_committed: bool = True
    completes_after_all: bool = True


class _FencesNobody(ProducerState):
    def check(self, header: BatchHeader, verification: Verification | None = None):  # type: ignore[no-untyped-def]
        return super().check(self._with_its_epoch(header), verification)

    def begin_verification(  # type: ignore[no-untyped-def]
        self, header: BatchHeader, transactional_id: str, *, tv2: bool = False
    ):
        return super().begin_verification(self._with_its_epoch(header), transactional_id, tv2=tv2)

    def _with_its_epoch(self, header: BatchHeader) -> BatchHeader:
        producer = self._producers.get(header.producer_id)
        if producer is None or header.producer_epoch >= producer.epoch:
            return header
        sequence = producer.batches[-1].last_sequence + 1 if producer.batches else 0
        return header._replace(producer_epoch=producer.epoch, base_sequence=sequence)


class _TakesAnyForRepeated(ProducerState):
    """A batch repeats a stored one of the same sequence, of whatever transaction."""

    def check(self, header: BatchHeader, verification: Verification | None = None):  # type: ignore[no-untyped-def]
        producer = self._producers.get(header.producer_id)
        if producer is not None and header.producer_epoch == producer.epoch:
            for written in producer.batches:
                if written.first_sequence == header.base_sequence:
                    return written
        return super().check(header, verification)


class _TakesEqualEpochs(ProducerState):
    def check_marker(self, producer_id: int, epoch: int, marker: Marker, transaction_version: int) -> None:
        super().check_marker(producer_id, epoch, marker, 0)


class _LeavesOldMarkers(ProducerState):
    """A marker of a coordinator that was deposed counts, and so does one of an older epoch."""

    def check_marker(self, producer_id: int, epoch: int, marker: Marker, transaction_version: int) -> None:
        pass


def _end_for_anybody(
    known: Transaction | None, producer: Producer, commit: bool, tv2: bool, new_id: int | None, now_ms: int
) -> Decision:
    current = producer if known is None else known.producer
    return transaction.end(known, current, commit, tv2, new_id, now_ms)


def _stable_to_the_end(transactions: Transactions, high_watermark: int, end: int) -> int:
    return next(iter(transactions.open.values()), end)


def _stable_at_the_marker(transactions: Transactions, high_watermark: int, end: int) -> int:
    return min(high_watermark, next(iter(transactions.open.values()), high_watermark))


def _by_marker(transactions: Transactions, start: int, end: int) -> Sequence[Aborted]:
    return sorted(_overlapping(transactions, start, end), key=lambda entry: entry.last_offset)


def _ended_inside(transactions: Transactions, start: int, end: int) -> Sequence[Aborted]:
    return [entry for entry in _overlapping(transactions, start, end) if entry.last_offset < end]


RULES: Final = Rules()

MUTANTS: Final[Mapping[str, Rules]] = MappingProxyType(
    {
        "a partition fences nobody": replace(RULES, producers=_FencesNobody),
        "a batch repeats one of another transaction": replace(RULES, producers=_TakesAnyForRepeated),
        "the coordinator fences nobody": replace(RULES, end=_end_for_anybody),
        "a marker of the same epoch ends an open transaction": replace(RULES, producers=_TakesEqualEpochs),
        "a marker is never too old": replace(RULES, producers=_LeavesOldMarkers),
        "the log is stable up to its end": replace(RULES, stable=_stable_to_the_end),
        "aborted transactions come in the order of their markers": replace(RULES, overlapping=_by_marker),
        "aborted transactions that end behind a fetch are left out": replace(RULES, overlapping=_ended_inside),
        "the archive goes beyond what is stable": replace(RULES, archives_to_stable=False),
        "markers are written before the decision is": replace(RULES, decides_when_written=False),
        "a marker counts before it is committed": replace(RULES, marks_when_committed=False),
        "a transaction is complete with its first marker": replace(RULES, completes_after_all=False),
        "a transaction of an old client begins unasked": replace(RULES, verifies=False),
    }
)

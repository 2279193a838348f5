"""The transactions of one partition: open, ended but not committed yet, aborted. Pure logic.

A transaction begins with its first batch and ends with its marker. Its batches may be seen as soon as the marker is
committed, not before: the log tells where the first batch of all such transactions starts (`first_unstable`).

    first batch ──────── marker ──────── high watermark passes the marker
         │    open         │      ended           │     decided

Invariants:
- `open` is in the order of first offsets: a transaction begins at the log end.
- The index of aborted transactions is in the order of their markers. Nothing that a reader can meet changes in place:
  what is removed from it makes another index, so a reader that works with the old one is not disturbed.
- Each entry says where the log was stable right after its marker; no later entry begins before that.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from hot_tier.record.batch import TRANSACTIONAL, BatchHeader
from hot_tier.record.records import LAST_OFFSET


class Aborted(NamedTuple):
    """A transaction that was aborted. Readers who want committed records leave out its batches."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Of its marker."""
    last_stable_offset: int
    """Where the first transaction starts that was still open at its marker; if none was, the offset after it."""


class OpenTransaction(NamedTuple):
    """A transaction without a marker, as far as this replica's log goes."""

    producer_id: int
    producer_epoch: int
    first_offset: int
    started_ms: int
    last_write_ms: int
    transactional_id: str | None
    """None where it is not known: batches do not carry it."""


class Verification:
    """The coordinator is being asked whether a producer's transaction goes on and has this partition.

    It is good for the one transaction that begins with it. A marker of the producer makes it void: what the coordinator
    says then may be about a transaction that is over.
    """

    __slots__ = ("__weakref__", "lowest_sequence", "producer_epoch", "producer_id", "transactional_id", "tv2")

    def __init__(self, producer_id: int, producer_epoch: int, sequence: int, transactional_id: str, tv2: bool) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.transactional_id = transactional_id
        self.tv2 = tv2
        """Its producer has an epoch for each transaction, so its first batch here has sequence 0."""
        self.lowest_sequence = sequence
        """Of the batches that wait for the answer: none of them may overtake it."""


class Ended(NamedTuple):
    """A transaction whose marker is in the log, and not known to be committed."""

    first_offset: int
    last_offset: int


class AbortedIndex:
    """The aborted transactions whose markers are in a stretch of the log, in the order of the markers."""

    __slots__ = ("_first", "_last", "_producers", "_stable")

    def __init__(self, entries: Iterable[Aborted] = ()) -> None:
        self._producers = array("q")
        self._first = array("q")
        self._last = array("q")
        self._stable = array("q")
        for entry in entries:
            self.add(entry)

    def __len__(self) -> int:
        return len(self._last)

    def __iter__(self) -> Iterator[Aborted]:
        return map(Aborted._make, zip(self._producers, self._first, self._last, self._stable, strict=True))

    def add(self, entry: Aborted) -> None:
        assert not self._last or entry.last_offset > self._last[-1]
        self._producers.append(entry.producer_id)
        self._first.append(entry.first_offset)
        self._stable.append(entry.last_stable_offset)
        # The marker last: a thread that finds it finds the rest too.
        self._last.append(entry.last_offset)

    def overlapping(self, from_offset: int, end_offset: int) -> list[Aborted]:
        """Returns the transactions that may have batches in the range, by first offset. They end in it or after it."""
        found: list[Aborted] = []
        last = self._last
        for at in range(bisect_left(last, from_offset), len(last)):
            if self._first[at] < end_offset:
                found.append(Aborted(self._producers[at], self._first[at], last[at], self._stable[at]))
            if self._stable[at] >= end_offset:
                break
        found.sort(key=_by_first_offset)
        return found

    def between(self, from_offset: int, end_offset: int) -> "AbortedIndex":
        """Returns the transactions whose markers are in the range."""
        chosen = slice(bisect_left(self._last, from_offset), bisect_left(self._last, end_offset))
        part = AbortedIndex()
        part._producers, part._first = self._producers[chosen], self._first[chosen]
        part._last, part._stable = self._last[chosen], self._stable[chosen]
        return part

    def joined(self, after: "AbortedIndex") -> "AbortedIndex":
        """Returns the transactions of both; the markers of `after` follow."""
        assert not len(self) or not len(after) or self._last[-1] < after._last[0]
        both = AbortedIndex()
        both._producers, both._first = self._producers + after._producers, self._first + after._first
        both._last, both._stable = self._last + after._last, self._stable + after._stable
        return both


class Hidden:
    """The batches of aborted transactions: `header in hidden`."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        """`aborted` is in the order of first offsets, as `AbortedIndex.overlapping` returns it."""
        self._of: dict[int, tuple[list[int], list[int]]] = {}
        for entry in aborted:
            first, last = self._of.setdefault(entry.producer_id, ([], []))
            first.append(entry.first_offset)
            last.append(entry.last_offset)

    def __contains__(self, header: BatchHeader) -> bool:
        of = self._of.get(header.producer_id) if header.attributes & TRANSACTIONAL else None
        if of is None:
            return False
        # A producer's transactions do not overlap.
        at = bisect_right(of[0], header.base_offset) - 1
        return at >= 0 and header.base_offset < of[1][at]


def _by_first_offset(entry: Aborted) -> int:
    return entry.first_offset


class Transactions:
    __slots__ = ("_ended", "aborted", "first_unstable", "open")

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """First offset by producer id."""
        self._ended: deque[Ended] = deque()
        """First and last offsets rise: one that began before another and ended after it stands for both."""
        self.aborted = AbortedIndex()
        self.first_unstable: int | None = None
        """Where the first transaction starts that is not decided. None: all are."""

    def begin(self, producer_id: int, first_offset: int) -> None:
        self.open[producer_id] = first_offset
        self._settle()

    def end(self, producer_id: int, marker_offset: int, *, aborted: bool) -> None:
        """Ends the producer's transaction, if it has one. The marker counts as not committed."""
        first_offset = self.open.pop(producer_id, None)
        if first_offset is None:
            return
        if aborted:
            stable = next(iter(self.open.values()), marker_offset + 1)
            self.aborted.add(Aborted(producer_id, first_offset, marker_offset, stable))
        self.add_ended(Ended(first_offset, marker_offset))

    def add_ended(self, ended: Ended) -> None:
        queue = self._ended
        while queue and queue[-1].first_offset >= ended.first_offset:
            queue.pop()
        queue.append(ended)
        self._settle()

    def forget_open(self) -> dict[int, int]:
        """Forgets the open transactions, and returns them."""
        forgotten, self.open = self.open, {}
        self._settle()
        return forgotten

    def forget_aborted(self, from_offset: int, end_offset: int) -> None:
        """Forgets those whose markers are in the range: nobody can meet a batch of them any more."""
        self.aborted = self.aborted.between(0, from_offset).joined(self.aborted.between(end_offset, LAST_OFFSET))

    def committed(self, high_watermark: int) -> None:
        """Notes that everything below is committed, so that markers there have decided their transactions."""
        queue = self._ended
        if queue and queue[0].last_offset < high_watermark:
            while queue and queue[0].last_offset < high_watermark:
                queue.popleft()
            self._settle()

    @property
    def ended(self) -> Sequence[Ended]:
        """Returns what is needed to find `first_unstable` again: the ended transactions that are not inside others."""
        return tuple(self._ended)

    def _settle(self) -> None:
        first = next(iter(self.open.values()), None)
        if self._ended:
            ended = self._ended[0].first_offset
            first = ended if first is None else min(first, ended)
        self.first_unstable = first


NO_TRANSACTION: Final = -1
"""Instead of the first offset of a transaction."""

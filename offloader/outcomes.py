"""Which batches of a segment were aborted, by the list that the log keeps. Decisions only.

The list is compared with the markers in the segment: if a transaction ends here, its marker says how. A list that says
otherwise is an error: an aborted record must not become a row, and a committed one must not be put aside. A compacted
segment may lack batches and markers, so nothing is compared there.
"""

from bisect import bisect_right
from collections.abc import Iterable

from hot_tier.log.transactions import Aborted
from hot_tier.record.batch import BatchHeader
from hot_tier.record.control import MarkerKind


class Outcomes:
    def __init__(self, aborted: Iterable[Aborted], *, compare: bool) -> None:
        self._compare = compare
        self._aborted: dict[int, list[Aborted]] = {}
        for each in sorted(aborted, key=lambda each: each.first_offset):
            self._aborted.setdefault(each.producer_id, []).append(each)
        self._open: dict[int, bool] = {}
        """By producer, whether its transaction that has batches here, and no marker yet, was aborted."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Says this of a data batch, for all batches in offset order. Raises ValueError if only a part of a transaction
        is in the list."""
        if not header.is_transactional:
            return False
        known = self._aborted.get(header.producer_id, [])
        at = bisect_right(known, header.base_offset, key=lambda each: each.first_offset) - 1
        found = at >= 0 and header.base_offset <= known[at].last_offset
        if self._compare and self._open.setdefault(header.producer_id, found) != found:
            raise ValueError(
                f"the batch at offset {header.base_offset} was {'aborted' if found else 'committed'}, the ones before "
                f"it in the transaction of producer {header.producer_id} were not"
            )
        return found

    def ended(self, header: BatchHeader, kind: MarkerKind) -> None:
        """Takes the marker of a transaction. Raises ValueError if it says something else than the list."""
        aborted = self._open.pop(header.producer_id, None)
        if aborted is not None and aborted != (kind == MarkerKind.ABORT):
            raise ValueError(
                f"the marker at offset {header.base_offset} says {kind.name.lower()}, the list of aborted transactions "
                f"says otherwise of producer {header.producer_id}"
            )

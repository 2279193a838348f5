"""What a reader of committed records needs besides batches: which of them belong to aborted transactions.

A reader gets batches, and an index that was taken before them. Meanwhile compaction may have taken away batches with
their marker; an entry without its marker must not be handed on: Kafka's clients would drop everything that the producer
wrote later.
"""

from collections.abc import Sequence

from hot_tier.log.scan import ATTRIBUTES, BASE_OFFSET, LAST_OFFSET, parse_all
from hot_tier.log.transactions import Aborted, AbortedIndex, Hidden
from hot_tier.record.batch import CONTROL, ReadBuffer, iter_headers


def aborted_among(index: AbortedIndex, batches: ReadBuffer) -> list[Aborted]:
    """Returns the aborted transactions that may have batches here, by first offset. A partial batch at the end does not
    count."""
    rows = parse_all(memoryview(batches), 0)
    if not len(rows):
        return []
    end_offset = int(rows[-1, LAST_OFFSET]) + 1
    found = index.overlapping(int(rows[0, BASE_OFFSET]), end_offset)
    if not found:
        return found
    markers = set(rows[rows[:, ATTRIBUTES] & CONTROL != 0, BASE_OFFSET].tolist())
    return [entry for entry in found if entry.last_offset >= end_offset or entry.last_offset in markers]


def without_aborted(batches: ReadBuffer, aborted: Sequence[Aborted]) -> ReadBuffer:
    """Returns the batches but for those of aborted transactions."""
    hidden = Hidden(aborted)
    view = memoryview(batches)
    kept = [view[position : position + header.size] for position, header in iter_headers(view) if header not in hidden]
    return b"".join(kept)

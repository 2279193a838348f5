"""Remembers refused batches of a connection's idempotent producers, and refuses the batches sent after them too.

A producer has up to five batches in flight. Suppose a broker refuses one and accepts the next, because it has become
leader meanwhile or enough replicas are in sync again. That breaks the order: a producer unknown to the broker would be
stored from the middle on, and a known one gets a gap error. After a gap librdkafka raises its epoch and sends
everything in flight again under new numbers, also batches that an earlier leader has stored already; those are then
stored twice.

Therefore, after a batch was refused for a temporary reason, every batch with a higher sequence gets the same answer. It
ends with a batch that does not follow the last refused one: the producer has read the refusal and begins again.
"""

from typing import Final

from hot_tier.ids import TopicPartition
from hot_tier.log.producers import MAX_SEQUENCE
from hot_tier.record.batch import BatchHeader

MAX_REMEMBERED: Final = 1000


class Refusals:
    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[tuple[TopicPartition, int], tuple[BatchHeader, BaseException]] = {}

    def note(self, tp: TopicPartition, header: BatchHeader, error: BaseException) -> None:
        """Remembers a batch that was refused, or that was appended but could not be committed."""
        if header.producer_id < 0 or not getattr(error, "retriable", isinstance(error, TimeoutError)):
            return
        if len(self._last) >= MAX_REMEMBERED:
            del self._last[next(iter(self._last))]
        self._last[tp, header.producer_id] = header, error

    def check(self, tp: TopicPartition, header: BatchHeader) -> None:
        """Raises the error of the refused batch that this one follows. Then the caller calls `note` for this batch."""
        refused = self._last.pop((tp, header.producer_id), None)
        if refused is None:
            return
        before, error = refused
        behind = (header.base_sequence - before.base_sequence) & MAX_SEQUENCE
        if before.producer_epoch == header.producer_epoch and 0 < behind <= MAX_SEQUENCE // 2 + 1:
            raise error.with_traceback(None)

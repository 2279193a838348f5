"""What the idempotent producers of one connection were refused, so that what they sent behind it is refused alike.

A producer has up to five batches in flight. A broker that refuses one and takes the next, because it leads by then or
enough replicas are in sync again, breaks their order: a producer whose state it does not know would be stored from the
middle on, and the others are told of a gap in their sequence. librdkafka answers a gap by raising its epoch and sending
everything in flight again under new numbers, also what an earlier leader has stored already, so that it is there twice.

Therefore: behind a batch that was refused for a passing reason, every batch of a higher sequence gets the same answer,
until one comes that is not behind the last one refused: the producer has read the refusal and begins again.
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
        """A batch is refused, or was appended and could not be committed."""
        if header.producer_id < 0 or not getattr(error, "retriable", isinstance(error, TimeoutError)):
            return
        if len(self._last) >= MAX_REMEMBERED:
            del self._last[next(iter(self._last))]
        self._last[tp, header.producer_id] = header, error

    def check(self, tp: TopicPartition, header: BatchHeader) -> None:
        """Raises what the batch before this one was refused with; `note` comes next then."""
        refused = self._last.pop((tp, header.producer_id), None)
        if refused is None:
            return
        before, error = refused
        behind = (header.base_sequence - before.base_sequence) & MAX_SEQUENCE
        if before.producer_epoch == header.producer_epoch and 0 < behind <= MAX_SEQUENCE // 2 + 1:
            raise error.with_traceback(None)

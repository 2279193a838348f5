"""What a log knows of each idempotent producer: its epoch and its last five batches. Pure logic.

A producer id writes batches whose sequence numbers follow each other without gaps; they wrap from 2^31 - 1 to 0.
It may have five batches in flight, so any of the last five may come again: a batch with the same first and last
sequence as one of them was stored already and is answered with its offsets. The rules, in order:

    what is known of the producer         batch is                         verdict
    nothing, or no batch of this epoch    at any sequence                  new
    a higher epoch                        -                                ProducerFenced
    a lower epoch                         at sequence 0                    new, the older epoch is forgotten
    a lower epoch                         at another sequence              OutOfOrderSequence
    this epoch                            one of the last five             duplicate
    this epoch                            right after the last one         new
    this epoch                            anything else                    OutOfOrderSequence

Control batches carry no sequence and pass. The state is saved as of an offset (`docs/formats/producers.md`) and
brought up to date by replaying the batch headers from there; a producer idle for long enough is forgotten.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from hot_tier.errors import OutOfOrderSequence, ProducerFenced
from hot_tier.record.batch import CONTROL, BatchHeader
from hot_tier.record.crc import crc32c

WINDOW: Final = 5
MAX_SEQUENCE: Final = 2**31 - 1

_MAGIC: Final = b"TLPS"
_VERSION: Final = 1
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


class Written(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    end_offset: int


class Producer:
    __slots__ = ("batches", "epoch", "last_write_ms")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: deque[Written] = deque(maxlen=WINDOW)
        self.last_write_ms = 0


class ProducerView(NamedTuple):
    """One producer as DescribeProducers shows it; -1 where nothing is known."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_write_ms: int
    transaction_start_offset: int
    coordinator_epoch: int


class ProducerState:
    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}

    def __len__(self) -> int:
        return len(self._producers)

    def check(self, header: BatchHeader) -> Written | None:
        """The stored batch that `header` repeats, or None when it is new. `header.producer_id` is not -1."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        epoch = header.producer_epoch
        if epoch < producer.epoch:
            raise ProducerFenced(
                f"producer {header.producer_id} writes with epoch {epoch}, epoch {producer.epoch} has written already",
                hint="another instance took over this producer id; start anew with a new one",
            )
        if header.attributes & CONTROL:
            return None
        first = header.base_sequence
        if epoch > producer.epoch:
            if first != 0:
                raise self._out_of_order(header, 0)
            return None
        batches = producer.batches
        if not batches:
            return None
        expected = (batches[-1].last_sequence + 1) & MAX_SEQUENCE
        if first == expected:
            return None
        last = header.last_sequence
        for written in batches:
            if written.first_sequence == first and written.last_sequence == last:
                return written
        raise self._out_of_order(header, expected)

    def wrote(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        base_offset: int,
        last_offset: int,
        attributes: int,
        now_ms: int,
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

    def replay(self, rows: Iterable[tuple[int, int, int, int, int, int]], now_ms: int) -> None:
        """Rows of (producer id, epoch, base sequence, base offset, last offset, attributes) in log order."""
        for producer_id, epoch, first_sequence, base_offset, last_offset, attributes in rows:
            self.wrote(producer_id, epoch, first_sequence, base_offset, last_offset, attributes, now_ms)

    def expire(self, now_ms: int, idle_ms: int) -> int:
        """Forgets who wrote nothing for `idle_ms`; how many that were."""
        idle = [
            producer_id
            for producer_id, producer in self._producers.items()
            if now_ms - producer.last_write_ms >= idle_ms
        ]
        for producer_id in idle:
            del self._producers[producer_id]
        return len(idle)

    def last_offsets(self) -> frozenset[int]:
        """The last offset of each producer's last batch: what compaction leaves a trace of."""
        return frozenset(
            producer.batches[-1].end_offset - 1 for producer in self._producers.values() if producer.batches
        )

    def describe(self) -> Iterator[ProducerView]:
        for producer_id, producer in self._producers.items():
            last_sequence = producer.batches[-1].last_sequence if producer.batches else -1
            yield ProducerView(producer_id, producer.epoch, last_sequence, producer.last_write_ms, -1, -1)

    def _out_of_order(self, header: BatchHeader, expected: int) -> OutOfOrderSequence:
        return OutOfOrderSequence(
            f"producer {header.producer_id} sent sequence {header.base_sequence}, {expected} was expected",
            hint="a batch before this one was lost or refused, or this one was stored too long ago to compare",
        )

    def write(self, offset: int) -> bytes:
        """The state as of `offset`, as a snapshot file holds it."""
        body = bytearray()
        for producer_id, producer in self._producers.items():
            body += _PRODUCER.pack(producer_id, producer.epoch, len(producer.batches), producer.last_write_ms, -1, -1)
            for written in producer.batches:
                body += _BATCH.pack(*written)
        head = _HEAD.pack(_MAGIC, _VERSION, 0, offset, len(self._producers), 0)
        crc = crc32c(body, crc32c(head))
        return head[:-4] + crc.to_bytes(4, "little") + body


def read_producers(content: bytes) -> tuple[int, ProducerState] | None:
    """The offset and the state of a snapshot; None for anything that is not a whole, undamaged one."""
    if len(content) < _HEAD.size:
        return None
    magic, version, _, offset, count, crc = _HEAD.unpack_from(content)
    head = content[: _HEAD.size - 4] + bytes(4)
    if magic != _MAGIC or version != _VERSION or crc32c(content[_HEAD.size :], crc32c(head)) != crc:
        return None
    state = ProducerState()
    at = _HEAD.size
    for _ in range(count):
        producer_id, epoch, batches, last_write_ms, _, _ = _PRODUCER.unpack_from(content, at)
        at += _PRODUCER.size
        producer = state._producers[producer_id] = Producer(epoch)
        producer.last_write_ms = last_write_ms
        for _ in range(batches):
            producer.batches.append(Written(*_BATCH.unpack_from(content, at)))
            at += _BATCH.size
    return offset, state

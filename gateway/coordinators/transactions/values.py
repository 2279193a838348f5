"""Values of the topic of transactions. Reads versions 0 and 1, writes 1.

```
version i16
producer id i64, producer epoch i16
time-out i32, ms
state i8                                    the numbers of `states.State`
partitions: nullable array, each            null while no partition is in the transaction
  topic string
  partition numbers: array of i32
time of the state i64, ms
start of the transaction i64, ms            −1: none is open
```

Version 1 is flexible: lengths of arrays and strings are unsigned varints, one more than the length, 0 for null; each
element of the partitions ends with tagged fields, and so does the whole:

```
tag 0   previous producer id i64            absent: −1
tag 1   next producer id i64                absent: −1
tag 2   the producer's version of transactions i16   absent: 0; 2: a new epoch with each transaction
```

The bytes are not trusted: reading fails only with `CorruptLog`.
"""

from itertools import groupby
from struct import Struct
from typing import Final

from gateway.coordinators.offsets_topic.buffer import INT16, INT32, INT64, ValueReader
from gateway.coordinators.transactions.states import State
from gateway.coordinators.transactions.transaction import MARKER_EPOCH, MAX_PARTITIONS, NONE, Transaction
from hot_tier.errors import CorruptLog
from hot_tier.ids import PartitionId, TopicPartition

VALUE_VERSION: Final = 1
TV2: Final = 2

_HEAD: Final = Struct(">hqhib")
_TIMES: Final = Struct(">qq")
_LEAST_TOPIC_BYTES: Final = 2
_STORED: Final = frozenset(State) - {State.DEAD, State.PREPARE_EPOCH_FENCE}


def write_transaction(value: Transaction) -> bytes:
    parts = [_HEAD.pack(VALUE_VERSION, value.producer_id, value.epoch, value.timeout_ms, value.state)]
    if value.partitions:
        topics = [(topic, list(each)) for topic, each in groupby(sorted(value.partitions), lambda tp: tp.topic)]
        parts.append(_varint(len(topics) + 1))
        for topic, partitions in topics:
            name = topic.encode()
            parts += (_varint(len(name) + 1), name, _varint(len(partitions) + 1))
            parts += (INT32.pack(tp.partition) for tp in partitions)
            parts.append(b"\0")
    else:
        parts.append(b"\0")
    parts.append(_TIMES.pack(value.updated_ms, value.started_ms))
    tags = [(0, INT64, value.previous_id, NONE), (1, INT64, value.next_id, NONE), (2, INT16, TV2 * value.tv2, 0)]
    told = [(tag, kind.pack(number)) for tag, kind, number, absent in tags if number != absent]
    parts.append(_varint(len(told)))
    for tag, data in told:
        parts += (_varint(tag), _varint(len(data)), data)
    return b"".join(parts)


def read_transaction(data: bytes) -> Transaction:
    reader = _Reader(data)
    version = reader.int16()
    if not 0 <= version <= VALUE_VERSION:
        raise CorruptLog(
            f"a transactional id is written in version {version}",
            hint=f"this broker reads versions 0 to {VALUE_VERSION}",
        )
    flexible = version > 0
    producer_id, epoch, timeout_ms = reader.int64(), reader.int16(), reader.int32()
    state = _state(reader.int8())
    partitions = reader.partitions(flexible)
    updated_ms, started_ms = reader.int64(), reader.int64()
    tags = reader.tags() if flexible else {}
    if producer_id < 0 or not NONE <= epoch <= MARKER_EPOCH:
        raise CorruptLog(f"the producer {producer_id} with epoch {epoch} cannot be")
    return Transaction(
        producer_id,
        epoch,
        timeout_ms,
        state,
        updated_ms,
        partitions,
        started_ms,
        previous_id=_number(tags, 0, INT64, NONE),
        next_id=_number(tags, 1, INT64, NONE),
        tv2=_number(tags, 2, INT16, 0) >= TV2,
    )


def _state(number: int) -> State:
    for state in _STORED:
        if state == number:
            return state
    raise CorruptLog(f"there is no stored state {number}")


def _number(tags: dict[int, bytes], tag: int, kind: Struct, absent: int) -> int:
    data = tags.get(tag)
    if data is None:
        return absent
    if len(data) != kind.size:
        raise CorruptLog(f"the tagged field {tag} has {len(data)} bytes")
    (number,) = kind.unpack(data)
    return int(number)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class _Reader(ValueReader):
    def int8(self) -> int:
        return int.from_bytes(self._take(1), signed=True)

    def varint(self) -> int:
        number = 0
        for shift in range(0, 35, 7):
            (byte,) = self._take(1)
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise CorruptLog("a number takes more than five bytes")

    def partitions(self, flexible: bool) -> frozenset[TopicPartition]:
        found: set[TopicPartition] = set()
        for _ in range(self._length(flexible, _LEAST_TOPIC_BYTES)):
            topic = self._text(flexible)
            for _ in range(self._length(flexible, INT32.size)):
                found.add(TopicPartition(topic, PartitionId(self.int32())))
            if flexible:
                self.tags()
        if len(found) > MAX_PARTITIONS:
            raise CorruptLog(f"a transaction has {len(found)} partitions")
        return frozenset(found)

    def tags(self) -> dict[int, bytes]:
        return {self.varint(): self._take(self.varint()) for _ in range(self._bounded(self.varint(), 2))}

    def _length(self, flexible: bool, least_bytes: int) -> int:
        length = self.varint() - 1 if flexible else self.int32()
        return 0 if length == -1 else self._bounded(length, least_bytes)

    def _bounded(self, count: int, least_bytes: int) -> int:
        if not 0 <= count * least_bytes <= len(self._data) - self._at:
            raise CorruptLog(f"an array has an impossible length: {count} elements")
        return count

    def _text(self, flexible: bool) -> str:
        if not flexible:
            return self.string()
        try:
            return self._take(self.varint() - 1).decode()
        except UnicodeDecodeError:
            raise CorruptLog("a string is not UTF-8") from None

"""Appends to one partition of a journal. All writes of one step of the event loop share a batch.

So a thousand consumers that commit at once cost one batch, one write and one sync instead of a thousand.

- `done` is called exactly once per write, on the loop, never inside `write`: with None when the records are committed,
  or with the error that prevented it. After an error, the next leader may or may not find the records.
- For committed writes `done` is called in log order. A caller that applies its writes in `done` applies them in that
  order.
- Writes are in the log in the order of their numbers. What belongs to a transaction has a batch of its own, with the
  producer's id and epoch: written twice it means the same.
- A writer belongs to one leader epoch and writes in no other.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Final, NamedTuple

from hot_tier.errors import BatchTooLarge, NotLeader, TierlogError
from hot_tier.ids import LeaderEpoch, PartitionId
from hot_tier.log.transactions import Verification
from hot_tier.record.batch import read_header
from hot_tier.record.records import NewRecord, encode_records
from hot_tier.replication.led_partition import LedPartition

BATCH_BYTES: Final = 1 << 20
"""A batch that has reached this size takes no more writes. One large write makes a larger batch."""
MAX_WRITE_BYTES: Final = 32 << 20
"""A larger write is refused. The record of a group grows with its members: 32 MiB hold about 100,000 members."""

_RECORD_OVERHEAD_BYTES: Final = 32

KeyValue = tuple[bytes, bytes | None]
"""A value of None is a tombstone."""
Done = Callable[[TierlogError | None], None]


class InTransaction(NamedTuple):
    """The producer whose transaction a write belongs to."""

    producer_id: int
    producer_epoch: int
    verification: Verification | None = None
    """What says that the partition is in the transaction; see `LedPartition.begin_verification`."""


class JournalWriter:
    def __init__(
        self,
        find_partition: Callable[[PartitionId], LedPartition],
        number: int,
        leader_epoch: LeaderEpoch,
        keeps: str,
        clock: Callable[[], int],
    ) -> None:
        self._find_partition = find_partition
        self.number = PartitionId(number)
        self._leader_epoch = leader_epoch
        self._keeps = keeps
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[Sequence[KeyValue], Done]] = []
        self._numbers = count(1)
        self.written_records = 0
        self.written_batches = 0

    def write(self, records: Sequence[KeyValue], done: Done) -> int:
        """Returns the number of the write. Later writes have greater numbers."""
        if not self._waiting:
            self._loop.call_soon(self._append_waiting)
        self._waiting.append((records, done))
        return next(self._numbers)

    def begin_verification(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, tv2: bool
    ) -> Verification | None:
        """Returns what the partition wants to be verified before it takes the first write of a transaction; None if the
        transaction is open here already."""
        partition = self._partition()
        data = _in_transaction(partition, [NewRecord(0, b"", b"")], producer_id, producer_epoch)
        return partition.begin_verification(read_header(data), transactional_id, tv2=tv2)

    def write_in_transaction(self, records: Sequence[KeyValue], producer: InTransaction, done: Done) -> int:
        """Writes at once, after all earlier writes. If this raises an error, nothing is written."""
        self._append_waiting()
        grows_by = _bytes_of(records)
        if grows_by > MAX_WRITE_BYTES:
            raise self._too_large(grows_by)
        now_ms = self._clock()
        committed = self._store([NewRecord(now_ms, key, value) for key, value in records], now_ms, producer)
        self._tell_when([done], committed)
        return next(self._numbers)

    def _append_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        now_ms = self._clock()
        batch: list[NewRecord] = []
        dones: list[Done] = []
        size = 0
        for records, done in waiting:
            grows_by = _bytes_of(records)
            if grows_by > MAX_WRITE_BYTES:
                self._loop.call_soon(done, self._too_large(grows_by))
                continue
            if batch and size + grows_by > BATCH_BYTES:
                self._append(batch, dones, now_ms)
                batch, dones, size = [], [], 0
            batch += (NewRecord(now_ms, key, value) for key, value in records)
            dones.append(done)
            size += grows_by
        self._append(batch, dones, now_ms)

    def _append(self, batch: list[NewRecord], dones: list[Done], now_ms: int) -> None:
        """Appends one batch. A whole write is in one batch, so it is stored completely or not at all."""
        if not batch:
            for done in dones:
                self._loop.call_soon(done, None)
            return
        try:
            committed = self._store(batch, now_ms)
        except TierlogError as error:
            self._loop.call_soon(_tell, dones, error)
            return
        self._tell_when(dones, committed)

    def _store(
        self, batch: list[NewRecord], now_ms: int, producer: InTransaction | None = None
    ) -> asyncio.Future[None] | None:
        """Appends the batch. Returns when it is committed, as `LedPartition.when_committed` does."""
        partition = self._partition()
        if producer is None:
            data = encode_records(batch)
            appended = partition.append(data, read_header(data), now_ms)
        else:
            data = _in_transaction(partition, batch, producer.producer_id, producer.producer_epoch)
            appended = partition.append(data, read_header(data), now_ms, verification=producer.verification)
        self.written_records += len(batch)
        self.written_batches += 1
        return partition.when_committed(appended.end_offset)

    def _partition(self) -> LedPartition:
        partition = self._find_partition(self.number)
        if partition.leader_epoch != self._leader_epoch:
            raise NotLeader(f"leader epoch {self._leader_epoch} is over", where=str(partition.tp))
        return partition

    def _tell_when(self, dones: list[Done], committed: asyncio.Future[None] | None) -> None:
        if committed is None:
            self._loop.call_soon(_tell, dones, None)
        else:
            committed.add_done_callback(partial(_settled, dones))

    def _too_large(self, size: int) -> BatchTooLarge:
        what = f"the records of one {self._keeps} are too large: {size} bytes"
        return BatchTooLarge(what, hint=f"make the {self._keeps} smaller")


def _in_transaction(
    partition: LedPartition, batch: list[NewRecord], producer_id: int, producer_epoch: int
) -> bytearray:
    """Returns a batch of a producer's transaction. Its sequence is the next one: here the coordinator writes for the
    producer, which knows of no sequence."""
    return encode_records(
        batch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=partition.next_sequence(producer_id, producer_epoch),
        transactional=True,
    )


def _bytes_of(records: Sequence[KeyValue]) -> int:
    return sum(len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES for key, value in records)


def _settled(dones: list[Done], committed: asyncio.Future[None]) -> None:
    error = committed.exception()
    assert error is None or isinstance(error, TierlogError)
    _tell(dones, error)


def _tell(dones: list[Done], error: TierlogError | None) -> None:
    for done in dones:
        done(error)

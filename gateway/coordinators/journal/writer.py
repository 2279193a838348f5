"""Appends to one partition of a journal. What is written in one turn of the event loop shares a batch.

A thousand consumers that commit at once cost one batch, one write and one sync instead of a thousand.

- `done` is called exactly once per write, on the loop, never inside `write`: with None once the records are committed,
  or with the error that kept them from it. After an error the records may or may not be found by the next leader.
- `done` of committed writes is called in log order: whoever applies a write in `done` applies all in that order.
- A writer belongs to one leader epoch. It writes nothing in another one.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from hot_tier.errors import BatchTooLarge, NotLeader, TierlogError
from hot_tier.ids import LeaderEpoch, PartitionId
from hot_tier.record.batch import read_header
from hot_tier.record.records import NewRecord, encode_records
from hot_tier.replication.led_partition import LedPartition

BATCH_BYTES: Final = 1 << 20
"""A batch takes no more writes beyond this size. One large write makes a larger batch."""
MAX_WRITE_BYTES: Final = 32 << 20
"""A larger write is refused. The record of a group grows with its members: 32 MiB are some 100,000 of them."""

_RECORD_OVERHEAD_BYTES: Final = 32

KeyValue = tuple[bytes, bytes | None]
"""A value of None is a tombstone."""
Done = Callable[[TierlogError | None], None]


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
        self._number = PartitionId(number)
        self._leader_epoch = leader_epoch
        self._keeps = keeps
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[Sequence[KeyValue], Done]] = []
        self.written_records = 0
        self.written_batches = 0

    def write(self, records: Sequence[KeyValue], done: Done) -> None:
        if not self._waiting:
            self._loop.call_soon(self._append_waiting)
        self._waiting.append((records, done))

    def _append_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        now_ms = self._clock()
        batch: list[NewRecord] = []
        dones: list[Done] = []
        size = 0
        for records, done in waiting:
            grows_by = sum(len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES for key, value in records)
            if grows_by > MAX_WRITE_BYTES:
                what = f"{grows_by} bytes for one {self._keeps} are too many"
                self._loop.call_soon(done, BatchTooLarge(what, hint=f"make the {self._keeps} smaller"))
                continue
            if batch and size + grows_by > BATCH_BYTES:
                self._append(batch, dones, now_ms)
                batch, dones, size = [], [], 0
            batch += (NewRecord(now_ms, key, value) for key, value in records)
            dones.append(done)
            size += grows_by
        self._append(batch, dones, now_ms)

    def _append(self, batch: list[NewRecord], dones: list[Done], now_ms: int) -> None:
        """Appends one batch. All of a write is in one batch: it is kept as a whole or not at all."""
        if not batch:
            for done in dones:
                self._loop.call_soon(done, None)
            return
        try:
            partition = self._find_partition(self._number)
            if partition.leader_epoch != self._leader_epoch:
                raise NotLeader(f"leader epoch {self._leader_epoch} is over", where=str(partition.tp))
            data = encode_records(batch)
            appended = partition.append(data, read_header(data), now_ms)
            committed = partition.when_committed(appended.end_offset)
        except TierlogError as error:
            self._loop.call_soon(_tell, dones, error)
            return
        self.written_records += len(batch)
        self.written_batches += 1
        if committed is None:
            self._loop.call_soon(_tell, dones, None)
        else:
            committed.add_done_callback(partial(_settled, dones))


def _settled(dones: list[Done], committed: asyncio.Future[None]) -> None:
    error = committed.exception()
    assert error is None or isinstance(error, TierlogError)
    _tell(dones, error)


def _tell(dones: list[Done], error: TierlogError | None) -> None:
    for done in dones:
        done(error)

"""Writes messages as record batches. Single posts to one partition share a batch, and so one sync of the disk.

Each partition has a lane. While one of its batches is being committed, new messages gather in the next batch. That
batch is written when the commit is done, or at once if it is full or if no commit is running. So a single post does not
wait, and a thousand posts at once need few batches.

If the topic refuses a message, the other messages of its batch must not fail: a batch that is refused for its content
is written again message by message. Every message gets exactly one answer: where it is stored, or why it is not.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from gateway.http.partitioner import StickySpread, partition_for_key
from gateway.node import Node
from gateway.off_loop import off_loop
from hot_tier.cluster.model import Topic
from hot_tier.errors import (
    BatchTooLarge,
    InvalidRecord,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OutcomeUnknown,
    TierlogError,
)
from hot_tier.ids import Offset, PartitionId
from hot_tier.log.partition_log import Appended
from hot_tier.record.batch import HEADER_BYTES
from hot_tier.record.columns import RecordColumns, encode_batch, headers_type
from hot_tier.record.records import NewRecord, encode_records
from hot_tier.record.validate import validate_produced
from hot_tier.replication.led_partition import LedPartition

BATCH_BYTES: Final = 256 * 1024
"""When a lane's batch has this size, it is written without waiting."""

LARGE_BATCH_BYTES: Final = 512 * 1024
"""The largest batch of many messages, even if the topic allows more: it is written in a few milliseconds."""

RECORD_OVERHEAD: Final = 36
"""More than the lengths, deltas and attributes of one record need."""

ENCODE_SINGLY: Final = 200
"""Up to this number of records, plain Python is faster than columns."""


class Stored(NamedTuple):
    partition: int
    offset: int
    timestamp: int


class Numbered(NamedTuple):
    """Whose batch it is, and which one: so it is stored once, however often it is written."""

    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False


UNNUMBERED: Final = Numbered()

Outcome = Stored | TierlogError


class Run(NamedTuple):
    """Those of many messages that were written as one batch, or refused for one reason."""

    indexes: Sequence[int]
    partition: int
    outcome: Appended | TierlogError

    def outcomes(self, records: Sequence[NewRecord]) -> list[Outcome]:
        """Returns the outcome of each message of the run. `records` are all messages."""
        if isinstance(self.outcome, TierlogError):
            return [self.outcome] * len(self.indexes)
        return _stored(self.partition, self.outcome, (records[index] for index in self.indexes))


class _Batch:
    __slots__ = ("answered", "records", "size")

    def __init__(self, answered: "asyncio.Future[list[Outcome]]") -> None:
        self.records: list[NewRecord] = []
        self.size = HEADER_BYTES
        self.answered = answered


class _Lane:
    __slots__ = ("in_flight", "open", "partition")

    def __init__(self, partition: LedPartition) -> None:
        self.partition = partition
        self.open: _Batch | None = None
        self.in_flight = 0


def record_bytes(record: NewRecord) -> int:
    """Returns an upper limit for the record's size in an uncompressed batch."""
    size = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += 10 + len((name or "").encode()) + len(value or b"")
    return size


class Producer:
    def __init__(self, node: Node, timeout_ms: int) -> None:
        self._node = node
        self._timeout_s = timeout_ms / 1000
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._spread = StickySpread(self._is_open)
        self._loop = asyncio.get_running_loop()
        self.batches = 0
        self.messages = 0

    def choose_partition(self, topic: Topic, key: bytes | None) -> int:
        if key is None:
            return self._spread.next(topic.name, topic.partitions)
        return partition_for_key(key, topic.partitions)

    async def send(self, topic: Topic, partition: int, record: NewRecord) -> Stored:
        """Writes one message, together with others that go to the same partition now."""
        lane = self._lane(self._node.partitions.get(topic.name, PartitionId(partition)))
        size = record_bytes(record)
        batch = lane.open
        if batch is not None and batch.size + size > BATCH_BYTES:
            self._depart(lane)
            batch = None
        if batch is None:
            batch = lane.open = _Batch(self._loop.create_future())
            if not lane.in_flight:
                self._loop.call_soon(self._depart_if_open, lane, batch)
        index = len(batch.records)
        batch.records.append(record)
        batch.size += size
        try:
            async with asyncio.timeout(self._timeout_s):
                # Shielded: if one caller gives up, the others still get their answer.
                outcome = (await asyncio.shield(batch.answered))[index]
        except TimeoutError:
            raise self._not_in_time(lane.partition) from None
        if isinstance(outcome, TierlogError):
            raise outcome.with_traceback(None)
        return outcome

    async def send_once(
        self, topic: Topic, partition: int, record: NewRecord, producer: Numbered
    ) -> tuple[Stored, bool]:
        """Writes one message in a batch of its own. Returns where it is, and whether it was there already."""
        target = self._node.partitions.get(topic.name, PartitionId(partition))
        appended = self._append(target, 1, encode([record], producer))
        committed = target.when_committed(appended.end_offset)
        failure = await self._commit(target, committed, self._loop.time() + self._timeout_s)
        if failure is not None:
            raise failure
        (stored,) = _stored(partition, appended, [record])
        assert isinstance(stored, Stored)
        return stored, appended.duplicate

    async def send_all(
        self, topic: Topic, chosen: Mapping[int, Sequence[int]], records: Sequence[NewRecord], weight: int
    ) -> list[Run]:
        """Writes many messages, to each partition those with its indexes, in their order. Returns all outcomes.

        `weight` is their work, in plain records. They are encoded together off the loop and appended in slices, because
        a thousand partitions are a thousand batches.
        """
        turn = self._node.lane.turn()
        runs: list[Run] = []
        targets: list[tuple[LedPartition, Sequence[int]]] = []
        async for number, indexes in turn.through(chosen.items()):
            try:
                targets.append((self._node.partitions.get(topic.name, PartitionId(number)), indexes))
            except TierlogError as error:
                runs.append(Run(indexes, number, error))
        appended: list[tuple[LedPartition, Run, asyncio.Future[None] | None]] = []
        async for target, indexes, batch in turn.through(await off_loop(weight, _batches, targets, records)):
            try:
                written = self._append(target, len(indexes), batch)
            except TierlogError as error:
                runs.append(Run(indexes, target.tp.partition, error))
            else:
                # Called at once: only those who wait when the record is committed learn that it has too few replicas.
                committed = target.when_committed(written.end_offset)
                appended.append((target, Run(indexes, target.tp.partition, written), committed))
        self._node.lane.leave()
        deadline_s = self._loop.time() + self._timeout_s
        for target, run, committed in appended:
            failure = await self._commit(target, committed, deadline_s)
            runs.append(run._replace(outcome=failure or run.outcome))
        return runs

    async def _commit(
        self, partition: LedPartition, committed: "asyncio.Future[None] | None", deadline_s: float
    ) -> TierlogError | None:
        """Waits until a batch is committed. Returns the error, if there is one."""
        try:
            if committed is not None:
                async with asyncio.timeout_at(deadline_s):
                    await committed
        except TierlogError as error:
            return _not_committed(error)
        except TimeoutError:
            return self._not_in_time(partition)
        return None

    def _not_in_time(self, partition: LedPartition) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"written here, but not by every in-sync replica within {self._timeout_s:g} s", where=str(partition.tp)
        )

    def _lane(self, partition: LedPartition) -> _Lane:
        lane = self._lanes.get(partition.tp)
        if lane is None or lane.partition is not partition:
            lane = self._lanes[partition.tp] = _Lane(partition)
        return lane

    def _is_open(self, topic: str, partition: int) -> bool:
        lane = self._lanes.get((topic, partition))
        return lane is not None and lane.open is not None

    def _depart_if_open(self, lane: _Lane, batch: _Batch) -> None:
        if lane.open is batch:
            self._depart(lane)

    def _depart(self, lane: _Lane) -> None:
        batch = lane.open
        assert batch is not None
        lane.open = None
        end: Offset | None
        try:
            outcomes, end = self._write(lane.partition, batch.records)
        except (InvalidRecord, BatchTooLarge) as error:
            if len(batch.records) == 1:
                self._finish(lane, batch, [error])
                return
            outcomes, end = self._append_singly(lane.partition, batch.records)
        except TierlogError as error:
            self._finish(lane, batch, [error] * len(batch.records))
            return
        except Exception as error:
            batch.answered.set_exception(error)
            self._leave(lane)
            return
        try:
            committed = None if end is None else lane.partition.when_committed(end)
        except TierlogError as error:
            self._finish(lane, batch, [error] * len(batch.records))
            return
        if committed is None:
            self._finish(lane, batch, outcomes)
            return
        lane.in_flight += 1

        def done(future: "asyncio.Future[None]") -> None:
            lane.in_flight -= 1
            failure = asyncio.CancelledError() if future.cancelled() else future.exception()
            if isinstance(failure, TierlogError):
                self._finish(lane, batch, [_not_committed(failure)] * len(batch.records))
            elif failure is not None:
                batch.answered.set_exception(failure)
                self._leave(lane)
            else:
                self._finish(lane, batch, outcomes)

        committed.add_done_callback(done)

    def _finish(self, lane: _Lane, batch: _Batch, outcomes: Sequence[Outcome]) -> None:
        if not batch.answered.done():
            batch.answered.set_result(list(outcomes))
        self._leave(lane)

    def _leave(self, lane: _Lane) -> None:
        if lane.in_flight:
            return
        if lane.open is not None:
            self._depart(lane)
        elif self._lanes.get(lane.partition.tp) is lane:
            del self._lanes[lane.partition.tp]

    def _append_singly(
        self, partition: LedPartition, records: Sequence[NewRecord]
    ) -> tuple[list[Outcome], Offset | None]:
        outcomes: list[Outcome] = []
        last: Offset | None = None
        for record in records:
            try:
                stored, last = self._write(partition, [record])
                outcomes += stored
            except TierlogError as error:
                outcomes.append(error)
        return outcomes, last

    def _write(self, partition: LedPartition, records: Sequence[NewRecord]) -> tuple[list[Outcome], Offset]:
        appended = self._append(partition, len(records), encode(records))
        return _stored(partition.tp.partition, appended, records), appended.end_offset

    def _append(self, partition: LedPartition, count: int, batch: bytearray) -> Appended:
        now_ms = self._node.clock()
        header = validate_produced(memoryview(batch), self._node.batch_limits(partition), now_ms)
        appended = partition.append(batch, header, now_ms)
        self.batches += 1
        self.messages += count
        return appended


def _stored(partition: int, appended: Appended, records: Iterable[NewRecord]) -> list[Outcome]:
    stamped = appended.log_append_time_ms
    return [
        Stored(partition, appended.base_offset + index, stamped if stamped >= 0 else record.timestamp)
        for index, record in enumerate(records)
    ]


def _not_committed(error: TierlogError) -> TierlogError:
    """Returns the error for a record that is written here but not committed.

    A new leader decides whether the record stays; with too few replicas it may be lost.
    """
    if not isinstance(error, NotLeader | NotEnoughReplicasAfterAppend):
        return error
    return OutcomeUnknown(f"written, but {error.what}", where=error.where)


def encode(records: Sequence[NewRecord], producer: Numbered = UNNUMBERED) -> bytearray:
    """Returns the records as one batch."""
    if len(records) <= ENCODE_SINGLY:
        return encode_records(records, **producer._asdict())
    return encode_batch(
        RecordColumns(
            offsets=np.arange(len(records), dtype=np.int64),
            timestamps=np.array([record.timestamp for record in records], np.int64),
            timestamp_types=np.zeros(len(records), np.int32),
            leader_epochs=np.full(len(records), -1, np.int32),
            keys=pa.array([record.key for record in records], pa.binary()),
            values=pa.array([record.value for record in records], pa.binary()),
            headers=_header_column(records),
        ),
        **producer._asdict(),
    )


def _header_column(records: Sequence[NewRecord]) -> "pa.ListArray[Any]":
    """Returns the headers as a column, made from flat columns: from nested objects pyarrow takes ten times as long."""
    names: list[str | None] = []
    contents: list[bytes | None] = []
    starts: list[int | None] = []
    for record in records:
        starts.append(len(names) if record.headers else None)
        for name, content in record.headers:
            names.append(name)
            contents.append(content)
    starts.append(len(names))
    pairs = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(contents, pa.binary())], fields=list(headers_type().value_type)
    )
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pairs, type=headers_type())


def _batches(
    targets: Iterable[tuple[LedPartition, Sequence[int]]], records: Sequence[NewRecord]
) -> list[tuple[LedPartition, list[int], bytearray]]:
    """Returns (partition, indexes, batch)."""
    return [
        (target, run, encode([records[index] for index in run]))
        for target, indexes in targets
        for run in runs_of(indexes, records, target.config.max_message_bytes)
    ]


def runs_of(indexes: Sequence[int], records: Sequence[NewRecord], max_message_bytes: int) -> list[list[int]]:
    """Returns the indexes of records that surely fit into one batch, for each batch. A record that fits into none is
    alone."""
    most_bytes = min(max_message_bytes, LARGE_BATCH_BYTES)
    runs: list[list[int]] = [[]]
    size = HEADER_BYTES
    for index in indexes:
        more = record_bytes(records[index])
        if runs[-1] and size + more > most_bytes:
            runs.append([])
            size = HEADER_BYTES
        runs[-1].append(index)
        size += more
    return runs

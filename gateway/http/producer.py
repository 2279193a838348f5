"""Writes messages as record batches: single posts that meet at a partition share a batch, and so a sync of the disk.

A lane is the way to one partition. While a batch of it is being committed, arriving messages gather in the next one;
it leaves when the commit is done, or at once when it is full or nothing is under way. So a lone post waits for
nothing, and a thousand at once take a few batches.

A message that the topic refuses must not take its neighbours with it: a batch that is refused for what is in
it is tried again message by message. Every message is answered exactly once, with where it is or why not.
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
from hot_tier.record.columns import HEADERS_TYPE, RecordColumns, encode_batch
from hot_tier.record.records import NewRecord, encode_records
from hot_tier.record.validate import validate_produced
from hot_tier.replication.led_partition import LedPartition

BATCH_BYTES: Final = 256 * 1024
"""A lane's batch that has grown to this size leaves without waiting."""

LARGE_BATCH_BYTES: Final = 512 * 1024
"""Of many messages sent at once, also where the topic takes more: one is checked and appended in a few milliseconds."""

RECORD_OVERHEAD: Final = 36
"""More than the lengths, deltas and attributes of one record take."""

ENCODE_SINGLY: Final = 200
"""Up to so many records plain Python is quicker than filling columns."""


class Stored(NamedTuple):
    partition: int
    offset: int
    timestamp: int


Outcome = Stored | TierlogError


class Run(NamedTuple):
    """Of many messages those that were written as one batch, or refused for one reason."""

    indexes: Sequence[int]
    partition: int
    outcome: Appended | TierlogError

    def outcomes(self, records: Sequence[NewRecord]) -> list[Outcome]:
        """Of each of them, `records` being all messages."""
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
    """At least what the record takes in an uncompressed batch."""
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
        """One message, together with whatever else is on its way to the same partition."""
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
                # Shielded: one caller that gives up must not cancel the others' answer.
                outcome = (await asyncio.shield(batch.answered))[index]
        except TimeoutError:
            raise self._not_in_time(lane.partition) from None
        if isinstance(outcome, TierlogError):
            raise outcome.with_traceback(None)
        return outcome

    async def send_all(
        self, topic: Topic, chosen: Mapping[int, Sequence[int]], records: Sequence[NewRecord], weight: int
    ) -> list[Run]:
        """Many messages: to each partition those with its indexes, in their order. Returns what became of all of them.
        `weight`: as many plain records they are as much work as.

        They are encoded in one go off the loop, and appended in slices: a thousand partitions are a thousand batches.
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
                # Asked at once: too few replicas are told only to those who wait when the record is committed.
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
        """Waits until a batch is committed. Returns what went wrong, if anything."""
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
            f"written, and after {self._timeout_s:g} s not stored by every in-sync replica", where=str(partition.tp)
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
        appended = self._append(partition, len(records), _encode(records))
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
    """Of what is written here. A broker that took over decides whether it is there; too few replicas may lose it."""
    if not isinstance(error, NotLeader | NotEnoughReplicasAfterAppend):
        return error
    return OutcomeUnknown(f"written, but {error.what}", where=error.where)


def _encode(records: Sequence[NewRecord]) -> bytearray:
    if len(records) <= ENCODE_SINGLY:
        return encode_records(records)
    return encode_batch(
        RecordColumns(
            offsets=np.arange(len(records), dtype=np.int64),
            timestamps=np.array([record.timestamp for record in records], np.int64),
            timestamp_types=np.zeros(len(records), np.int32),
            leader_epochs=np.full(len(records), -1, np.int32),
            keys=pa.array([record.key for record in records], pa.binary()),
            values=pa.array([record.value for record in records], pa.binary()),
            headers=_header_column(records),
        )
    )


def _header_column(records: Sequence[NewRecord]) -> "pa.ListArray[Any]":
    """Of the headers' own columns: pyarrow takes ten times as long to make it of nested objects."""
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
        [pa.array(names, pa.string()), pa.array(contents, pa.binary())], fields=list(HEADERS_TYPE.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pairs, type=HEADERS_TYPE)


def _batches(
    targets: Iterable[tuple[LedPartition, Sequence[int]]], records: Sequence[NewRecord]
) -> list[tuple[LedPartition, list[int], bytearray]]:
    """For each partition, in their order: indexes of records that surely fit into one batch, and that batch. What fits
    into none is alone."""
    made: list[tuple[LedPartition, list[int], bytearray]] = []
    for target, indexes in targets:
        most_bytes = min(target.config.max_message_bytes, LARGE_BATCH_BYTES)
        runs: list[list[int]] = [[]]
        size = HEADER_BYTES
        for index in indexes:
            more = record_bytes(records[index])
            if runs[-1] and size + more > most_bytes:
                runs.append([])
                size = HEADER_BYTES
            runs[-1].append(index)
            size += more
        made += ((target, run, _encode([records[index] for index in run])) for run in runs)
    return made

"""Writes the markers that end transactions: to partitions led here, and through other brokers, until all are committed.

- Only a decided transaction has markers, and only the coordinator that holds its journal partition writes them. The
  epoch of that leadership is in each marker, so that a partition refuses those of an older coordinator.
- A marker that is not known to be committed is written again: after an error, a change of leaders, a lost answer. A
  partition takes the same marker twice without harm. The partition of a deleted topic needs none, nor does one that has
  seen a newer epoch of the producer: an open transaction has the newest.
- A coordinator that takes over writes all markers again of what was decided and is not known to be complete.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final

import structlog

from gateway.coordinators.offsets_topic.topic import OFFSETS_TOPIC
from gateway.coordinators.transactions.peers import End, OneMarker, Peers
from gateway.coordinators.transactions.transaction_map import TransactionEntry
from hot_tier.cluster.image import ClusterImage
from hot_tier.errors import ProducerFenced, TierlogError
from hot_tier.ids import NodeId
from hot_tier.replication.table import PartitionTable

RETRY_S: Final = 0.05
LONGEST_RETRY_S: Final = 1.0
MARKERS_AT_ONCE: Final = 1_000
"""How many markers one request carries."""
MARKERS_IN_ONE_STEP: Final = 100
"""How many markers are written here before other work gets its turn."""

_log = structlog.get_logger()

OffsetsEnded = Callable[[int, int, int, bool], None]
"""Hears of a committed marker: partition of the offsets topic, producer id and epoch, whether it commits."""
Done = Callable[[TierlogError | None], None]


class LocalMarkers:
    """Writes markers to partitions that this broker leads, for its own coordinator and for those of others."""

    def __init__(self, partitions: PartitionTable, offsets_ended: OffsetsEnded, clock: Callable[[], int]) -> None:
        self._partitions = partitions
        self._offsets_ended = offsets_ended
        self._clock = clock

    def write(self, one: OneMarker, done: Done) -> None:
        """Calls `done` when the marker is committed, perhaps before this returns; or with the error that kept it from
        being written. If that is a newer epoch of the producer, when it is committed too: what is not could be lost
        with this leader."""
        end, tp = one
        fenced: ProducerFenced | None = None
        try:
            partition = self._partitions.get(tp.topic, tp.partition)
            try:
                end_offset = partition.append_marker(
                    end.producer_id,
                    end.producer_epoch,
                    end.marker,
                    self._clock(),
                    transaction_version=end.transaction_version,
                ).end_offset
            except ProducerFenced as error:
                fenced, end_offset = error, partition.log_end_offset
            committed = partition.when_committed(end_offset)
        except TierlogError as error:
            done(error)
            return
        if committed is None:
            self._committed(one, fenced, done, None)
        else:
            committed.add_done_callback(partial(self._committed, one, fenced, done))

    def _committed(
        self, one: OneMarker, fenced: ProducerFenced | None, done: Done, committed: asyncio.Future[None] | None
    ) -> None:
        error = None if committed is None else committed.exception()
        assert error is None or isinstance(error, TierlogError)
        end, tp = one
        if error is None and fenced is None and tp.topic == OFFSETS_TOPIC:
            self._offsets_ended(tp.partition, end.producer_id, end.producer_epoch, end.commit)
        done(error or fenced)


class MarkerWriter:
    """Sees to it that every partition of a decided transaction gets its marker."""

    def __init__(
        self,
        node_id: NodeId,
        image: ClusterImage,
        local: LocalMarkers,
        peers: Peers,
        complete: Callable[[TransactionEntry], None],
    ) -> None:
        """`complete` is called once for each transaction, when all its markers are committed."""
        self._node_id = node_id
        self._image = image
        self._local = local
        self._peers = peers
        self._complete = complete
        self._loop = asyncio.get_running_loop()
        self._queues: dict[NodeId, dict[OneMarker, TransactionEntry]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.written = 0
        self.retried = 0

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def begin(self, entry: TransactionEntry, end: End) -> None:
        """Begins to write the markers of a transaction whose decision is committed."""
        value = entry.value
        assert value is not None
        entry.unmarked = set(value.partitions)
        if entry.unmarked:
            self._route({OneMarker(end, tp): entry for tp in value.partitions})
        else:
            self._complete(entry)

    def _route(self, markers: Mapping[OneMarker, TransactionEntry], wait_s: float = RETRY_S) -> None:
        """Hands each marker to who leads its partition now."""
        homeless: dict[OneMarker, TransactionEntry] = {}
        here: list[tuple[OneMarker, TransactionEntry]] = []
        for one, entry in markers.items():
            if entry.ended is not None:
                continue
            topic = self._image.find_topic(one.tp.topic)
            if topic is None or one.tp.partition >= topic.partitions:
                self._done(one, entry)
                continue
            leader = self._image.partition_state(one.tp).leader
            if leader == self._node_id:
                here.append((one, entry))
            elif self._image.broker(leader) is None:
                homeless[one] = entry
            elif leader in self._queues:
                self._queues[leader][one] = entry
            else:
                self._queues[leader] = {one: entry}
                self._spawn(self._send_to(leader))
        if homeless:
            self._again(homeless, wait_s)
        self._write_here(here, wait_s)

    def _done(self, one: OneMarker, entry: TransactionEntry) -> None:
        self.written += 1
        entry.unmarked.discard(one.tp)
        if not entry.unmarked and entry.ended is None:
            self._complete(entry)

    def _write_here(self, markers: Sequence[tuple[OneMarker, TransactionEntry]], wait_s: float) -> None:
        for one, entry in markers[:MARKERS_IN_ONE_STEP]:
            if entry.ended is None:
                self._local.write(one, partial(self._written_here, one, entry, wait_s))
        if len(markers) > MARKERS_IN_ONE_STEP:
            self._loop.call_soon(self._write_here, markers[MARKERS_IN_ONE_STEP:], wait_s)

    def _written_here(self, one: OneMarker, entry: TransactionEntry, wait_s: float, error: TierlogError | None) -> None:
        if error is None or isinstance(error, ProducerFenced):
            self._done(one, entry)
        elif entry.ended is None:
            self._failed({one: entry}, str(error), wait_s)

    async def _send_to(self, leader: NodeId) -> None:
        """Sends what is queued for one broker, one request after the other, until its queue is empty."""
        wait_s = RETRY_S
        while queue := self._queues[leader]:
            markers = {one: queue.pop(one) for one in list(queue)[:MARKERS_AT_ONCE]}
            broker = self._image.broker(leader)
            try:
                if broker is None:
                    raise ConnectionError("the broker is gone")
                refused = await self._peers.write_markers(broker, list(markers))
            except (OSError, TierlogError) as error:  # a TimeoutError is an OSError
                self._failed(markers, f"broker {leader} did not answer: {error or type(error).__name__}", wait_s)
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, LONGEST_RETRY_S)
                continue
            wait_s = RETRY_S
            for one, entry in markers.items():
                if one not in refused:
                    self._done(one, entry)
            if refused:
                self._failed({one: markers[one] for one in refused}, next(iter(refused.values())), wait_s)
        del self._queues[leader]

    def _failed(self, markers: Mapping[OneMarker, TransactionEntry], why: str, wait_s: float) -> None:
        one, entry = next(iter(markers.items()))
        self.retried += len(markers)
        _log.info(
            "markers of transactions are written again",
            markers=len(markers),
            transactional_id=entry.transactional_id,
            partition=str(one.tp),
            error=why,
        )
        self._again(markers, min(2 * wait_s, LONGEST_RETRY_S))

    def _again(self, markers: Mapping[OneMarker, TransactionEntry], wait_s: float) -> None:
        self._spawn(self._route_later(markers, wait_s))

    async def _route_later(self, markers: Mapping[OneMarker, TransactionEntry], wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        self._route(markers, wait_s)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine, name="markers of transactions")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

"""Writes the markers that end transactions: to partitions led here, and through other brokers, until all are committed.

- Only a decided transaction has markers, and only the coordinator that holds its journal partition writes them. The
  epoch of that leadership is in each marker, so that a partition refuses those of an older coordinator.
- A marker that is not known to be committed is written again: after an error, a change of leaders, a lost answer. A
  partition takes the same marker twice without harm. The partition of a deleted topic needs none, nor does one that has
  seen a newer epoch of the producer: an open transaction has the newest.
- A coordinator that takes over writes all markers again of what was decided and is not known to be complete.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

import structlog

from gateway.coordinators.offsets_topic.topic import OFFSETS_TOPIC
from gateway.coordinators.transactions.peers import End, OneMarker, Peers
from gateway.coordinators.transactions.transaction_map import TransactionEntry
from hot_tier.cluster.image import ClusterImage
from hot_tier.errors import ProducerFenced, TierlogError
from hot_tier.ids import NodeId, Offset
from hot_tier.replication.led_partition import LedPartition
from hot_tier.replication.table import PartitionTable

RETRY_S: Final = 0.05
LONGEST_RETRY_S: Final = 1.0
MARKERS_AT_ONCE: Final = 1_000
"""How many markers one request carries."""

_log = structlog.get_logger()

OffsetsEnded = Callable[[int, int, int, bool], None]
"""Hears of a committed marker: partition of the offsets topic, producer id and epoch, whether it commits."""


class LocalMarkers:
    """Writes markers to partitions that this broker leads, for its own coordinator and for those of others."""

    def __init__(self, partitions: PartitionTable, offsets_ended: OffsetsEnded, clock: Callable[[], int]) -> None:
        self._partitions = partitions
        self._offsets_ended = offsets_ended
        self._clock = clock

    async def write(self, one: OneMarker) -> None:
        """Returns when the marker is committed. Raises the error that kept it from being written; if that is a newer
        epoch of the producer, when it is committed too: what is not could be lost with this leader."""
        end, tp = one
        partition = self._partitions.get(tp.topic, tp.partition)
        try:
            appended = partition.append_marker(
                end.producer_id,
                end.producer_epoch,
                end.marker,
                self._clock(),
                transaction_version=end.transaction_version,
            )
        except ProducerFenced:
            await _committed(partition, partition.log_end_offset)
            raise
        await _committed(partition, appended.end_offset)
        if tp.topic == OFFSETS_TOPIC:
            self._offsets_ended(tp.partition, end.producer_id, end.producer_epoch, end.commit)


async def _committed(partition: LedPartition, end: Offset) -> None:
    waiting = partition.when_committed(end)
    if waiting is not None:
        await waiting


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
        for one, entry in markers.items():
            if entry.ended is not None:
                continue
            topic = self._image.find_topic(one.tp.topic)
            if topic is None or one.tp.partition >= topic.partitions:
                self._done(one, entry)
                continue
            leader = self._image.partition_state(one.tp).leader
            if leader == self._node_id:
                self._spawn(self._write_here(one, entry, wait_s))
            elif self._image.broker(leader) is None:
                homeless[one] = entry
            elif leader in self._queues:
                self._queues[leader][one] = entry
            else:
                self._queues[leader] = {one: entry}
                self._spawn(self._send_to(leader))
        if homeless:
            self._again(homeless, wait_s)

    def _done(self, one: OneMarker, entry: TransactionEntry) -> None:
        self.written += 1
        entry.unmarked.discard(one.tp)
        if not entry.unmarked and entry.ended is None:
            self._complete(entry)

    async def _write_here(self, one: OneMarker, entry: TransactionEntry, wait_s: float) -> None:
        try:
            await self._local.write(one)
        except ProducerFenced:
            self._done(one, entry)
        except TierlogError as error:
            self._failed({one: entry}, str(error), wait_s)
        else:
            self._done(one, entry)

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
        task = asyncio.get_running_loop().create_task(coroutine, name="markers of transactions")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

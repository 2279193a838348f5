"""Mends damaged segments of replicated partitions with the copies of other replicas.

Replicas hold the same batches, so the batches that another one has for a segment's offsets are its file, byte for byte.
What came is proven against the segment's own seal before it takes the damaged file's place; what cannot be proven, such
as batches that were compacted differently there, is thrown away, and the damaged file stays.

- Only what is committed is copied, from the leader and from members of the in-sync set.
- One segment at a time. One that nobody could mend is tried again after a growing pause.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, Protocol

import structlog

from hot_tier.clock import steady_s
from hot_tier.cluster.image import ClusterImage
from hot_tier.cluster.model import BrokerInfo
from hot_tier.errors import CorruptLog, TierlogError
from hot_tier.ids import NodeId, TopicId
from hot_tier.log import names
from hot_tier.log.files import sync_data, write_at
from hot_tier.log.mending import proved_again, replace
from hot_tier.log.segment_info import SegmentInfo
from hot_tier.replication.local_partition import LocalPartition
from hot_tier.replication.table import PartitionTable

CHECK_S: Final = 5.0
PAUSE_S: Final = (30.0, 1800.0)
LOGS_PER_STEP: Final = 100

_log = structlog.get_logger()


class Copy(Protocol):
    def __call__(
        self, broker: BrokerInfo, topic_id: TopicId, partition: int, start: int, end: int
    ) -> AsyncIterator[memoryview]:
        """Yields whole batches of these offsets from that broker's log. Raises OSError or TierlogError."""
        ...


class Mender:
    def __init__(
        self,
        partitions: PartitionTable,
        image: ClusterImage,
        node: NodeId,
        copy: Copy,
        clock_s: Callable[[], float] = steady_s,
    ) -> None:
        self._partitions = partitions
        self._image = image
        self._node = node
        self._copy = copy
        self._clock_s = clock_s
        self._paused: dict[str, tuple[float, float]] = {}
        """By file: until when, and how long."""
        self._task: asyncio.Task[None] | None = None
        self.mended = 0

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="mender")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                await self.round()
            except Exception:
                # A mistake of ours; other damage must still be mended.
                _log.exception("a round of mending failed")

    async def round(self) -> None:
        """Looks at every log, and mends what is known to be damaged."""
        damaged: set[str] = set()
        for at, held in enumerate([*self._partitions, *self._partitions.replicas]):
            if at % LOGS_PER_STEP == LOGS_PER_STEP - 1:
                await asyncio.sleep(0)
            for info in held.log.damaged_segments():
                damaged.add(info.path)
                if self._is_due(info.path):
                    await self._mend(held, info)
        self._paused = {path: pause for path, pause in self._paused.items() if path in damaged}

    def _is_due(self, path: str) -> bool:
        return path not in self._paused or self._clock_s() >= self._paused[path][0]

    async def _mend(self, held: LocalPartition, info: SegmentInfo) -> None:
        if await self._mended(held, info):
            self.mended += 1
            self._paused.pop(info.path, None)
        else:
            _, last_s = self._paused.get(info.path, (0.0, 0.0))
            pause_s = min(max(2 * last_s, PAUSE_S[0]), PAUSE_S[1])
            self._paused[info.path] = (self._clock_s() + pause_s, pause_s)

    async def _mended(self, held: LocalPartition, info: SegmentInfo) -> bool:
        try:
            if await proved_again(held.log, info):
                _log.info("a segment that was damaged is whole", file=info.path)
                return True
        except (TierlogError, OSError) as error:
            _log.warning("a damaged segment cannot be read", file=info.path, error=str(error))
        if info.end_offset > held.high_watermark or held.log.in_doubt:
            return False
        for broker in self._sources(held):
            try:
                if await self._replaced(held, info, broker):
                    _log.info(
                        "a damaged segment is replaced by another broker's copy", file=info.path, broker=broker.id
                    )
                    return True
            except (TierlogError, OSError) as error:
                _log.warning("no whole copy of a damaged segment", file=info.path, broker=broker.id, error=str(error))
        return False

    def _sources(self, held: LocalPartition) -> Iterator[BrokerInfo]:
        state = self._image.partition_state(held.tp)
        for node in dict.fromkeys((state.leader, *state.isr)):
            broker = self._image.broker(node)
            if node != self._node and broker is not None:
                yield broker

    async def _replaced(self, held: LocalPartition, info: SegmentInfo, broker: BrokerInfo) -> bool:
        copy = info.path + names.TEMPORARY
        fd = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            size = 0
            async for batches in self._copy(
                broker, held.topic.id, held.tp.partition, info.base_offset, info.end_offset
            ):
                if size + len(batches) > info.size:
                    raise CorruptLog(f"it has more than {info.size} bytes there", where=f"broker {broker.id}")
                await asyncio.to_thread(write_at, fd, batches, size)
                size += len(batches)
            await asyncio.to_thread(sync_data, fd)
            return await replace(held.log, info, copy)
        finally:
            os.close(fd)
            if os.path.exists(copy):
                os.unlink(copy)

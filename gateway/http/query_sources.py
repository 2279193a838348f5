"""What a query may read: topics that its sender may read, and their hot records from the partitions' leaders."""

import asyncio
import pickle
from typing import TYPE_CHECKING, Final

import aiohttp

from cold_tier.format.encryption import Demand
from cold_tier.layout import PartitionLayout
from gateway.http.peers.behalf import SENDER, write_sender
from gateway.http.peers.cluster_view import Bounds
from gateway.http.peers.peers import lost
from gateway.http.permissions import refused
from gateway.http.problems import from_document
from gateway.record_stream import RecordStream
from gateway.sql.extents import Extent, TopicExtents
from gateway.sql.worker_process import Scan
from hot_tier.cluster.acls import Operation, ResourceType
from hot_tier.cluster.model import BrokerInfo, Topic
from hot_tier.errors import UnknownTopic
from hot_tier.ids import PartitionId, TopicPartition

if TYPE_CHECKING:
    from gateway.http.operation import Call

CHUNK_BYTES: Final = 1 << 20
PIECE_BYTES: Final = 1 << 20
ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"


class CallSources:
    """The sources of one request."""

    def __init__(self, call: "Call") -> None:
        self._call = call

    async def topics(self, names: list[str], perhaps: list[str]) -> dict[str, TopicExtents]:
        call = self._call
        for name in names:
            if not call.may(Operation.READ, ResourceType.TOPIC, name):
                raise refused(Operation.READ, ResourceType.TOPIC)
        found = [call.api.node.image.topic(name) for name in names]
        for name in perhaps:
            if call.may(Operation.READ, ResourceType.TOPIC, name):
                try:
                    found.append(call.api.node.image.topic(name))
                except UnknownTopic:
                    continue  # It is a part of the query, and no topic.
        return {topic.name: await self.extents(topic) for topic in found}

    async def extents(self, topic: Topic) -> TopicExtents:
        """Returns what the topic holds now. Raises if a partition's leader does not answer."""
        api = self._call.api
        bounds = await api.view.bounds(topic, range(topic.partitions))
        for each in bounds.values():
            if not isinstance(each, Bounds):
                raise each
        made = [self._extent(topic, number, bounds[number]) for number in range(topic.partitions)]
        return TopicExtents(topic.name, tuple(await asyncio.gather(*made)))

    async def _extent(self, topic: Topic, number: int, bounds: object) -> Extent:
        assert isinstance(bounds, Bounds)
        node, view = self._call.api.node, self._call.api.view
        tp = TopicPartition(topic.name, PartitionId(number))
        end = await view.latest(tp)  # A new leader does not know at first what is committed, and says so.
        is_here = self._call.api.peers.leader(*tp) is None
        led = node.partitions.get(*tp) if is_here else None
        recorded = node.image.archive_record(topic.id, tp.partition)
        encrypted = None if recorded is None else recorded.encrypted
        return Extent(
            layout=PartitionLayout(topic.name, topic.id, tp.partition),
            start_offset=bounds.log_start_offset if led is None else led.log_start_offset,
            end_offset=end,
            snapshot=None if led is None else node.reader.snapshot(led),
            demand=None if encrypted is None else Demand(*encrypted),
            owner="" if led is not None else node.cluster_id,
            compacted="compact" in node.partitions.config(topic).cleanup_policy,
            local_start_offset=None if led is None else led.local_log_start_offset,
            leader_epoch=node.image.partition_state(tp).leader_epoch,
        )

    async def scan(self, topic: str, partition: int, start: int, end: int) -> Scan:
        leader = self._call.api.peers.leader(topic, partition)
        if leader is None:
            return _LocalScan(self._call, topic, partition, start, end)
        return await _RemoteScan.open(self._call, leader, topic, partition, start)


class _LocalScan:
    is_local = True

    def __init__(self, call: "Call", topic: str, partition: int, start: int, end: int) -> None:
        self._call = call
        node = call.api.node
        self._stream = RecordStream(node, node.partitions.get(topic, partition), start, end)

    async def next(self) -> bytes | None:
        chunk = await self._stream.next(CHUNK_BYTES)
        if chunk is None:
            return None
        api, call = self._call.api, self._call
        throttle_ms = api.node.quotas.charge(
            call.values["X-Client-Id"], "fetch", len(chunk.buffer), api.node.clock(), call.principal.name
        )
        if throttle_ms:
            await api.throttle(throttle_ms)
        return pickle.dumps(chunk._replace(buffer=bytes(chunk.buffer)))

    async def close(self) -> None:
        pass


class _RemoteScan:
    """The leader's stream of Arrow batches, passed on as it comes."""

    is_local = False

    def __init__(self, leader: BrokerInfo, path: str, answer: aiohttp.ClientResponse) -> None:
        self._leader = leader
        self._path = path
        self._answer = answer

    @classmethod
    async def open(cls, call: "Call", leader: BrokerInfo, topic: str, partition: int, start: int) -> "_RemoteScan":
        path = f"/api/v1/topics/{topic}/partitions/{partition}/messages"
        headers = [
            ("Accept", ARROW_STREAM),
            ("X-Client-Id", call.values["X-Client-Id"]),
            (SENDER, write_sender(call.principal)),
        ]
        answer = await call.api.peers.send(leader, "GET", path, params={"offset": str(start)}, headers=headers)
        if answer.status != 200:
            async with answer:
                raise from_document(answer.status, await answer.json(content_type=None))
        return cls(leader, path, answer)

    async def next(self) -> bytes | None:
        try:
            return await self._answer.content.read(PIECE_BYTES) or None
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise lost(self._leader, "GET", self._path, error) from error

    async def close(self) -> None:
        self._answer.close()

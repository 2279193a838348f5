"""A follower's link to its leader's broker, over Kafka's Fetch with a session.

Owns: one connection, its session, and the buffer that answers are received into. Answers are handed on where they were
received: record bytes go from here straight into the follower's log.

- What arrives is checked as foreign bytes are: a frame's length before anything is made of it, then its fields.
- Whatever contradicts the protocol ends the connection.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from struct import Struct
from typing import Final, cast

from gateway.kafka.errors import CODES, DecodeError, ErrorCode
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from gateway.kafka.protocol.readers import reader
from gateway.kafka.protocol.schema import Buffer
from gateway.kafka.protocol.writers import writer
from hot_tier.cluster.model import BrokerInfo
from hot_tier.errors import (
    FencedLeaderEpoch,
    NotLeader,
    OffsetArchived,
    OffsetOutOfRange,
    StaleBrokerEpoch,
    TierlogError,
    UnknownLeaderEpoch,
    UnknownTopicId,
)
from hot_tier.ids import LeaderEpoch, NodeId, Offset, TopicId
from hot_tier.replication.following import NOT_TOLD, FetchAnswer, FetchFrom
from hot_tier.replication.link import LinkListener, PartitionKey
from hot_tier.replication.settings import ReplicationSettings

VERSION: Final = 17
RECEIVE_BYTES: Final = 256 * 1024
KEEP_BYTES: Final = 4 * 1024 * 1024
MAX_FRAME_BYTES: Final = 1 << 30
LAST_EPOCH: Final = 2**31 - 1

_LENGTH: Final = Struct(">i")
_HEADER: Final = Struct(">ihhih")

_read: Final = cast(Callable[[memoryview], FetchResponse], reader(FetchResponse, VERSION))
_write: Final = writer(FetchRequest, VERSION)
_ERRORS: Final[dict[int, type[TierlogError]]] = {
    int(CODES[each]): each
    for each in (
        NotLeader,
        FencedLeaderEpoch,
        UnknownLeaderEpoch,
        OffsetOutOfRange,
        OffsetArchived,
        StaleBrokerEpoch,
        UnknownTopicId,
    )
}


def replica_links(
    node: NodeId, settings: ReplicationSettings, broker_epoch: Callable[[], int]
) -> "Callable[[BrokerInfo, str, LinkListener], Awaitable[ReplicaClient]]":
    """How this node opens links; `broker_epoch` is that of its registration as it is now."""

    async def connect(broker: BrokerInfo, name: str, listener: LinkListener) -> ReplicaClient:
        make = partial(ReplicaClient, node, name, settings, broker_epoch, listener)
        _, client = await asyncio.get_running_loop().create_connection(make, broker.host, broker.port)
        return client

    return connect


class ReplicaClient(asyncio.BufferedProtocol):
    def __init__(
        self,
        node: NodeId,
        name: str,
        settings: ReplicationSettings,
        broker_epoch: Callable[[], int],
        listener: LinkListener,
    ) -> None:
        self._node = node
        self._client_id = f"replica {node} {name}".encode()
        self._settings = settings
        self._broker_epoch = broker_epoch
        self._listener: LinkListener | None = listener
        self._transport: asyncio.Transport
        self._session_id = 0
        self._session_epoch = 0
        self._sent = 0
        self._answered = 0
        self._view = memoryview(bytearray(RECEIVE_BYTES))
        self._start = 0
        self._end = 0

    # Requests

    def send(self, asked: Mapping[PartitionKey, FetchFrom], forgotten: Iterable[PartitionKey]) -> int:
        settings = self._settings
        topics: dict[TopicId, FetchTopic] = {}
        for (topic_id, partition), start in asked.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic_id=topic_id)
            topic.partitions.append(
                FetchPartition(
                    partition,
                    start.leader_epoch,
                    start.offset,
                    start.last_epoch,
                    start.log_start_offset,
                    settings.fetch_max_bytes,
                )
            )
        request = FetchRequest(
            replica_state=ReplicaState(self._node, self._broker_epoch()),
            max_wait_ms=settings.fetch_wait_max_ms,
            min_bytes=1,
            max_bytes=settings.fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=[ForgottenTopic(topic_id, "", [partition]) for topic_id, partition in forgotten],
        )
        self._sent += 1
        if self._session_epoch:
            self._session_epoch = 1 if self._session_epoch == LAST_EPOCH else self._session_epoch + 1
        name = self._client_id
        parts: list[Buffer] = [b"", name, b"\0"]
        _write(request, parts.append)
        size = _HEADER.size - 4 + sum(map(len, parts))
        parts[0] = _HEADER.pack(size, ApiKey.FETCH, VERSION, self._sent, len(name))
        self._transport.write(b"".join(parts))
        return self._sent

    def close(self) -> None:
        self._listener = None
        self._transport.abort()

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.lost(exc or ConnectionResetError("the other side closed the connection"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        try:
            while (frame := self._next_frame()) is not None:
                self._take(frame)
        except DecodeError as error:
            listener, self._listener = self._listener, None
            self._transport.abort()
            if listener is not None:
                listener.lost(error)

    def _next_frame(self) -> memoryview | None:
        start, available = self._start, self._end - self._start
        wanted = 4
        if available >= 4:
            (length,) = _LENGTH.unpack_from(self._view, start)
            if not 4 <= length <= MAX_FRAME_BYTES:
                raise DecodeError(f"an answer of {length} bytes")
            wanted += length
            if available >= wanted:
                self._start += wanted
                return self._view[start + 4 : start + wanted]
        if not available:
            self._start = self._end = 0
            if len(self._view) > KEEP_BYTES:
                self._view = memoryview(bytearray(RECEIVE_BYTES))
        elif start + wanted > len(self._view):
            view = self._view
            if wanted > len(view):
                view = memoryview(bytearray(wanted))
            view[:available] = self._view[start : self._end]
            self._view, self._start, self._end = view, 0, available
        return None

    # Answers

    def _take(self, frame: memoryview) -> None:
        listener = self._listener
        if listener is None:
            return
        (correlation_id,) = _LENGTH.unpack_from(frame)
        number = self._answered + 1
        if correlation_id != number:
            raise DecodeError(f"answer {correlation_id} where {number} was expected")
        response = _read(frame[5:])
        self._answered = number
        if response.error_code:
            self._session_id = self._session_epoch = 0
            listener.refused(number, _error(response.error_code))
            return
        if not self._session_epoch:
            self._session_id, self._session_epoch = response.session_id, 1
        listener.answered(number, _answers(response))


def _answers(response: FetchResponse) -> Iterator[tuple[PartitionKey, FetchAnswer]]:
    for topic in response.responses:
        for data in topic.partitions:
            yield (topic.topic_id, data.partition_index), _answer(data)


def _answer(data: PartitionData) -> FetchAnswer:
    diverging, compacted = data.diverging_epoch, data.snapshot_id
    return FetchAnswer(
        _error(data.error_code) if data.error_code else None,
        cast("memoryview | bytes", data.records or b""),
        Offset(data.high_watermark),
        Offset(data.log_start_offset),
        (LeaderEpoch(diverging.epoch), Offset(diverging.end_offset)) if diverging is not None else None,
        Offset(compacted.end_offset) if compacted is not None else NOT_TOLD,
    )


def _error(code: int) -> TierlogError:
    name = ErrorCode(code).name if code in ErrorCode.__members__.values() else code
    return _ERRORS.get(code, TierlogError)(f"the leader answers {name}")

"""A follower's link to its leader's broker, over Kafka's Fetch with a session.

It owns the session. Answers are passed on in the receive buffer of `gateway.kafka.client`: record bytes go from there
straight into the follower's log.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from ssl import SSLContext
from typing import Final, cast

from gateway.kafka.client import Exchange, KafkaClient, connect
from gateway.kafka.errors import CODES, ErrorCode
from gateway.kafka.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
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

LAST_EPOCH: Final = 2**31 - 1
FETCH: Final = Exchange(FetchRequest, FetchResponse, 17)

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
    node: NodeId, settings: ReplicationSettings, broker_epoch: Callable[[], int], tls: SSLContext | None = None
) -> "Callable[[BrokerInfo, str, LinkListener], Awaitable[ReplicaClient]]":
    """Returns a function that opens links of this node. `broker_epoch` returns the epoch of its registration now."""

    async def open_link(broker: BrokerInfo, name: str, listener: LinkListener) -> ReplicaClient:
        link = ReplicaClient(node, settings, broker_epoch, listener)
        link.client = await connect(broker, f"replica {node} {name}", link, tls)
        return link

    return open_link


class ReplicaClient:
    def __init__(
        self, node: NodeId, settings: ReplicationSettings, broker_epoch: Callable[[], int], listener: LinkListener
    ) -> None:
        self.client: KafkaClient
        self._node = node
        self._settings = settings
        self._broker_epoch = broker_epoch
        self._listener = listener
        self._session_id = 0
        self._session_epoch = 0

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
        if self._session_epoch:
            self._session_epoch = 1 if self._session_epoch == LAST_EPOCH else self._session_epoch + 1
        return self.client.send(FETCH, request)

    def close(self) -> None:
        self.client.close()

    # Called as a `Receiver`

    def answered(self, number: int, body: memoryview) -> None:
        response = FETCH.read(body)
        if response.error_code:
            self._session_id = self._session_epoch = 0
            self._listener.refused(number, _error(response.error_code))
            return
        if not self._session_epoch:
            self._session_id, self._session_epoch = response.session_id, 1
        self._listener.answered(number, _answers(response))

    def lost(self, error: Exception) -> None:
        self._listener.lost(error)


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

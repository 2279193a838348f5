"""Calls of this broker to others about transactions: WriteTxnMarkers to leaders, AddPartitionsToTxn to coordinators.

Each other broker has two connections, made on first use: the answer to markers comes when they are committed, and no
question of a producer waits behind that. A connection carries one request at a time; those who call put together what
belongs together.
"""

import asyncio
from collections.abc import Mapping, Sequence
from ssl import SSLContext
from typing import Final, TypeVar

from gateway.coordinators.errors import (
    ConcurrentTransactions,
    CoordinatorError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    NotCoordinator,
    ProducerFencedByNewer,
    TransactionAbortable,
    TransactionTooLarge,
)
from gateway.coordinators.transactions.peers import End, OneMarker, Question
from gateway.kafka.client import Asker, Exchange
from gateway.kafka.errors import CODES, DecodeError, ErrorCode
from gateway.kafka.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from gateway.kafka.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from hot_tier.cluster.model import BrokerInfo
from hot_tier.errors import ProducerFenced, TierlogError
from hot_tier.ids import NodeId, PartitionId, TopicPartition

WAIT_S: Final = 10.0
MARKERS: Final = Exchange(WriteTxnMarkersRequest, WriteTxnMarkersResponse, 2)
QUESTIONS: Final = Exchange(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, 5)

SETTLED: Final = (ErrorCode.NONE, CODES[ProducerFenced])
"""After these answers a partition needs no marker any more."""

_REFUSALS: Final[dict[int, type[CoordinatorError]]] = {
    int(CODES[each]): each
    for each in (
        ConcurrentTransactions,
        CoordinatorLoading,
        CoordinatorNotAvailable,
        InvalidProducerIdMapping,
        NotCoordinator,
        ProducerFencedByNewer,
        TransactionAbortable,
        TransactionTooLarge,
    )
}

Request = TypeVar("Request")
Response = TypeVar("Response")


class Line:
    """A connection to one broker, made again when it was lost."""

    def __init__(self, name: str, tls: SSLContext | None) -> None:
        self._name = name
        self._tls = tls
        self._asker: Asker | None = None
        self._turn = asyncio.Lock()

    async def ask(self, broker: BrokerInfo, exchange: Exchange[Request, Response], request: Request) -> Response:
        async with self._turn:
            if self._asker is None or not self._asker.is_open:
                asker = Asker(WAIT_S)
                await asker.connect(broker, self._name, self._tls)
                self._asker = asker
            try:
                return await self._asker.ask(exchange, request)
            except BaseException:
                # The answer may still come, and would be taken for that of the next question.
                self.close()
                raise

    def close(self) -> None:
        if self._asker is not None:
            self._asker.close()
            self._asker = None


class TransactionPeers:
    def __init__(self, node_id: NodeId, tls: SSLContext | None) -> None:
        self._name = f"transactions {node_id}"
        self._tls = tls
        self._lines: dict[tuple[NodeId, str], tuple[int, Line]] = {}

    async def write_markers(self, broker: BrokerInfo, markers: Sequence[OneMarker]) -> Mapping[OneMarker, str]:
        grouped: dict[End, dict[str, list[int]]] = {}
        for end, tp in markers:
            grouped.setdefault(end, {}).setdefault(tp.topic, []).append(tp.partition)
        request = WriteTxnMarkersRequest(
            [
                WritableTxnMarker(
                    end.producer_id,
                    end.producer_epoch,
                    end.commit,
                    [WritableTxnMarkerTopic(topic, numbers) for topic, numbers in topics.items()],
                    end.coordinator_epoch,
                    end.transaction_version,
                )
                for end, topics in grouped.items()
            ]
        )
        response = await self._line(broker, "markers").ask(broker, MARKERS, request)
        codes = {
            (marker.producer_id, topic.name, each.partition_index): each.error_code
            for marker in response.markers
            for topic in marker.topics
            for each in topic.partitions
        }
        refused: dict[OneMarker, str] = {}
        for one in markers:
            code = codes.get((one.end.producer_id, *one.tp), ErrorCode.UNKNOWN_SERVER_ERROR)
            if code not in SETTLED:
                refused[one] = _named(code)
        return refused

    async def admit(
        self, broker: BrokerInfo, questions: Sequence[Question]
    ) -> Sequence[Mapping[TopicPartition, TierlogError | None]]:
        request = AddPartitionsToTxnRequest(
            [
                AddPartitionsToTxnTransaction(
                    each.transactional_id,
                    each.producer.id,
                    each.producer.epoch,
                    not each.add,
                    [AddPartitionsToTxnTopic(topic, numbers) for topic, numbers in _by_topic(each.partitions).items()],
                )
                for each in questions
            ]
        )
        response = await self._line(broker, "questions").ask(broker, QUESTIONS, request)
        if response.error_code:
            raise CoordinatorNotAvailable(f"broker {broker.id} answered {_named(response.error_code)}")
        answers = {
            result.transactional_id: {
                TopicPartition(topic.name, PartitionId(each.partition_index)): each.partition_error_code
                for topic in result.topic_results
                for each in topic.results_by_partition
            }
            for result in response.results_by_transaction
        }
        return [_results(each, answers.get(each.transactional_id, {})) for each in questions]

    def close(self) -> None:
        for _, line in self._lines.values():
            line.close()
        self._lines.clear()

    def _line(self, broker: BrokerInfo, what: str) -> Line:
        epoch, line = self._lines.get((broker.id, what), (None, None))
        if line is None or epoch != broker.epoch:
            if line is not None:
                line.close()
            line = Line(f"{self._name} {what}", self._tls)
            self._lines[broker.id, what] = broker.epoch, line
        return line


def _by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics


def _results(question: Question, codes: Mapping[TopicPartition, int]) -> dict[TopicPartition, TierlogError | None]:
    results: dict[TopicPartition, TierlogError | None] = {}
    for tp in question.partitions:
        code = codes.get(tp)
        if code is None:
            raise DecodeError(f"the coordinator's answer lacks {tp}")
        error = _REFUSALS.get(code, CoordinatorNotAvailable)
        results[tp] = None if code == 0 else error(f"the coordinator answered {_named(code)}", where=str(tp))
    return results


def _named(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode.__members__.values() else str(code)

"""Writes records and offsets of a transaction through the brokers that lead them: Produce and TxnOffsetCommit.

For services that speak HTTP: their transaction is at the broker that coordinates it, its partitions are anywhere. What
is sent has a sequence, or may be written twice, so a request whose answer is lost can be sent again.
"""

from collections.abc import Mapping
from ssl import SSLContext
from typing import Final, TypeVar

from gateway.coordinators import errors as groups
from gateway.coordinators.coordinator import Transaction
from gateway.coordinators.group_offsets import Commit, Results, Sender
from gateway.kafka.client import Exchange
from gateway.kafka.errors import CODES, DecodeError, ErrorCode
from gateway.kafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from gateway.kafka.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from gateway.kafka.transaction_peers import WAIT_S, Line
from hot_tier import errors
from hot_tier.cluster.model import BrokerInfo
from hot_tier.errors import OutcomeUnknown, TierlogError
from hot_tier.ids import NodeId, TopicPartition

ACKS_ALL: Final = -1
LINES: Final = 8
"""Connections to one broker. Each carries one request at a time."""
PRODUCE: Final = Exchange(ProduceRequest, ProduceResponse, 12)
OFFSETS: Final = Exchange(TxnOffsetCommitRequest, TxnOffsetCommitResponse, 5)

_ERRORS: Final[dict[int, type[TierlogError]]] = {
    int(CODES[each]): each
    for each in (
        errors.BatchTooLarge,
        errors.InvalidRecord,
        errors.InvalidTransactionState,
        errors.NotEnoughReplicas,
        errors.NotEnoughReplicasAfterAppend,
        errors.NotLeader,
        errors.OutOfOrderSequence,
        errors.ProducerFenced,
        errors.StorageFailure,
        errors.UnknownTopic,
        groups.ConcurrentTransactions,
        groups.CoordinatorLoading,
        groups.CoordinatorNotAvailable,
        groups.InvalidProducerIdMapping,
        groups.NotCoordinator,
        groups.OffsetMetadataTooLarge,
        groups.TransactionAbortable,
        groups.UnknownMember,
    )
}

Request = TypeVar("Request")
Response = TypeVar("Response")


class TransactionWrites:
    def __init__(self, node_id: NodeId, tls: SSLContext | None) -> None:
        self._name = f"transactions {node_id} of services"
        self._tls = tls
        self._lines: dict[tuple[NodeId, int], tuple[int, Line]] = {}

    def close(self) -> None:
        for _, line in self._lines.values():
            line.close()
        self._lines.clear()

    async def append(
        self, broker: BrokerInfo, transaction: Transaction, tp: TopicPartition, batch: bytes | bytearray
    ) -> int:
        """Returns the batch's offset when every in-sync replica has it."""
        data = TopicProduceData(name=tp.topic, partition_data=[PartitionProduceData(tp.partition, batch)])
        request = ProduceRequest(transaction.transactional_id, ACKS_ALL, int(WAIT_S * 1000), [data])
        response = await self._ask(broker, PRODUCE, request, tp)
        for topic in response.responses:
            for each in topic.partition_responses:
                if (topic.name, each.index) == tp:
                    _check(each.error_code, tp, broker, each.error_message or "")
                    return each.base_offset
        raise OutcomeUnknown(f"broker {broker.id} answered without the partition", where=str(tp))

    async def commit(
        self,
        broker: BrokerInfo,
        transaction: Transaction,
        group: str,
        sender: Sender,
        commits: Mapping[TopicPartition, Commit],
    ) -> Results:
        """Returns an answer for each partition when every in-sync replica has the offsets."""
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for tp, commit in commits.items():
            topic = topics.setdefault(tp.topic, TxnOffsetCommitRequestTopic(tp.topic))
            topic.partitions.append(TxnOffsetCommitRequestPartition(tp.partition, *commit))
        request = TxnOffsetCommitRequest(
            transactional_id=transaction.transactional_id,
            group_id=group,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            generation_id=sender.generation,
            member_id=sender.member_id,
            group_instance_id=sender.instance_id,
            topics=list(topics.values()),
        )
        response = await self._ask(broker, OFFSETS, request, group)
        codes = {
            (topic.name, each.partition_index): each.error_code
            for topic in response.topics
            for each in topic.partitions
        }
        results: Results = {}
        for tp in commits:
            try:
                _check(codes.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR), tp, broker)
                results[tp] = None
            except TierlogError as error:
                results[tp] = error
        return results

    async def _ask(
        self, broker: BrokerInfo, exchange: Exchange[Request, Response], request: Request, what: object
    ) -> Response:
        try:
            return await self._line(broker, what).ask(broker, exchange, request)
        except (OSError, DecodeError) as error:  # a TimeoutError is an OSError
            why = str(error) or type(error).__name__
            raise OutcomeUnknown(f"broker {broker.id} did not answer: {why}", where=str(what)) from error

    def _line(self, broker: BrokerInfo, what: object) -> Line:
        """Returns the connection for a partition or a group: what belongs together stays in order."""
        place = broker.id, hash(what) % LINES
        epoch, line = self._lines.get(place, (None, None))
        if line is None or epoch != broker.epoch:
            if line is not None:
                line.close()
            line = Line(self._name, self._tls)
            self._lines[place] = broker.epoch, line
        return line


def _check(code: int, tp: TopicPartition, broker: BrokerInfo, said: str = "") -> None:
    """Raises the error of a code. Of one that is not expected nobody knows what was done."""
    if code:
        known = code in ErrorCode.__members__.values()
        what = said or f"broker {broker.id} answered {ErrorCode(code).name if known else code}"
        raise _ERRORS.get(code, OutcomeUnknown)(what, where=str(tp))

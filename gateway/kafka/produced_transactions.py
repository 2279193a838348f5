"""The transactional batches of one produce request: who may write them, and which must be admitted first.

A batch goes on if its producer has an open transaction on the partition: that costs one look-up. For the first one the
coordinator is asked: up to Produce 11 whether the partition was added (the client did that itself), from 12 on it adds
the partition. A question to this broker itself is answered at once; with others, all partitions of a request are asked
for together, and the batches wait.
"""

from typing import Final

from gateway.coordinators.errors import (
    ConcurrentTransactions,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotCoordinator,
    ProducerFencedByNewer,
    TransactionAbortable,
)
from gateway.kafka.errors import NotAuthorized
from gateway.kafka.handler import RequestContext
from hot_tier.cluster.acls import Operation, ResourceType
from hot_tier.errors import InvalidTransactionState, NotEnoughReplicas, ProducerFenced, TierlogError
from hot_tier.ids import TopicPartition
from hot_tier.log.transactions import Verification
from hot_tier.record.batch import BatchHeader
from hot_tier.replication.led_partition import LedPartition

ADDS_SINCE: Final = 12
"""From this version of Produce on, a partition is added to the transaction by its first batch (TV2)."""
ABORTABLE_SINCE: Final = 11
"""Lower versions do not know TRANSACTION_ABORTABLE."""

Producer = tuple[int, int]


class MustWait(Exception):
    """The batch waits to be admitted to its transaction."""


class Transactions:
    def __init__(self, transactional_id: str | None, context: RequestContext) -> None:
        name, resource = transactional_id, ResourceType.TRANSACTIONAL_ID
        self._name = name or ""
        self._context = context
        self._adds = context.api_version >= ADDS_SINCE
        self._may = bool(name) and (not context.guarded or context.may(Operation.WRITE, resource, name))
        self._asked: dict[Producer, list[TopicPartition]] = {}
        """What is still to be asked."""
        self._verifications: dict[TopicPartition, Verification] = {}
        self._refused: dict[TopicPartition, TierlogError] = {}

    def verified(self, partition: LedPartition, header: BatchHeader) -> Verification | None:
        """Returns what the append of the batch needs. Raises MustWait if its coordinator must be asked first, or why it
        is refused."""
        if not self._may:
            raise NotAuthorized(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
        verification = partition.begin_verification(header, self._name, tv2=self._adds)
        if verification is None:
            return None
        producer, tp = (header.producer_id, header.producer_epoch), partition.tp
        known = None if self._adds else self._context.node.transactions.verified_here(self._name, *producer, tp)
        if known is None:
            self._asked.setdefault(producer, []).append(tp)
            self._verifications[tp] = verification
            raise MustWait
        if (error := known[tp]) is not None:
            raise self._as_produced(error)
        return verification

    async def admit(self) -> None:
        """Asks the coordinator for all batches that must wait."""
        asked, self._asked = self._asked, {}
        for producer, partitions in asked.items():
            results = await self._context.node.transactions.admit(self._name, *producer, partitions, add=self._adds)
            self._refused.update({tp: error for tp, error in results.items() if error is not None})

    async def verification(self, partition: LedPartition, header: BatchHeader) -> Verification | None:
        """Returns what the append of an admitted batch needs. Raises why it is not admitted."""
        if partition.tp not in self._verifications:  # it was too large to be looked at before
            try:
                return self.verified(partition, header)
            except MustWait:
                await self.admit()
        self._check_refused(partition.tp)
        verification = partition.begin_verification(header, self._name, tv2=self._adds)
        if verification is not None and verification is not self._verifications[partition.tp]:
            # The marker of the transaction before came meanwhile. What was said may be about that one.
            self._verifications[partition.tp] = verification
            self._asked[header.producer_id, header.producer_epoch] = [partition.tp]
            await self.admit()
            self._check_refused(partition.tp)
        return verification

    def _check_refused(self, tp: TopicPartition) -> None:
        error = self._refused.get(tp)
        if error is not None:
            raise self._as_produced(error)

    def _as_produced(self, error: TierlogError) -> TierlogError:
        """Returns the error in the words of Produce. Older clients do not try again after a coordinator's errors; what
        they get instead makes them try again without asking for metadata."""
        where = error.where
        match error:
            case TransactionAbortable() if self._context.api_version < ABORTABLE_SINCE:
                return InvalidTransactionState("the partition is not in the transaction", where=where)
            case ConcurrentTransactions() if self._adds:
                return error
            case ConcurrentTransactions() | CoordinatorLoading() | CoordinatorNotAvailable() | NotCoordinator():
                return NotEnoughReplicas(f"the transaction cannot be verified now: {error}", where=where)
            case ProducerFencedByNewer():
                return ProducerFenced(str(error), where=where)
        return error

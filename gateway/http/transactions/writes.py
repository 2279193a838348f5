"""Writes what belongs to a transaction to whoever leads it, here or through another broker, until it is committed.

A batch keeps its sequence, so it may be written again after a lost answer or a change of leaders: it is stored once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from gateway.coordinators.coordinator import Transaction
from gateway.coordinators.errors import ConcurrentTransactions, CoordinatorLoading
from gateway.coordinators.group_offsets import Commit, Results, Sender
from gateway.http.peers.peers import Peers
from gateway.kafka.transaction_writes import TransactionWrites
from gateway.node import Node
from hot_tier.cluster.model import BrokerInfo
from hot_tier.errors import (
    BrokerUnreachable,
    NoLeader,
    NotEnoughReplicas,
    OutcomeUnknown,
    TierlogError,
    UnknownPartition,
    UnknownTopic,
)
from hot_tier.ids import TopicPartition
from hot_tier.record.validate import validate_produced

AGAIN_S: Final = 0.05
LONGEST_AGAIN_S: Final = 1.0

NOT_STORED: Final = (BrokerUnreachable, ConcurrentTransactions, CoordinatorLoading, NoLeader, NotEnoughReplicas)
"""After these nothing is stored."""

T = TypeVar("T")


class Writes:
    def __init__(self, node: Node, peers: Peers, timeout_ms: int) -> None:
        self._node = node
        self._peers = peers
        self._timeout_s = timeout_ms / 1000
        self._elsewhere = TransactionWrites(node.node_id, node.tls)

    def close(self) -> None:
        self._elsewhere.close()

    async def append(self, transaction: Transaction, tp: TopicPartition, batch: bytearray) -> int:
        """Returns the batch's offset when every in-sync replica has it."""

        async def attempt() -> int:
            leader = self._peers.leader(*tp)
            if leader is None:
                return await self._append_here(transaction, tp, batch)
            return await self._elsewhere.append(leader, transaction, tp, batch)

        return await self._until_done(attempt, str(tp))

    async def _append_here(self, transaction: Transaction, tp: TopicPartition, batch: bytearray) -> int:
        partition = self._node.partitions.get(*tp)
        now_ms = self._node.clock()
        header = validate_produced(memoryview(batch), self._node.batch_limits(partition), now_ms)
        verification = partition.begin_verification(header, transaction.transactional_id, tv2=True)
        if verification is not None:
            await self.admit(transaction, tp)
        appended = partition.append(batch, header, now_ms, verification=verification)
        committed = partition.when_committed(appended.end_offset)
        if committed is not None:
            await committed
        return int(appended.base_offset)

    async def commit(
        self, transaction: Transaction, group: str, sender: Sender, commits: Mapping[TopicPartition, Commit]
    ) -> Results:
        """Returns an answer for each partition when every in-sync replica has the offsets."""

        async def attempt() -> Results:
            broker = await self._node.groups.find(group)
            coordinator = self._peers.registered(broker.id, group)
            results = await self._commit_at(coordinator, transaction, group, sender, commits)
            for error in results.values():
                if error is not None and _may_pass(error):
                    raise error
            return results

        return await self._until_done(attempt, group)

    async def _commit_at(
        self,
        coordinator: BrokerInfo | None,
        transaction: Transaction,
        group: str,
        sender: Sender,
        commits: Mapping[TopicPartition, Commit],
    ) -> Results:
        if coordinator is not None:
            return await self._elsewhere.commit(coordinator, transaction, group, sender, commits)

        async def admit(tp: TopicPartition) -> None:
            await self.admit(transaction, tp)

        return await self._node.groups.commit_in_transaction(group, sender, commits, transaction, admit)

    async def admit(self, transaction: Transaction, tp: TopicPartition) -> None:
        """Adds the partition to the transaction, or raises why it cannot be."""
        error = (await self._node.transactions.admit(*transaction[:3], (tp,), add=True))[tp]
        if error is not None:
            raise error

    async def _until_done(self, attempt: Callable[[], Awaitable[T]], where: str) -> T:
        """Repeats the attempt while it may still succeed, for as long as a produce may take. Raises a refusal as it is
        only if no earlier attempt may have been stored."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + self._timeout_s
        wait_s = AGAIN_S
        in_doubt = False
        while True:
            try:
                async with asyncio.timeout_at(ends_s):
                    return await attempt()
            except TimeoutError:
                raise OutcomeUnknown(f"not stored within {self._timeout_s:g} s", where=where) from None
            except TierlogError as error:
                if not _may_pass(error) or loop.time() + wait_s > ends_s:
                    if in_doubt:
                        raise OutcomeUnknown(str(error), where=where) from error
                    raise
                in_doubt = in_doubt or not isinstance(error, NOT_STORED)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_AGAIN_S)


def _may_pass(error: TierlogError) -> bool:
    if isinstance(error, UnknownTopic | UnknownPartition):
        return False  # other clients look for it again; here it was found before
    return error.retriable or isinstance(error, OutcomeUnknown)

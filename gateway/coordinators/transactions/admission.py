"""Asks the coordinator of a transaction whether a partition that this broker leads is in it, or adds the partition.

A partition takes the first batch of a transaction only after that: a batch that comes late must not begin a transaction
that nobody would end (KIP-890). Questions that meet at one coordinator's broker share a request.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple

from gateway.coordinators.errors import ConcurrentTransactions, CoordinatorNotAvailable
from gateway.coordinators.journal.journal import Journal
from gateway.coordinators.transactions.decoding import Loaded
from gateway.coordinators.transactions.peers import Peers, Question
from gateway.coordinators.transactions.transaction_map import TransactionMap
from hot_tier.cluster.image import ClusterImage
from hot_tier.errors import TierlogError
from hot_tier.ids import NodeId, TopicPartition

WAIT_S: Final = 0.5
"""How long a transaction that ends may keep the next one of its producer waiting. Then the client tries again."""
AGAIN_S: Final = 0.005
LONGEST_AGAIN_S: Final = 0.05
QUESTIONS_AT_ONCE: Final = 500

Results = Mapping[TopicPartition, TierlogError | None]


class _Asked(NamedTuple):
    question: Question
    answer: asyncio.Future[Results]


class Admission:
    def __init__(
        self,
        node_id: NodeId,
        image: ClusterImage,
        shards: Journal[TransactionMap, Loaded],
        own: Callable[[Question], Awaitable[Results]],
        peers: Peers,
    ) -> None:
        """`own` answers for transactions that this broker coordinates."""
        self._node_id = node_id
        self._image = image
        self._shards = shards
        self._own = own
        self._peers = peers
        self._queues: dict[NodeId, list[_Asked]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def ask(self, question: Question) -> Results:
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + WAIT_S
        wait_s = AGAIN_S
        while True:
            results = await self._ask_once(question)
            waits = any(isinstance(error, ConcurrentTransactions) for error in results.values())
            if not waits or not question.add or loop.time() + wait_s > ends_s:
                return results
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_AGAIN_S)

    async def _ask_once(self, question: Question) -> Results:
        leader = self._shards.leader(question.transactional_id)
        if leader == self._node_id:
            return await self._own(question)
        if leader is None or self._image.broker(leader) is None:
            error = CoordinatorNotAvailable("no broker coordinates the transaction", where=question.transactional_id)
            return dict.fromkeys(question.partitions, error)
        answer: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        queue = self._queues.get(leader)
        if queue is None:
            queue = self._queues[leader] = []
            task = asyncio.get_running_loop().create_task(self._ask_broker(leader), name="admission to transactions")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        queue.append(_Asked(question, answer))
        return await answer

    async def _ask_broker(self, leader: NodeId) -> None:
        """Asks what is queued for one broker, one request after the other, until its queue is empty."""
        try:
            while queue := self._queues[leader]:
                asked, self._queues[leader] = _one_each(queue)
                await self._ask_together(leader, asked)
        finally:
            for each in self._queues.pop(leader):
                each.answer.cancel()

    async def _ask_together(self, leader: NodeId, asked: Sequence[_Asked]) -> None:
        try:
            broker = self._image.broker(leader)
            if broker is None:
                raise ConnectionError("the broker is gone")
            answers = await self._peers.admit(broker, [each.question for each in asked])
        except (OSError, TierlogError) as error:  # a TimeoutError is an OSError
            why = CoordinatorNotAvailable(f"broker {leader} did not answer: {error or type(error).__name__}")
            answers = [dict.fromkeys(each.question.partitions, why) for each in asked]
        except asyncio.CancelledError:
            for each in asked:
                each.answer.cancel()
            raise
        for each, results in zip(asked, answers, strict=True):
            if not each.answer.done():
                each.answer.set_result(results)


def _one_each(queue: Sequence[_Asked]) -> tuple[list[_Asked], list[_Asked]]:
    """Returns the questions for the next request, at most one for each transactional id, and the others."""
    now: dict[str, _Asked] = {}
    later: list[_Asked] = []
    for each in queue:
        if len(now) < QUESTIONS_AT_ONCE and each.question.transactional_id not in now:
            now[each.question.transactional_id] = each
        else:
            later.append(each)
    return list(now.values()), later

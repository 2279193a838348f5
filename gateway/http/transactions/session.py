"""One transaction of a service: what it has posted so far, and whether it can still be committed.

- Posts are written one after the other, each in full before the next. So the sequences of its batches have no gaps.
- A post that has a key and is repeated gets the first one's answer and is not written again.
- If a post may have been written in part, or nobody knows, the transaction can only be aborted: then no reader ever
  sees the part.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gateway.coordinators.coordinator import Transaction
from gateway.coordinators.errors import GroupNotEmpty, UnknownMember
from gateway.coordinators.group_offsets import Commit, Sender
from gateway.http.idempotency import KEY_REUSED, TOO_MANY_KEYS
from gateway.http.kinds import Kind
from gateway.http.problems import Problem
from gateway.http.producer import Numbered, Stored, encode, runs_of
from gateway.http.transactions.writes import Writes
from gateway.off_loop import off_loop
from hot_tier.errors import BatchTooLarge, InvalidRecord, UnknownPartition, UnknownTopic
from hot_tier.ids import PartitionId, TopicPartition
from hot_tier.record.records import NewRecord

MOST_HELD_BYTES: Final = 256 * 1024
"""Memory for the answers to one transaction's posts with keys."""
ANSWER_BYTES: Final = 128
"""About the memory of a key, and of the place of one message."""

BROKEN: Final = Kind(
    409,
    "transaction-broken",
    "A part of the transaction may be missing",
    "Abort the transaction, begin a new one and do its work again.",
)
OVER: Final = Kind(409, "transaction-over", "The transaction is over", "Begin a new one and do its work again.")
NOT_A_MEMBER: Final = Sender(member_id="http")
"""No member has this id, so a group that has members refuses it."""
REFUSALS: Final = (BatchTooLarge, InvalidRecord, UnknownPartition, UnknownTopic)
"""Refusals of a whole batch. Nothing of it is stored then."""


class Token(NamedTuple):
    """What a service names its transaction by; `begin` gives it."""

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}-{self.producer_epoch}"


class Answered(NamedTuple):
    digest: bytes
    """The digest of the request."""
    body: bytes


class Session:
    def __init__(self, transaction: Transaction, timeout_ms: int) -> None:
        self.transaction = transaction
        self.timeout_ms = timeout_ms
        self._deadline_s = asyncio.get_running_loop().time() + timeout_ms / 1000
        self._turn = asyncio.Lock()
        self._has_written = False
        """Whether the coordinator may have an open transaction for it."""
        self._over = ""
        """Why nothing can be added."""
        self._outcome: bool | None = None
        """Whether it was committed; None while it is not known to have ended."""
        self._broken = ""
        """Why it can only be aborted."""
        self._sequences: dict[TopicPartition, int] = {}
        self._answers: dict[str, Answered] = {}
        self._held_bytes = 0

    @property
    def token(self) -> Token:
        return Token(self.transaction.producer_id, self.transaction.producer_epoch)

    @property
    def is_over(self) -> bool:
        return self._outcome is not None or self.is_late

    @property
    def is_late(self) -> bool:
        """Whether it has taken longer than it may. Then its coordinator aborts it, or has done so."""
        return asyncio.get_running_loop().time() > self._deadline_s

    async def once(self, key: str | None, digest: bytes, places: int, do: Callable[[], Awaitable[bytes]]) -> bytes:
        """Does a request, or returns the answer if it was done before. The answer names so many `places`."""
        async with self._turn:
            self._check_open()
            if key is None:
                return await do()
            done = self._answers.get(key)
            if done is None:
                if self._held_bytes + (1 + places) * ANSWER_BYTES > MOST_HELD_BYTES:
                    raise Problem(TOO_MANY_KEYS, f"the answers to {len(self._answers)} requests are remembered already")
                done = self._answers[key] = Answered(digest, await do())
                self._held_bytes += ANSWER_BYTES + len(done.body)
            elif done.digest != digest:
                raise Problem(KEY_REUSED, f"the key {key!r} belongs to a request with another content")
            return done.body

    async def post(
        self,
        writes: Writes,
        topic: str,
        by_partition: Mapping[int, Sequence[int]],
        records: Sequence[NewRecord],
        max_message_bytes: int,
    ) -> list[Stored]:
        """Writes messages, to each partition those with its indexes. Returns where each one is."""
        stored: dict[int, Stored] = {}
        runs = await off_loop(len(records), _runs, by_partition, records, max_message_bytes)

        async def write(number: int) -> None:
            tp = TopicPartition(topic, PartitionId(number))
            for run in runs[number]:
                sequence = self._sequences.get(tp, 0)
                producer = Numbered(self.transaction.producer_id, self.transaction.producer_epoch, sequence, True)
                batch = await off_loop(len(run), encode, [records[index] for index in run], producer)
                offset = await writes.append(self.transaction, tp, batch)
                self._sequences[tp] = sequence + len(run)
                for place, index in enumerate(run):
                    stored[index] = Stored(number, offset + place, records[index].timestamp)

        await self._in_full([write(number) for number in runs], stored)
        return [stored[index] for index in range(len(records))]

    async def commit_offsets(self, writes: Writes, group: str, commits: Mapping[TopicPartition, Commit]) -> None:
        done: dict[TopicPartition, Commit] = {}

        async def write() -> None:
            results = await writes.commit(self.transaction, group, NOT_A_MEMBER, commits)
            done.update({tp: commits[tp] for tp, error in results.items() if error is None})
            for error in results.values():
                if isinstance(error, UnknownMember):
                    raise GroupNotEmpty(where=group, hint="stop its consumers first")
                if error is not None:
                    raise error

        await self._in_full([write()], done)

    async def _in_full(self, steps: Sequence[Coroutine[Any, Any, None]], done: Mapping[Any, Any]) -> None:
        """Does all steps. If one fails, and another is done or nobody knows, the transaction can only be aborted."""
        self._has_written = True
        outcomes = await asyncio.gather(*steps, return_exceptions=True)
        failures = [each for each in outcomes if each is not None]
        if not failures:
            return
        refused = all(isinstance(each, (*REFUSALS, GroupNotEmpty)) for each in failures)
        if done or not refused:
            self._broken = f"a request of this transaction failed, and part of it may be stored: {failures[0]}"
        raise failures[0]

    async def end(self, commit: bool, decide: Callable[[], Awaitable[object]]) -> None:
        """Commits or aborts it. The same call again changes nothing."""
        async with self._turn:
            if self._outcome is None:
                if commit:
                    self._check_whole()
                self._over = "is being committed" if commit else "is being aborted"
                if self._has_written:
                    await decide()
                self._outcome = commit
                self._over = "was committed" if commit else "was aborted"
                self._answers.clear()
            elif self._outcome is not commit:
                self._check_open()

    def _check_open(self) -> None:
        """Raises a Problem if nothing can be added."""
        name = self.transaction.transactional_id
        if self._over:
            raise Problem(OVER, f"the transaction of {name!r} {self._over}")
        if self.is_late:
            raise Problem(OVER, f"the transaction of {name!r} took longer than {self.timeout_ms} ms")
        self._check_whole()

    def _check_whole(self) -> None:
        if self._broken:
            raise Problem(BROKEN, self._broken)


def _runs(
    by_partition: Mapping[int, Sequence[int]], records: Sequence[NewRecord], max_message_bytes: int
) -> dict[int, list[list[int]]]:
    return {number: runs_of(indexes, records, max_message_bytes) for number, indexes in by_partition.items()}

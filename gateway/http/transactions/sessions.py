"""The transactions that services have begun over HTTP, at the broker that coordinates their transactional ids.

A session is in memory only. If this broker stops or another one coordinates the id, the session is lost: nobody knows
any more which posts it has seen, so nothing can be added, and its transaction is aborted by the next `begin` or by its
time-out. What was decided is never lost: the coordinator's journal says it.
"""

from typing import Final

from gateway.coordinators.coordinator import Transaction
from gateway.coordinators.errors import TransactionalIdNotFound, WrongTransactionState
from gateway.coordinators.transactions.states import PREPARED, State
from gateway.http.kinds import Kind
from gateway.http.peers.peers import Peers
from gateway.http.problems import OVERLOADED, Problem
from gateway.http.transactions.session import Session, Token
from gateway.http.transactions.writes import Writes
from gateway.node import Node

MOST_SESSIONS: Final = 1_000

LOST: Final = Kind(
    409,
    "transaction-lost",
    "This broker does not know the transaction",
    "Begin a new one, which aborts what is left of it, and do its work again.",
)

NOT_OPEN: Final = Kind(
    409, "no-open-transaction", "There is nothing to abort", "GET /api/v1/transactions lists what is open."
)

DECIDED: Final = PREPARED | {State.COMPLETE_COMMIT, State.COMPLETE_ABORT}


class Sessions:
    def __init__(self, node: Node, peers: Peers, timeout_ms: int) -> None:
        self._node = node
        self.writes = Writes(node, peers, timeout_ms)
        self._sessions: dict[str, Session] = {}

    def close(self) -> None:
        self.writes.close()

    async def begin(self, transactional_id: str, timeout_ms: int) -> Token:
        """Begins a transaction, and fences whoever used the transactional id before. What that one left is aborted."""
        if transactional_id not in self._sessions and len(self._sessions) >= MOST_SESSIONS:
            for name in [name for name, session in self._sessions.items() if session.is_over]:
                del self._sessions[name]
            if len(self._sessions) >= MOST_SESSIONS:
                raise Problem(OVERLOADED, f"{MOST_SESSIONS} transactions are open over HTTP at this broker")
        token = Token(*await self._node.transactions.init_producer(transactional_id, timeout_ms))
        before = self._sessions.get(transactional_id)
        if before is None or before.token < token:  # else another begin has fenced this one already
            self._sessions[transactional_id] = Session(Transaction(transactional_id, *token, tv2=True), timeout_ms)
        return token

    def find(self, transactional_id: str, token: Token) -> Session:
        session = self._sessions.get(transactional_id)
        if session is None or session.token != token:
            raise self._lost(transactional_id, token)
        return session

    async def end(self, transactional_id: str, token: Token, commit: bool) -> None:
        """Ends the transaction. One whose session is lost can be aborted; if it was ended already, that is told."""
        if transactional_id not in self._sessions or self._sessions[transactional_id].token != token:
            if commit and not self._was_ended(transactional_id, token):
                raise self._lost(transactional_id, token)
            await self._decide(transactional_id, token, commit)
            return
        session = self._sessions[transactional_id]
        await session.end(commit, lambda: self._decide(transactional_id, token, commit))

    async def abort(self, transactional_id: str) -> None:
        """Aborts whatever transaction is open, as an operator asks, and fences its producer."""
        try:
            await self._node.transactions.abort(transactional_id)
        except WrongTransactionState:
            raise Problem(NOT_OPEN, f"no transaction of {transactional_id!r} is open") from None
        self._sessions.pop(transactional_id, None)

    async def _decide(self, transactional_id: str, token: Token, commit: bool) -> None:
        await self._node.transactions.end(transactional_id, *token, commit=commit, tv2=True)

    def _was_ended(self, transactional_id: str, token: Token) -> bool:
        """Returns whether this is the last transaction that the coordinator has decided: then its producer has the next
        epoch. When the coordinator is asked to end it again, it says how it ended."""
        try:
            known = self._node.transactions.describe(transactional_id)
        except TransactionalIdNotFound:
            return False
        next_epoch = (token.producer_id, token.producer_epoch + 1)
        return (known.producer_id, known.producer_epoch) == next_epoch and known.state in DECIDED

    def _lost(self, transactional_id: str, token: Token) -> Problem:
        return Problem(LOST, f"{token} is not the open transaction of {transactional_id!r} at this broker")

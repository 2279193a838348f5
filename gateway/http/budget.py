"""Memory that the requests of all clients share (`gateway.budget`): bodies that arrive, and answers not read yet.

A request that finds no room gets 429 if its address has used up its share, and 503 if the whole memory is in use.
"""

import asyncio
from types import TracebackType
from typing import Final, Self

from aiohttp import web

from gateway import budget as shared
from gateway.http.problems import OVERLOADED, TOO_MUCH, Problem

WAIT_S: Final = 10.0
"""How long an answer that has begun waits for room."""


class Budget(shared.Budget):
    def refusal(self, address: str) -> Problem:
        """Returns the refusal for a client. It closes the connection, or else the rest of the request must be read."""
        if self.held_by(address) * 2 > self.most_for_one:
            return Problem(TOO_MUCH, f"{self.what} of {address} fill the memory set aside for one address", close=True)
        return Problem(OVERLOADED, f"{self.what} of all clients together fill the memory set aside", close=True)


class Lease:
    """What one request holds of a budget. All of it is given back at the end of the block."""

    def __init__(self, budget: Budget, request: web.Request) -> None:
        self._budget = budget
        self._address = address_of(request)
        self.held = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._budget.give_back(self._address, self.held)
        self.held = 0

    def take(self, size: int) -> bool:
        taken = self._budget.take(self._address, size)
        self.held += size if taken else 0
        return taken

    def need(self, size: int) -> None:
        if not self.take(size):
            raise self._budget.refusal(self._address)

    async def hold(self, size: int) -> None:
        """Waits for room and then holds exactly `size` bytes."""
        if size < self.held:
            self._budget.give_back(self._address, self.held - size)
            self.held = size
        try:
            async with asyncio.timeout(WAIT_S):
                while size > self.held and not self.take(size - self.held):
                    await self._budget.wait_freed()
        except TimeoutError:
            raise self._budget.refusal(self._address) from None


def address_of(request: web.Request) -> str:
    """Returns the client's address without its port."""
    return request.remote or ""

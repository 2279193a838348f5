"""Memory that the requests of all clients share: bodies that arrive, and answers that are not read yet.

One address may hold half of it at most, so that a client that does not read, or sends and sends, leaves room for the
others. Who finds no room is refused before more is allocated: 429 to an address that has used up its half, 503 where
all of it is taken.
"""

import asyncio
from collections import Counter
from types import TracebackType
from typing import Final, Self

from aiohttp import web

from gateway.http.problems import OVERLOADED, TOO_MUCH, Problem

SHARE: Final = 2
WAIT_S: Final = 10.0
"""How long an answer that has begun waits for room."""


class Budget:
    def __init__(self, what: str, max_bytes: int) -> None:
        self.what = what
        self.max_bytes = max_bytes
        self.used = 0
        self._by_address: Counter[str] = Counter()
        self._freed = asyncio.Event()

    @property
    def most_for_one(self) -> int:
        return self.max_bytes // SHARE

    def take(self, address: str, size: int) -> bool:
        if self.used + size > self.max_bytes or self._by_address[address] + size > self.most_for_one:
            return False
        self.used += size
        self._by_address[address] += size
        return True

    def give_back(self, address: str, size: int) -> None:
        self.used -= size
        self._by_address[address] -= size
        if not self._by_address[address]:
            del self._by_address[address]
        self._freed.set()

    async def wait_freed(self) -> None:
        self._freed.clear()
        await self._freed.wait()

    def refusal(self, address: str) -> Problem:
        """Its words for a client; the connection is closed, as what it still sends would have to be read."""
        if self._by_address[address] * 2 * SHARE > self.max_bytes:
            return Problem(TOO_MUCH, f"{self.what} of {address} fill the memory set aside for one address", close=True)
        return Problem(OVERLOADED, f"{self.what} of all clients together fill the memory set aside", close=True)


class Lease:
    """What one request holds of a budget; all of it is given back at the end of the block."""

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
        """So much in all, once there is room for it."""
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
    """Of the client, without its port."""
    return request.remote or ""

"""Memory that all clients share, and the rule for sharing it.

One address may hold at most half of it. So a client that keeps sending, or that does not read its answers, leaves room
for the others. A request that finds no room is refused before anything is allocated; the caller decides how to refuse.
"""

import asyncio
from collections import Counter
from typing import Final

SHARE: Final = 2


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

    def held_by(self, address: str) -> int:
        return self._by_address[address]

    def has_room(self, address: str, size: int) -> bool:
        return self.used + size <= self.max_bytes and self._by_address[address] + size <= self.most_for_one

    def take(self, address: str, size: int) -> bool:
        if not self.has_room(address, size):
            return False
        self.hold(address, size)
        return True

    def hold(self, address: str, size: int) -> None:
        """Counts memory that is held already, whether there is room for it or not."""
        self.used += size
        self._by_address[address] += size
        if not self._by_address[address]:
            del self._by_address[address]

    def give_back(self, address: str, size: int) -> None:
        self.hold(address, -size)
        self._freed.set()

    async def wait_freed(self) -> None:
        self._freed.clear()
        await self._freed.wait()

"""Checks passwords, a few at a time, and counts failed logins by address: the more there are, the later they are
answered.

- A failure is answered after a tenth of a second, each further one from the same address after twice as long, up to
  five seconds. An address that has not failed for a minute begins anew.
- At most `AT_ONCE` logins of an address are checked or wait with their failure; the next ones wait until one of them
  has ended. So whoever goes away before the answer, or tries on many connections, does not guess faster.
- Of IPv6 the first 64 bits are the address: the rest is the sender's to choose.
- Memory is bounded: of too many addresses the oldest are forgotten.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from hot_tier.errors import SettingsError

FIRST_S: Final = 0.1
LONGEST_S: Final = 5.0
FORGET_S: Final = 60.0
MOST_ADDRESSES: Final = 10_000
AT_ONCE: Final = 16
CHECKS_AT_ONCE: Final = 2

Checked = TypeVar("Checked")


@dataclass(frozen=True, slots=True)
class LoginSettings:
    first_user: str = field(
        default="", metadata={"doc": "A user that is made at the start if the cluster has no user yet."}
    )
    first_password: str = field(default="", repr=False, metadata={"doc": "That user's password.", "secret": True})

    def __post_init__(self) -> None:
        if bool(self.first_user) != bool(self.first_password):
            raise SettingsError("login.first_user and login.first_password go together", hint="give both or none")


class FailedLogins:
    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._by_address: dict[str, tuple[int, float]] = {}
        self.total = 0
        self._checks = asyncio.Semaphore(CHECKS_AT_ONCE)
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Waits for the turn of a login, which is checked in the block; if it fails, the block also waits."""
        address = _network(address)
        turns = self._turns.get(address)
        if turns is None:
            turns = self._turns[address] = asyncio.Semaphore(AT_ONCE)
        async with turns:
            yield

    def note(self, address: str) -> float:
        """Counts a failure. Returns how many seconds its answer waits."""
        address = _network(address)
        self.total += 1
        now_s = self._clock_s()
        count, last_s = self._by_address.pop(address, (0, now_s))
        count = count + 1 if now_s - last_s < FORGET_S else 1
        if len(self._by_address) >= MOST_ADDRESSES:
            del self._by_address[next(iter(self._by_address))]
        self._by_address[address] = count, now_s
        return float(min(LONGEST_S, FIRST_S * 2 ** min(count - 1, 10)))

    async def wait(self, address: str) -> None:
        await asyncio.sleep(self.note(address))

    async def check(self, step: Callable[[bytes], Checked], message: bytes) -> Checked:
        """Checks a password in a thread, a few at a time: each takes milliseconds of a core, and anybody can ask."""
        async with self._checks:
            return await asyncio.to_thread(step, message)


def _network(address: str) -> str:
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped or IPv6Address(int(found) >> 64 << 64))

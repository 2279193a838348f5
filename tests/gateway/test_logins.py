"""Logins of one address: how many may be tried, whatever the one who tries does with the answers."""

import asyncio
import gc

from gateway import logins
from gateway.logins import FailedLogins
from hot_tier.clock import steady_s

ADDRESS = "192.0.2.7"


async def test_who_tries_on_many_connections_does_not_guess_faster() -> None:
    failed, over = FailedLogins(steady_s), asyncio.Event()
    tried: list[str] = []

    async def guess(address: str) -> None:
        async with failed.turn(address):
            tried.append(address)
            failed.note(address)
            await over.wait()

    guesses = [asyncio.create_task(guess(ADDRESS)) for _ in range(200)]
    await asyncio.sleep(0.05)
    assert len(tried) == logins.AT_ONCE
    other = asyncio.create_task(guess("192.0.2.8"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert tried[-1] == "192.0.2.8", "another address does not wait"
    over.set()
    await asyncio.gather(*guesses, other)
    assert len(tried) == 201
    gc.collect()
    assert not len(failed._turns), "who is done costs no memory"


def test_failures_are_told_later_and_later_whatever_part_of_its_network_the_sender_uses() -> None:
    now = 0.0
    failed = FailedLogins(lambda: now)
    assert [failed.note(f"2001:db8:1:2::{n:x}") for n in range(1, 9)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert failed.note("2001:db8:1:3::1") == 0.1
    assert failed.note("::ffff:192.0.2.7") == 0.1
    assert failed.note("192.0.2.7") == 0.2, "one address through either kind of socket"
    assert failed.note("::ffff:192.0.2.8") == 0.1
    assert failed.note("not an address") == 0.1
    now = 61.0
    assert failed.note("2001:db8:1:2::1") == 0.1

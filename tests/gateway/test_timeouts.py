import asyncio

import pytest

from gateway.timeouts import Timeouts
from tests.support.waiting import until


class Waiting:
    def __init__(self) -> None:
        self.since = asyncio.get_running_loop().time()
        self.waited_s: float | None = None

    def expire(self) -> None:
        assert self.waited_s is None
        self.waited_s = asyncio.get_running_loop().time() - self.since


class Wrong(Waiting):
    def expire(self) -> None:
        raise RuntimeError("a mistake")


async def test_each_is_told_after_its_time_and_never_before() -> None:
    timeouts, times = Timeouts(), [0.2, 0.05, 0.0, 0.1, 0.051, 0.3, 0.05]
    waiting = [Waiting() for _ in times]
    for each, wait_s in zip(waiting, times, strict=True):
        timeouts.begin(each, wait_s)
    await asyncio.sleep(0.5)
    waited = [each.waited_s for each in waiting]
    assert all(found is not None and found >= asked for found, asked in zip(waited, times, strict=True)), waited


async def test_who_does_not_wait_any_more_is_not_told() -> None:
    timeouts = Timeouts()
    ended, other = Waiting(), Waiting()
    tick = timeouts.begin(ended, 0.05)
    timeouts.begin(other, 0.05)
    timeouts.end(ended, tick)
    timeouts.end(ended, tick)
    await asyncio.sleep(0.2)
    assert ended.waited_s is None and other.waited_s is not None


async def test_a_mistake_in_one_keeps_no_other_waiting() -> None:
    timeouts, loop = Timeouts(), asyncio.get_running_loop()
    told: list[object] = []
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
    wrong, right, later = Wrong(), Waiting(), Waiting()
    for each, wait_s in ((wrong, 0.02), (right, 0.02), (later, 0.1)):
        timeouts.begin(each, wait_s)
    await asyncio.sleep(0.25)
    assert right.waited_s is not None and later.waited_s is not None
    assert [type(error) for error in told] == [RuntimeError]


async def test_a_thousand_that_end_in_time_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts, loop = Timeouts(), asyncio.get_running_loop()
    timers = 0
    call_at = loop.call_at

    def counted(when, callback, *args, **kwargs):  # type: ignore[no-untyped-def]
        nonlocal timers
        timers += 1
        return call_at(when, callback, *args, **kwargs)

    monkeypatch.setattr(loop, "call_at", counted)
    for _ in range(1000):
        waiting = Waiting()
        timeouts.end(waiting, timeouts.begin(waiting, 0.05))
    await until(lambda: not timeouts._ending)
    assert not timeouts._ending and not timeouts._ticks
    assert timers <= 20

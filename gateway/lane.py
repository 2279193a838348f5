"""The rule that nobody holds the event loop for long, and the one way to keep it: large work goes in slices.

A broker is one loop. While one request is worked on, nobody else is served: producers wait, heartbeats are late, and in
a cluster a lease runs out. So no step takes longer than 50 ms, whatever a request asks for:

- Work that grows with a request, or with what it asks about, takes a `Turn` and rests when the turn is over.
- Who rests stands in one line with all others who rest. In each round of the loop one of them goes on, for `SLICE_S`:
  a hundred large requests hold it no longer than one does, they only take longer themselves.
- Only `AT_ONCE` tasks are past their first slice. The others wait before they have built anything large, so that many
  large requests take the memory of a few.

    turn = lane.turn()
    answers = [answer(item) async for item in turn.through(items)]

Between two slices everything may change: what was looked up may be gone, and what is gone through must be a copy.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from time import perf_counter
from typing import Any, Final, TypeVar

SLICE_S: Final = 0.005
AT_ONCE: Final = 8
GATHERED: Final = 32
"""Tasks begun together all run in one round of the loop."""
PART: Final = 1000

T = TypeVar("T")
R = TypeVar("R")


class Lane:
    def __init__(self) -> None:
        self._at_work: set[asyncio.Task[Any]] = set()
        self._outside: deque[asyncio.Future[None]] = deque()
        self._line: deque[asyncio.Future[None]] = deque()
        self._calling = False

    def turn(self) -> "Turn":
        return Turn(self)

    async def wait(self) -> None:
        """Until it is this task's turn. From its first time here the task counts as large work, until it ends or
        leaves."""
        task = asyncio.current_task()
        assert task is not None
        if task not in self._at_work:
            await self._enter(task)
        loop = asyncio.get_running_loop()
        mine: asyncio.Future[None] = loop.create_future()
        self._line.append(mine)
        if not self._calling:
            self._calling = True
            loop.call_soon(self._call_next, loop)
        await mine

    def leave(self) -> None:
        """This task goes on to wait for something else and holds nothing large."""
        task = asyncio.current_task()
        assert task is not None
        self._left(task)

    async def _enter(self, task: asyncio.Task[Any]) -> None:
        while len(self._at_work) >= AT_ONCE:
            mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._outside.append(mine)
            try:
                await mine
            except asyncio.CancelledError:
                if mine.done() and not mine.cancelled():
                    self._let_in()
                raise
        self._at_work.add(task)
        task.add_done_callback(self._left)

    def _left(self, task: asyncio.Task[Any]) -> None:
        if task in self._at_work:
            self._at_work.remove(task)
            task.remove_done_callback(self._left)
            self._let_in()

    def _let_in(self) -> None:
        _wake_first(self._outside)

    def _call_next(self, loop: asyncio.AbstractEventLoop) -> None:
        _wake_first(self._line)
        self._calling = bool(self._line)
        if self._calling:
            loop.call_soon(self._call_next, loop)


def _wake_first(line: deque[asyncio.Future[None]]) -> None:
    while line:
        first = line.popleft()
        if not first.done():
            first.set_result(None)
            return


class Turn:
    """One request's time on the loop. The first slice is free: most requests need no more."""

    __slots__ = ("_ends_s", "_lane")

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._ends_s = perf_counter() + SLICE_S

    async def rest(self) -> None:
        await self._lane.wait()
        self._ends_s = perf_counter() + SLICE_S

    async def through(self, items: Iterable[T]) -> AsyncIterator[T]:
        for item in items:
            if perf_counter() >= self._ends_s:
                await self.rest()
            yield item

    async def parts(self, items: Sequence[T], size: int = PART) -> AsyncIterator[Sequence[T]]:
        """For work that takes many at once. Of no items there is one part."""
        for at in range(0, max(1, len(items)), size):
            if perf_counter() >= self._ends_s:
                await self.rest()
            yield items[at : at + size]

    async def run(self, steps: Generator[None, None, T]) -> T:
        """What the generator returns; it stops often enough."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            if perf_counter() >= self._ends_s:
                await self.rest()

    async def gather(self, work: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
        """`work` for each item, a few at a time side by side; the results in their order."""
        results: list[R] = []
        async for some in self.parts(items, GATHERED):
            results += await asyncio.gather(*map(work, some))
        return results

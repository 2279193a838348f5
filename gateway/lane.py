"""The rule that no request holds the event loop for long, and the way to follow it: large work is done in slices.

A broker has one event loop. While it works on one request, it serves nobody else: producers wait, heartbeats are late,
and in a cluster a lease may expire. So no step takes longer than 50 ms, whatever a request asks for:

- Work that grows with the request, or with what the request asks about, takes a `Turn` and rests when the turn is over.
- All tasks that rest wait in one line. In each round of the loop one of them continues, for `SLICE_S`. So a hundred
  large requests hold the loop no longer than one does; only they themselves take longer.
- At most `AT_ONCE` tasks are past their first slice. The others wait before they build anything large, so that many
  large requests use the memory of a few.

    turn = lane.turn()
    answers = [answer(item) async for item in turn.through(items)]

Between two slices everything may change: an object that was looked up may be gone, and a list that is iterated over
must be a copy.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from time import perf_counter
from typing import Any, Final, TypeVar

SLICE_S: Final = 0.005
AT_ONCE: Final = 8
GATHERED: Final = 32
"""How many tasks `gather` starts together; all of them run in one round of the loop."""
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
        """Waits for this task's turn. From the first call on the task is large work, until it ends or calls `leave`."""
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
        """The task calls this before it waits for something else while it holds nothing large."""
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
    """One request's time on the loop. The first slice needs no waiting; most requests need no more."""

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
        """Yields parts of up to `size` items, for work that takes many at once. An empty list yields one empty part."""
        for at in range(0, max(1, len(items)), size):
            if perf_counter() >= self._ends_s:
                await self.rest()
            yield items[at : at + size]

    async def run(self, steps: Generator[None, None, T]) -> T:
        """Runs the generator, which must yield often enough. Returns what the generator returns."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            if perf_counter() >= self._ends_s:
                await self.rest()

    async def gather(self, work: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
        """Runs `work` for each item, a few at the same time. Returns the results in the order of the items."""
        results: list[R] = []
        async for some in self.parts(items, GATHERED):
            results += await asyncio.gather(*map(work, some))
        return results

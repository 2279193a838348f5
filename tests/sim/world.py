"""Virtual time, and processes that live in it.

Nothing here reads a real clock or a real source of chance, and events at the same time happen in the order in which
they were planned: a run is the same every time.
"""

import heapq
import random
import sys
from collections.abc import Callable, Generator, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import structlog

Resume = Callable[[Any], None]
Step = Callable[[Resume], None]
"""Something to wait for: it is started with what to call when it is over."""
Work = Generator[Step, Any, None]


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0.0
        self.events = 0
        self.trace: list[str] = []
        self.tracing = False
        self.listener: Callable[[str, object], None] = lambda event, name: None
        """Told what a process does at this moment: for faults that wait for it."""
        self.failed: BaseException | None = None
        """What was found wrong inside production code, which may catch what it raises: the run ends with it."""
        self._planned: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []

    def after(self, delay_ms: float, action: Callable[..., None], *arguments: Any) -> None:
        self.events += 1
        heapq.heappush(self._planned, (self.now_ms + delay_ms, self.events, action, arguments))

    def run(self, until_ms: float) -> None:
        planned = self._planned
        while planned and planned[0][0] <= until_ms:
            self.now_ms, _, action, arguments = heapq.heappop(planned)
            action(*arguments)
            if self.failed is not None:
                raise self.failed
        self.now_ms = until_ms

    @contextmanager
    def hears_production_code(self) -> Iterator[None]:
        """What it logs goes to the trace. An exception that it caught without expecting it is a mistake."""

        def hear(_: Any, method: str, event: MutableMapping[str, Any]) -> str:
            if method == "exception":
                self.failed = self.failed or sys.exc_info()[1]
            self.note(method, event)
            raise structlog.DropEvent

        before = structlog.get_config()
        structlog.configure(processors=[hear])
        try:
            yield
        finally:
            structlog.configure(**before)

    def note(self, *words: object) -> None:
        if self.tracing:
            self.trace.append(f"{self.now_ms:9.2f} " + " ".join(map(str, words)))


class Process:
    """Something that runs until it is killed, does nothing while it is paused, and has a clock of its own."""

    def __init__(self, world: World, name: object) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.paused = False
        self._rate = 1.0
        self._rate_since_ms = self._clock_since_ms = 0.0
        self._held: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    def clock_ms(self) -> int:
        """It runs fast or slow, and never goes back."""
        return int(self._clock_since_ms + (self.world.now_ms - self._rate_since_ms) * self._rate)

    @property
    def clock_rate(self) -> float:
        return self._rate

    @clock_rate.setter
    def clock_rate(self, rate: float) -> None:
        self._clock_since_ms, self._rate_since_ms = self.clock_ms(), self.world.now_ms
        self._rate = rate

    def do(self, action: Callable[..., None], *arguments: Any) -> None:
        """Now, or when it goes on, or never."""
        if not self.alive:
            return
        if self.paused:
            self._held.append((action, arguments))
        else:
            action(*arguments)

    def after(self, delay_ms: float, action: Callable[..., None], *arguments: Any) -> None:
        self.world.after(delay_ms / self.clock_rate, self.do, action, *arguments)

    def go_on(self) -> None:
        self.paused = False
        held, self._held = self._held, []
        for action, arguments in held:
            self.do(action, *arguments)

    def spawn(self, work: Work) -> None:
        """Runs a generator; each step it yields is waited for."""

        def step(result: Any) -> None:
            try:
                start = work.send(result)
            except StopIteration:
                return
            start(step)

        self.do(step, None)

    def sleep(self, delay_ms: float) -> Step:
        return lambda resume: self.after(delay_ms, resume, None)

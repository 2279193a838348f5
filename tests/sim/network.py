"""Messages between processes: late, lost, overtaken by later ones, cut off in one direction or both.

A call is a request and its answer. Either may be lost, so whoever calls gets None after a while and does not know
whether the request was carried out, or will be yet: a late request is carried out even when nobody waits any more.
"""

from collections.abc import Callable
from typing import Any

from tests.sim.world import Process, Resume, Step, World

Reply = Callable[[Any], None]


class Network:
    def __init__(self, world: World) -> None:
        self.world = world
        self.cut: set[tuple[object, object]] = set()
        self.lost = 0.0
        """The share of messages that never arrive."""
        self.late = 0.0
        """The share of messages that take up to seconds."""
        self._processes: dict[object, Process] = {}

    def add(self, process: Process) -> None:
        """Whoever has this name from now on."""
        self._processes[process.name] = process

    def call(self, caller: Process, target: object, method: str, request: Any, timeout_ms: float) -> Step:
        def start(resume: Resume) -> None:
            waiting = True

            def finish(answer: Any) -> None:
                nonlocal waiting
                if waiting:
                    waiting = False
                    resume(answer)

            def reply(answer: Any) -> None:
                self._send(target, caller.name, caller.do, finish, answer)

            def arrive() -> None:
                process = self._processes.get(target)
                if process is not None:
                    process.do(getattr(process, method), request, reply)

            self._send(caller.name, target, arrive)
            caller.after(timeout_ms, finish, None)

        return start

    def _send(self, source: object, target: object, action: Callable[..., None], *arguments: Any) -> None:
        chance = self.world.random.random
        if self.lost and chance() < self.lost:
            return
        delay_ms = 0.3 + 1.5 * chance()
        if self.late and chance() < self.late:
            delay_ms += 3_000 * chance() ** 2
        self.world.after(delay_ms, self._arrive, source, target, action, arguments)

    def _arrive(self, source: object, target: object, action: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if (source, target) not in self.cut:
            action(*arguments)

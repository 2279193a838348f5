"""Questions and answers that are late, lost and doubled."""

from collections.abc import Callable
from typing import Any, Final

from tests.sim.world import Process, Resume, Step, World

TIMEOUT_MS: Final = 400.0
LATEST_MS: Final = 4_000.0

Reply = Callable[[Any], None]
Handle = Callable[[Any, Reply], None]


class Network(Process):
    """`calm` is when it has healed."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "network")
        chance = world.random
        self.calm = False
        self._lost, self._late, self._doubled = (chance.choice([0, 0.02, 0.1]) for _ in range(3))

    def ask(self, handle: Handle, question: Any, *, once: bool = False) -> Step:
        """Waits for an answer, or None when none has come in time. The question may arrive later still, and twice,
        unless `once` says that nobody is asked any more who has not been reached in time."""

        def start(resume: Resume) -> None:
            waiting = True

            def answered(answer: Any) -> None:
                nonlocal waiting
                if waiting:
                    waiting = False
                    resume(answer)

            def arrive() -> None:
                handle(question, lambda answer: self._send(answered, answer))

            self._send(arrive, longest_ms=TIMEOUT_MS / 2 if once else LATEST_MS)
            if not once and not self.calm and self.world.random.random() < self._doubled:
                self._send(arrive)
            self.world.after(TIMEOUT_MS, answered, None)

        return start

    def _send(self, arrive: Callable[..., None], *arguments: Any, longest_ms: float = LATEST_MS) -> None:
        chance = self.world.random
        if not self.calm and chance.random() < self._lost:
            return
        late = not self.calm and chance.random() < self._late
        self.world.after(chance.random() * (longest_ms if late else 20), arrive, *arguments)

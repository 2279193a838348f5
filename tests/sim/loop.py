"""An event loop in virtual time: the production code of one simulated process runs on it as on any other.

Callbacks are events of the world, in the order in which they were planned. They wait while the process is paused, and
never come once it is killed. Only what is needed is here: tasks, futures and timers, no sockets and no threads.
"""

import asyncio
import warnings
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any, Final

from tests.sim.world import Process, Resume, Step

_PRUNED_AT: Final = 100


class Loop(asyncio.AbstractEventLoop):
    def __init__(self, process: Process) -> None:
        self.process = process
        self._tasks: dict[asyncio.Task[Any], Coroutine[Any, Any, Any]] = {}

    def time(self) -> float:
        return self.process.clock_ms() / 1000

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.process.after(0, handle._run)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        self.process.after(max(0, delay * 1000), self._run_timer, handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def _run_timer(self, handle: asyncio.TimerHandle) -> None:
        if not handle.cancelled():
            handle._run()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Does it in a later step of the loop: there are no threads."""
        future = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_soon(work)
        return future

    def create_task(
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks[task] = coro
        if len(self._tasks) > _PRUNED_AT:
            self._tasks = {task: coro for task, coro in self._tasks.items() if not task.done()}
        return task

    def close(self) -> None:
        """At the end of a run: what a killed process left undone ends without a word."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # Work that was handed to a task which never began.
            for task, coro in self._tasks.items():
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    with suppress(RuntimeError):
                        coro.close()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A callback that fails is a mistake; tasks that a killed process leaves behind are none."""
        if "handle" in context:
            self.process.world.failed = context["exception"]

    async def wait_for(self, step: Step) -> Any:
        """What a simulated step gives, for production code that awaits it."""
        future = self.create_future()

        def settle(answer: Any) -> None:
            if not future.done():
                future.set_result(answer)

        resume: Resume = settle
        step(resume)
        return await future

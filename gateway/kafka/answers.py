"""The answers of one connection: they leave in the order of their requests, whatever finishes first.

This is bookkeeping only: `gateway.kafka.connection` decides what to do if the queue is too long, and sends `out`.
"""

import asyncio
from collections import deque
from typing import Any, Final

from gateway.kafka.protocol.schema import Buffer

MOST_HELD_BYTES: Final = 1024 * 1024


class Answer:
    """A place in the queue of answers; `frame` is None until it is ready."""

    __slots__ = ("frame", "future", "overlaps", "patient")

    def __init__(self, future: asyncio.Future[Any] | None, *, overlaps: bool = False, patient: bool = False) -> None:
        self.frame: list[Buffer] | None = None
        self.future = future
        self.overlaps = overlaps
        """The next request need not wait for it."""
        self.patient = patient
        """It waits for other clients by design."""


class Answers:
    __slots__ = ("_held_bytes", "_limit", "_queue", "out", "out_bytes")

    def __init__(self, limit: int) -> None:
        """At most `limit` answers should be open."""
        self._limit = limit
        self._queue: deque[Answer] = deque()
        self._held_bytes = 0
        """Bytes of answers that are ready but wait for an earlier one."""
        self.out: list[Buffer] = []
        """What may be sent now."""
        self.out_bytes = 0

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def is_crowded(self) -> bool:
        return len(self._queue) >= self._limit or self._held_bytes >= MOST_HELD_BYTES

    @property
    def at_work(self) -> bool:
        """Whether requests are being worked on; a long poll is not work."""
        return any(not answer.patient for answer in self._queue)

    def expect(self, answer: Answer) -> None:
        self._queue.append(answer)

    def put(self, frame: list[Buffer]) -> bool:
        """Adds an answer that is ready at once. Returns whether it waits for an earlier one."""
        size = sum(map(len, frame))
        if self._queue:
            answer = Answer(None)
            answer.frame = frame
            self._held_bytes += size
            self._queue.append(answer)
            return True
        self.out.extend(frame)
        self.out_bytes += size
        return False

    def settle(self, answer: Answer, frame: list[Buffer]) -> None:
        """Fills in an expected answer that is now ready."""
        answer.frame = frame
        self._held_bytes += sum(map(len, frame))
        queue = self._queue
        while queue and (ready := queue[0].frame) is not None:
            queue.popleft()
            self.out.extend(ready)
            size = sum(map(len, ready))
            self._held_bytes -= size
            self.out_bytes += size

    def take(self) -> tuple[list[Buffer], int]:
        """Returns what may be sent now, and its size. From now on it counts as sent."""
        taken = self.out, self.out_bytes
        self.out, self.out_bytes = [], 0
        return taken

    def drop(self) -> None:
        """Called when the client is gone: long polls are cancelled, other work continues to its end."""
        for answer in self._queue:
            if answer.future is not None and not isinstance(answer.future, asyncio.Task):
                answer.future.cancel()
        self._queue.clear()
        self.out, self.out_bytes = [], 0

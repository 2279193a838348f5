"""Producers that wait until a partition's log has reached an offset, in one sense or another: committed, or durable.

They are kept in the order of their end offsets and answered from the front: an answer costs what it answers, no task
per request.
"""

from collections import deque
from typing import Protocol

from hot_tier.errors import TierlogError
from hot_tier.ids import Offset


class Told(Protocol):
    """Who waits: a future, or something that notes what it is told and does no more at once."""

    def done(self) -> bool: ...

    def set_result(self, result: None, /) -> None: ...

    def set_exception(self, exception: BaseException, /) -> None: ...


class Waiting:
    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[tuple[Offset, Told]] = deque()

    def add(self, end_offset: Offset, waiter: Told) -> None:
        queue = self._queue
        if not queue or queue[-1][0] <= end_offset:
            queue.append((end_offset, waiter))
        else:
            # A repeated batch of an idempotent producer: its original may wait in the middle.
            at = len(queue)
            while at and queue[at - 1][0] > end_offset:
                at -= 1
            queue.insert(at, (end_offset, waiter))

    def answer(self, reached: Offset, but: TierlogError | None = None) -> None:
        """Answers all that wait for `reached` or less, `but` with this error if there is one."""
        queue = self._queue
        while queue and queue[0][0] <= reached:
            _settle(queue.popleft()[1], but)

    def refuse(self, reason: TierlogError) -> None:
        """Answers everyone with an error."""
        queue, self._queue = self._queue, deque()
        for _, waiter in queue:
            _settle(waiter, reason)


def _settle(waiter: Told, error: TierlogError | None) -> None:
    if waiter.done():
        return
    if error is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(copy_of(error))


def copy_of(error: TierlogError) -> TierlogError:
    """Returns a copy for each waiter: one exception object raised in many places collects all their tracebacks."""
    return type(error)(error.what, where=error.where, hint=error.hint)

"""Threads that sync files and never hold the interpreter's lock.

A sync takes the disk a tenth of a millisecond. In a Python thread the thread and the loop would each wait several times
for the interpreter's lock of the other, and that cost more CPU than the sync. These threads run compiled code alone:
the loop tells them a descriptor through one pipe, and hears through another how it went.

Each file must stay open until its answer is there. Answers come in any order.
"""

import os
import select
import threading
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
from numba import carray, types  # type: ignore[attr-defined]

from hot_tier.record.compiled import kernel

_REQUEST: Final = Struct("=qq")  # number, descriptor
_ANSWER: Final = Struct("=qqq")  # number, errno or 0, nanoseconds
_READ_BYTES: Final = 4096 // _ANSWER.size * _ANSWER.size
_END: Final = -1
_EINTR: Final = 4
_MONOTONIC: Final = 1

# Functions of the C library.
_read: Final[Any] = types.ExternalFunction("read", types.intp(types.int32, types.uintp, types.uintp))
_write: Final[Any] = types.ExternalFunction("write", types.intp(types.int32, types.uintp, types.uintp))
_fdatasync: Final[Any] = types.ExternalFunction("fdatasync", types.int32(types.int32))
_clock_gettime: Final[Any] = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.uintp))
_int_at: Final = types.CPointer(types.int32)  # type: ignore[no-untyped-call]
_errno: Final[Any] = types.ExternalFunction("__errno_location", _int_at())


@kernel(types.void(types.int64, types.int64))
def sync_each(requests, answers):  # type: ignore[no-untyped-def]
    """Syncs one file after the other until it is told the end. Two threads never get parts of one request: the
    kernel reads and writes such a small one at once."""
    request = np.empty(2, np.int64)
    answer = np.empty(3, np.int64)
    began = np.empty(2, np.int64)
    ended = np.empty(2, np.int64)
    while True:
        got = _read(requests, request.ctypes.data, 16)
        if got < 0 and carray(_errno(), (1,))[0] == _EINTR:
            continue
        if got != 16 or request[0] == _END:
            return
        _clock_gettime(_MONOTONIC, began.ctypes.data)
        wrong = _EINTR
        while wrong == _EINTR:
            wrong = 0 if _fdatasync(request[1]) == 0 else carray(_errno(), (1,))[0]
        _clock_gettime(_MONOTONIC, ended.ctypes.data)
        answer[0] = request[0]
        answer[1] = wrong
        answer[2] = (ended[0] - began[0]) * 1_000_000_000 + ended[1] - began[1]
        while _write(answers, answer.ctypes.data, 24) < 0 and carray(_errno(), (1,))[0] == _EINTR:
            pass


class Synced(NamedTuple):
    number: int
    errno: int
    """0: the file is on the disk."""
    nanoseconds: int


class SyncThreads:
    def __init__(self, count: int) -> None:
        """At most as many syncs as there are threads should be under way: more wait for a thread."""
        requests, self._requests = os.pipe()
        self.answers, answers = os.pipe()
        """Readable when there are answers."""
        os.set_blocking(self.answers, False)
        self._poll = select.poll()
        self._poll.register(self.answers, select.POLLIN)
        self._theirs = requests, answers
        self._threads = [
            threading.Thread(target=sync_each, args=(requests, answers), name=f"log-sync-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def sync(self, number: int, fd: int) -> None:
        """Asks for a sync of what was written until now. Its answer has this number."""
        os.write(self._requests, _REQUEST.pack(number, fd))

    def take(self, *, wait: bool = False) -> list[Synced]:
        """Returns the answers that are there. With `wait` there is at least one."""
        if wait:
            self._poll.poll()
        try:
            found = os.read(self.answers, _READ_BYTES)
        except BlockingIOError:
            return []
        return [Synced(*each) for each in _ANSWER.iter_unpack(found)]

    def close(self) -> None:
        """Ends the threads. Nothing is under way any more."""
        for _ in self._threads:
            self.sync(_END, -1)  # A child process that was forked may hold the pipe, so its end tells them nothing.
        for thread in self._threads:
            thread.join()
        for fd in (self.answers, self._requests, *self._theirs):
            os.close(fd)

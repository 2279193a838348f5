"""Files under the log: reading that never waits for the disk, syncing, replacing, and a bound on open files.

`FilePool` keeps at most `limit` segment files open and closes the least recently used. Whoever uses a
descriptor beyond the current step of the event loop (a thread that reads or syncs) pins it; a pinned file is
closed when its last pin goes, so a descriptor number is never reused under a reader. The pool is touched by the
loop's thread only.

All syncing goes through `sync_data` and `sync_directory`, which the power-loss tests replace.
"""

import errno
import os
from collections import OrderedDict
from typing import Final, Protocol

import numpy as np

from hot_tier.log import names

_UNSUPPORTED: Final = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


def sync_data(fd: int) -> None:
    os.fdatasync(fd)


def sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_file(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync_data(fd)
    finally:
        os.close(fd)


def check_in_place(path: str, file: "OpenFile") -> None:
    """Raises OSError unless `path` leads to the open file."""
    there = os.stat(path)
    if (there.st_dev, there.st_ino) != file.identity:
        raise OSError(errno.ESTALE, "another file is in the place of the one that is written", path)


def write_synced(path: str, content: bytes) -> None:
    """Writes a file that its reader checks by a checksum: torn by a crash, it counts as missing."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_at(fd, memoryview(content), 0)
        sync_data(fd)
    finally:
        os.close(fd)


def replace_file(path: str, content: bytes) -> None:
    """Puts `content` in the file's place, not synced: a killed process leaves the old or the new."""
    temporary = path + names.TEMPORARY
    with open(temporary, "wb") as file:
        file.write(content)
    os.replace(temporary, path)


def replace_synced(path: str, content: bytes) -> None:
    """Puts `content` in the file's place: after a crash there is the old or the new, never a part."""
    temporary = path + names.TEMPORARY
    write_synced(temporary, content)
    os.replace(temporary, path)
    sync_directory(os.path.dirname(path))


Signature = tuple[int, ...]


def signature(path: str) -> Signature:
    """Returns a value that changes when the file is written or replaced. It is empty if the file is missing."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def write_at(fd: int, data: memoryview, position: int) -> None:
    """Writes all of `data`, also if the kernel takes it in parts."""
    written = os.pwrite(fd, data, position)
    while written < len(data):
        written += os.pwrite(fd, data[written:], position + written)


def read_at(fd: int, position: int, length: int) -> memoryview:
    """Returns up to `length` bytes; fewer only at the end of the file. Waits for the disk."""
    buffer = _room(length)
    filled = os.preadv(fd, [buffer], position)
    while 0 < filled < length:
        more = os.preadv(fd, [buffer[filled:]], position + filled)
        if more == 0:
            break
        filled += more
    return buffer[:filled]


def read_cached_at(fd: int, position: int, length: int) -> memoryview | None:
    """Returns exactly `length` bytes if the page cache has them all, else None. Never waits if the kernel can say."""
    buffer = _room(length)
    try:
        filled = os.preadv(fd, [buffer], position, os.RWF_NOWAIT)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        # tmpfs and FUSE do not know the flag. The first is memory, and for the second waiting is all there is.
        filled = os.preadv(fd, [buffer], position)
    return buffer if filled == length else None


def _room(length: int) -> memoryview:
    # A bytearray is zeroed first, which for 1 MiB costs more than reading it from the page cache.
    return np.empty(length, np.uint8).data if length > 8192 else memoryview(bytearray(length))


class OpenFile:
    __slots__ = ("_identity", "fd", "pins", "unused")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._identity: tuple[int, int] | None = None
        self.pins = 0
        self.unused = False
        """No longer in the pool: close it with the last pin."""

    @property
    def identity(self) -> tuple[int, int]:
        """Returns its device and its number there."""
        if self._identity is None:
            found = os.fstat(self.fd)
            self._identity = found.st_dev, found.st_ino
        return self._identity

    def pin(self) -> "OpenFile":
        self.pins += 1
        return self

    def unpin(self) -> None:
        self.pins -= 1
        if self.unused and self.pins == 0:
            os.close(self.fd)

    def discard(self) -> None:
        self.unused = True
        if self.pins == 0:
            os.close(self.fd)


class Owner(Protocol):
    """The owner of a file in the pool. It is told when the file leaves the pool."""

    def file_closed(self) -> None: ...


class FilePool:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._files: OrderedDict[Owner, OpenFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def open(self, owner: Owner, path: str, flags: int) -> OpenFile:
        file = OpenFile(os.open(path, flags | os.O_CLOEXEC, 0o600))
        self._files[owner] = file
        if len(self._files) > self._limit:
            self._close_idle(owner)
        return file

    def used(self, owner: Owner) -> None:
        self._files.move_to_end(owner)

    def close(self, owner: Owner) -> None:
        file = self._files.pop(owner, None)
        if file is not None:
            file.discard()
            owner.file_closed()

    def close_all(self) -> None:
        for owner in list(self._files):
            self.close(owner)

    def _close_idle(self, newest: Owner) -> None:
        while len(self._files) > self._limit:
            idle = (owner for owner, file in self._files.items() if file.pins == 0 and owner is not newest)
            victim = next(idle, None)
            if victim is None:
                return
            self.close(victim)

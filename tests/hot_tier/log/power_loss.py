"""A disk that forgets: what a power loss may leave of a directory tree.

While active it watches every sync and every change of a directory. `crash` writes a copy of the tree as it might be
found after the power failed:

- A file that was synced has at least what it had then; later writes are kept, dropped or torn, sector by sector.
- A directory is as it was after some step since it was last synced: steps are kept in order, as journals keep them,
  but each directory by itself.

The process goes on as if nothing had happened; the copy is what the next one opens.
"""

import os
import random
import stat
from collections.abc import Callable
from typing import Any

import pytest

_SECTOR = 512


class PowerLoss:
    def __init__(self, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = os.path.realpath(root)
        self._histories: dict[str, list[dict[str, int]]] = {}
        self._synced: dict[int, bytes] = {}
        self._handles: dict[int, int] = {}
        self._busy = False
        self.syncs = 0
        for name in ("rename", "replace", "unlink", "mkdir", "rmdir"):
            monkeypatch.setattr(os, name, self._after_change(getattr(os, name)))
        monkeypatch.setattr(os, "open", self._after_open(os.open))
        monkeypatch.setattr(os, "fdatasync", self._after_sync(os.fdatasync))
        monkeypatch.setattr(os, "fsync", self._after_sync(os.fsync))

    def close(self) -> None:
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()

    def all_is_synced(self) -> None:
        """What is there now survived the last power loss, so it is on the disk."""
        for directory, _, _ in os.walk(self._root):
            listing = self._histories[directory] = [self._listing(directory)]
            for inode in listing[0].values():
                if inode in self._handles:
                    self._synced[inode] = os.pread(self._handles[inode], 1 << 30, 0)

    def crash(self, target: str, choose: random.Random) -> None:
        self._busy = True
        try:
            self._leave(self._root, target, choose)
        finally:
            self._busy = False

    # Watching

    def _after_change(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any, **named: Any) -> Any:
            result = function(*arguments, **named)
            self._note(os.path.dirname(os.path.realpath(os.fspath(arguments[0]))))
            return result

        return changed

    def _after_open(self, function: Callable[..., int]) -> Callable[..., int]:
        def opened(path: Any, flags: int, *arguments: Any, **named: Any) -> int:
            fd = function(path, flags, *arguments, **named)
            if flags & os.O_CREAT:
                self._note(os.path.dirname(os.path.realpath(path)))
            return fd

        return opened

    def _after_sync(self, function: Callable[[int], None]) -> Callable[[int], None]:
        def synced(fd: int) -> None:
            status = os.fstat(fd)
            path = os.readlink(f"/proc/self/fd/{fd}")
            inside = path.startswith(self._root)
            if inside and stat.S_ISDIR(status.st_mode):
                self._histories[path] = [self._listing(path)]
            elif inside:
                self._hold(status.st_ino, f"/proc/self/fd/{fd}")
                self._synced[status.st_ino] = os.pread(self._handles[status.st_ino], status.st_size, 0)
            self.syncs += 1
            function(fd)

        return synced

    def _note(self, directory: str) -> None:
        if not self._busy and directory.startswith(self._root):
            self._histories.setdefault(directory, [{}]).append(self._listing(directory))

    def _listing(self, directory: str) -> dict[str, int]:
        self._busy = True
        try:
            found = {}
            for entry in os.scandir(directory):
                found[entry.name] = entry.inode()
                if entry.is_file():
                    self._hold(entry.inode(), entry.path)
            return found
        finally:
            self._busy = False

    def _hold(self, inode: int, path: str) -> None:
        """An open file keeps its inode number from being given to another file."""
        if inode not in self._handles:
            self._handles[inode] = os.open(path, os.O_RDONLY)

    # Crashing

    def _leave(self, directory: str, target: str, choose: random.Random) -> None:
        os.makedirs(target)
        history = [*self._histories.get(directory, [{}]), self._listing(directory)]
        for name, inode in choose.choice(history).items():
            path = os.path.join(directory, name)
            if inode in self._handles:
                with open(os.path.join(target, name), "wb") as file:
                    file.write(self._content(inode, choose))
            elif os.path.isdir(path):
                self._leave(path, os.path.join(target, name), choose)

    def _content(self, inode: int, choose: random.Random) -> bytes:
        handle = self._handles[inode]
        now = os.pread(handle, os.fstat(handle).st_size, 0)
        then = self._synced.get(inode, b"")
        kind = choose.randrange(4)
        if kind == 0:
            return then
        if kind == 1:
            return now
        left = bytearray(choose.choice([then, now]).ljust(max(len(then), len(now)), b"\0"))
        for at in range(0, len(left), _SECTOR):
            source = choose.choice([then, now])
            left[at : at + _SECTOR] = source[at : at + _SECTOR].ljust(len(left[at : at + _SECTOR]), b"\0")
        shortest = len(then) if now.startswith(then) else min(len(then), len(now))
        return bytes(left[: choose.randint(shortest, len(left))])

"""A directory as a bucket (`file:///path`). Puts are atomic, and are on the disk before they return.

A put writes a hidden temporary file, syncs it, links or renames it into place, and syncs the folder. So after a power
loss an object is there completely or not at all. When the store is opened, it deletes temporary files of processes that
died: those that are too old for a writer to be still at work.
"""

import asyncio
import errno
import os
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TypeVar

from cold_tier.errors import NoSuchBucket, ObjectMissing, StoreDenied, StoreError, StoreMisconfigured, StoreUnavailable
from cold_tier.objects.store import Buffer, ObjectInfo
from hot_tier.clock import wall_ms

T = TypeVar("T")

_STREAM_BYTES = 4 << 20
_LIST_PAGE = 1000
_ABANDONED_MS = 24 * 3600 * 1000


class DirectoryStore:
    def __init__(self, root: str, *, create: bool = False) -> None:
        self.root = os.path.abspath(root)
        self.url = f"file://{self.root}/"
        self._temporary = os.path.join(self.root, ".tierlog-tmp")
        if not create and not os.path.isdir(self.root):
            raise NoSuchBucket("no such bucket", where=self.url, hint="check the path: it is no directory")
        try:
            os.makedirs(self.root, exist_ok=True)
            self._sweep(wall_ms() - _ABANDONED_MS)
        except OSError as error:
            raise StoreMisconfigured(
                f"the bucket directory cannot be used: {error.strerror}",
                where=self.root,
                hint="create it, or name another with --bucket file:///path",
            ) from error

    async def put(self, key: str, data: Buffer) -> None:
        await self._in_thread(key, lambda: self._place(key, lambda fd: _write_all(fd, data), os.replace))

    async def put_if_absent(self, key: str, data: Buffer) -> bool:
        def place() -> bool:
            try:
                self._place(key, lambda fd: _write_all(fd, data), os.link)
            except FileExistsError:
                return False
            return True

        return await self._in_thread(key, place)

    async def put_file(self, key: str, path: str) -> None:
        def copy(fd: int) -> None:
            with (
                open(path, "rb", buffering=0) as source,
                open(fd, "wb", closefd=False, buffering=0) as target,
            ):
                shutil.copyfileobj(source, target, _STREAM_BYTES)

        await self._in_thread(key, lambda: self._place(key, copy, os.replace))

    async def stream(self, key: str, start: int = 0, length: int | None = None) -> AsyncIterator[Buffer]:
        fd = await self._in_thread(key, lambda: os.open(self._path(key), os.O_RDONLY))
        try:
            left = os.fstat(fd).st_size - start if length is None else length
            while left > 0:
                size, at = min(left, _STREAM_BYTES), start
                chunk = await self._in_thread(key, lambda size=size, at=at: os.pread(fd, size, at))  # type: ignore[misc]
                if not chunk:
                    return
                yield chunk
                start += len(chunk)
                left -= len(chunk)
        finally:
            os.close(fd)

    async def head(self, key: str) -> ObjectInfo | None:
        try:
            status = await self._in_thread(key, lambda: os.stat(self._path(key)))
        except ObjectMissing:
            return None
        return ObjectInfo(key, status.st_size, status.st_mtime_ns // 1_000_000)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        walk = self._walk(prefix.rpartition("/")[0], prefix, start_after)
        while page := await self._in_thread(prefix, lambda: list(islice(walk, _LIST_PAGE))):
            for info in page:
                yield info

    async def folders(self, prefix: str) -> Sequence[str]:
        def scan() -> Sequence[str]:
            try:
                entries = os.scandir(os.path.join(self.root, prefix))
            except (FileNotFoundError, NotADirectoryError):
                return ()
            with entries:
                return [entry.name for entry in entries if entry.is_dir() and entry.name != ".tierlog-tmp"]

        return await self._in_thread(prefix, scan)

    async def delete(self, keys: Sequence[str]) -> None:
        def remove() -> None:
            for key in keys:
                path = self._path(key)
                try:
                    os.unlink(path)
                except FileNotFoundError:
                    continue
                self._remove_empty_folders(os.path.dirname(path))

        await self._in_thread(keys[0] if keys else "", remove)

    async def close(self) -> None:
        pass

    def _path(self, key: str) -> str:
        if not key or any(part in ("", ".", "..") for part in key.split("/")) or "\0" in key:
            raise StoreError("not an object key", where=f"{self.url}{key!r}")
        return os.path.join(self.root, key)

    def _place(self, key: str, write: Callable[[int], None], into: Callable[[str, str], None]) -> None:
        path = self._path(key)
        temporary = os.path.join(self._temporary, uuid.uuid4().hex)
        os.makedirs(self._temporary, exist_ok=True)
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            try:
                write(fd)
                os.fsync(fd)
            finally:
                os.close(fd)
            while True:
                try:
                    self._make_folders(os.path.dirname(path))
                    into(temporary, path)
                    break
                except FileNotFoundError:
                    # A delete removed a folder because it was empty for a moment. Make it again.
                    if not os.path.exists(temporary):
                        raise
        finally:
            if os.path.exists(temporary):
                os.unlink(temporary)
        _sync_folder(os.path.dirname(path))

    def _make_folders(self, folder: str) -> None:
        if folder == self.root or os.path.isdir(folder):
            return
        self._make_folders(os.path.dirname(folder))
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            return
        _sync_folder(os.path.dirname(folder))

    def _remove_empty_folders(self, folder: str) -> None:
        while folder != self.root:
            try:
                os.rmdir(folder)
            except OSError:
                return
            folder = os.path.dirname(folder)

    def _walk(self, folder: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Walks depth first in key order. A folder sorts by its name with the slash, as its keys do."""
        try:
            entries = list(os.scandir(os.path.join(self.root, folder)))
        except (FileNotFoundError, NotADirectoryError):
            return
        keyed = [(f"{folder}/{e.name}" if folder else e.name, e) for e in entries if e.name != ".tierlog-tmp"]
        keyed = [(f"{key}/" if entry.is_dir() else key, entry) for key, entry in keyed]
        for key, entry in sorted(keyed, key=lambda pair: pair[0].encode()):
            if not (key.startswith(prefix) or prefix.startswith(key)):
                continue
            if entry.is_dir():
                if start_after.encode() < key.encode() or start_after.startswith(key):
                    yield from self._walk(key[:-1], prefix, start_after)
            elif key.startswith(prefix) and key.encode() > start_after.encode():
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue
                yield ObjectInfo(key, status.st_size, status.st_mtime_ns // 1_000_000)

    def _sweep(self, before_ms: float) -> None:
        """Other writers work at the same time: a file that disappears before it is examined was theirs."""
        try:
            for entry in os.scandir(self._temporary):
                with suppress(FileNotFoundError):
                    if entry.stat().st_mtime_ns / 1e6 < before_ms:
                        os.unlink(entry.path)
        except FileNotFoundError:
            return

    async def _in_thread(self, key: str, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise ObjectMissing("no such object", where=f"{self.url}{key}") from error
        except PermissionError as error:
            raise StoreDenied(
                "the bucket directory may not be used",
                where=f"{self.url}{key}",
                hint="check the owner and mode of the directory",
            ) from error
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise StoreUnavailable(
                f"the disk said: {error.strerror}",
                where=f"{self.url}{key}",
                hint="make room on the bucket's disk" if full else "check the bucket's disk",
            ) from error


def _write_all(fd: int, data: Buffer) -> None:
    view = memoryview(data).cast("B")
    while view:
        view = view[os.write(fd, view) :]


def _sync_folder(folder: str) -> None:
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)

"""Two bounded caches of cold reads: runs in memory, row-group bytes on local disk.

Both hold only copies. The disk cache does not trust what it finds on disk. Its entries carry no checksum of their own,
because the index has one: a reader that finds a damaged entry drops it and asks the store.
"""

import asyncio
import os
import uuid
from collections import OrderedDict
from collections.abc import Sized
from dataclasses import dataclass, field
from typing import Generic, TypeVar

V = TypeVar("V", bound=Sized)


@dataclass(frozen=True, slots=True)
class ColdReadSettings:
    memory_bytes: int = field(
        default=256 << 20, metadata={"doc": "Memory for archived records that were read lately, ready to send."}
    )
    disk_bytes: int = field(
        default=4 << 30,
        metadata={"doc": "Local disk for parts of archived objects that were read lately; 0: no cache on disk."},
    )
    read_ahead: int = field(
        default=4,
        metadata={"doc": "How many row groups (16 MiB of records each) are fetched ahead of a sequential reader."},
    )
    fills: int = field(default=8, metadata={"doc": "How many row groups are fetched from the store at one time."})


class MemoryCache(Generic[V]):
    """Evicts the least recently used entries first. An entry that is larger than the whole cache is kept alone."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._entries: OrderedDict[str, V] = OrderedDict()
        self.bytes = 0

    def get(self, key: str) -> V | None:
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: str, value: V) -> None:
        self.drop(key)
        self._entries[key] = value
        self.bytes += len(value)
        while self.bytes > self._capacity and len(self._entries) > 1:
            _, oldest = self._entries.popitem(last=False)
            self.bytes -= len(oldest)

    def drop(self, key: str) -> None:
        value = self._entries.pop(key, None)
        if value is not None:
            self.bytes -= len(value)

    def __contains__(self, key: str) -> bool:
        return key in self._entries


class DiskCache:
    """Files in one folder, named by their key. A full or failing disk causes a miss, never an error.

    The cache shares the disk with the log, and the log refuses writes when the disk is nearly full. So when less than a
    tenth of the disk is free, the cache adds nothing and each `put` drops the oldest entry.
    """

    def __init__(self, folder: str, capacity_bytes: int) -> None:
        self._folder = folder
        self._capacity = capacity_bytes
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self.bytes = 0
        os.makedirs(folder, exist_ok=True)
        found = sorted((entry.stat().st_atime_ns, entry.name, entry.stat().st_size) for entry in os.scandir(folder))
        for _, name, size in found:
            if name.endswith(".part"):
                os.unlink(os.path.join(folder, name))
            else:
                self._sizes[name] = size
                self.bytes += size
        self._evict()

    async def get(self, key: str) -> bytes | None:
        if key not in self._sizes:
            return None
        self._sizes.move_to_end(key)

        def read() -> bytes:
            with open(os.path.join(self._folder, key), "rb") as file:
                return file.read()

        try:
            return await asyncio.to_thread(read)
        except OSError:
            self.drop(key)
            return None

    async def put(self, key: str, data: bytes | bytearray | memoryview) -> None:
        if len(data) > self._capacity or key in self._sizes:
            return
        path = os.path.join(self._folder, key)

        def write() -> bool:
            disk = os.statvfs(self._folder)
            if disk.f_bavail < disk.f_blocks // 10:
                return False
            temporary = f"{path}.{uuid.uuid4().hex}.part"
            try:
                with open(temporary, "wb") as file:
                    file.write(data)
                os.replace(temporary, path)
            except OSError:
                if os.path.exists(temporary):
                    os.unlink(temporary)
                raise
            return True

        try:
            written = await asyncio.to_thread(write)
        except OSError:
            return
        if not written:
            if self._sizes:
                self.drop(next(iter(self._sizes)))
        elif key not in self._sizes:
            self._sizes[key] = len(data)
            self.bytes += len(data)
            self._evict()

    def drop(self, key: str) -> None:
        size = self._sizes.pop(key, None)
        if size is not None:
            self.bytes -= size
            try:
                os.unlink(os.path.join(self._folder, key))
            except OSError:
                pass

    def _evict(self) -> None:
        while self.bytes > self._capacity:
            self.drop(next(iter(self._sizes)))

"""An object store in memory, for tests and simulations. It passes the same contract as the real ones."""

import os
from collections.abc import AsyncIterator, Sequence

from cold_tier.errors import ObjectMissing
from cold_tier.objects.store import Buffer, ObjectInfo
from hot_tier.clock import wall_ms


class MemoryStore:
    def __init__(self, url: str = "memory://") -> None:
        self.url = url
        self.objects: dict[str, tuple[bytes, int]] = {}

    async def put(self, key: str, data: Buffer) -> None:
        self.objects[key] = (bytes(data), wall_ms())

    async def put_if_absent(self, key: str, data: Buffer) -> bool:
        if key in self.objects:
            return False
        await self.put(key, data)
        return True

    async def put_file(self, key: str, path: str) -> None:
        with open(path, "rb", buffering=0) as file:
            await self.put(key, file.read(os.fstat(file.fileno()).st_size))

    async def stream(self, key: str, start: int = 0, length: int | None = None) -> AsyncIterator[Buffer]:
        data = self._object(key)[0]
        yield data[start:] if length is None else data[start : start + length]

    async def head(self, key: str) -> ObjectInfo | None:
        if key not in self.objects:
            return None
        data, modified_ms = self._object(key)
        return ObjectInfo(key, len(data), modified_ms)

    async def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        for key in sorted(self.objects, key=str.encode):
            if key.startswith(prefix) and key.encode() > start_after.encode() and key in self.objects:
                data, modified_ms = self._object(key)
                yield ObjectInfo(key, len(data), modified_ms)

    async def folders(self, prefix: str) -> Sequence[str]:
        inside = (key[len(prefix) :] for key in self.objects if key.startswith(prefix))
        return list({rest.partition("/")[0] for rest in inside if "/" in rest})

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    async def close(self) -> None:
        pass

    def _object(self, key: str) -> tuple[bytes, int]:
        try:
            return self.objects[key]
        except KeyError:
            raise ObjectMissing("no such object", where=f"{self.url}{key}") from None

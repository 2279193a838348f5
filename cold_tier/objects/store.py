"""The object-store seam: all operations that the cold tier needs of a bucket.

Implementations: `memory`, `directory` (`file://`), `s3` (`s3://`, any S3-compatible endpoint). Each makes one attempt
per call; `bucket` puts deadlines, retries and resumption around any of them. All pass
`tests/contracts/test_object_store.py`.

Invariants that every store keeps:
- An object appears completely or not at all; a reader never sees a part of it.
- After `put` has returned, every later `get`, `head` and `list` sees the object (S3 has promised this since 2020).
- `put_if_absent`: if many writers write one key, at most one gets True.
- `list` gives the objects of one folder in the order of their names' UTF-8 bytes. The order of folders is undefined
  (SeaweedFS walks `a/` before `a-b/`, S3 the other way round).
- Deleting an object that does not exist is no error.

Keys are relative to the store's URL, made in `cold_tier.layout`, and never start or end with a slash.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    key: str
    size: int
    modified_ms: int


class ObjectStore(Protocol):
    @property
    def url(self) -> str: ...

    async def put(self, key: str, data: Buffer) -> None: ...

    async def put_if_absent(self, key: str, data: Buffer) -> bool:
        """Returns False if the key already exists; the object is then unchanged."""
        ...

    async def put_file(self, key: str, path: str) -> None:
        """Uploads a file; a large one in parts."""
        ...

    def stream(self, key: str, start: int = 0, length: int | None = None) -> AsyncIterator[Buffer]:
        """Yields the bytes from `start`, at most `length` of them. Raises ObjectMissing if there is no such object."""
        ...

    async def head(self, key: str) -> ObjectInfo | None: ...

    def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Yields every object below `prefix` once. `prefix` is a folder and ends in `/`, or is empty for all objects.

        `start_after` is a key directly inside `prefix`; keys up to and including it are skipped.
        """
        ...

    async def folders(self, prefix: str) -> Sequence[str]:
        """Returns the folders directly inside `prefix`, in any order. `prefix` ends in `/`, or is empty."""
        ...

    async def delete(self, keys: Sequence[str]) -> None: ...

    async def close(self) -> None: ...

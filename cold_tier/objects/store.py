"""The object-store seam: what the cold tier asks of a bucket, and no more.

Implementations: `memory`, `directory` (`file://`), `s3` (`s3://`, any S3-compatible endpoint). Each makes one attempt
per call; `retrying` puts deadlines, retries and resumption around any of them. All pass
`tests/contracts/test_object_store.py`.

Invariants that every store keeps:
- An object appears whole or not at all; a reader never sees a part of it.
- After `put` returned, every later `get`, `head` and `list` sees the object (S3 has promised this since 2020).
- `put_if_absent`: of many writers of one key at most one is told True.
- `list` gives the objects of one folder in the order of their names' UTF-8 bytes; the order of folders is open
  (SeaweedFS walks `a/` before `a-b/`, S3 the other way round).
- Deleting what is not there is no error.

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
        """False: the key exists and was left as it is."""
        ...

    async def put_file(self, key: str, path: str) -> None:
        """Upload a file, in parts where it is large."""
        ...

    def stream(self, key: str, start: int = 0, length: int | None = None) -> AsyncIterator[Buffer]:
        """The bytes from `start`, at most `length` of them; ObjectMissing if there is no such object."""
        ...

    async def head(self, key: str) -> ObjectInfo | None: ...

    def list(self, prefix: str, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Every object below `prefix` (a folder, ending in `/`, or empty for all), each once.

        `start_after` skips the keys up to it; it names a key directly inside `prefix`.
        """
        ...

    async def folders(self, prefix: str) -> Sequence[str]:
        """The names of the folders directly inside `prefix` (a folder, ending in `/`, or empty), in any order."""
        ...

    async def delete(self, keys: Sequence[str]) -> None: ...

    async def close(self) -> None: ...

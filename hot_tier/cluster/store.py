"""The seam to cluster metadata: a small ordered key-value store with revisions.

One node keeps it in SQLite (`hot_tier.cluster.sqlite`), a cluster in etcd. Both pass the suite
`tests/contracts/test_metadata_store.py`.

Invariants that every store keeps:
- Each successful transaction gets a revision higher than all before it; all its writes carry that revision.
- A transaction's comparisons and writes are one atomic step; a failed comparison writes nothing.
- Reads are linearizable: a `get` after a finished `transact` sees it, from any client.
- A watch delivers every change of its prefix after `from_revision`, in revision order, none twice.
- A key attached to a lease disappears, as a delete event, when the lease expires or is revoked.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, NewType, Protocol

Revision = NewType("Revision", int)
LeaseId = NewType("LeaseId", int)

ABSENT: Final = Revision(0)
"""As the expected revision of a `Compare`: the key must not exist."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    key: str
    value: bytes
    revision: Revision
    """The revision of the transaction that last wrote this key: what a compare-and-swap compares."""


@dataclass(frozen=True, slots=True)
class Range:
    items: tuple[KeyValue, ...]
    revision: Revision
    """The store's revision as of this read: watch from here to miss nothing."""


@dataclass(frozen=True, slots=True)
class Compare:
    key: str
    revision: Revision


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: bytes
    lease: LeaseId | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    key: str


@dataclass(frozen=True, slots=True)
class Event:
    """A change of one key; `value` is None when the key is gone."""

    key: str
    value: bytes | None
    revision: Revision


class MetadataStore(Protocol):
    async def get(self, key: str) -> KeyValue | None: ...

    async def range(self, prefix: str) -> Range: ...

    async def transact(
        self, compares: Sequence[Compare], writes: Sequence[Put | Delete]
    ) -> Revision | None:
        """The new revision, or None when a comparison failed and nothing was written."""
        ...

    def watch(self, prefix: str, from_revision: Revision) -> AsyncIterator[Sequence[Event]]:
        """Changes after `from_revision`, one non-empty batch per transaction, for ever."""
        ...

    async def grant_lease(self, ttl_ms: int) -> LeaseId: ...

    async def keep_alive(self, lease: LeaseId) -> bool:
        """Renew; False when the lease is gone for good."""
        ...

    async def revoke_lease(self, lease: LeaseId) -> None: ...

    async def close(self) -> None: ...

"""The seam to cluster metadata: a small ordered key-value store with revisions.

One node keeps it in SQLite (`hot_tier.cluster.sqlite`), a cluster in etcd (`hot_tier.cluster.etcd`). Both pass the
suite `tests/contracts/test_metadata_store.py`.

Invariants that every store keeps:
- Each transaction that changes something gets a revision higher than all before it; all its writes carry that
  revision. One that changes nothing (no writes, or deletes of absent keys) leaves the revision as it is.
- A transaction's comparisons and writes are one atomic step; a failed comparison writes nothing.
- Reads are linearizable: a `get` after a finished `transact` sees it, from any client.
- A watch delivers every change of its prefix after `from_revision`, in revision order, none twice.
- A key attached to a lease disappears, as a delete event, when the lease expires or is revoked. The last write
  of a key decides which lease it hangs on.

A store that cannot be reached raises MetadataUnavailable within seconds: nothing was written. Where a write was sent
and no answer came back, `transact` raises MetadataAnswerLost: the write has happened, or has not, or may still happen,
until a linearizable read or the watch shows it, or a later change of a compared key rules it out. So a caller that
retries compares the revision that it read, and never takes this error for "not written".
Transactions that run at the same time are ordered by the store, not by the order of the calls.

Keys are ASCII and not empty. A transaction names a key at most once among its writes and holds at most
`MAX_OPERATIONS` comparisons, as many writes, and `MAX_TRANSACTION_BYTES` of keys and values (etcd's own limits):
whoever changes more does it in steps that are each safe to stop after.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, NewType, Protocol

Revision = NewType("Revision", int)
LeaseId = NewType("LeaseId", int)

ABSENT: Final = Revision(0)
"""As the expected revision of a `Compare`: the key must not exist."""

MAX_OPERATIONS: Final = 128
MAX_TRANSACTION_BYTES: Final = 5 << 18
"""etcd refuses requests of 1.5 MiB; the difference is room for its framing and its key prefix."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    key: str
    value: bytes
    revision: Revision
    """The revision of the transaction that last wrote this key: what a compare-and-swap compares."""


@dataclass(frozen=True, slots=True)
class Range:
    items: tuple[KeyValue, ...]
    """In key order."""
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

    async def transact(self, compares: Sequence[Compare], writes: Sequence[Put | Delete]) -> Revision | None:
        """Returns the new revision, or None if a comparison failed and nothing was written.

        Raises LeaseExpired if a `Put` names a lease that is gone, and ValueError if the transaction breaks the limits
        above. In both cases nothing is written. Raises MetadataAnswerLost if the outcome is unknown.
        """
        ...

    def watch(self, prefix: str, from_revision: Revision) -> AsyncIterator[Sequence[Event]]:
        """Yields the changes after `from_revision`, one non-empty batch per transaction, until the store is closed.

        Raises MetadataCompacted if changes that old are no longer known. Read the range again and start there.
        """
        ...

    async def grant_lease(self, ttl_ms: int) -> LeaseId:
        """Returns a lease that lasts at least this long after each renewal. etcd counts in whole seconds."""
        ...

    async def keep_alive(self, lease: LeaseId) -> bool:
        """Renews the lease. Returns False if the lease is gone for good."""
        ...

    async def revoke_lease(self, lease: LeaseId) -> None: ...

    async def close(self) -> None: ...


def check_transaction(compares: Sequence[Compare], writes: Sequence[Put | Delete]) -> None:
    """Checks the limits that every store enforces, so that what works on one store works on all."""
    if len(compares) > MAX_OPERATIONS or len(writes) > MAX_OPERATIONS:
        raise ValueError(
            f"a transaction of {len(compares)} comparisons and {len(writes)} writes: at most {MAX_OPERATIONS} each"
        )
    keys = {write.key for write in writes}
    if len(keys) != len(writes):
        raise ValueError("a transaction writes the same key twice")
    size = sum(len(write.key) + (len(write.value) if isinstance(write, Put) else 0) for write in writes)
    if size > MAX_TRANSACTION_BYTES:
        raise ValueError(f"a transaction of {size} bytes: at most {MAX_TRANSACTION_BYTES}")
    for key in keys:
        if not key or not key.isascii():
            raise ValueError(f"{key!r} is no metadata key: it must be ASCII and not empty")

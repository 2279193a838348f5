"""The transactional ids of one partition of the journal: the machine that the journal runs.

It owns the map, and the transactional ids that could not be read back. The coordinator fills, changes and empties it.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from gateway.coordinators.errors import CoordinatorError, CoordinatorNotAvailable
from gateway.coordinators.journal.writer import JournalWriter
from gateway.coordinators.transactions.transaction import Transaction
from hot_tier.ids import TopicPartition

ENTRY_BYTES: Final = 600
"""The memory of a transactional id without its name and its partitions."""
PARTITION_BYTES: Final = 150


def size_of(transactional_id: str, value: Transaction | None) -> int:
    """Returns the memory that a transactional id takes."""
    partitions = 0 if value is None else len(value.partitions)
    return ENTRY_BYTES + len(transactional_id) + partitions * PARTITION_BYTES


@dataclass(slots=True, eq=False)
class TransactionEntry:
    transactional_id: str
    home: "TransactionMap"
    value: Transaction | None = None
    """The newest committed value; None until the first one is."""
    is_changing: bool = False
    """Whether a new value is written but not committed yet. Then nothing is decided."""
    unmarked: set[TopicPartition] = field(default_factory=set)
    """Where the marker of what was decided is not known to be committed."""
    ended: type[CoordinatorError] | None = None
    """Why nothing is decided here any more."""
    connected_s: float = 0.0
    """When the producer's newest connection began, or this broker began to coordinate what it has read back."""
    _waiters: list[asyncio.Future[None]] = field(default_factory=list)

    def settled(self) -> asyncio.Future[None]:
        """Returns a future for the moment when the next change is committed, or has failed."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def tell(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


@dataclass(slots=True, eq=False)
class TransactionMap:
    writer: JournalWriter
    since_s: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    entries: dict[str, TransactionEntry] = field(default_factory=dict)
    damaged: dict[str, str] = field(default_factory=dict)

    def check_readable(self, transactional_id: str) -> None:
        """Raises CoordinatorNotAvailable if the stored state of the transactional id could not be read."""
        damage = self.damaged.get(transactional_id)
        if damage is not None:
            raise CoordinatorNotAvailable(
                f"the stored state of this transactional id is damaged: {damage}",
                where=transactional_id,
                hint="use another transactional id",
            )

"""One partition of a journal while this broker leads it in one leader epoch, and the machine that runs over it."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from gateway.coordinators.errors import CoordinatorLoading, CoordinatorNotAvailable
from gateway.coordinators.journal.writer import JournalWriter
from hot_tier.errors import TierlogError
from hot_tier.ids import LeaderEpoch

M = TypeVar("M")


@dataclass(slots=True, eq=False)
class Shard(Generic[M]):
    number: int
    leader_epoch: LeaderEpoch
    keeps: str
    """As of `JournalTopic`."""
    writer: JournalWriter
    machine: M
    loading: bool = True
    failure: TierlogError | None = None
    """Why the partition could not be read back. Nothing of it is served then."""

    def check_serves(self, key: str) -> None:
        """Raises CoordinatorLoading or CoordinatorNotAvailable while the machine does not hold the whole state."""
        if self.loading:
            raise CoordinatorLoading(f"this {self.keeps} is being read back", where=key, hint="try again")
        if self.failure is not None:
            what = f"the stored state of this {self.keeps} cannot be read: {self.failure}"
            raise CoordinatorNotAvailable(what, where=key)

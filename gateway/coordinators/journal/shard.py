"""One partition of a journal while this broker leads it in one leader epoch, with the machine of the partition."""

from collections.abc import Callable
from dataclasses import dataclass, field
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
    """The same as `JournalTopic.keeps`."""
    writer: JournalWriter
    machine: M
    loading: bool = True
    when_read_back: list[Callable[[M], None]] = field(default_factory=list)
    """What happened meanwhile and the machine must hear once it has its state."""
    failure: TierlogError | None = None
    """Why the partition could not be read back. Then none of its keys is served."""

    def check_serves(self, key: str) -> None:
        """Raises CoordinatorLoading or CoordinatorNotAvailable if the machine does not have the whole state."""
        if self.loading:
            raise CoordinatorLoading(f"this {self.keeps} is being read back", where=key, hint="try again")
        if self.failure is not None:
            what = f"the stored state of this {self.keeps} cannot be read: {self.failure}"
            raise CoordinatorNotAvailable(what, where=key)

"""The archive as the gateway's operators reach it. `offloader.control` implements it; neither imports the other."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

from cold_tier.pins import Pin
from cold_tier.reports import (
    ArchivedSegment,
    ArchiveFigures,
    Collected,
    Considered,
    HeldSegment,
    PartitionStatus,
    RepairDecision,
    Repaired,
    RestoredTopic,
    VerifyEvent,
)
from hot_tier.cluster.model import Topic


class ArchiveControl(Protocol):
    @property
    def bucket(self) -> str: ...

    def held(self) -> list[HeldSegment]:
        """Returns the held segments of partitions led here."""
        ...

    async def look(self) -> None:
        """Asks the bucket for something small. Raises StoreError if it does not answer."""
        ...

    async def pins(self, topics: Sequence[Topic]) -> list[tuple[Topic, Pin]]:
        """Returns the pins of jobs that hold the retention of these topics now, as the bucket says."""
        ...

    def stopped(self) -> list[str]:
        """Returns why archives of partitions led here are stopped."""
        ...

    def status(self, topic: Topic, partition: int) -> PartitionStatus: ...

    async def segments(
        self, topic: Topic, partition: int, from_offset: int, limit: int
    ) -> tuple[list[ArchivedSegment], int | None]:
        """Returns segments from the one that holds `from_offset` on, and where to go on; None at the end."""
        ...

    def verify(self, names: Sequence[str]) -> AsyncGenerator[VerifyEvent, None]: ...

    async def collect_garbage(self) -> Collected: ...

    async def consider_proposals(self, topic: Topic, partition: int) -> list[Considered]: ...

    async def repair(self, topic: Topic, partition: int, decision: RepairDecision) -> Repaired: ...

    async def restore(self, names: Sequence[str], config: Mapping[str, str]) -> list[RestoredTopic]: ...

    def figures(self) -> ArchiveFigures: ...

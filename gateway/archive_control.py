"""The archive as operators reach it. `offloader.control` implements it; neither module imports the other."""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Protocol

from cold_tier.pins import Pin
from cold_tier.reports import (
    ArchivedSegment,
    ArchiveFigures,
    Collected,
    Considered,
    Estimate,
    HeldSegment,
    PartitionFigures,
    PartitionStatus,
    RepairDecision,
    Repaired,
    RestoredTopic,
    TopicFacts,
    VerifyEvent,
)
from hot_tier.cluster.model import Topic


class ArchiveControl(Protocol):
    @property
    def bucket(self) -> str: ...

    def held(self) -> list[HeldSegment]:
        """Returns the held segments of partitions that this broker leads."""
        ...

    async def look(self) -> None:
        """Makes one small request to the bucket. Raises StoreError if the bucket does not answer."""
        ...

    async def pins(self, topics: Sequence[Topic]) -> list[tuple[Topic, Pin]]:
        """Returns the pins that hold the retention of these topics now, read from the bucket."""
        ...

    def stopped(self) -> list[str]:
        """Returns why archives of partitions that this broker leads are stopped."""
        ...

    def status(self, topic: Topic, partition: int) -> PartitionStatus: ...

    async def segments(
        self, topic: Topic, partition: int, from_offset: int, limit: int
    ) -> tuple[list[ArchivedSegment], int | None]:
        """Returns segments from the one that holds `from_offset` on, and the offset to continue at; None at the end."""
        ...

    def verify(self, names: Sequence[str]) -> AsyncGenerator[VerifyEvent, None]: ...

    async def collect_garbage(self) -> Collected: ...

    async def consider_proposals(self, topic: Topic, partition: int) -> list[Considered]: ...

    async def repair(self, topic: Topic, partition: int, decision: RepairDecision) -> Repaired: ...

    async def restore(self, names: Sequence[str], config: Mapping[str, str]) -> list[RestoredTopic]: ...

    def cost(self, facts: TopicFacts, *, retention_ms: int | None, replays: float) -> Estimate:
        """Returns what a topic costs per month. With `retention_ms`, what it would cost with that retention."""
        ...

    def partition_figures(self) -> Iterator[PartitionFigures]:
        """Yields the figures of the partitions that this broker leads, one by one: the caller may rest in between."""
        ...

    def figures(self, partitions: Sequence[PartitionFigures] | None = None) -> ArchiveFigures:
        """With `partitions`, does not look at them again."""
        ...

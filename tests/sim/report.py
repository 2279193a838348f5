"""What came of one run."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Report:
    seed: int
    violation: str | None
    acks: int
    reads: int
    elections: int
    abandoned: int
    """Partitions whose every copy was lost by what the schedule did, which no cluster survives."""
    trace: list[str]
    did: Mapping[str, int] = field(default_factory=dict)
    """How often the archive did what it is for."""

"""What clients did and saw, in their own words: the only evidence that the checker accepts.

Appending to a list is atomic in CPython, so the workload's threads share one history. Times are
`time.monotonic_ns()` of this process.
"""

import time
import zlib
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from .values import Identity


class Outcome(Enum):
    PENDING = "pending"  # no answer yet, or never: counts as unknown
    OK = "ok"
    FAILED = "failed"  # certainly not done
    UNKNOWN = "unknown"  # may have been done


@dataclass(slots=True)
class Send:
    identity: Identity
    partition: int
    invoked_ns: int = field(default_factory=time.monotonic_ns)
    ended_ns: int = 0
    outcome: Outcome = Outcome.PENDING
    offset: int = -1
    node: int = 0  # who acknowledged it, where that is known


@dataclass(slots=True)
class Commit:
    group: str
    partition: int
    offset: int
    invoked_ns: int = field(default_factory=time.monotonic_ns)
    ended_ns: int = 0
    outcome: Outcome = Outcome.PENDING


@dataclass(frozen=True, slots=True)
class Read:
    session: str  # one assignment of one partition to one member
    group: str
    partition: int
    offset: int
    identity: Identity


@dataclass(frozen=True, slots=True)
class Watermark:
    partition: int
    low: int
    high: int
    invoked_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """Where a broker, asked by itself, said that a partition ends, and in which epoch it leads."""

    node: int
    partition: int
    leader_epoch: int
    high: int


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch as it lies in a segment file."""

    first_offset: int
    last_offset: int
    leader_epoch: int
    data: bytes

    def __repr__(self) -> str:
        return f"{self.first_offset}-{self.last_offset} epoch {self.leader_epoch} crc {zlib.crc32(self.data):08x}"


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What the broker said is committed, asked after `invoked_ns`."""

    group: str
    partition: int
    offset: int
    invoked_ns: int


@dataclass(slots=True)
class History:
    sends: list[Send] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    watermarks: list[Watermark] = field(default_factory=list)
    committed: list[CommittedOffset] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)  # what no client should ever be told
    log: dict[int, list[tuple[int, Identity]]] = field(default_factory=dict)  # the whole log, read at the end
    epoch_ends: list[EpochEnd] = field(default_factory=list)
    stored: dict[int, dict[int, list[StoredBatch]]] = field(default_factory=dict)  # by node and partition

    @property
    def acknowledged(self) -> int:
        return sum(send.outcome is Outcome.OK for send in self.sends)

    def write(self, path: Path) -> Path:
        """Everything as lines of text, for the one who looks into a failure."""
        with path.open("w") as out:
            for name in ("sends", "reads", "commits", "watermarks", "epoch_ends", "committed", "complaints"):
                out.writelines(f"{entry}\n" for entry in getattr(self, name))
            for partition, entries in self.log.items():
                out.writelines(f"log {partition} {offset} {identity}\n" for offset, identity in entries)
            for node, partitions in self.stored.items():
                for partition, batches in partitions.items():
                    out.writelines(f"stored node {node} partition {partition} {batch}\n" for batch in batches)
        return path

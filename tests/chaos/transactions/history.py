"""What transactional clients did and saw, in their own words. Threads append; appending is atomic in CPython.

Times are `time.monotonic_ns()` of this process. What a client was not told stays unknown: a transaction whose commit
was asked for and never answered may be there, as a whole, or not at all.
"""

import time
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from tests.chaos.values import Identity


class Place(NamedTuple):
    """A partition."""

    topic: str
    number: int


class Row(NamedTuple):
    offset: int
    identity: Identity


class Ending(Enum):
    OPEN = "never ended"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Write:
    """One record. `offset` is what its producer was told; -1: nothing."""

    identity: Identity
    place: Place
    source: tuple[Place, Row] | None = None  # what it was made from
    invoked_ns: int = field(default_factory=time.monotonic_ns)
    ended_ns: int = 0
    offset: int = -1


@dataclass(slots=True)
class Transaction:
    producer: str  # its transactional id
    began_ns: int = field(default_factory=time.monotonic_ns)
    writes: list[Write] = field(default_factory=list)
    taken: list[tuple[Place, Row]] = field(default_factory=list)  # read within it
    group: str = ""
    positions: dict[Place, int] = field(default_factory=dict)  # offsets committed with it
    commit_asked_ns: int = 0  # 0: never
    ended_ns: int = 0
    ending: Ending = Ending.OPEN

    @property
    def committed(self) -> bool:
        return self.ending is Ending.COMMITTED

    @property
    def certainly_not_committed(self) -> bool:
        return not self.commit_asked_ns or self.ending is Ending.ABORTED

    def __str__(self) -> str:
        writes = ", ".join(f"{write.identity.sequence}" for write in self.writes[:4])
        return f"transaction of {self.producer} with {len(self.writes)} records ({writes}, …), {self.ending.value}"


@dataclass(frozen=True, slots=True)
class Seen:
    """A record that a reader of committed records was given."""

    session: str  # one reader that reads on from where it is
    place: Place
    row: Row
    at_ns: int


@dataclass(frozen=True, slots=True)
class Ends:
    """Where a partition ends for readers of committed records, and for all, asked one after the other."""

    place: Place
    stable: int
    high: int


@dataclass(slots=True)
class History:
    transactions: list[Transaction] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    ends: list[Ends] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)  # what no client should ever be told
    committed: dict[Place, list[Row]] = field(default_factory=dict)
    """The whole log as a reader of committed records finds it in the end."""
    everything: dict[Place, list[Row]] = field(default_factory=dict)
    """The same for a reader of all records."""
    positions: dict[tuple[str, Place], int] = field(default_factory=dict)
    """What each group has committed in the end."""
    tables: dict[str, dict[Place, list[Row]]] = field(default_factory=dict)
    """What other readers find in the archive, by the name of the reader."""
    archived: dict[Place, int] = field(default_factory=dict)
    """Up to where the archive is said to have all."""

    def count(self, ending: Ending) -> int:
        return sum(transaction.ending is ending for transaction in self.transactions)

    def write(self, path: Path) -> Path:
        """Everything as lines of text, for the one who looks into a failure."""
        with path.open("w") as out:
            for name in ("transactions", "seen", "ends", "complaints"):
                out.writelines(f"{entry!r}\n" for entry in getattr(self, name))
            out.writelines(f"position {key} {position}\n" for key, position in self.positions.items())
            for name, view in {"committed": self.committed, "everything": self.everything, **self.tables}.items():
                for place, rows in view.items():
                    out.writelines(f"{name} {place.topic}-{place.number} {row}\n" for row in rows)
        return path

"""Settings of queries and of the search by key."""

from dataclasses import dataclass, field
from typing import Final

from hot_tier.errors import SettingsError

LEAST_MEMORY: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class SqlSettings:
    enabled: bool = field(default=True, metadata={"doc": "Whether queries and searches by key are answered."})
    queries: int = field(
        default=2, metadata={"doc": "Queries that run at once, each in a worker process of its own.", "min": 1}
    )
    queue: int = field(default=16, metadata={"doc": "Queries that wait for a worker; one more is answered 503."})
    memory_bytes: int = field(
        default=512 << 20,
        metadata={"doc": "Memory of one query; a query that needs more fails, and nothing is written to a disk."},
    )
    threads: int = field(default=2, metadata={"doc": "Threads of one query, at the lowest priority.", "min": 1})
    timeout_ms: int = field(
        default=30_000, metadata={"doc": "Time of a query that does not ask for another.", "min": 1}
    )
    max_timeout_ms: int = field(default=600_000, metadata={"doc": "Longest time that a query may ask for.", "min": 1})
    rows: int = field(default=1_000, metadata={"doc": "Rows of a result if the query does not say.", "min": 1})
    max_rows: int = field(default=1_000_000, metadata={"doc": "Most rows that a query may ask for.", "min": 1})
    max_result_bytes: int = field(
        default=64 << 20, metadata={"doc": "Most bytes of a result; what is beyond them is cut off.", "min": 1}
    )
    idle_ms: int = field(
        default=60_000, metadata={"doc": "A worker process without work for so long is ended.", "min": 1}
    )

    def __post_init__(self) -> None:
        if self.memory_bytes < LEAST_MEMORY:
            raise SettingsError(
                f"sql.memory_bytes is {self.memory_bytes}", hint=f"it is at least {LEAST_MEMORY}: less than one read"
            )
        if self.queue < 0:
            raise SettingsError(f"sql.queue is {self.queue}", hint="it is at least 0")

"""The jobs that a query worker does, and what it is started with."""

from dataclasses import dataclass
from typing import Final, Literal

from cold_tier.objects.open import StoreSettings
from gateway.sql.extents import TopicExtents

Form = Literal["json", "ndjson", "csv", "arrow", "parquet"]
RAW: Final = "$raw"
"""After a topic's name: the table with key and value as bytes. No topic has such a name."""


@dataclass(frozen=True, slots=True)
class Start:
    store: StoreSettings
    memory_bytes: int
    threads: int


@dataclass(frozen=True, slots=True)
class QueryJob:
    query: str
    form: Form
    max_rows: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class EstimateJob:
    query: str


@dataclass(frozen=True, slots=True)
class FindJob:
    extents: TopicExtents
    key: bytes
    limit: int
    from_ms: int | None
    to_ms: int | None


Job = QueryJob | EstimateJob | FindJob

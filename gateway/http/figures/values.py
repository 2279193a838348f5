"""Figures as values. Brokers tell them to each other and to clients as JSON, so they are also the documents."""

from pydantic import ConfigDict, Field

from gateway.http.figures.history import History, Series
from gateway.http.schemas import Reply


class SeriesDocument(Reply):
    end_ms: int = Field(description="The time of the last value.")
    step_ms: int
    values: list[int | None] = Field(description="Null where the value is not known.")

    @classmethod
    def of(cls, series: Series) -> "SeriesDocument":
        known = [None if value < 0 else value for value in series.values]
        return cls(end_ms=series.end_ms, step_ms=series.step_ms, values=known)


class HistoryDocument(Reply):
    hour: SeriesDocument
    day: SeriesDocument

    @classmethod
    def of(cls, history: History) -> "HistoryDocument":
        return cls(hour=SeriesDocument.of(history.last_hour()), day=SeriesDocument.of(history.last_day()))


class TopicFigures(Reply):
    """Of partitions that this broker leads, or of the whole topic once they are added up."""

    size_bytes: int = 0
    records: int = Field(default=0, description="Offsets from the log start to the high watermark, of both tiers.")
    in_bytes_per_s: float = 0
    out_bytes_per_s: float = 0
    under_replicated: int = 0
    backlog_bytes: int = 0
    archive_lag_ms: int = 0
    stored_bytes: int = 0
    held: int = Field(default=0, description="Partitions whose archive waits for a repair or a decision.")


class ReadFigures(Reply):
    """What groups have read of a topic."""

    groups: int = 0
    lag: int | None = Field(default=None, description="Of the group that is furthest behind; null if none is known.")


class GroupFigures(Reply):
    topics: int = 0
    lag: int | None = None


class HotPartition(Reply):
    topic: str
    partition: int
    in_bytes_per_s: float
    out_bytes_per_s: float


class BrokerFigures(Reply):
    model_config = ConfigDict(extra="ignore", frozen=True)
    """Brokers of the next version may tell more."""
    broker: int
    at_ms: int = Field(description="When it was measured; 0 before the first time.")
    started_ms: int
    leaders: int
    followers: int
    size_bytes: int
    disk_free_bytes: int
    disk_size_bytes: int
    disk_full: bool
    in_bytes_per_s: float
    out_bytes_per_s: float
    under_replicated: int
    under_min_in_sync: int
    failed_logs: int
    damaged_segments: int
    groups: int
    lag: int | None = Field(description="Over all groups that this broker coordinates; null while one's is unknown.")
    backlog_bytes: int
    archive_lag_ms: int
    stored_bytes: int
    held: int
    cost_per_day: float = Field(description="Of the bucket: what is stored, and requests of the last hour.")
    kafka_connections: int
    http_connections: int
    loop_delay_max_s: float
    hot: list[HotPartition] = Field(description="The partitions led here that take or give most bytes.")
    history: dict[str, HistoryDocument] = Field(description="`in`, `out` (bytes per second), `lag`, `backlog`.")


class ClusterFigures(Reply):
    brokers: list[BrokerFigures]
    silent: list[int] = Field(description="Brokers that do not answer now, or are too old to tell.")


class OwnFigures(Reply):
    """What one broker tells the others for their lists."""

    topics: dict[str, TopicFigures]
    reads: dict[str, ReadFigures]
    groups: dict[str, GroupFigures]


def add_topics(one: TopicFigures, other: TopicFigures) -> TopicFigures:
    added = {name: getattr(one, name) + getattr(other, name) for name in TopicFigures.model_fields}
    added["archive_lag_ms"] = max(one.archive_lag_ms, other.archive_lag_ms)
    return TopicFigures.model_construct(**added)


def add_reads(one: ReadFigures, other: ReadFigures) -> ReadFigures:
    return ReadFigures.model_construct(groups=one.groups + other.groups, lag=most(one.lag, other.lag))


def most(one: int | None, other: int | None) -> int | None:
    return one if other is None else other if one is None else max(one, other)

"""The documents of queries (SQL) and of the search by key."""

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from gateway.http.parameters import INT32_MAX
from gateway.http.schemas import Message, Reply, Request
from gateway.http.topic_settings import whole

MOST_QUERY_CHARACTERS: Final = 65_536

QueryText = Annotated[str, StringConstraints(min_length=1, max_length=MOST_QUERY_CHARACTERS)]
QueryId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Count = Annotated[int, Field(ge=1, le=INT32_MAX), BeforeValidator(whole)]


class SqlQuery(Request):
    query: QueryText = Field(description="One SELECT. Topics are tables; write names with dots or dashes in quotes.")
    id: QueryId | None = Field(default=None, description="To cancel it by; made by the broker when missing.")
    max_rows: Count | None = Field(default=None, description="At most so many rows; never more than `sql.max_rows`.")
    timeout_ms: Count | None = Field(default=None, description="Never more than `sql.max_timeout_ms`.")


class SqlEstimateQuery(Request):
    query: QueryText


class SqlColumn(Reply):
    name: str
    type: str = Field(description="As DuckDB names it: BIGINT, VARCHAR, BLOB, TIMESTAMP WITH TIME ZONE, …")


class Scanned(Reply):
    """What was read so far. Sums over all topics of the query; a topic that is read twice counts twice."""

    files: int = Field(description="Archived files that were read.")
    files_skipped: int = Field(description="Archived files that cannot hold what was asked for.")
    archived_rows: int
    hot_rows: int = Field(description="Records that were read from brokers, not from the bucket.")
    not_text: int = Field(description="Keys and values that are not UTF-8 and are null here; `topic$raw` has them.")
    requests: int = Field(description="GET and LIST requests to the bucket.")
    bytes: int = Field(description="Bytes from the bucket.")


class SqlResult(Reply):
    id: str
    columns: list[SqlColumn]
    rows: list[list[Any]] = Field(
        description="Bytes are text if they are UTF-8, else an object with the member `base64`. 64-bit integers are "
        "numbers, wider ones and decimals are text, times are ISO 8601."
    )
    row_count: int
    truncated: Literal["rows", "bytes"] | None = Field(description="There are more rows: what has cut them off.")
    elapsed_ms: int
    scanned: Scanned


class SqlTopicEstimate(Reply):
    topic: str
    partitions: int
    files: int = Field(description="Archived files that would be read.")
    files_skipped: int = Field(description="Archived files that offset, time and partition exclude.")
    rows: int = Field(description="Rows in these files.")
    bytes: int = Field(description="At most so many bytes from the bucket; fewer where not all columns are needed.")
    requests: int
    hot_offsets: int = Field(description="Offsets that would be read from brokers.")


class SqlEstimate(Reply):
    topics: list[SqlTopicEstimate]
    files: int
    bytes: int
    requests: int
    hot_offsets: int
    cost: float = Field(description="Of the requests, in the currency of `cost.get_per_1000` (US dollars).")


class KeyMessage(Message):
    partition: int


class KeySearch(Reply):
    partitions: int
    files: int = Field(description="Archived files whose rows were read.")
    files_skipped: int = Field(description="Archived files whose filter says that the key is not in them.")
    files_without_filter: int = Field(description="Archived files of 0.1.0, or encrypted: their keys were read.")
    hot_rows: int
    requests: int
    bytes: int


class KeyMessages(Reply):
    topic: str
    messages: list[KeyMessage] = Field(description="Newest first.")
    complete: bool = Field(description="There are no older messages with this key.")
    searched: KeySearch
    elapsed_ms: int

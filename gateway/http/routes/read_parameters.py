"""The parameters of a request to read messages."""

from typing import Final

from gateway.fetch.reader import Isolation
from gateway.http.parameters import (
    GROUP_NAME_SCHEMA,
    INT32_MAX,
    INT64_MAX,
    TIME_SCHEMA,
    Parameter,
    group_name,
    integer_schema,
    parse_time,
    whole_number,
)


def _offset(text: str) -> int | str:
    return text if text in ("earliest", "latest") else whole_number(0, INT64_MAX)(text)


def _encoding(text: str) -> str:
    if text not in ("base64", "text"):
        raise ValueError(f"must be base64 or text, not {text!r}")
    return text


def _isolation(text: str) -> Isolation:
    if text not in ("read_committed", "read_uncommitted"):
        raise ValueError(f"must be read_committed or read_uncommitted, not {text!r}")
    return Isolation[text.upper()]


OFFSET: Final = Parameter(
    "offset",
    "query",
    "Where to begin.",
    {"anyOf": [integer_schema(0, INT64_MAX), {"enum": ["earliest", "latest"]}]},
    _offset,
)
FROM: Final = Parameter(
    "from", "query", "Begin at the first record with this timestamp or a later one.", TIME_SCHEMA, parse_time
)
TO: Final = Parameter(
    "to", "query", "End before the first record with this timestamp or a later one.", TIME_SCHEMA, parse_time
)
LIMIT: Final = Parameter(
    "limit",
    "query",
    "At most so many messages; as JSON never more than the node's `http.max_read_limit`.",
    integer_schema(1, INT32_MAX),
    whole_number(1, INT32_MAX),
)
MAX_BYTES: Final = Parameter(
    "max_bytes",
    "query",
    "Stop after about so many bytes of record batches; one batch is always read.",
    integer_schema(1, INT64_MAX),
    whole_number(1, INT64_MAX),
)
WAIT: Final = Parameter(
    "wait_ms",
    "query",
    "If there is nothing, wait so long for something; never longer than the node's `http.max_wait_ms`.",
    integer_schema(0, INT32_MAX, default=0),
    whole_number(0, INT32_MAX),
    default=0,
)
VALUE_ENCODING: Final = Parameter(
    "value_encoding",
    "query",
    "As `text`, values that are UTF-8 are shown as they are, and others as base64 with a note of it. Not for Arrow.",
    {"type": "string", "enum": ["base64", "text"], "default": "base64"},
    _encoding,
    default="base64",
)
ISOLATION: Final = Parameter(
    "isolation",
    "query",
    "`read_committed` leaves out what transactions have aborted, and ends before the first transaction that is open.",
    {"type": "string", "enum": [each.name.lower() for each in Isolation], "default": "read_committed"},
    _isolation,
    default=Isolation.READ_COMMITTED,
)
AS_GROUP: Final = Parameter(
    "X-Consumer-Group",
    "header",
    "Without `offset` and `from`: begin at this group's committed offset, or at the earliest record if there is none.",
    GROUP_NAME_SCHEMA,
    group_name,
)

"""Parameters of a request: declared once, read by the server and shown in the OpenAPI document.

A `Parameter` has a JSON schema for readers and a `parse` for the server; `tests/gateway/http/test_parameters.py` checks
that they agree. A parameter that no operation declares is refused: if a misspelt `limt=` were silently ignored, the
mistake would be hard to find.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal

from aiohttp import web

from gateway.http.problems import BAD_PARAMETER, Problem

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
TOPIC_NAME_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "string",
    "pattern": r"^[a-zA-Z0-9._-]{1,249}$",
    "not": {"enum": [".", ".."]},
    "examples": ["orders"],
}
GROUP_NAME_MAX: Final = 249
CLIENT_ID_MAX: Final = 249
GROUP_NAME_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "string",
    "minLength": 1,
    "maxLength": GROUP_NAME_MAX,
    "examples": ["billing"],
}
TIME_SCHEMA: Final[Mapping[str, Any]] = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": INT64_MAX, "description": "milliseconds since 1970"},
        {"type": "string", "format": "date-time", "description": "ISO 8601; UTC when it names no zone"},
    ],
    "examples": ["2025-06-01T12:00:00Z", 1748779200000],
}

_WHOLE_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_LEAP_SECOND: Final = re.compile(r"(T\d\d:\d\d):60")


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    where: Literal["path", "query", "header"]
    description: str
    schema: Mapping[str, Any]
    parse: Callable[[str], Any]
    """Raises ValueError; its text completes the sentence "the parameter …"."""
    required: bool = False
    default: Any = None


def whole_number(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if _WHOLE_NUMBER.fullmatch(text) is None or not low <= int(text) <= high:
            raise ValueError(f"must be a whole number from {low} to {high}, not {text!r}")
        return int(text)

    return parse


def topic_name(text: str) -> str:
    if TOPIC_NAME.fullmatch(text) is None or text in (".", ".."):
        raise ValueError(f"must be 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', and not '.' or '..'; it is {text!r}")
    return text


def group_name(text: str) -> str:
    if not 1 <= len(text) <= GROUP_NAME_MAX:
        raise ValueError(f"must have 1 to {GROUP_NAME_MAX} characters, not {len(text)}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be UTF-8") from None
    return text


def client_id(text: str) -> str:
    if len(text) > CLIENT_ID_MAX:
        raise ValueError(f"must have at most {CLIENT_ID_MAX} characters, not {len(text)}")
    return text


def parse_time(text: str) -> int:
    """Returns milliseconds since 1970, at least 0: negative times are commands in Kafka, and no record is older."""
    if _WHOLE_NUMBER.fullmatch(text) is not None and int(text) <= INT64_MAX:
        return int(text)
    iso = text
    if "T" in iso or "t" in iso:
        # A '+' that was not percent-encoded arrives as a space.
        iso = _LEAP_SECOND.sub(r"\1:59", iso.upper().replace(" ", "+"))
    try:
        moment = datetime.fromisoformat(iso)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(0, (moment - EPOCH) // timedelta(milliseconds=1))
    except (ValueError, OverflowError):
        raise ValueError(
            f"must be a time as 2025-06-01T12:00:00Z or as milliseconds since 1970, not {text!r}"
        ) from None


def integer_schema(low: int, high: int, **more: Any) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high, **more}


def read_parameters(request: web.Request, parameters: Iterable[Parameter]) -> dict[str, Any]:
    """Returns the values of all declared parameters, defaults included."""
    query = request.rel_url.query
    values: dict[str, Any] = {}
    known = 0
    for parameter in parameters:
        name = parameter.name
        if parameter.where == "path":
            text: str | None = request.match_info[name]
        elif parameter.where == "query":
            text = query.get(name)
            if text is not None:
                known += 1
        else:
            text = request.headers.get(name)
        if text is None:
            if parameter.required:
                raise Problem(BAD_PARAMETER, f"the {parameter.where} parameter {name} is missing")
            values[name] = parameter.default
            continue
        try:
            values[name] = parameter.parse(text)
        except ValueError as error:
            raise Problem(BAD_PARAMETER, f"the {parameter.where} parameter {name} {error}") from None
    if len(query) != known:
        _refuse_query(query, [each.name for each in parameters if each.where == "query"])
    return values


def _refuse_query(query: Mapping[str, str], names: list[str]) -> None:
    known = ", ".join(names) or "none"
    for name in query:
        if name not in names:
            raise Problem(
                BAD_PARAMETER, f"the query parameter {name!r} is not known", hint=f"The query parameters here: {known}."
            )
    raise Problem(BAD_PARAMETER, "a query parameter is given more than once", hint="Give each query parameter once.")


TOPIC: Final = Parameter("topic", "path", "The topic's name.", TOPIC_NAME_SCHEMA, topic_name, required=True)
PARTITION: Final = Parameter(
    "partition",
    "path",
    "The partition's number, from 0.",
    integer_schema(0, INT32_MAX),
    whole_number(0, INT32_MAX),
    required=True,
)
GROUP: Final = Parameter("group", "path", "The consumer group's name.", GROUP_NAME_SCHEMA, group_name, required=True)
CLIENT_ID: Final = Parameter(
    "X-Client-Id",
    "header",
    "The client id that quotas are kept by; requests without one share the id `http`.",
    {"type": "string", "maxLength": CLIENT_ID_MAX},
    client_id,
    default="http",
)

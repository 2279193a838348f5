"""Lists in pages: which part of a list a request asks for, and in which order.

Without these parameters a list is whole, as it always was. Sorting and cutting happen at the broker that was asked.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from gateway.http.parameters import INT32_MAX, Parameter, integer_schema, whole_number

MAX_SEARCH: Final = 249
MAX_PAGE: Final = 1_000
T = TypeVar("T")


def _text(text: str) -> str:
    if len(text) > MAX_SEARCH:
        raise ValueError(f"must have at most {MAX_SEARCH} characters, not {len(text)}")
    return text.lower()


def truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"must be true or false, not {text!r}")
    return text == "true"


def truth_parameter(name: str, description: str) -> Parameter:
    return Parameter(name, "query", description, {"type": "boolean", "default": False}, truth, default=False)


SEARCH: Final = Parameter(
    "search",
    "query",
    "Only names that contain this text; capitals do not matter.",
    {"type": "string", "maxLength": MAX_SEARCH},
    _text,
    default="",
)
LIMIT: Final = Parameter(
    "limit",
    "query",
    "At most so many; all when missing.",
    integer_schema(1, MAX_PAGE),
    whole_number(1, MAX_PAGE),
)
SKIP: Final = Parameter(
    "skip",
    "query",
    "Leave out so many from the beginning.",
    integer_schema(0, INT32_MAX, default=0),
    whole_number(0, INT32_MAX),
    default=0,
)
DESCENDING: Final = truth_parameter("descending", "Begin with the largest.")
FIGURES: Final = truth_parameter("figures", "Show the figures of each, a few seconds old, as all brokers tell them.")


def sort_parameter(columns: Iterable[str], default: str) -> Parameter:
    known = list(columns)

    def parse(text: str) -> str:
        if text not in known:
            raise ValueError(f"must be one of {', '.join(known)}, not {text!r}")
        return text

    schema = {"type": "string", "enum": known, "default": default}
    return Parameter("sort", "query", "The order. What is not known comes last.", schema, parse, default=default)


def page_of(items: list[T], values: Mapping[str, Any], name: Callable[[T], str], key: Callable[[T], Any]) -> list[T]:
    """Returns the asked page, sorted by `key`, and by name where that is equal. A `None` key comes last."""
    known = sorted((item for item in items if key(item) is not None), key=name)
    known.sort(key=key, reverse=values["descending"])
    unknown = sorted((item for item in items if key(item) is None), key=name) if len(known) < len(items) else []
    skip, limit = values["skip"], values["limit"]
    return [*known, *unknown][skip : None if limit is None else skip + limit]

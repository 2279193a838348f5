"""The response to a request whose handler failed as a whole: every topic, group or resource in it gets the error.

Responses have no common place for an error. Some carry one code at the top; most carry one per element, and each
element answers one element of the request. So the response is built from the request: its first array with a place for
errors answers the request's first array, fields of the same name are copied, and each error code is filled in. For a
long request this takes long, so it is a generator that stops after each element.
"""

from collections.abc import Generator
from typing import Any, Final

from gateway.kafka.protocol.schema import Wire, wire_fields

ERROR_CODES: Final = ("error_code", "partition_error_code")
"""The names of fields that say why an element was refused. No struct has both."""

Steps = Generator[None, None, Any]


def error_response(cls: type[Any], version: int, request: Any, code: int, message: str) -> Any | None:
    """Returns None if this response has no place for an error; an empty answer would say that all is well."""
    steps = error_response_steps(cls, version, request, code, message)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def error_response_steps(cls: type[Any], version: int, request: Any, code: int, message: str) -> Steps:
    told: list[bool] = []
    made = yield from _answer(cls, version, request, code, message, told)
    return made if told else None


def _answer(cls: type[Any], version: int, asked: Any, code: int, message: str, told: list[bool]) -> Steps:
    yield
    made = cls()
    places = [(name, place) for name, place in wire_fields(cls) if place.carried_in(version)]
    for name in (name for name, _ in places if name in ERROR_CODES):
        told.append(True)
        setattr(made, name, code)
        if any(name == "error_message" for name, _ in places):
            made.error_message = message
    asked_fields = wire_fields(type(asked)) if hasattr(asked, "__dataclass_fields__") else ()
    lists = [getattr(asked, name) or [] for name, place in asked_fields if place.array and place.carried_in(version)]
    for name, place in places:
        if place.array and not isinstance(place.kind, str) and _tells(place.kind, version):
            elements = lists.pop(0) if lists else []
            answers: list[Any] = []
            setattr(made, name, answers)
            for item in elements:
                answer = yield from _answer(place.kind, version, item, code, message, told)
                answers.append(answer)
        elif name not in (*ERROR_CODES, "error_message") and _same(name, place, asked_fields):
            value = getattr(asked, name)
            if value is not None or place.nullable_in(version):
                setattr(made, name, value)
    if not asked_fields and asked is not None:
        _name(made, places, asked)
    return made


def _tells(cls: type[Any], version: int) -> bool:
    return any(
        name in ERROR_CODES or (place.array and not isinstance(place.kind, str) and _tells(place.kind, version))
        for name, place in wire_fields(cls)
        if place.carried_in(version)
    )


def _same(name: str, place: Wire, asked_fields: tuple[tuple[str, Wire], ...]) -> bool:
    return any(name == other and place.kind == kind.kind and not kind.array for other, kind in asked_fields)


def _name(made: Any, places: list[tuple[str, Wire]], asked: Any) -> None:
    """Names an element of the response if the request had a bare list of names or numbers."""
    kinds = ("string",) if isinstance(asked, str) else ("int32",)
    for name, place in places:
        if place.kind in kinds and name not in (*ERROR_CODES, "error_message"):
            setattr(made, name, asked)
            return

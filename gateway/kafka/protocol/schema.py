"""How a Kafka message is described: plain dataclasses whose fields carry their place on the wire.

One class stands for all versions of a message. A field names the versions that carry it: reading another version leaves
the default, writing one leaves the field out. So a handler fills in what it knows and never asks for the version of the
answer. `readers` and `writers` are compiled from these descriptions; the classes in `gateway.kafka.protocol.messages`
are generated (`generate.py`).

- Times are integer milliseconds, error codes are integers, and a missing topic id is `NO_ID`.
- A tagged struct is None when absent.
- `records` are views into the frame and valid only until the handler returns; `bytes` are copies.
"""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final, TypeVar, dataclass_transform
from uuid import UUID

NO_ID: Final = UUID(int=0)
LATEST: Final = 32767

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Wire:
    """A field's place on the wire: its type, the versions that carry it or allow null, and its tag."""

    kind: "str | type[Any]"
    array: bool
    since: int
    until: int
    null_since: int
    tag: int | None

    def carried_in(self, version: int) -> bool:
        return self.since <= version <= self.until

    def nullable_in(self, version: int) -> bool:
        return version >= self.null_since


def wire(
    kind: "str | type[Any] | None" = None,
    *,
    array: "str | type[Any] | None" = None,
    since: int = 0,
    until: int = LATEST,
    null_since: int = LATEST + 1,
    tag: int | None = None,
    default: Any = MISSING,
    default_factory: Any = MISSING,
) -> Any:
    element = array if array is not None else kind
    assert element is not None
    place = Wire(element, array is not None, since, until, null_since, tag)
    return field(default=default, default_factory=default_factory, metadata={"wire": place})


@dataclass(frozen=True, slots=True)
class MessageInfo:
    api_key: int
    versions: range
    flexible_since: int


_T = TypeVar("_T")
_MESSAGES: dict[type[Any], MessageInfo] = {}


@dataclass_transform(field_specifiers=(wire,))
def struct(cls: type[_T]) -> type[_T]:
    cls.__doc__ = cls.__doc__ or cls.__name__  # Else `dataclass` makes one from the signature, which takes long.
    return dataclass(slots=True)(cls)


@dataclass_transform(field_specifiers=(wire,))
def message(*, api_key: int, versions: tuple[int, int], flexible_since: int) -> Callable[[type[_T]], type[_T]]:
    def register(cls: type[_T]) -> type[_T]:
        made = struct(cls)
        _MESSAGES[made] = MessageInfo(api_key, range(versions[0], versions[1] + 1), flexible_since)
        return made

    return register


def message_info(cls: type[Any]) -> MessageInfo:
    return _MESSAGES[cls]


def wire_fields(cls: type[Any]) -> tuple[tuple[str, Wire], ...]:
    return tuple((f.name, f.metadata["wire"]) for f in fields(cls))

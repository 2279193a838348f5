"""How a metadata store is served over a Unix socket: frames, calls and their answers.

A frame is a length of four bytes and one JSON array. A call is `[id, name, argument…]`, its answer `[id, value]` or
`[id, null, [error, what, where, hint]]`. A watch is answered by a frame for every transaction. Bytes are text in
Latin-1: most are JSON, so they stay what they are.

Both ends are of one version: a service starts its own workers.
"""

import struct
from asyncio import IncompleteReadError, StreamReader
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import orjson

from hot_tier.cluster.store import MAX_TRANSACTION_BYTES, Compare, Delete, Event, KeyValue, Put, Range
from hot_tier.errors import (
    LeaseExpired,
    MetadataAnswerLost,
    MetadataCompacted,
    MetadataUnavailable,
    StorageFailure,
    TierlogError,
)

LONGEST_CALL: Final = 16 * MAX_TRANSACTION_BYTES
"""A byte takes up to six in JSON."""
LONGEST_ANSWER: Final = 1 << 30
_LENGTH: Final = struct.Struct(">I")
_ERRORS: Final = {each.__name__: each for each in (LeaseExpired, MetadataAnswerLost, MetadataCompacted)}


class Broken(Exception):
    """The connection ended, or what came over it is no frame."""


def frame(*values: Any) -> bytes:
    body = orjson.dumps(values)
    return _LENGTH.pack(len(body)) + body


async def read_frame(stream: StreamReader, longest: int) -> list[Any]:
    """Raises Broken at the end of the stream."""
    try:
        (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
        if length > longest:
            raise Broken(f"a frame of {length} bytes")
        values = orjson.loads(await stream.readexactly(length))
    except (IncompleteReadError, OSError, orjson.JSONDecodeError) as error:
        raise Broken(str(error)) from None
    if not isinstance(values, list) or not values:
        raise Broken("a frame that is no list")
    return values


@contextmanager
def malformed() -> Iterator[None]:
    """What cannot be read as the value that should be there raises Broken."""
    try:
        yield
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise Broken(f"a value of another form: {error!r}") from None


# Values


def to_text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def from_text(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")


def item_as_json(item: KeyValue | None) -> list[Any] | None:
    return None if item is None else [item.key, to_text(item.value), item.revision]


def item_from_json(value: Any) -> KeyValue | None:
    return None if value is None else KeyValue(value[0], value[1].encode("latin-1"), value[2])


def range_as_json(found: Range) -> list[Any]:
    return [[item_as_json(item) for item in found.items], found.revision]


def range_from_json(value: Any) -> Range:
    items = (item_from_json(each) for each in value[0])
    return Range(tuple(item for item in items if item is not None), value[1])


def compares_as_json(compares: Sequence[Compare]) -> list[Any]:
    return [[each.key, each.revision] for each in compares]


def compares_from_json(value: Any) -> list[Compare]:
    return [Compare(*each) for each in value]


def writes_as_json(writes: Sequence[Put | Delete]) -> list[Any]:
    return [[each.key, to_text(each.value), each.lease] if isinstance(each, Put) else [each.key] for each in writes]


def writes_from_json(value: Any) -> list[Put | Delete]:
    return [Delete(*each) if len(each) == 1 else Put(each[0], each[1].encode("latin-1"), each[2]) for each in value]


def events_as_json(events: Sequence[Event]) -> list[Any]:
    return [[each.key, to_text(each.value), each.revision] for each in events]


def events_from_json(value: Any) -> tuple[Event, ...]:
    return tuple(Event(key, from_text(text), revision) for key, text, revision in value)


def error_as_json(error: TierlogError, *, writing: bool) -> list[str]:
    """Returns the error for the client. After a failure of the disk nobody knows whether a write is there."""
    kind: type[TierlogError] = type(error)
    if isinstance(error, StorageFailure):
        kind = MetadataAnswerLost if writing else MetadataUnavailable
    return [kind.__name__, error.what, error.where, error.hint]


def error_from_json(value: Any) -> TierlogError:
    name, what, where, hint = value
    return _ERRORS.get(name, MetadataUnavailable)(what, where=where, hint=hint)

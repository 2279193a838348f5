"""etcd's API as its JSON gateway speaks it: bodies of requests, and what answers mean. Pure.

Rules of the gateway: 64-bit numbers are strings. Zero, false and empty values are left out, so a failed transaction has
no `succeeded`. Keys and values are base64. A stream wraps each message in `result`, and an error in its middle in
`error`.

An answer that is not from etcd raises `Garbled`. The caller decides what that means for its request.
"""

from base64 import b64encode
from binascii import a2b_base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import groupby
from typing import Any, Final, NamedTuple

import orjson

from hot_tier.cluster.store import Compare, Delete, Event, KeyValue, LeaseId, Put, Revision

Document = dict[str, Any]


class Garbled(Exception):
    """Bytes that are not an answer of etcd: a proxy's page, half a document."""


# Requests


def range_body(prefix: str, keys: int) -> Document:
    """Asks for the first keys of a prefix, up to a limit."""
    return {"key": _text(prefix), "range_end": _text(_prefix_end(prefix)), "limit": str(keys)}


def next_body(prefix: str, keys: int, last_key: str, revision: Revision) -> Document:
    """Asks for the keys after `last_key`, as of the revision at which the first ones were read."""
    return {**range_body(prefix, keys), "key": _text(last_key + "\0"), "revision": str(revision)}


def get_body(key: str) -> Document:
    return {"key": _text(key)}


def count_body(key: str) -> Document:
    """Asks for the revision alone, by a linearizable read."""
    return {"key": _text(key), "count_only": True}


def transaction_body(prefix: str, compares: Sequence[Compare], writes: Sequence[Put | Delete]) -> Document:
    return {
        "compare": [
            {
                "key": _text(prefix + compare.key),
                "target": "MOD",
                "result": "EQUAL",
                # A missing key has the revision 0 in comparisons, and ABSENT is 0.
                "mod_revision": str(compare.revision),
            }
            for compare in compares
        ],
        "success": [_write(prefix, write) for write in writes],
    }


def watch_body(prefix: str, start: int) -> Document:
    """Asks for a watch. With `fragment` etcd splits large messages."""
    keys = {"key": _text(prefix), "range_end": _text(_prefix_end(prefix))}
    return {"create_request": {**keys, "start_revision": str(start), "fragment": True}}


def _write(prefix: str, write: Put | Delete) -> Document:
    key = _text(prefix + write.key)
    if isinstance(write, Delete):
        return {"request_delete_range": {"key": key}}
    put: Document = {"key": key, "value": b64encode(write.value).decode()}
    if write.lease is not None:
        put["lease"] = str(write.lease)
    return {"request_put": put}


def _text(key: str) -> str:
    return b64encode(key.encode()).decode()


def _prefix_end(prefix: str) -> str:
    """Returns the first key after all keys with this prefix, which is ASCII and not empty."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


# Answers

_MALFORMED: Final = (AttributeError, KeyError, TypeError, ValueError)
"""What reading a document of another shape raises."""


def parse(data: bytes) -> Document:
    """Returns one document. A document of a stream is unwrapped. Raises `EtcdError` if it reports a failure."""
    try:
        document = orjson.loads(data)
        if "error" in document:
            error = document["error"]
            if isinstance(error, dict):
                raise EtcdError(int(error.get("grpc_code", UNKNOWN)), str(error.get("message", "")))
            raise EtcdError(int(document.get("code", UNKNOWN)), str(error))
        found = document.get("result", document)
    except _MALFORMED as error:
        raise Garbled(f"not an answer of etcd: {data[:80]!r}") from error
    if not isinstance(found, dict):
        raise Garbled(f"not an answer of etcd: {data[:80]!r}")
    return found


def read_revision(document: Document) -> Revision:
    try:
        return Revision(int(document["header"]["revision"]))
    except _MALFORMED as error:
        raise Garbled(f"an answer without a revision: {str(document)[:80]}") from error


class Page(NamedTuple):
    items: tuple[KeyValue, ...]
    revision: Revision
    """The store's when it was read, also of a page as of an older one."""
    more: bool


def read_page(prefix: str, document: Document) -> Page:
    """Returns a page of keys without `prefix`, which is the store's own."""
    try:
        items = tuple(
            KeyValue(_key(item, prefix), _value(item), Revision(int(item["mod_revision"])))
            for item in document.get("kvs", ())
        )
    except _MALFORMED as error:
        raise Garbled(f"not a range: {error!r}") from error
    return Page(items, read_revision(document), bool(items) and document.get("more") is True)


def read_transaction(document: Document) -> Revision | None:
    return read_revision(document) if document.get("succeeded") is True else None


def read_lease(document: Document) -> LeaseId:
    try:
        return LeaseId(int(document["ID"]))
    except _MALFORMED as error:
        raise Garbled(f"not a lease: {str(document)[:80]}") from error


def read_kept_alive(document: Document) -> bool:
    read_lease(document)
    try:
        return int(document.get("TTL", 0)) > 0
    except _MALFORMED as error:
        raise Garbled(f"a lease without its time: {str(document)[:80]}") from error


@dataclass(frozen=True, slots=True)
class WatchMessage:
    events: tuple[Event, ...]
    fragment: bool
    """More of the same message follows."""
    canceled: bool
    compact_revision: int
    """Not 0 when the watch asked for what is no longer known."""
    reason: str


def read_watch(prefix: str, document: Document) -> WatchMessage:
    try:
        return WatchMessage(
            events=tuple(_event(event, prefix) for event in document.get("events", ())),
            fragment=bool(document.get("fragment", False)),
            canceled=bool(document.get("canceled", False)),
            compact_revision=int(document.get("compact_revision", 0)),
            reason=str(document.get("cancel_reason", "")),
        )
    except _MALFORMED as error:
        raise Garbled(f"not a message of a watch: {error!r}") from error


def by_transaction(events: Iterable[Event]) -> Iterator[tuple[Event, ...]]:
    """Splits a message by transaction. A message holds whole transactions, often several."""
    for _, batch in groupby(events, key=lambda event: event.revision):
        yield tuple(batch)


def _event(event: Document, prefix: str) -> Event:
    item = event["kv"]
    value = None if event.get("type") == "DELETE" else _value(item)
    return Event(_key(item, prefix), value, Revision(int(item["mod_revision"])))


def _key(item: Document, prefix: str) -> str:
    return a2b_base64(item["key"], strict_mode=True).decode().removeprefix(prefix)


def _value(item: Document) -> bytes:
    return a2b_base64(item.get("value", ""), strict_mode=True)


# Failures: gRPC's codes, and what they say about a write that met them

UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
NOT_FOUND: Final = 5
PERMISSION_DENIED: Final = 7
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
OUT_OF_RANGE: Final = 11
UNAUTHENTICATED: Final = 16

_REFUSALS: Final = frozenset(
    {INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, OUT_OF_RANGE}
)


class Verdict(Enum):
    LEASE_GONE = auto()
    COMPACTED = auto()
    """A read of the past that is no longer kept."""
    TOKEN_EXPIRED = auto()
    """Not done; authenticate and try again."""
    BUSY = auto()
    """Not done; try again."""
    REFUSED = auto()
    """Not done, and trying again will not help."""
    LOST = auto()
    """Nobody knows whether it was done: no leader, leader changed, timed out, server stopping."""


class EtcdError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def verdict(self) -> Verdict:
        if self.code == NOT_FOUND and "lease not found" in self.message:
            return Verdict.LEASE_GONE
        if self.code == OUT_OF_RANGE and "compacted" in self.message:
            return Verdict.COMPACTED
        # Only the text of the error says that a token was made before users or roles were changed.
        if self.code == UNAUTHENTICATED or "revision in header is old" in self.message:
            return Verdict.TOKEN_EXPIRED
        if self.code == RESOURCE_EXHAUSTED and "too many requests" in self.message:
            return Verdict.BUSY
        return Verdict.REFUSED if self.code in _REFUSALS else Verdict.LOST

    @property
    def hint(self) -> str:
        if "space exceeded" in self.message:
            return "etcd is full: compact and defragment it, then disarm its alarm"
        if self.code == PERMISSION_DENIED or "user" in self.message or "authentication" in self.message:
            return "check etcd.user and etcd.password, and what the role may read and write"
        return ""

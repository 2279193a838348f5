"""Requests of hostile size, made from the descriptions of the messages: any array of any version, as long as one likes.

They are put together as bytes, so that a quarter of a million elements cost no more than one: an element is written
once and repeated, or its names are numbered.
"""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from gateway.kafka.protocol.schema import Wire, message_info
from gateway.kafka.protocol.source import FORMATS
from gateway.kafka.protocol.writers import write_uvarint

Path = tuple[str, ...]


@dataclass(slots=True)
class Hostile:
    """How a request is to be bad: its array at `path` has `count` elements."""

    path: Path
    count: int
    distinct: bool = False
    """Names in the elements are numbered; else all elements are the same."""
    string_bytes: int = 0
    """Pads every name of an element to this length."""
    tagged: int = 0
    """Unknown tagged fields at the end of the request."""


def array_paths(cls: type[Any], version: int, above: Path = ()) -> Iterator[Path]:
    for f in fields(cls):
        place: Wire = f.metadata["wire"]
        if place.carried_in(version) and place.tag is None:
            inner = () if isinstance(place.kind, str) else array_paths(place.kind, version, (*above, f.name))
            if place.array:
                yield (*above, f.name)
            yield from inner


class Writer:
    """Writes one request; values are the words and numbers given, so that they name what exists."""

    def __init__(
        self, cls: type[Any], version: int, rng: random.Random, hostile: Hostile, words: dict[str, tuple[str, ...]]
    ) -> None:
        self._version = version
        self._flexible = version >= message_info(cls).flexible_since
        self._rng = rng
        self._hostile = hostile
        self._words = words
        self._cls = cls

    def frame(self, correlation_id: int = 1) -> bytes:
        key = message_info(self._cls).api_key
        head = (
            struct.pack(">hhih", key, self._version, correlation_id, 4) + b"test" + (b"\0" if self._flexible else b"")
        )
        body = self._struct(self._cls, (), None)
        if self._flexible and self._hostile.tagged:
            one = write_uvarint(1000) + b"\1x"
            body = body[:-1] + write_uvarint(self._hostile.tagged) + one * self._hostile.tagged
        return struct.pack(">i", len(head) + len(body)) + head + body

    def _struct(self, cls: type[Any], path: Path, number: int | None) -> bytes:
        parts = []
        for f in fields(cls):
            place: Wire = f.metadata["wire"]
            if place.carried_in(self._version) and place.tag is None:
                parts.append(self._field(f.name, place, path, number))
        return b"".join(parts) + (b"\0" if self._flexible else b"")

    def _field(self, name: str, place: Wire, path: Path, number: int | None) -> bytes:
        if place.array:
            return self._array(name, place.kind, (*path, name), number)
        if isinstance(place.kind, str):
            return self._value(name, place.kind, number)
        # A nullable struct begins with whether it is there.
        marker = b"\1" if place.nullable_in(self._version) else b""
        return marker + self._struct(place.kind, (*path, name), number)

    def _array(self, name: str, kind: Any, path: Path, number: int | None) -> bytes:
        hostile = self._hostile
        wide = path == hostile.path
        count = hostile.count if wide else 1
        if wide and hostile.distinct:
            body = b"".join(self._element(name, kind, path, n) for n in range(count))
        else:
            body = self._element(name, kind, path, number) * count
        return (write_uvarint(count + 1) if self._flexible else struct.pack(">i", count)) + body

    def _element(self, name: str, kind: Any, path: Path, number: int | None) -> bytes:
        return self._value(name, kind, number) if isinstance(kind, str) else self._struct(kind, path, number)

    def _value(self, name: str, kind: str, number: int | None) -> bytes:
        if kind in FORMATS:
            if kind == "uuid":
                return struct.pack(">QQ", 0, number or 0)
            return struct.pack(">" + FORMATS[kind], self._number(name, kind, number))
        data = self._text(name, number).encode() if kind == "string" else b"\0\1\0\0\0\0"
        if self._flexible:
            return write_uvarint(len(data) + 1) + data
        return struct.pack(">h" if kind == "string" else ">i", len(data)) + data

    def _text(self, name: str, number: int | None) -> str:
        chosen = self._rng.choice(self._words.get(name) or self._words["*"])
        if number is not None:
            chosen = f"{chosen}-{number}"
        return chosen.ljust(self._hostile.string_bytes, "x")

    def _number(self, name: str, kind: str, number: int | None) -> Any:
        match name:
            case "validate_only" | "allow_auto_topic_creation":
                return name == "validate_only"
            case "resource_type":
                return 2
            case "num_partitions" | "replication_factor" | "acks" | "session_epoch" | "isolation_level":
                return {"num_partitions": 1, "replication_factor": 1, "acks": -1, "session_epoch": -1}.get(name, 0)
            case "timeout_ms" | "session_timeout_ms" | "rebalance_timeout_ms":
                return 6000
            case "max_wait_ms" | "fetch_offset" | "min_bytes":
                return 0
            case "max_bytes" | "partition_max_bytes":
                return 1 << 20
            case "timestamp":
                return -1
        if kind == "bool":
            return self._rng.random() < 0.5
        return 0 if number is None or kind in ("int8", "int16", "float64") else number

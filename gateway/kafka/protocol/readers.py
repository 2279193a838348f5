"""Readers of messages, compiled per message version from the descriptions in `schema`.

A reader
- touches only its frame, and fails only with `DecodeError`;
- checks a length against the remaining bytes before it allocates anything of that length;
- counts array elements and tagged fields over the whole message, numbers as half: those of a hostile 100 MiB frame
  would need gigabytes, or a minute;
- accepts no name longer than Kafka's own servers accept;
- recurses no deeper than the schema;
- skips unknown tagged fields and ignores bytes after the message.

Each message has two readers. `reader` reads at once, and only a limited number of elements. `sliced_reader` is a
generator that stops every `SLICE_ELEMENTS`, so that its caller can let others run; it returns the message at the end.
"""

from collections.abc import Callable, Generator
from dataclasses import MISSING, fields
from struct import Struct, error
from typing import Any, Final
from uuid import UUID

from gateway.kafka.errors import DecodeError, TooManyElements
from gateway.kafka.protocol.schema import Wire, message_info, wire_fields
from gateway.kafka.protocol.source import FORMATS, SIZES, Source

MAX_ELEMENTS: Final = 1 << 18
"""Of an answer that this broker reads."""
MAX_REQUEST_ELEMENTS: Final = 1 << 15
"""A fetch of thirty thousand partitions of some hundred topics fits."""
QUICK_ELEMENTS: Final = 1000
"""They take 1 to 2 ms."""
MAX_STRING_BYTES: Final = 0x7FFF
SLICE_ELEMENTS: Final = 256

ReadFunction = Callable[[memoryview], Any]
SlicedReadFunction = Callable[[memoryview], Generator[None, None, Any]]

_readers: dict[tuple[type[Any], int, int, bool], Any] = {}
_uuids: dict[bytes, UUID] = {}
_MAX_CACHED_UUIDS: Final = 10_000


def reader(cls: type[Any], version: int, most: int = MAX_ELEMENTS) -> ReadFunction:
    """Returns a function that reads one message from the start of a frame's body. It fails only with `DecodeError`;
    with more than `most` elements it is `TooManyElements`."""
    made: ReadFunction = _compiled(cls, version, most, False)
    return made


def sliced_reader(cls: type[Any], version: int) -> SlicedReadFunction:
    """Returns the same for a large request, as a generator that stops every `SLICE_ELEMENTS`."""
    made: SlicedReadFunction = _compiled(cls, version, MAX_REQUEST_ELEMENTS, True)
    return made


def _compiled(cls: type[Any], version: int, most: int, sliced: bool) -> Any:
    found = _readers.get((cls, version, most, sliced))
    if found is None:
        info = message_info(cls)
        assert version in info.versions
        source = _ReaderSource(version, version >= info.flexible_since, sliced)
        source.emit(f"p = 0; e = len(b); left = {most}; done = 0")
        if sliced:
            source.emit("yield")
        with source.block("try:"):
            source.read_struct("message", cls)
            source.emit("return message")
        with source.block("except (short, IndexError):"):
            source.emit("fail('the request ends before its fields do')")
        with source.block("except UnicodeDecodeError:"):
            source.emit("fail('a text is not UTF-8')")
        found = _readers[(cls, version, most, sliced)] = source.function(f"def read_{cls.__name__}_{version}(b):")
    return found


def fail(what: str) -> Any:
    raise DecodeError(what)


def too_many() -> Any:
    raise TooManyElements("the request has more elements than allowed")


def read_uvarint(frame: memoryview, position: int) -> tuple[int, int]:
    byte = frame[position]
    if byte < 128:
        return byte, position + 1
    return _read_uvarint_rest(frame, position + 1, byte)


def _read_uvarint_rest(frame: memoryview, position: int, first: int) -> tuple[int, int]:
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return value, position
    raise DecodeError("a length takes more than five bytes")


def _uuid(raw: bytes) -> UUID:
    """Returns a cached UUID: topic ids repeat in every fetch, and a new UUID costs a microsecond."""
    found = _uuids.get(raw)
    if found is None:
        if len(_uuids) >= _MAX_CACHED_UUIDS:
            _uuids.clear()
        found = _uuids[raw] = UUID(bytes=raw)
    return found


def _least_struct_bytes(cls: type[Any], version: int, flexible: bool) -> int:
    """Returns the smallest size of a struct. It limits how many structs the rest of a frame can hold."""
    least = 1 if flexible else 0
    for _, place in wire_fields(cls):
        if place.carried_in(version) and place.tag is None:
            least += least_field_bytes(place, version, flexible)
    return max(least, 1)


def least_field_bytes(place: Wire, version: int, flexible: bool) -> int:
    if place.array:
        return 1 if flexible else 4
    if isinstance(place.kind, str):
        if place.kind in SIZES:
            return SIZES[place.kind]
        return 1 if flexible else 2 if place.kind == "string" else 4
    return 1 if place.nullable_in(version) else _least_struct_bytes(place.kind, version, flexible)


class _ReaderSource(Source):
    """Collects fixed-size values in `run`, for one unpack; the lines in `after` follow it."""

    def __init__(self, version: int, flexible: bool, sliced: bool) -> None:
        self.sliced = sliced
        names = {
            "fail": fail,
            "too_many": too_many,
            "short": error,
            "rest": _read_uvarint_rest,
            "uvarint": read_uvarint,
            "uuid": _uuid,
        }
        super().__init__(version, flexible, names)
        self.run: list[tuple[str, str]] = []
        self.after: list[str] = []

    def flush(self) -> None:
        if self.run:
            targets = ", ".join(target for target, _ in self.run)
            codes = "".join(code for _, code in self.run)
            if codes == "B":
                self.emit(f"{targets} = b[p]; p += 1")
            else:
                packed = Struct(">" + codes)
                self.emit(f"{targets}, = {self.name(packed.unpack_from, 'unpack')}(b, p); p += {packed.size}")
        for line in self.after:
            self.emit(line)
        self.run, self.after = [], []

    def length(self, code: str) -> str:
        """Writes the code that reads a length. Returns the name of its variable; the value is negative for null."""
        target = self.fresh("n")
        self.run.append((target, "B" if self.flexible else code))
        self.flush()
        if self.flexible:
            with self.block(f"if {target} >= 128:"):
                self.emit(f"{target}, p = rest(b, p, {target})")
            self.emit(f"{target} -= 1")
        return target

    def read(self, target: str, place: Wire, nullable: bool) -> None:
        if place.array:
            self.read_array(target, place.kind, nullable)
        elif not isinstance(place.kind, str):
            (self.read_nullable_struct if nullable else self.read_struct)(target, place.kind)
        elif place.kind == "uuid":
            self.run.append((target, "16s"))
            self.after.append(f"{target} = uuid({target})")
        elif place.kind in FORMATS:
            self.run.append((target, FORMATS[place.kind]))
        else:
            self.read_bytes(target, place.kind, nullable)

    def read_null(self, target: str, n: str, nullable: bool) -> None:
        with self.block(f"if {n} < 0:"):
            self.emit(f"{target} = None" if nullable else "fail('a field is null that must have a value')")

    def read_bytes(self, target: str, kind: str, nullable: bool) -> None:
        n = self.length("h" if kind == "string" else "i")
        self.read_null(target, n, nullable)
        with self.block("else:"):
            self.emit(f"q = p + {n}")
            with self.block("if q > e:"):
                self.emit("fail('a field goes beyond the end of the request')")
            if kind == "string" and self.flexible:
                with self.block(f"if {n} > {MAX_STRING_BYTES}:"):
                    self.emit("fail('a name is longer than Kafka allows')")
            value = {"string": "str(b[p:q], 'utf-8')", "bytes": "bytes(b[p:q])", "records": "b[p:q]"}[kind]
            self.emit(f"{target} = {value}; p = q")

    def read_nullable_struct(self, target: str, cls: type[Any]) -> None:
        marker = self.fresh("n")
        self.run.append((marker, "b"))
        self.flush()
        with self.block(f"if {marker} < 0:"):
            self.emit(f"{target} = None")
        with self.block("else:"):
            self.read_struct(target, cls)

    def read_struct(self, target: str, cls: type[Any]) -> None:
        """Reads the fields in place: a call for each struct would cost more than the reading."""
        values = []
        tagged: dict[int, tuple[str, Wire]] = {}
        for f, (_, place) in zip(fields(cls), wire_fields(cls), strict=True):
            carried = place.carried_in(self.version)
            if carried and place.tag is None:
                value = self.fresh("f")
                self.read(value, place, place.nullable_in(self.version))
            elif f.default_factory is not MISSING:
                value = "[]" if f.default_factory is list else f"{self.name(f.default_factory)}()"
            else:
                value = self.name(f.default)
            if carried and place.tag is not None:
                default, value = value, self.fresh("f")
                self.emit(f"{value} = {default}")
                tagged[place.tag] = (value, place)
            values.append(value)
        if self.flexible:
            self.read_tagged(tagged)
        self.flush()
        self.emit(f"{target} = {self.name(cls, cls.__name__)}({', '.join(values)})")

    def read_array(self, target: str, kind: str | type[Any], nullable: bool) -> None:
        n = self.length("i")
        self.read_null(target, n, nullable)
        element = Wire(kind, False, 0, 0, 1 << 20, None)
        with self.block("else:"):
            numbers = isinstance(kind, str) and kind in FORMATS and kind != "uuid"
            self.emit(f"left -= {n} >> 1" if numbers else f"left -= {n}")
            least = least_field_bytes(element, self.version, self.flexible)
            with self.block(f"if {n} * {least} > e - p:"):
                self.emit("fail('an array goes beyond the end of the request')")
            with self.block("if left < 0:"):
                self.emit("too_many()")
            if numbers:
                assert isinstance(kind, str)
                self.emit(
                    f"{target} = list({self.name(Struct, 'Struct')}('>%d{FORMATS[kind]}' % {n}).unpack_from(b, p))"
                )
                self.emit(f"p += {n} * {SIZES[kind]}")
                return
            self.emit(f"{target} = []")
            with self.block(f"for _ in range({n}):"):
                item = self.fresh("i")
                self.read(item, element, nullable=False)
                self.flush()
                self.emit(f"{target}.append({item})")
                if self.sliced:
                    self.stop()

    def stop(self) -> None:
        self.emit("done += 1")
        with self.block(f"if not done % {SLICE_ELEMENTS}:"):
            self.emit("yield")

    def read_tagged(self, tagged: dict[int, tuple[str, Wire]]) -> None:
        count = self.fresh("n")
        self.run.append((count, "B"))
        self.flush()
        with self.block(f"if {count}:"):
            with self.block(f"if {count} >= 128:"):
                self.emit(f"{count}, p = rest(b, p, {count})")
            self.emit(f"left -= {count}")
            with self.block("if left < 0:"):
                self.emit("too_many()")
            with self.block(f"for _ in range({count}):"):
                if self.sliced:
                    self.stop()
                tag, end = self.fresh("n"), self.fresh("n")
                self.emit(f"{tag}, p = uvarint(b, p)")
                self.emit(f"{end}, p = uvarint(b, p)")
                self.emit(f"{end} += p")
                with self.block(f"if {end} > e:"):
                    self.emit("fail('a tagged field goes beyond the end of the request')")
                for number, (target, place) in tagged.items():
                    with self.block(f"if {tag} == {number}:"):
                        # A tagged struct is None when absent, but never null on the wire.
                        nullable = place.nullable_in(self.version) and isinstance(place.kind, str)
                        self.read(target, place, nullable)
                        self.flush()
                        with self.block(f"if p != {end}:"):
                            self.emit("fail('a tagged field has the wrong length')")
                self.emit(f"p = {end}")

"""Writers of messages, compiled per message version from the descriptions in `schema`.

A writer appends buffers to a list and never copies `records`. It trusts its caller: a value that does not fit its field
is a mistake of ours and raises some exception.

Each message has two writers. `writer` writes at once, and gives up with `TakesLong` after `QUICK_ELEMENTS`; then what
it wrote is thrown away. `sliced_writer` is a generator that stops every `SLICE_ELEMENTS`.
"""

from collections.abc import Callable, Generator
from dataclasses import fields
from struct import Struct
from typing import Any, Final

from gateway.kafka.protocol.schema import Buffer, Wire, message_info, wire_fields
from gateway.kafka.protocol.source import FORMATS, Source

QUICK_ELEMENTS: Final = 1000
"""They take 1 to 2 ms. A number counts as an eighth of an element."""
SLICE_ELEMENTS: Final = 256

WriteFunction = Callable[[Any, Callable[[Buffer], None]], None]
SlicedWriteFunction = Callable[[Any, Callable[[Buffer], None]], Generator[None, None, None]]

_writers: dict[tuple[type[Any], int, str], Any] = {}


class TakesLong(Exception):
    """The message must be written in slices."""


def writer(cls: type[Any], version: int, *, quick: bool = False) -> WriteFunction:
    """Returns a function that writes a message as buffers, without a copy of `records`. Only a `quick` one gives up."""
    made: WriteFunction = _compiled(cls, version, "quick" if quick else "whole")
    return made


def sliced_writer(cls: type[Any], version: int) -> SlicedWriteFunction:
    made: SlicedWriteFunction = _compiled(cls, version, "sliced")
    return made


def _compiled(cls: type[Any], version: int, manner: str) -> Any:
    found = _writers.get((cls, version, manner))
    if found is None:
        info = message_info(cls)
        assert version in info.versions
        source = _WriterSource(version, version >= info.flexible_since, manner)
        if manner == "quick":
            source.emit(f"left = {QUICK_ELEMENTS}")
        elif manner == "sliced":
            source.emit("done = 0")
            source.emit("yield")
        source.write_struct("o", cls)
        source.flush()
        source.emit("return")
        found = _writers[(cls, version, manner)] = source.function(f"def write_{cls.__name__}_{version}(o, w):")
    return found


def _write_uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SHORT_UVARINTS: Final = tuple(_write_uvarint(n) for n in range(1024))


def write_uvarint(value: int) -> bytes:
    return _SHORT_UVARINTS[value] if value < 1024 else _write_uvarint(value)


class _WriterSource(Source):
    """Collects fixed-size values in `run` and byte expressions in `parts`; one append writes both."""

    def __init__(self, version: int, flexible: bool, manner: str) -> None:
        names = {"uvarint": write_uvarint, "short": _SHORT_UVARINTS, "TakesLong": TakesLong}
        super().__init__(version, flexible, names)
        self.manner = manner
        self.run: list[tuple[str, str]] = []
        self.parts: list[str] = []

    def close_run(self) -> None:
        if self.run:
            values = ", ".join(value for value, _ in self.run)
            if all(value.isdigit() for value, _ in self.run):
                constant = Struct(">" + "".join(code for _, code in self.run)).pack(*(int(v) for v, _ in self.run))
                self.parts.append(repr(constant))
            else:
                packed = Struct(">" + "".join(code for _, code in self.run))
                self.parts.append(f"{self.name(packed.pack, 'pack')}({values})")
            self.run = []

    def part(self, expression: str) -> None:
        self.close_run()
        self.parts.append(expression)

    def flush(self) -> None:
        self.close_run()
        if self.parts:
            self.emit(f"w({' + '.join(self.parts)})")
            self.parts = []

    def length(self, n: str, code: str) -> None:
        """`n` is the name of the variable with the length."""
        if self.flexible:
            self.part(f"(short[{n} + 1] if {n} < 1023 else uvarint({n} + 1))")
        else:
            self.run.append((n, code))

    def null(self, code: str) -> str:
        return repr(b"\0" if self.flexible else Struct(">" + code).pack(-1))

    def write(self, value: str, place: Wire, nullable: bool) -> None:
        if place.array:
            self.write_array(value, place.kind, nullable)
        elif not isinstance(place.kind, str):
            (self.write_nullable_struct if nullable else self.write_struct)(value, place.kind)
        elif place.kind == "uuid":
            self.run.append((f"{value}.bytes", "16s"))
        elif place.kind in FORMATS:
            self.run.append((value, FORMATS[place.kind]))
        else:
            self.write_bytes(value, place.kind, nullable)

    def write_bytes(self, value: str, kind: str, nullable: bool) -> None:
        code = "h" if kind == "string" else "i"
        data, n = self.fresh("v"), self.fresh("n")
        if kind == "records" or nullable:
            self.flush()
        self.emit(f"{data} = {value}")
        encode = f"{data} = {data}.encode()" if kind == "string" else "pass"
        if not nullable:
            self.emit(encode)
            self.emit(f"{n} = len({data})")
            self.length(n, code)
            if kind == "records":
                self.flush()
            self.part(data)
            if kind == "records":
                self.flush()
            return
        with self.block(f"if {data} is None:"):
            self.emit(f"w({self.null(code)})")
        with self.block("else:"):
            self.emit(encode)
            self.emit(f"{n} = len({data})")
            self.length(n, code)
            if kind == "records":
                self.flush()
            self.part(data)
            self.flush()

    def write_nullable_struct(self, value: str, cls: type[Any]) -> None:
        self.flush()
        with self.block(f"if {value} is None:"):
            self.emit(f"w({Struct('>b').pack(-1)!r})")
        with self.block("else:"):
            self.run.append(("1", "b"))
            self.write_struct(value, cls)
            self.flush()

    def write_struct(self, value: str, cls: type[Any]) -> None:
        tagged: dict[int, tuple[str, Wire, Any]] = {}
        if not value.isidentifier():
            inner = self.fresh("o")
            self.emit(f"{inner} = {value}")
            value = inner
        for f, (name, place) in zip(fields(cls), wire_fields(cls), strict=True):
            if not place.carried_in(self.version):
                continue
            if place.tag is not None:
                tagged[place.tag] = (f"{value}.{name}", place, f.default)
            else:
                self.write(f"{value}.{name}", place, place.nullable_in(self.version))
        if self.flexible:
            self.write_tagged(tagged)

    def write_array(self, value: str, kind: str | type[Any], nullable: bool) -> None:
        items, n = self.fresh("v"), self.fresh("n")
        if nullable:
            self.flush()
            with self.block(f"if {value} is None:"):
                self.emit(f"w({self.null('i')})")
            with self.block("else:"):
                self.write_elements(value, kind, items, n)
                self.flush()
        else:
            self.write_elements(value, kind, items, n)

    def write_elements(self, value: str, kind: str | type[Any], items: str, n: str) -> None:
        self.emit(f"{items} = {value}; {n} = len({items})")
        numbers = isinstance(kind, str) and kind in FORMATS and kind != "uuid"
        if self.manner == "quick":
            self.emit(f"left -= {n} >> 3" if numbers else f"left -= {n}")
            with self.block("if left < 0:"):
                self.emit("raise TakesLong")
        self.length(n, "i")
        if numbers:
            assert isinstance(kind, str)
            self.part(f"{self.name(Struct, 'Struct')}('>%d{FORMATS[kind]}' % {n}).pack(*{items})")
            return
        self.flush()
        item = self.fresh("i")
        with self.block(f"for {item} in {items}:"):
            self.write(item, Wire(kind, False, 0, 0, 1 << 20, None), nullable=False)
            self.flush()
            if self.manner == "sliced":
                self.emit("done += 1")
                with self.block(f"if not done % {SLICE_ELEMENTS}:"):
                    self.emit("yield")

    def write_tagged(self, tagged: dict[int, tuple[str, Wire, Any]]) -> None:
        if not tagged:
            self.run.append(("0", "B"))
            return
        self.flush()
        tags = self.fresh("v")
        self.emit(f"{tags} = None")
        for number in sorted(tagged):
            value, place, default = tagged[number]
            if place.array:
                condition = value
            elif default is None:
                condition = f"{value} is not None"
            else:
                condition = f"{value} != {self.name(default)}"
            with self.block(f"if {condition}:"):
                body, outer = self.fresh("body"), self.fresh("w")
                self.emit(f"{body} = []; {outer} = w; w = {body}.append")
                nullable = place.nullable_in(self.version) and isinstance(place.kind, str)
                self.write(value, place, nullable)
                self.flush()
                self.emit(f"w = {outer}; {body} = b''.join({body})")
                self.emit(f"{tags} = {tags} or []")
                self.emit(f"{tags}.append({write_uvarint(number)!r} + uvarint(len({body})) + {body})")
        self.emit(f"w(b'\\0' if {tags} is None else uvarint(len({tags})) + b''.join({tags}))")

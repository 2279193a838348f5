"""Writes `messages/*.py` from the schemas of the `kio` package: `python -m gateway.kafka.protocol.generate`.

Only names, types, versions and defaults are used. kio has one class per message version; here one class stands for all
versions. kio itself is only a development dependency: to import all its versions takes over a second, and its reader
must not read from the network (it allocates whatever a length field says).
"""

import datetime
import re
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from enum import Enum
from pathlib import Path
from typing import Any

from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.schema import LATEST

WIRE_NAMES = {
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
    "error_code": "int16",
}
PYTHON_TYPES = {
    **dict.fromkeys(["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"], ("int", "0")),
    "float64": ("float", "0.0"),
    "bool": ("bool", "False"),
    "string": ("str", '""'),
    "bytes": ("bytes", 'b""'),
    "records": ("Buffer", 'b""'),
    "uuid": ("UUID", "NO_ID"),
}
LINE_BYTES = 120


def field_name(kio_name: str, kafka_type: str | None) -> str:
    """Returns the field's name with its unit. kio drops the unit, because its times are timedeltas, not numbers."""
    if kafka_type in ("timedelta_i32", "timedelta_i64", "datetime_i64"):
        return f"{kio_name}_ms"
    return kio_name


class Struct:
    """One struct of a message, with its fields in each version, in wire order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.order: list[str] = []
        self.seen: dict[str, dict[int, tuple[Any, ...]]] = {}
        self.children: list[Struct] = []

    def add(self, version: int, facts: list[tuple[str, tuple[Any, ...]]]) -> None:
        at = 0
        for name, fact in facts:
            if name in self.seen:
                place = self.order.index(name)
                assert place >= at, f"{self.name}.{name} changes place in version {version}"
                at = place + 1
            else:
                self.order.insert(at, name)
                at += 1
            self.seen.setdefault(name, {})[version] = fact


def plain(default: Any) -> str | None:
    match default:
        case _ if default is MISSING:
            return None
        case bool() | None:
            return repr(default)
        case datetime.timedelta():
            return str(default // datetime.timedelta(milliseconds=1))
        case Enum():
            return str(default.value)
        case int() | str() | bytes() | float():
            return re.sub(r"^'(.*)'$", r'"\1"', repr(default))
        case ():
            return "()"
        case _:
            return "struct"


def survey(cls: type[Any], version: int, structs: dict[str, Struct]) -> Struct:
    from kio.serial._introspect import EntityField, EntityTupleField, classify_field, is_optional

    found = structs.setdefault(cls.__name__, Struct(cls.__name__))
    facts = []
    for f in fields(cls):
        kind = classify_field(f)
        kafka_type: str | None = f.metadata.get("kafka_type")
        if isinstance(kind, EntityField | EntityTupleField):
            child = survey(kind.type_, version, structs)
            if child not in found.children:
                found.children.append(child)
            element: str | Struct = child
        else:
            assert kafka_type is not None
            element = WIRE_NAMES.get(kafka_type, kafka_type)
        nullable = is_optional(f) and kafka_type not in ("uuid", "datetime_i64")
        default = "-1" if kafka_type == "datetime_i64" else plain(f.default)
        if kafka_type == "uuid":
            default = None
        fact = (element, kind.is_array, nullable, f.metadata.get("tag"), default)
        facts.append((field_name(f.name, kafka_type), fact))
    found.add(version, facts)
    return found


def render_field(name: str, seen: dict[int, tuple[Any, ...]], first: int, last: int) -> str:
    versions = sorted(seen)
    assert versions == list(range(versions[0], versions[-1] + 1)), name
    element, is_array, _, tag, _ = seen[versions[-1]]
    assert all(fact[:2] == (element, is_array) and fact[3] == tag for fact in seen.values()), name
    null_versions = [v for v in versions if seen[v][2]]
    assert null_versions == [v for v in versions if null_versions and v >= null_versions[0]], name
    defaults = [fact[4] for fact in seen.values() if fact[4] is not None]
    default = defaults[-1] if defaults else None

    target = element.name if isinstance(element, Struct) else f'"{element}"'
    arguments = [f"array={target}" if is_array else target]
    if versions[0] > first:
        arguments.append(f"since={versions[0]}")
    if versions[-1] < last:
        arguments.append(f"until={versions[-1]}")
    if null_versions:
        arguments.append(f"null_since={null_versions[0]}")
    if tag is not None:
        arguments.append(f"tag={tag}")

    base, zero = (element.name, "") if isinstance(element, Struct) else PYTHON_TYPES[element]
    if is_array:
        python_type = f"list[{base}]"
        arguments.append("default=None" if default == "None" else "default_factory=list")
    elif isinstance(element, Struct):
        python_type = base
        if tag is not None or null_versions:
            null_versions = null_versions or versions
            arguments.append("default=None")
        else:
            arguments.append(f"default_factory={base}")
    else:
        python_type = base
        zero = "None" if null_versions == versions else zero
        arguments.append(f"default={zero if default is None else default}")
    if null_versions:
        python_type += " | None"
    line = f"    {name}: {python_type} = wire({', '.join(arguments)})"
    if len(line) > LINE_BYTES:
        line = f"    {name}: {python_type} = wire(\n        {', '.join(arguments)}\n    )"
    return line


def postorder(struct: Struct, done: list[Struct]) -> list[Struct]:
    for child in struct.children:
        postorder(child, done)
    if struct not in done:
        done.append(struct)
    return done


def render_half(top: Struct, info: str, first: int, last: int) -> Iterator[str]:
    for struct in postorder(top, []):
        yield f"\n\n{info if struct is top else '@struct'}\nclass {struct.name}:\n"
        if not struct.order:
            yield "    pass\n"
        for name in struct.order:
            yield render_field(name, struct.seen[name], first, last) + "\n"


def render(api_key: int, name: str) -> str:
    from kio.index import load_request_schema, load_response_schema
    from kio.schema.index import schema_name_map

    versions = sorted(schema_name_map[name])
    halves = []
    for load in (load_request_schema, load_response_schema):
        structs: dict[str, Struct] = {}
        flexible_since = LATEST
        for version in versions:
            cls = load(api_key, version)
            top = survey(cls, version, structs)
            if cls.__flexible__:
                flexible_since = min(flexible_since, version)
        span = f"versions=({versions[0]}, {versions[-1]}), flexible_since={flexible_since}"
        info = f"@message(api_key={api_key}, {span})"
        halves.append((top, structs, info))
    shared = set(halves[0][1]) & set(halves[1][1])
    for (_, structs, _), side in zip(halves, ("Request", "Response"), strict=True):
        for clash in shared:
            structs[clash].name = f"{side}{clash}"
    body = "".join("".join(render_half(top, info, versions[0], versions[-1])) for top, _, info in halves)
    names = [n for n in ("NO_ID", "Buffer", "message", "struct", "wire") if re.search(rf"\b{n}\b", body)]
    uuid_import = "from uuid import UUID\n\n" if "UUID" in body else ""
    title = name.replace("_", " ").capitalize()
    return (
        f'"""{title}: generated by `gateway.kafka.protocol.generate`, not edited by hand."""\n\n{uuid_import}'
        f"from gateway.kafka.protocol.schema import {', '.join(names)}\n{body}"
    )


def main() -> None:
    folder = Path(__file__).parent / "messages"
    for api_key in ApiKey:
        name = api_key.name.lower()
        (folder / f"{name}.py").write_text(render(api_key, name))
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main()

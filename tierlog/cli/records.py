"""Records as text: what `produce` reads and `consume` writes.

There are two forms. *Lines*: one record per line, the value alone or `key SEPARATOR value`. *JSON*: one object per line
with `key`, `value`, `headers`, `partition` and `timestamp`, all but the value optional; bytes that are not UTF-8 are
base64, and `key_encoding` or `value_encoding` says so. `produce --input json` reads what `consume --json` writes.

Inside the commands a record is a document of the HTTP API.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hot_tier.errors import TierlogError

Message = dict[str, Any]

_MEMBERS = ("key", "key_encoding", "value", "value_encoding", "headers", "partition", "timestamp")


_A_RECORD = 'write {"key": "…", "value": "…", "headers": {"…": "…"}}'


class BadInput(TierlogError):
    """A line is not a record. `where` is file and line number."""


def read_lines(lines: Iterable[bytes], where: str, separator: bytes | None) -> Iterator[Message]:
    for number, line in enumerate(lines, 1):
        key, value = None, line.removesuffix(b"\n").removesuffix(b"\r")
        if separator is not None:
            before, found, value = value.partition(separator)
            if not found:
                raise BadInput(
                    f"no key separator {separator.decode()!r} in {before[:60]!r}",
                    where=f"{where}:{number}",
                    hint="give every line a key, or leave --key-separator out",
                )
            key = before
        yield {**_text_or_base64("value", value), **({} if key is None else _text_or_base64("key", key))}


def read_json(lines: Iterable[bytes], where: str) -> Iterator[Message]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except ValueError as error:
            raise BadInput(f"not JSON: {error}", where=f"{where}:{number}", hint=_A_RECORD) from None
        if not isinstance(document, dict) or "value" not in document:
            raise BadInput(
                "not a record",
                where=f"{where}:{number}",
                hint=_A_RECORD,
            )
        yield _message(document, f"{where}:{number}")


def _message(document: Mapping[str, Any], where: str) -> Message:
    message = {name: document[name] for name in _MEMBERS if document.get(name) is not None}
    value = message.get("value")
    if value is not None and not isinstance(value, str):
        message["value"] = json.dumps(value, ensure_ascii=False)
    headers = message.get("headers")
    if isinstance(headers, dict):
        message["headers"] = [{"key": name, "value": content} for name, content in headers.items()]
    for name in ("key", "value"):
        if message.get(f"{name}_encoding") == "base64" and not _is_base64(message.get(name)):
            raise BadInput(f"the {name} is not base64", where=where, hint=f"leave {name}_encoding out for text")
    return message


def as_json(record: Mapping[str, Any], topic: str, partition: int) -> str:
    value = record["value"]
    shown = {"value": None} if value is None else _text_or_base64("value", base64.b64decode(value))
    rest = {name: content for name, content in record.items() if name != "value"}
    return json.dumps({"topic": topic, "partition": partition, **rest, **shown}, ensure_ascii=False)


def as_line(record: Mapping[str, Any], separator: bytes | None) -> bytes:
    value = b"" if record["value"] is None else base64.b64decode(record["value"])
    if separator is None:
        return value
    key = record.get("key")
    if key is None:
        return separator + value
    raw = base64.b64decode(key) if record.get("key_encoding") == "base64" else key.encode()
    return bytes(raw) + separator + value


def separator(text: str) -> bytes:
    """Returns the separator given on the command line, where the text \\t stands for a tab."""
    return text.replace("\\t", "\t").encode()


def _is_base64(text: Any) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError):
        return False
    return True


def _text_or_base64(name: str, data: bytes) -> Message:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name: base64.b64encode(data).decode(), f"{name}_encoding": "base64"}

"""Many messages in one JSON document, as records.

A parser of JSON keeps the interpreter to itself until it is done, which for the longest document is seconds. So a
document is cut between its messages by a kernel that releases the interpreter, and parsed piece by piece. What a piece
became is records before the next one is parsed: as checked objects they would take ten times the room.

A piece is parsed by msgspec, ten times as fast as by pydantic (16 MB in 0.1 s). What msgspec does not take, pydantic
decides, which also has the words for what is wrong; so msgspec may take less than `schemas.NewMessage`, and never more.
"""

import re
from base64 import b64decode
from collections.abc import Iterator, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec
import numpy as np
from pydantic import TypeAdapter, ValidationError

from gateway.http.json_kernels import TOO_MANY_ELEMENTS, TOO_MANY_VALUES, cut_array
from gateway.http.operation import document_problem, read_document
from gateway.http.parameters import INT32_MAX, INT64_MAX
from gateway.http.problems import BAD_DOCUMENT, BAD_JSON, Problem
from gateway.http.schemas import MAX_HEADERS, MAX_MESSAGES, Encoding, NewHeader, NewMessage, NewMessages
from hot_tier.record.records import NewRecord

PIECE_BYTES: Final = 256 * 1024
PIECE_VALUES: Final = 4_000
"""A piece takes up to a millisecond, and ten if it is wrong."""
MESSAGE_VALUES: Final = 4 * MAX_HEADERS + 20
"""More than a message that is right has."""
WHOLE_BYTES: Final = 4 * 1024
"""So short a document is parsed as a whole."""
MESSAGE_COST_BYTES: Final = 600
"""Of a message, beside its contents: its record, its place, its result."""
VALUE_COST_BYTES: Final = 60
"""Of a value, a header's name say, as an object."""

_OPENING: Final = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"messages"[ \t\r\n]*:[ \t\r\n]*\[')
_CLOSING: Final = re.compile(rb"\][ \t\r\n]*\}[ \t\r\n]*")
_CHECKED: Final = TypeAdapter(list[NewMessage])


class _Header(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    key: Annotated[str, msgspec.Meta(max_length=1024)]
    value: str | None = None
    value_encoding: Encoding = "text"


class _Message(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """As `schemas.NewMessage`."""

    key: str | None = None
    key_encoding: Encoding = "text"
    value: str | None = None
    value_encoding: Encoding = "text"
    headers: Annotated[list[_Header], msgspec.Meta(max_length=MAX_HEADERS)] = []
    partition: Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)] | None = None
    timestamp: Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)] | None = None


_QUICK: Final = msgspec.json.Decoder(list[_Message])


class Messages(NamedTuple):
    records: list[NewRecord]
    partitions: list[int | None]
    """As the messages say."""


def let_go(records: list[NewRecord]) -> None:
    """One by one: to clear a list of 600,000 headers keeps the interpreter from all others until it is done."""
    while records:
        records.pop()


class _Piece(NamedTuple):
    start: int
    end: int
    messages: int
    values: int


class Batch:
    """A document of messages, cut but not yet parsed."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._pieces: list[_Piece] = [] if len(raw) <= WHOLE_BYTES else _cut(raw)
        """None: the document is parsed as a whole."""
        self._values = sum(piece.values for piece in self._pieces)

    @property
    def cost_bytes(self) -> int:
        """About what its records and their results take."""
        messages = sum(piece.messages for piece in self._pieces)
        return len(self._raw) + self._values * VALUE_COST_BYTES + messages * MESSAGE_COST_BYTES

    @property
    def weight(self) -> int:
        """As many plain records it is as much work as: a value is one, and so is a kilobyte."""
        return self._values + len(self._raw) // 1024

    def read(self, now_ms: int) -> Messages:
        records: list[NewRecord] = []
        partitions: list[int | None] = []
        try:
            for messages in self._parse():
                for message in messages:
                    records.append(_record(message, len(records), now_ms))
                    partitions.append(message.partition)
        except Problem:
            # The traceback would keep them, and whoever lets go of it, the loop, would free them one by one.
            let_go(records)
            raise
        return Messages(records, partitions)

    def _parse(self) -> Iterator[Sequence[_Message | NewMessage]]:
        if not self._pieces:
            document = read_document(NewMessages, self._raw)
            assert isinstance(document, NewMessages)
            yield document.messages
        raw = memoryview(self._raw)
        first = 0
        for start, end, count, _ in self._pieces:
            messages = _parse_piece(b"".join((b"[", raw[start:end], b"]")), first)
            if len(messages) != count:
                raise _refused(f"/messages/{first + len(messages)}", "there is no message here")
            yield messages
            first += count


def _parse_piece(piece: bytes, first: int) -> Sequence[_Message | NewMessage]:
    try:
        return _QUICK.decode(piece)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return _CHECKED.validate_json(piece)
    except ValidationError as error:
        raise document_problem(error, first) from None


def _cut(raw: bytes) -> list[_Piece]:
    opening = _OPENING.match(raw)
    if opening is None:
        raise _odd()
    rows = np.empty((len(raw) // PIECE_BYTES + len(raw) // PIECE_VALUES + 2, 4), np.int64)
    data = np.frombuffer(raw, np.uint8)
    count, at = cut_array(data, opening.end(), MAX_MESSAGES, MESSAGE_VALUES, PIECE_BYTES, PIECE_VALUES, rows)
    if count == TOO_MANY_ELEMENTS:
        raise _refused("/messages", f"List should have at most {MAX_MESSAGES} items")
    if count == TOO_MANY_VALUES:
        raise _refused(f"/messages/{at}", f"the message has more than {MAX_HEADERS} headers, or unknown members")
    if count < 0:
        raise Problem(BAD_JSON, f"the document ends in message {at}")
    if _CLOSING.fullmatch(raw, at) is None:
        raise _odd()
    return [_Piece(*row) for row in rows[:count].tolist()]


def _odd() -> Problem:
    return Problem(BAD_DOCUMENT, 'a long document must have the form {"messages": [...]} and no other members')


def _refused(pointer: str, detail: str) -> Problem:
    return Problem(BAD_DOCUMENT, f"{pointer}: {detail}", extra={"errors": [{"pointer": pointer, "detail": detail}]})


def _record(message: _Message | NewMessage, index: int, now_ms: int) -> NewRecord:
    key, value, headers = message.key, message.value, message.headers
    try:
        return NewRecord(
            now_ms if message.timestamp is None else message.timestamp,
            None if key is None else key.encode() if message.key_encoding == "text" else _base64(key),
            None if value is None else value.encode() if message.value_encoding == "text" else _base64(value),
            tuple((header.key, _header_value(header)) for header in headers) if headers else (),
        )
    except ValueError:
        place = f"/messages/{index}"
        raise Problem(
            BAD_DOCUMENT,
            f"{place}: what is announced as base64 is not",
            hint="Send standard base64 with padding, or leave the encoding out to send text.",
            extra={"errors": [{"pointer": place, "detail": "not base64"}]},
        ) from None


def _base64(text: str) -> bytes:
    return b64decode(text, validate=True)


def _header_value(header: _Header | NewHeader) -> bytes | None:
    if header.value is None:
        return None
    return header.value.encode() if header.value_encoding == "text" else _base64(header.value)

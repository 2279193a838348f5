"""Turns many messages in one JSON document into records.

A JSON parser holds the interpreter until it is done; for the longest document that takes seconds. So a compiled
function, which releases the interpreter, cuts the document between its messages, and each piece is parsed on its own.
The messages of a piece become records before the next piece is parsed: as checked objects they would take ten times the
memory.

msgspec parses a piece, ten times as fast as pydantic (16 MB in 0.1 s). If msgspec refuses the piece, pydantic decides
and has the words for what is wrong. So msgspec may accept less than `schemas.NewMessage`, but never more.
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
"""A piece takes up to 1 ms to parse, and 10 ms if it is wrong."""
MESSAGE_VALUES: Final = 4 * MAX_HEADERS + 20
"""More values than a correct message has."""
WHOLE_BYTES: Final = 4 * 1024
"""A document up to this size is parsed as a whole."""
MESSAGE_COST_BYTES: Final = 600
"""The memory of a message besides its contents: its record, its place, its result."""
VALUE_COST_BYTES: Final = 60
"""The memory of one value as an object, for example of a header's name."""

_OPENING: Final = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"messages"[ \t\r\n]*:[ \t\r\n]*\[')
_CLOSING: Final = re.compile(rb"\][ \t\r\n]*\}[ \t\r\n]*")
_CHECKED: Final = TypeAdapter(list[NewMessage])


class _Header(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    key: Annotated[str, msgspec.Meta(max_length=1024)]
    value: str | None = None
    value_encoding: Encoding = "text"


class _Message(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The same message as `schemas.NewMessage`."""

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
    """The partitions that the messages name."""


def let_go(records: list[NewRecord]) -> None:
    """Frees records one by one. To clear a list of 600,000 headers at once would hold the interpreter for too long."""
    while records:
        records.pop()


class _Piece(NamedTuple):
    start: int
    end: int
    messages: int
    values: int


class Batch:
    """A document of messages that is cut but not yet parsed."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._pieces: list[_Piece] = [] if len(raw) <= WHOLE_BYTES else _cut(raw)
        """Empty if the document is parsed as a whole."""
        self._values = sum(piece.values for piece in self._pieces)

    @property
    def messages(self) -> int:
        """Returns how many messages there are; of a short document, at least so many."""
        return sum(piece.messages for piece in self._pieces) or self._raw.count(b"{")

    @property
    def cost_bytes(self) -> int:
        """About the memory that its records and their results take."""
        messages = sum(piece.messages for piece in self._pieces)
        return len(self._raw) + self._values * VALUE_COST_BYTES + messages * MESSAGE_COST_BYTES

    @property
    def weight(self) -> int:
        """The work it takes, in plain records: a value counts as one, and so does a kilobyte."""
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
            # Otherwise the traceback keeps the records alive, and the loop frees them one by one when it drops it.
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
                raise _refused(f"/messages/{first + len(messages)}", "a message is missing here")
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
        raise Problem(BAD_JSON, f"the document ends inside message {at}")
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
            f"{place}: a member marked as base64 is not base64",
            hint="Send standard base64 with padding, or leave the encoding out to send text.",
            extra={"errors": [{"pointer": place, "detail": "not base64"}]},
        ) from None


def _base64(text: str) -> bytes:
    return b64decode(text, validate=True)


def _header_value(header: _Header | NewHeader) -> bytes | None:
    if header.value is None:
        return None
    return header.value.encode() if header.value_encoding == "text" else _base64(header.value)

"""A long document of messages is read in pieces, and exactly as it would be read whole."""

import gc
import json
import time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http import message_batch
from gateway.http.json_kernels import cut_array
from gateway.http.message_batch import Batch
from gateway.http.operation import read_document
from gateway.http.problems import Problem
from gateway.http.schemas import MAX_HEADERS, MAX_MESSAGES, NewMessages
from hot_tier.record.records import NewRecord

NOW = 1_700_000_000_000
LONG = 16 * 1024 * 1024


Placed = tuple[NewRecord, int | None]


def read(raw: bytes) -> list[Placed]:
    return list(zip(*Batch(raw).read(NOW), strict=True))


def read_or_kind(raw: bytes) -> list[Placed] | str:
    try:
        return read(raw)
    except Problem as problem:
        return problem.kind.name


def whole(raw: bytes) -> list[Placed] | str:
    try:
        document = read_document(NewMessages, raw)
        assert isinstance(document, NewMessages)
        messages = enumerate(document.messages)
        return [(message_batch._record(each, index, NOW), each.partition) for index, each in messages]
    except Problem as problem:
        return problem.kind.name


@pytest.fixture
def tiny_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_batch, "WHOLE_BYTES", 0)
    monkeypatch.setattr(message_batch, "PIECE_BYTES", 40)
    monkeypatch.setattr(message_batch, "PIECE_VALUES", 3)


TEXT = st.text(alphabet='[]{},:"\\ \n\téx0', max_size=8)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "key": st.none() | TEXT,
        "value": st.none() | TEXT,
        "partition": st.sampled_from([-1, 0, 3, 2**31 - 1, 2**31, 1.0, 1.5, True, "1", None]),
        "timestamp": st.sampled_from([-1, 0, 3, 2**63 - 1, 2**63, 10**30, 1e3, None]),
        "key_encoding": st.sampled_from(["text", "base64", "hex", None]),
        "headers": st.lists(st.fixed_dictionaries({"key": TEXT | st.none(), "value": TEXT}), max_size=4),
        "other": TEXT,
    },
)


@pytest.mark.usefixtures("tiny_pieces")
@given(st.lists(MESSAGE, max_size=30), st.sampled_from([None, 1]))
def test_pieces_are_read_as_the_whole_is(messages: list[dict[str, object]], indent: int | None) -> None:
    raw = json.dumps({"messages": messages}, indent=indent).encode()
    assert read_or_kind(raw) == whole(raw)


@pytest.mark.usefixtures("tiny_pieces")
@given(st.lists(MESSAGE, min_size=5, max_size=12), st.data())
def test_a_document_with_a_byte_changed_is_read_as_the_whole_is_or_refused(
    messages: list[dict[str, object]], data: st.DataObject
) -> None:
    raw = bytearray(json.dumps({"messages": messages}).encode())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at : at + 1] = data.draw(st.sampled_from([b"", b",", b"[", b"]", b"{", b"}", b'"', b"\\", b" ", b"\xff"]))
    found, right = read_or_kind(bytes(raw)), whole(bytes(raw))
    assert found == right or (isinstance(found, str) and isinstance(right, str))


@pytest.mark.parametrize(
    ("raw", "kind", "words"),
    [
        (b'{"messages":[%b{}]}' % (b"{}," * MAX_MESSAGES), "bad-document", "at most 100000"),
        (b'{"messages":[%b]}' % (b" " * 9000), "bad-document", "/messages/0: a message is missing here"),
        (b'{"messages":[%b]}' % (b"{}," * 9000), "bad-json", "trailing comma"),
        (b'{"messages":[%b' % (b"{}," * 9000), "bad-json", "ends inside message 9000"),
        (b'{"messages":[%b{"value":5}]}' % (b"{}," * 9000), "bad-document", "/messages/9000/value"),
        (b'{"messages":[{"headers":[%b1]}]}' % (b"{}," * 9000), "bad-document", "/messages/0: the message has more"),
        (b'{"messages":[{"value":"%b"}],"more":1}' % (b"x" * 9000), "bad-document", "no other members"),
        (b'{"other":[{"value":"%b"}]}' % (b"x" * 9000), "bad-document", "no other members"),
        (b'{"messages":[{"x":%b%b}]}' % (b"[" * 4000, b"]" * 4000), "bad-json", "recursion"),
        (b"x" * LONG, "bad-document", "must have the form"),
    ],
)
def test_what_is_wrong_with_a_long_document_is_said(raw: bytes, kind: str, words: str) -> None:
    with pytest.raises(Problem) as refused:
        read(raw)
    assert refused.value.kind.name == kind
    assert words in str(refused.value)


def test_the_longest_message_that_is_right_is_taken() -> None:
    header = {"key": "k", "value": "AAAA", "value_encoding": "base64"}
    message = {"key": "a,b]", "value": "{[", "partition": 1, "timestamp": 5, "headers": [header] * MAX_HEADERS}
    placed = read(orjson.dumps({"messages": [message] * 3}))
    assert len(placed) == 3 and len(placed[2][0].headers) == MAX_HEADERS
    assert placed[0][0].key == b"a,b]"


@pytest.mark.parametrize(
    "message",
    [
        b"{}",
        b'{"value":"%b"}' % (b"x" * 140),
        b'{"value":"x","headers":[%b]}' % b",".join([b'{"key":"a","value":"b"}'] * 5),
        b'{"headers":[%b]}' % b",".join([b'{"key":""}'] * MAX_HEADERS),
        b'{"partition":1.0}',
        b'{"value":"%b"}' % (b"\\n" * 100_000),
    ],
)
def test_no_piece_of_the_longest_document_takes_long(message: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter is held for one piece at a time; CPU time, as the machine may be busy."""
    count = min(MAX_MESSAGES, LONG // (len(message) + 1))
    took = []

    def timed(piece: bytes, first: int) -> object:
        began = time.thread_time()
        try:
            return parse(piece, first)
        finally:
            took.append(time.thread_time() - began)

    parse = message_batch._parse_piece
    monkeypatch.setattr(message_batch, "_parse_piece", timed)
    gc.disable()  # A broker puts its collections off while it works on large requests.
    try:
        assert len(read(b'{"messages":[' + b",".join([message] * count) + b"]}")) == count
    finally:
        gc.enable()
    assert len(took) > 20
    assert sorted(took)[-2] < sum(took) / 5, "one of them may have met something else"
    assert cut_array.targetoptions["nogil"]

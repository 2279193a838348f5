"""Records as text: what is read, what is written, and that the two meet."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.cli.records import BadInput, as_json, as_line, read_json, read_lines, separator


def from_server(message: dict[str, object], offset: int = 0) -> dict[str, object]:
    """A produced message as the API shows it again."""
    value = message["value"]
    if value is not None and message.get("value_encoding") != "base64":
        value = base64.b64encode(str(value).encode()).decode()
    kept = {name: message[name] for name in ("key", "key_encoding", "timestamp", "headers") if name in message}
    return {"offset": offset, "key": None, **kept, "value": value}


def test_lines() -> None:
    lines = [b"one\n", b"two\r\n", b"\n", b"last"]
    assert [message["value"] for message in read_lines(lines, "f", None)] == ["one", "two", "", "last"]


def test_keys_end_at_the_first_separator() -> None:
    assert list(read_lines([b"k:v:w\n"], "f", b":")) == [{"key": "k", "value": "v:w"}]
    assert separator(r"\t") == b"\t"


def test_a_line_without_its_key_names_file_and_line() -> None:
    with pytest.raises(BadInput, match=r"f:2: no key separator ':'"):
        list(read_lines([b"a:b\n", b"c\n"], "f", b":"))


def test_bytes_that_are_no_text_travel_as_base64() -> None:
    (message,) = read_lines([b"\xff\xfe\n"], "f", None)
    assert message == {"value": base64.b64encode(b"\xff\xfe").decode(), "value_encoding": "base64"}


def test_json_records() -> None:
    line = b'{"key": "k", "value": {"a": 1}, "headers": {"h": "x"}, "partition": 2, "offset": 9, "topic": "t"}\n'
    (message,) = read_json([line, b"\n"], "f")
    assert message == {
        "key": "k",
        "value": '{"a": 1}',
        "headers": [{"key": "h", "value": "x"}],
        "partition": 2,
    }


def test_a_tombstone() -> None:
    assert list(read_json([b'{"key": "k", "value": null}'], "f")) == [{"key": "k"}]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"{", "f:1: not JSON"),
        (b"[]", "f:1: not a record"),
        (b'{"key": "k"}', "f:1: not a record"),
        (b'{"value": "%%%", "value_encoding": "base64"}', "f:1: the value is not base64"),
        (b'{"value": "", "key": 1, "key_encoding": "base64"}', "f:1: the key is not base64"),
    ],
)
def test_a_line_that_is_no_record(line: bytes, what: str) -> None:
    with pytest.raises(BadInput, match=what):
        list(read_json([line], "f"))


@given(value=st.binary(max_size=50).filter(lambda data: b"\n" not in data and not data.endswith(b"\r")))
def test_a_line_comes_back_as_it_was(value: bytes) -> None:
    (message,) = read_lines([value + b"\n"], "f", None)
    assert as_line(from_server(message), None) == value


@given(key=st.none() | st.binary(max_size=20), value=st.none() | st.binary(max_size=50))
def test_what_consume_writes_produce_reads(key: bytes | None, value: bytes | None) -> None:
    record: dict[str, object] = {"offset": 3, "timestamp": 5, "headers": []}
    record["key"] = None
    if key is not None:
        try:
            record["key"] = key.decode()
        except UnicodeDecodeError:
            record |= {"key": base64.b64encode(key).decode(), "key_encoding": "base64"}
    record["value"] = None if value is None else base64.b64encode(value).decode()
    written = as_json(record, "t", 1)
    assert json.loads(written)["partition"] == 1
    (message,) = read_json([written.encode()], "f")
    again = from_server({"value": None, **message}, 3)
    assert {**again, "headers": []} == {**record}

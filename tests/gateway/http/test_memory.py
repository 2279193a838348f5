"""Long documents of small messages take about as much memory as they are long. orjson writes each into 4 KB."""

import tracemalloc
from collections.abc import Callable
from typing import TypeVar

import orjson

from gateway.http.peers.batch_forwarding import _requests
from gateway.http.routes.reading import Found, _render
from hot_tier.record.records import NewRecord, Record

COUNT = 5_000
T = TypeVar("T")


def measured(make: Callable[[], T]) -> tuple[T, int]:
    tracemalloc.start()
    try:
        return make(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_an_answer() -> None:
    records = [Record(number, 0, 0, None, b"x", ()) for number in range(COUNT)]
    answer, most = measured(lambda: _render(Found(records, COUNT, 0, True), as_text=True))
    shown = orjson.loads(answer)
    assert [each["offset"] for each in shown["messages"]] == list(range(COUNT))
    assert shown["next_offset"] == COUNT
    assert most < 4 * len(answer)
    assert _render(Found([], 7, 0, True), as_text=True) == b'{"messages":[],"next_offset":7}'


def test_messages_that_are_passed_on() -> None:
    chosen = [(number, number % 3, NewRecord(-1, None, b"%d" % number)) for number in range(COUNT)]
    requests, most = measured(lambda: _requests(chosen, 10_000))
    assert [index for indexes, _ in requests for index in indexes] == list(range(COUNT))
    assert all(len(orjson.loads(body)["messages"]) == len(indexes) for indexes, body in requests)
    assert max(len(body) for _, body in requests) <= 10_000
    assert most < 4 * sum(len(body) for _, body in requests)

"""Consuming: where reads begin and end, long polling, and the three shapes of an answer."""

import asyncio
import threading
import time
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pyarrow as pa
import pytest

from gateway import record_stream
from gateway.fetch.reader import Isolation
from gateway.http.problems import Problem
from gateway.http.routes.reading import choose_media
from hot_tier.errors import CorruptLog
from hot_tier.log.partition_log import PartitionLog
from hot_tier.record.batch import iter_headers, read_header
from hot_tier.record.compression import Codec
from hot_tier.record.records import NewRecord, decode_records, encode_records
from tests.gateway.http.conftest import Serve, Served
from tests.support.waiting import until

READ = "/api/v1/topics/orders/partitions/0/messages"
BATCH = "/api/v1/topics/orders/messages/batch"
NDJSON = {"Accept": "application/x-ndjson"}
ARROW = {"Accept": "application/vnd.apache.arrow.stream"}


def values(answer: Any) -> list[bytes]:
    return [b64decode(message["value"]) for message in answer["messages"]]


async def test_an_empty_partition(served: Served) -> None:
    await served.make_topic("orders")
    assert await served.messages("orders") == {"messages": [], "next_offset": 0}


async def test_reading_on_page_by_page(served: Served) -> None:
    await served.make_topic("orders")
    await served.post(BATCH, json={"messages": [{"value": f"{number}"} for number in range(7)]})
    first = await served.messages("orders", offset=0, limit=3)
    assert (values(first), first["next_offset"]) == ([b"0", b"1", b"2"], 3)
    second = await served.messages("orders", offset=3, limit=3)
    assert (values(second), second["next_offset"]) == ([b"3", b"4", b"5"], 6)
    third = await served.messages("orders", offset=6, limit=3)
    assert (values(third), third["next_offset"]) == ([b"6"], 7)
    assert await served.messages("orders", offset=7, limit=3) == {"messages": [], "next_offset": 7}


async def test_the_words_for_both_ends(served: Served) -> None:
    await served.make_topic("orders")
    await served.produce("orders", b"a", b"b")
    assert values(await served.messages("orders", offset="earliest")) == [b"a", b"b"]
    assert await served.messages("orders", offset="latest") == {"messages": [], "next_offset": 2}
    assert values(await served.messages("orders")) == [b"a", b"b"]


async def test_a_hundred_messages_unless_asked_for_more(served: Served) -> None:
    await served.make_topic("orders")
    await served.post(BATCH, json={"messages": [{"value": "x"} for _ in range(250)]})
    assert len((await served.messages("orders"))["messages"]) == 100
    assert len((await served.messages("orders", limit=1000))["messages"]) == 250


async def test_no_more_than_max_bytes_but_one_batch_always(served: Served) -> None:
    await served.make_topic("orders")
    await served.produce("orders", *[bytes([number]) * 1000 for number in range(10)])
    assert len((await served.messages("orders", max_bytes=1))["messages"]) == 1
    some = await served.messages("orders", max_bytes=3500)
    assert len(some["messages"]) == 3
    assert some["next_offset"] == 3


@pytest.mark.parametrize(
    ("query", "status", "problem"),
    [
        ("offset=-1", 400, "bad-parameter"),
        ("offset=first", 400, "bad-parameter"),
        ("offset=9223372036854775808", 400, "bad-parameter"),
        ("offset=4", 409, "offset-out-of-range"),
        ("offset=9223372036854775807", 409, "offset-out-of-range"),
        ("limit=0", 400, "bad-parameter"),
        ("limit=many", 400, "bad-parameter"),
        ("max_bytes=0", 400, "bad-parameter"),
        ("wait_ms=-5", 400, "bad-parameter"),
        ("from=yesterday", 400, "bad-parameter"),
        ("to=2025-02-30", 400, "bad-parameter"),
        ("ofset=1", 400, "bad-parameter"),
        ("offset=1&offset=2", 400, "bad-parameter"),
    ],
)
async def test_bad_queries(served: Served, query: str, status: int, problem: str) -> None:
    await served.make_topic("orders")
    await served.produce("orders", b"a", b"b", b"c")
    reply = await served.get(f"{READ}?{query}")
    assert (reply.status, reply.problem) == (status, problem)


async def test_out_of_range_says_what_is_in_range(served: Served) -> None:
    await served.make_topic("orders")
    await served.produce("orders", b"a", b"b", b"c")
    served.node.partitions.get("orders", 0).delete_records_before(2)
    for offset in (0, 1, 4):
        problem = (await served.get(f"{READ}?offset={offset}")).json
        assert (problem["earliest_offset"], problem["latest_offset"]) == (2, 3)
    assert (await served.messages("orders", offset=2))["next_offset"] == 3
    assert values(await served.messages("orders", offset="earliest")) == [b"c"]


@pytest.mark.parametrize(
    ("path", "status", "problem"),
    [
        ("/api/v1/topics/nowhere/partitions/0/messages", 404, "unknown-topic"),
        ("/api/v1/topics/orders/partitions/1/messages", 404, "unknown-partition"),
        ("/api/v1/topics/orders/partitions/-1/messages", 400, "bad-parameter"),
        ("/api/v1/topics/orders/partitions/99999999999/messages", 400, "bad-parameter"),
        ("/api/v1/topics/orders/partitions/x/messages", 400, "bad-parameter"),
        ("/api/v1/topics/or%20ders/partitions/0/messages", 400, "bad-parameter"),
    ],
)
async def test_bad_places(served: Served, path: str, status: int, problem: str) -> None:
    await served.make_topic("orders")
    reply = await served.get(path)
    assert (reply.status, reply.problem) == (status, problem)


async def test_from_and_to_by_time(served: Served) -> None:
    await served.make_topic("orders")
    hour = 3_600_000
    start = 1748779200000
    messages = [{"value": f"{number}", "timestamp": start + number * hour} for number in range(6)]
    await served.post(BATCH, json={"messages": messages[:3]})
    await served.post(BATCH, json={"messages": messages[3:]})
    assert values(await served.messages("orders", from_=start + 2 * hour)) == [b"2", b"3", b"4", b"5"]
    assert values(await served.messages("orders", from_=start + 2 * hour - 1, limit=1)) == [b"2"]
    iso = await served.messages("orders", from_="2025-06-01T13:00:00Z", to="2025-06-01T17:00:00+02:00")
    assert (values(iso), iso["next_offset"]) == ([b"1", b"2"], 3)
    assert await served.messages("orders", from_=start + 99 * hour) == {"messages": [], "next_offset": 6}
    assert values(await served.messages("orders", to=start + 2 * hour)) == [b"0", b"1"]
    assert values(await served.messages("orders", to=start)) == []
    later = await served.messages("orders", offset=4, from_=start + hour, to=start + 99 * hour)
    assert values(later) == [b"4", b"5"]


async def test_paging_to_a_time_ends(served: Served) -> None:
    await served.make_topic("orders")
    await served.post(BATCH, json={"messages": [{"value": f"{n}", "timestamp": 1000 + n} for n in range(10)]})
    seen: list[bytes] = []
    query: dict[str, Any] = {"from_": 1002}
    while True:
        page = await served.messages("orders", to=1007, limit=2, wait_ms=30_000, **query)
        if not page["messages"]:
            break
        seen += values(page)
        query = {"offset": page["next_offset"]}
    assert seen == [b"2", b"3", b"4", b"5", b"6"]


async def test_a_long_poll_ends_when_a_message_arrives(served: Served) -> None:
    await served.make_topic("orders")
    polls = [asyncio.create_task(served.messages("orders", offset="latest", wait_ms=20_000)) for _ in range(3)]
    await until(lambda: served.api.metrics.long_polls == 3)
    await served.produce("orders", b"news")
    async with asyncio.timeout(5):
        assert [values(await poll) for poll in polls] == [[b"news"]] * 3
    assert served.api.metrics.long_polls == 0


async def test_a_long_poll_ends_when_its_time_is_over(served: Served) -> None:
    await served.make_topic("orders")
    began = time.monotonic()
    assert await served.messages("orders", wait_ms=150) == {"messages": [], "next_offset": 0}
    assert time.monotonic() - began >= 0.149


async def test_a_long_poll_ends_when_its_topic_does(served: Served) -> None:
    await served.make_topic("orders")
    poll = asyncio.create_task(served.get(f"{READ}?wait_ms=20000"))
    await until(lambda: served.api.metrics.long_polls == 1)
    assert (await served.call("DELETE", "/api/v1/topics/orders")).status == 204
    async with asyncio.timeout(5):
        reply = await poll
    assert (reply.status, reply.problem) == (404, "unknown-topic")


async def test_a_long_poll_ends_when_its_client_does(serve: Serve) -> None:
    served = await serve(max_wait_ms=60_000)
    await served.make_topic("orders")
    poll = asyncio.create_task(served.messages("orders", wait_ms=50_000))
    await until(lambda: served.api.metrics.long_polls == 1)
    poll.cancel()
    await until(lambda: served.api.metrics.long_polls == 0)
    await until(lambda: served.http.connections == 0)


async def test_lines_of_json(served: Served) -> None:
    await served.make_topic("orders")
    await served.post(BATCH, json={"messages": [{"key": "k", "value": f"{n}"} for n in range(3000)]})
    reply = await served.get(READ, headers=NDJSON)
    assert reply.headers["Content-Type"] == "application/x-ndjson"
    lines = [orjson.loads(line) for line in reply.body.splitlines()]
    assert [line["offset"] for line in lines] == list(range(3000))
    plain = await served.messages("orders", limit=3000)
    assert lines == plain["messages"]
    some = await served.get(f"{READ}?offset=10&limit=5", headers=NDJSON)
    assert [orjson.loads(line)["offset"] for line in some.body.splitlines()] == [10, 11, 12, 13, 14]
    assert (await served.get(f"{READ}?offset=latest", headers=NDJSON)).body == b""


async def test_values_alone_as_text(served: Served) -> None:
    await served.make_topic("orders")
    sent = [{"value": "é"}, {"value": None}, {"value": "/w==", "value_encoding": "base64"}, {"key": "k", "value": "4"}]
    await served.post(BATCH, json={"messages": sent})
    reply = await served.get(READ, headers={"Accept": "text/plain"})
    assert reply.headers["Content-Type"] == "text/plain"
    assert reply.body == "é".encode() + b"\n\n\xff\n4\n"
    some = await served.get(f"{READ}?offset=3&limit=1", headers={"Accept": "text/plain"})
    assert some.body == b"4\n"


async def test_an_arrow_stream(served: Served) -> None:
    await served.make_topic("orders")
    sent = [
        {"key": "k", "value": "v", "timestamp": 1748779200123, "headers": [{"key": "h", "value": "1"}, {"key": "h"}]},
        {"value": None, "timestamp": 1748779200124},
        {"key": "/w==", "key_encoding": "base64", "value": "", "timestamp": 1748779200125},
    ]
    await served.post(BATCH, json={"messages": sent})
    await served.post(BATCH, json={"messages": [{"value": f"{n}"} for n in range(2000)]})
    reply = await served.get(READ, headers=ARROW)
    assert reply.headers["Content-Type"] == "application/vnd.apache.arrow.stream"
    table = pa.ipc.open_stream(reply.body).read_all()
    assert table.schema.names == ["offset", "timestamp", "timestampType", "key", "value", "headers", "leaderEpoch"]
    assert table.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    assert table["offset"].to_pylist() == list(range(2003))
    assert table["key"].to_pylist()[:3] == [b"k", None, b"\xff"]
    assert table["value"].to_pylist()[:4] == [b"v", None, b"", b"0"]
    assert table["headers"].to_pylist()[:2] == [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None]
    assert table["timestamp"].cast(pa.int64()).to_pylist()[:3] == [
        1748779200123000,
        1748779200124000,
        1748779200125000,
    ]
    some = pa.ipc.open_stream((await served.get(f"{READ}?offset=2&limit=3", headers=ARROW)).body).read_all()
    assert some["offset"].to_pylist() == [2, 3, 4]
    none = pa.ipc.open_stream((await served.get(f"{READ}?offset=latest", headers=ARROW)).body).read_all()
    assert none.num_rows == 0


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("text/html, application/xhtml+xml, */*;q=0.8", "application/json"),
        ("application/x-ndjson", "application/x-ndjson"),
        ("Application/X-NDJSON; charset=utf-8", "application/x-ndjson"),
        ("text/plain", "text/plain"),
        ("application/json;q=0.5, application/vnd.apache.arrow.stream", "application/vnd.apache.arrow.stream"),
        ("application/json;q=x, application/x-ndjson;q=0.1", "application/x-ndjson"),
    ],
)
def test_the_media_type_is_negotiated(accept: str, chosen: str) -> None:
    assert choose_media(accept) == chosen


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", ",", "application/"])
def test_no_such_media_type(accept: str) -> None:
    with pytest.raises(Problem) as refused:
        choose_media(accept)
    assert refused.value.kind.status == 406


async def test_not_acceptable_is_said_over_http(served: Served) -> None:
    await served.make_topic("orders")
    reply = await served.get(READ, headers={"Accept": "text/html"})
    assert (reply.status, reply.problem) == (406, "not-acceptable")


async def test_keys_and_headers_are_text_if_they_can_be(served: Served) -> None:
    await served.make_topic("orders")
    raw = b64encode(b"\xff\x00").decode()
    sent = {
        "key": raw,
        "key_encoding": "base64",
        "value": "v",
        "headers": [
            {"key": "ü", "value": "text"},
            {"key": "", "value": raw, "value_encoding": "base64"},
            {"key": "n", "value": None},
        ],
    }
    await served.post(BATCH, json={"messages": [sent]})
    (message,) = (await served.messages("orders"))["messages"]
    assert list(message) == ["offset", "key", "key_encoding", "value", "timestamp", "headers"]
    assert (message["key"], message["key_encoding"]) == (raw, "base64")
    assert message["headers"] == [
        {"key": "ü", "value": "text"},
        {"key": "", "value": raw, "value_encoding": "base64"},
        {"key": "n", "value": None},
    ]


async def damage_last_batch(served: Served, topic: str) -> int:
    """Flips a byte in the last record; the offset where the damage begins."""
    log = served.node.partitions.get(topic, 0).log
    path = Path(log.directory) / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[-2] ^= 0xFF
    path.write_bytes(content)
    return log.log_end_offset - 1


async def test_damage_is_told_and_never_skipped(served: Served) -> None:
    await served.make_topic("orders")
    await served.produce("orders", b"a", b"b", b"bad")
    damaged = await damage_last_batch(served, "orders")
    before = await served.messages("orders")
    assert (values(before), before["next_offset"]) == ([b"a", b"b"], damaged)
    for headers in ({}, NDJSON, ARROW):
        reply = await served.get(f"{READ}?offset={damaged}", headers=headers)
        assert (reply.status, reply.problem) == (500, "corrupt-log")
    # The log knows it then: Kafka's readers are told too, and in a cluster it is mended.
    partition = served.node.partitions.get("orders", 0)
    assert "CRC" in partition.log.known_damage()[0]
    with pytest.raises(CorruptLog):
        await served.node.reader.read(partition, damaged, 100, Isolation.READ_COMMITTED)


async def test_every_wrong_offset_length_and_epoch_is_told(served: Served) -> None:
    """No CRC covers these bits of a batch."""
    await served.make_topic("orders")
    for value in (b"a", b"b", b"c"):
        await served.produce("orders", value)
    log = served.node.partitions.get("orders", 0).log
    path = Path(log.segments()[0].path)
    content = path.read_bytes()
    second = [position for position, _ in iter_headers(content)][1]
    for bit in range(128):
        changed = bytearray(content)
        changed[second + bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        reply = await served.get(f"{READ}?offset=1")
        assert (reply.status, reply.problem) == (500, "corrupt-log"), bit
        before = await served.messages("orders")
        assert (values(before), before["next_offset"]) == ([b"a"], 1)
        if bit == 0:
            [warning] = (await served.get("/readyz")).json["warnings"]
            assert str(path) in warning
            metrics = (await served.get("/metrics")).body.decode()
            assert "tierlog_log_damaged_segments 1.0" in metrics
        path.write_bytes(content)
        _forget_damage(log)
    assert values(await served.messages("orders")) == [b"a", b"b", b"c"]


def _forget_damage(log: PartitionLog) -> None:
    """As if the whole file had lain there for a second."""
    segment = log._segments[0]
    segment.damage._seen = (0.0, ())
    segment.look_again()


@pytest.mark.parametrize("headers", [NDJSON, ARROW])
async def test_a_stream_that_meets_damage_is_cut_off(served: Served, headers: dict[str, str]) -> None:
    await served.make_topic("orders")
    await served.produce("orders", b"a", b"b", b"bad")
    await damage_last_batch(served, "orders")
    with pytest.raises((aiohttp.ClientPayloadError, aiohttp.ClientConnectionError)):
        await served.get(READ, headers=headers)
    assert (await served.get("/healthz")).status == 200


async def test_stopping_wakes_long_polls(served: Served) -> None:
    await served.make_topic("orders")
    poll = asyncio.create_task(served.messages("orders", wait_ms=30_000))
    await until(lambda: served.api.metrics.long_polls == 1)
    began = time.monotonic()
    await served.http.stop()
    assert await poll == {"messages": [], "next_offset": 0}
    assert time.monotonic() - began < 3


async def test_a_new_leader_does_not_say_that_a_time_has_not_come(served: Served) -> None:
    """It may only not know yet that the records of that time are committed."""
    await served.make_topic("orders")
    await served.produce("orders", b"a", b"b")
    leadership = served.node.partitions.get("orders", 0).leadership
    leadership.epoch_start = 3
    later = "2100-01-01T00:00:00Z"
    reset = {"topic": "orders", "partition": 0, "to": later}
    for reply in (
        await served.get(f"{READ}?from={later}"),
        await served.post("/api/v1/consumer-groups/g/offsets/reset", json=reset),
    ):
        assert (reply.status, reply.problem) == (503, "leadership-changed")
    leadership.epoch_start = 2
    assert (await served.messages("orders", from_=later))["next_offset"] == 2


def zeros(records: int) -> bytearray:
    """One batch: little to store, a megabyte in each record."""
    return encode_records([NewRecord(0, None, bytes(1 << 20)) for _ in range(records)], codec=Codec.ZSTD)


async def append(served: Served, topic: str, batch: bytearray) -> None:
    partition = served.node.partitions.get(topic, 0)
    end = partition.append(batch, read_header(batch), served.node.clock()).end_offset
    await until(lambda: partition.high_watermark >= end)


async def test_a_json_answer_is_bounded_also_once_decompressed(serve: Serve) -> None:
    served = await serve(read_max_bytes=3 << 20)
    await served.make_topic("orders")
    await append(served, "orders", zeros(10))
    sizes, at = [], 0
    while at < 10:
        page = await served.messages("orders", offset=at, limit=1000)
        assert [each["offset"] for each in page["messages"]] == list(range(at, page["next_offset"]))
        sizes.append(len(page["messages"]))
        at = page["next_offset"]
    assert sizes == [3, 3, 3, 1]


async def test_much_is_not_decompressed_on_the_loop(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await served.make_topic("orders")
    await append(served, "orders", zeros(2))
    await append(served, "orders", zeros(20))
    threads = []

    def noted(*args: Any, **options: Any) -> Any:
        found = decode_records(*args, **options)
        threads.append(threading.current_thread() is threading.main_thread())
        return found

    monkeypatch.setattr(record_stream, "decode_records", noted)
    assert len((await served.messages("orders", limit=1))["messages"]) == 1
    assert len((await served.messages("orders", limit=1, offset=2))["messages"]) == 1
    assert threads == [True, False]

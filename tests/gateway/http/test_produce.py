"""Producing: what is stored where, what is answered, and that one bad message harms no other."""

import asyncio
import gzip
import time
from base64 import b64encode

import pytest
from multidict import CIMultiDict

from gateway.http.partitioner import partition_for_key
from hot_tier.cluster.quotas import QuotaAlteration
from tests.gateway.http.conftest import Serve, Served

MESSAGES = "/api/v1/topics/orders/messages"
BATCH = "/api/v1/topics/orders/messages/batch"


async def test_one_message_is_answered_with_where_it_is(served: Served) -> None:
    await served.make_topic("orders", 4)
    before = time.time() * 1000
    first = await served.post(MESSAGES, data=b"\x00any bytes\xff", headers={"X-Partition-Key": "user_123"})
    second = await served.post(MESSAGES, data=b"more", headers={"X-Partition-Key": "user_123"})
    partition = partition_for_key(b"user_123", 4)
    stamp = first.json["timestamp"]
    assert (first.status, first.headers["Content-Type"]) == (200, "application/json")
    assert first.json == {"topic": "orders", "partition": partition, "offset": 0, "timestamp": stamp}
    assert before - 1 <= stamp <= time.time() * 1000
    assert second.json["offset"] == 1
    stored = (await served.messages("orders", partition))["messages"][0]
    assert stored == {
        "offset": 0,
        "key": "user_123",
        "value": b64encode(b"\x00any bytes\xff").decode(),
        "timestamp": stamp,
        "headers": [],
    }


async def test_a_json_body_is_one_message_like_any_other(served: Served) -> None:
    await served.make_topic("orders")
    body = b'{"messages": [{"value": "not looked into"}]}'
    await served.post(MESSAGES, data=body, headers={"Content-Type": "application/json"})
    assert [m["value"] for m in (await served.messages("orders"))["messages"]] == [b64encode(body).decode()]


async def test_headers_become_record_headers_in_lower_case_and_in_order(served: Served) -> None:
    await served.make_topic("orders")
    sent = [("X-Header-Trace-Id", "a1"), ("x-header-tag", "1"), ("x-header-tag", "ü"), ("X-Header-", "nameless")]
    await served.post(MESSAGES, data=b"v", headers=CIMultiDict(sent))
    assert (await served.messages("orders"))["messages"][0]["headers"] == [
        {"key": "trace-id", "value": "a1"},
        {"key": "tag", "value": "1"},
        {"key": "tag", "value": "ü"},
    ]


async def test_keyless_messages_are_spread_evenly(served: Served) -> None:
    await served.make_topic("orders", 3)
    partitions = [(await served.post(MESSAGES, data=b"v")).json["partition"] for _ in range(9)]
    assert sorted(partitions) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


async def test_an_explicit_partition_beats_the_key(served: Served) -> None:
    await served.make_topic("orders", 8)
    stored = await served.post(f"{MESSAGES}?partition=7", data=b"v", headers={"X-Partition-Key": "user_123"})
    assert stored.json["partition"] == 7


async def test_an_empty_body_is_an_empty_value_and_an_empty_key_is_a_key(served: Served) -> None:
    await served.make_topic("orders")
    await served.post(MESSAGES, headers={"X-Partition-Key": ""})
    stored = (await served.messages("orders"))["messages"][0]
    assert (stored["key"], stored["value"]) == ("", "")


async def test_a_compressed_body_is_stored_as_it_was_meant(served: Served) -> None:
    await served.make_topic("orders")
    body = gzip.compress(b"plain")
    await served.post(MESSAGES, data=body, headers={"Content-Encoding": "gzip"})
    assert (await served.messages("orders"))["messages"][0]["value"] == b64encode(b"plain").decode()


async def test_the_brokers_time_is_answered_where_the_topic_asks_for_it(served: Served) -> None:
    await served.make_topic("orders", message_timestamp_type="LogAppendTime")
    early = {"messages": [{"value": "v", "timestamp": 5}]}
    stamp = (await served.post(BATCH, json=early)).json["results"][0]["timestamp"]
    assert stamp > 1_700_000_000_000
    assert (await served.messages("orders"))["messages"][0]["timestamp"] == stamp


@pytest.mark.parametrize(
    ("path", "status", "problem"),
    [
        ("/api/v1/topics/nowhere/messages", 404, "unknown-topic"),
        ("/api/v1/topics/a%2Fb/messages", 400, "bad-parameter"),
        ("/api/v1/topics/%2e%2e/messages", 404, "not-found"),
        ("/api/v1/topics/orders/messages?partition=4", 404, "unknown-partition"),
        ("/api/v1/topics/orders/messages?partition=-1", 400, "bad-parameter"),
        ("/api/v1/topics/orders/messages?partition=one", 400, "bad-parameter"),
        ("/api/v1/topics/orders/messages?partitoin=1", 400, "bad-parameter"),
    ],
)
async def test_a_message_that_has_no_place(served: Served, path: str, status: int, problem: str) -> None:
    await served.make_topic("orders", 4)
    reply = await served.post(path, data=b"v")
    assert (reply.status, reply.problem) == (status, problem)
    assert [p["log_end_offset"] for p in (await served.get("/api/v1/topics/orders")).json["partitions"]] == [0] * 4


async def test_too_large_is_refused_by_its_announcement_alone(serve: Serve) -> None:
    served = await serve(max_message_bytes=1000)
    await served.make_topic("orders")
    reply = await served.post(MESSAGES, data=b"x" * 1001)
    assert (reply.status, reply.problem, reply.json["max_bytes"]) == (413, "body-too-large", 1000)
    assert (await served.post(MESSAGES, data=b"x" * 1000)).status == 200


async def test_too_large_without_announcement_is_cut_off(serve: Serve) -> None:
    served = await serve(max_message_bytes=1000)
    await served.make_topic("orders")

    async def pieces():
        for _ in range(100):
            yield b"x" * 100

    reply = await served.post(MESSAGES, data=pieces())
    assert (reply.status, reply.problem) == (413, "body-too-large")


async def test_a_bomb_of_compressed_zeros_is_cut_off(serve: Serve) -> None:
    served = await serve(max_message_bytes=100_000)
    await served.make_topic("orders")
    bomb = gzip.compress(bytes(50_000_000))
    assert len(bomb) < 100_000
    reply = await served.post(MESSAGES, data=bomb, headers={"Content-Encoding": "gzip"})
    assert (reply.status, reply.problem) == (413, "body-too-large")
    assert served.api.bodies.buffered_bytes == 0


async def test_a_body_that_is_not_what_it_says_is_refused(served: Served) -> None:
    await served.make_topic("orders")
    reply = await served.post(MESSAGES, data=b"not gzip at all", headers={"Content-Encoding": "gzip"})
    assert (reply.status, reply.problem) == (400, "bad-request")


async def test_all_bodies_together_are_bounded(serve: Serve) -> None:
    served = await serve(max_buffered_bytes=1000)
    await served.make_topic("orders")
    reply = await served.post(MESSAGES, data=b"x" * 2000)
    assert (reply.status, reply.problem, reply.headers["Retry-After"]) == (503, "overloaded", "1")
    assert (await served.post(MESSAGES, data=b"x" * 400)).status == 200


async def test_larger_than_the_topic_takes(served: Served) -> None:
    await served.make_topic("orders", max_message_bytes=500)
    reply = await served.post(MESSAGES, data=b"x" * 600)
    assert (reply.status, reply.problem) == (413, "message-too-large")
    assert (await served.post(MESSAGES, data=b"x" * 300)).json["offset"] == 0


async def test_a_compacted_topic_takes_no_message_without_a_key(served: Served) -> None:
    await served.make_topic("orders", cleanup_policy="compact")
    reply = await served.post(MESSAGES, data=b"v")
    assert (reply.status, reply.problem) == (409, "invalid-record")
    assert (await served.post(MESSAGES, data=b"v", headers={"X-Partition-Key": "k"})).status == 200


async def test_posts_at_the_same_time_share_batches_and_keep_their_offsets(served: Served) -> None:
    await served.make_topic("orders")
    replies = await asyncio.gather(
        *(served.post(f"{MESSAGES}?partition=0", data=b"%d" % number) for number in range(300))
    )
    by_offset = {reply.json["offset"]: b"%d" % number for number, reply in enumerate(replies)}
    assert sorted(by_offset) == list(range(300))
    stored = (await served.messages("orders", limit=300))["messages"]
    assert {m["offset"]: m["value"] for m in stored} == {o: b64encode(v).decode() for o, v in by_offset.items()}
    assert served.node.partitions.get("orders", 0).log.appended_batches < 150


async def test_a_bad_message_does_not_take_its_neighbours_along(served: Served) -> None:
    await served.make_topic("orders", cleanup_policy="compact")
    keys = [{"X-Partition-Key": f"k{number}"} if number % 3 else {} for number in range(60)]
    replies = await asyncio.gather(*(served.post(f"{MESSAGES}?partition=0", data=b"v", headers=key) for key in keys))
    assert [reply.status for reply in replies] == [200 if key else 409 for key in keys]
    stored = (await served.messages("orders"))["messages"]
    assert sorted(m["key"] for m in stored) == sorted(key["X-Partition-Key"] for key in keys if key)


async def test_many_messages_at_once(served: Served) -> None:
    await served.make_topic("orders", 4)
    messages = [
        {"key": "user_123", "value": "text", "headers": [{"key": "trace", "value": "a1"}]},
        {"value": "/wABAg==", "value_encoding": "base64", "partition": 2, "timestamp": 1748779200123},
        {"key": "/w==", "key_encoding": "base64", "value": None, "partition": 2},
        {
            "value": "v",
            "partition": 2,
            "headers": [{"key": "h", "value": "/w==", "value_encoding": "base64"}, {"key": "h"}],
        },
    ]
    reply = await served.post(BATCH, json={"messages": messages})
    assert reply.status == 200
    results = reply.json["results"]
    home = partition_for_key(b"user_123", 4)
    first = 0 if home != 2 else results[1]["offset"] - 1
    assert [(r["topic"], r["partition"], r["offset"]) for r in results[:1]] == [("orders", home, first)]
    assert [(r["partition"], r["offset"]) for r in results[1:]] == [(2, 0), (2, 1), (2, 2)]
    assert results[1]["timestamp"] == 1748779200123
    stored = (await served.messages("orders", 2))["messages"]
    assert [m["value"] for m in stored] == ["/wABAg==", None, "dg=="]
    assert (stored[1]["key"], stored[1]["key_encoding"]) == ("/w==", "base64")
    assert "key_encoding" not in stored[0]
    assert stored[2]["headers"] == [
        {"key": "h", "value": "/w==", "value_encoding": "base64"},
        {"key": "h", "value": None},
    ]


async def test_very_many_messages_at_once_keep_their_order(served: Served) -> None:
    await served.make_topic("orders")
    messages = [{"value": f"{number}", "headers": [{"key": "n", "value": f"{number}"}]} for number in range(5000)]
    results = (await served.post(BATCH, json={"messages": messages})).json["results"]
    assert [result["offset"] for result in results] == list(range(5000))
    stored = (await served.messages("orders", limit=5000))["messages"]
    assert [m["headers"][0]["value"] for m in stored] == [f"{number}" for number in range(5000)]
    assert stored[4999]["value"] == b64encode(b"4999").decode()


async def test_what_does_not_fit_into_one_batch_is_split(served: Served) -> None:
    await served.make_topic("orders", max_message_bytes=1000)
    messages = [{"value": "x" * 300} for _ in range(10)]
    reply = await served.post(BATCH, json={"messages": messages})
    assert [result["offset"] for result in reply.json["results"]] == list(range(10))
    assert 4 <= served.node.partitions.get("orders", 0).log.appended_batches <= 5


async def test_some_stored_some_not(served: Served) -> None:
    await served.make_topic("orders", 2, max_message_bytes=1000)
    messages = [{"value": "a", "partition": 0}, {"value": "x" * 2000, "partition": 0}, {"value": "b", "partition": 1}]
    reply = await served.post(BATCH, json={"messages": messages})
    assert reply.status == 207
    first, second, third = reply.json["results"]
    assert (first["offset"], third["offset"]) == (0, 0)
    assert second["error"]["type"] == "urn:tierlog:problem:message-too-large"
    assert second["error"]["status"] == 413


async def test_none_stored_is_the_problem_itself(served: Served) -> None:
    await served.make_topic("orders", cleanup_policy="compact")
    reply = await served.post(BATCH, json={"messages": [{"value": "a"}, {"value": "b"}]})
    assert (reply.status, reply.problem) == (409, "invalid-record")


@pytest.mark.parametrize(
    ("body", "headers", "status", "problem"),
    [
        (b"{", {}, 400, "bad-json"),
        (b"", {}, 400, "bad-json"),
        (b"[]", {}, 400, "bad-document"),
        (b'{"messages":[{"value":"a"},{"value":1}]}', {}, 400, "bad-document"),
        (b'{"messages":[{"value":"?","value_encoding":"base64"}]}', {}, 400, "bad-document"),
        (b'{"messages":[{"value":"a"},{"value":"b","partition":9}]}', {}, 404, "unknown-partition"),
        (b'{"messages":[{"value":"a"}]}', {"Content-Type": "text/plain"}, 415, "wrong-media-type"),
    ],
)
async def test_a_bad_batch_stores_nothing(
    served: Served, body: bytes, headers: dict[str, str], status: int, problem: str
) -> None:
    await served.make_topic("orders")
    reply = await served.post(BATCH, data=body, headers={"Content-Type": "application/json", **headers})
    assert (reply.status, reply.problem) == (status, problem)
    assert (await served.messages("orders"))["messages"] == []


async def test_a_timestamp_the_topic_does_not_take(served: Served) -> None:
    await served.make_topic("orders")
    far = {"messages": [{"value": "a", "timestamp": 4_000_000_000_000}]}
    reply = await served.post(BATCH, json=far)
    assert (reply.status, reply.problem) == (409, "invalid-record")


async def test_a_client_over_its_quota_is_answered_later(served: Served) -> None:
    await served.make_topic("orders")
    limit = QuotaAlteration({"client-id": "greedy"}, {"producer_byte_rate": 10_000.0})
    assert await served.node.quota_admin.alter([limit]) == [None]
    began = time.monotonic()
    # The account holds ten seconds' worth; what is beyond it takes 0.3 s to refill.
    for client in ("modest", "greedy"):
        reply = await served.post(MESSAGES, data=b"x" * 103_000, headers={"X-Client-Id": client})
        assert reply.status == 200
        if client == "modest":
            assert served.api.metrics.throttled_ms == 0
    assert 300 <= served.api.metrics.throttled_ms <= 310
    assert time.monotonic() - began >= served.api.metrics.throttled_ms / 1000

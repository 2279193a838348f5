"""A post with an `Idempotency-Key` is stored once: at once, later, after a restart, and not for another message."""

import asyncio
from base64 import b64decode

import pytest

from gateway.http import idempotency
from gateway.http.idempotency import REPLAYED, producer_of
from hot_tier.ids import PartitionId
from hot_tier.log.producers import MADE_UP
from hot_tier.record.records import NewRecord
from tests.gateway.http.conftest import Reply, Serve, Served

MESSAGES = "/api/v1/topics/orders/messages"


async def post(served: Served, value: bytes, key: str, **headers: str) -> Reply:
    more = {name.replace("_", "-"): text for name, text in headers.items()}
    return await served.post(MESSAGES, data=value, headers={"Idempotency-Key": key, **more})


async def stored(served: Served, partitions: int = 1) -> list[bytes]:
    found = [(await served.messages("orders", each))["messages"] for each in range(partitions)]
    return [b64decode(message["value"]) for part in found for message in part]


async def test_a_repeated_post_is_stored_once(served: Served) -> None:
    await served.make_topic("orders", 4)
    first = await post(served, b"v", "k1")
    assert first.status == 200 and REPLAYED not in first.headers
    await served.post(MESSAGES, data=b"between")
    again = await post(served, b"v", "k1")
    assert again.status == 200 and again.headers[REPLAYED] == "true"
    assert [again.json[name] for name in ("partition", "offset")] == [
        first.json[name] for name in ("partition", "offset")
    ]
    assert sorted(await stored(served, 4)) == [b"between", b"v"]
    assert REPLAYED not in (await post(served, b"v", "k2")).headers


async def test_repeated_posts_that_meet_are_stored_once(served: Served) -> None:
    await served.make_topic("orders")
    answers = await asyncio.gather(*(post(served, b"v", "k") for _ in range(20)))
    assert {each.json["offset"] for each in answers} == {0}
    assert sum(REPLAYED not in each.headers for each in answers) == 1
    assert await stored(served) == [b"v"]


@pytest.mark.parametrize("change", ["value", "key", "header"])
async def test_another_message_with_the_key_is_refused(served: Served, change: str) -> None:
    await served.make_topic("orders")
    assert (await post(served, b"v", "k")).status == 200
    other = {
        "value": post(served, b"w", "k"),
        "key": post(served, b"v", "k", X_Partition_Key="ada"),
        "header": post(served, b"v", "k", X_Header_Trace="1"),
    }
    reply = await other.pop(change)
    for each in other.values():
        each.close()
    assert (reply.status, reply.problem) == (409, "idempotency-key-reused")
    assert await stored(served) == [b"v"]


async def test_the_key_is_remembered_after_a_restart(serve: Serve) -> None:
    served = await serve()
    await served.make_topic("orders", 3)
    first = await post(served, b"v", "k")
    await served.end()
    served = await serve()
    again = await post(served, b"v", "k")
    assert (again.json["partition"], again.json["offset"]) == (first.json["partition"], first.json["offset"])
    assert await stored(served, 3) == [b"v"]


async def test_a_key_is_forgotten_after_its_window_and_a_kafka_producer_is_not(served: Served) -> None:
    await served.make_topic("orders")
    await post(served, b"v", "k")
    producers = served.node.partitions.get("orders", PartitionId(0)).log.producers
    producers.wrote(7, 0, 0, 1, 1, 0, served.node.clock())
    window_ms = served.node.logs.settings.idempotency_key_window_ms
    expiry_ms = served.node.logs.settings.producer_id_expiration_ms
    now_ms = served.node.clock()
    assert producers.expire(now_ms + window_ms // 2, expiry_ms, window_ms) == 0
    assert producers.expire(now_ms + window_ms + 1, expiry_ms, window_ms) == 1
    assert len(producers) == 1


async def test_only_so_many_keys_are_remembered(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "MOST_PRODUCERS", 2)
    await served.make_topic("orders")
    for key in ("a", "b"):
        assert (await post(served, b"v", key)).status == 200
    reply = await post(served, b"v", "c")
    assert (reply.status, reply.problem) == (429, "too-many-idempotency-keys")
    assert (await post(served, b"v", "b")).headers[REPLAYED] == "true", "a known key is answered"
    assert len(await stored(served)) == 2


async def test_what_is_no_key(served: Served) -> None:
    await served.make_topic("orders")
    for key in ("", "x" * 256, "ü"):
        reply = await post(served, b"v", key)
        assert (reply.status, reply.problem) == (400, "bad-parameter"), key


def test_keys_of_different_senders_do_not_meet() -> None:
    record = NewRecord(1, b"k", b"v")
    one, other = producer_of("1", "ada", record), producer_of("1", "bob", record)
    assert one.producer_id != other.producer_id
    assert producer_of("1", "ada", NewRecord(2, b"k", b"v")) == one, "a retry comes later"
    assert MADE_UP <= one.producer_id < 1 << 63
    assert producer_of("da", "a", record).producer_id != producer_of("a", "da", record).producer_id

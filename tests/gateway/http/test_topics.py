"""Topics over HTTP: make, list, describe, change, delete, and every way to be refused."""

from typing import Any

import pytest

from tests.gateway.http.conftest import Reply, Served

TOPICS = "/api/v1/topics"
ORDERS = "/api/v1/topics/orders"


async def make(served: Served, **document: Any) -> Reply:
    return await served.post(TOPICS, json={"name": "orders", **document})


async def patch(served: Served, **document: Any) -> Reply:
    return await served.call("PATCH", ORDERS, json=document)


async def test_a_topic_is_made_and_described(served: Served) -> None:
    made = await make(served, partitions=2, replication_factor=1, config={"retention.ms": 3_600_000})
    assert (made.status, made.headers["Location"]) == (201, ORDERS)
    described = await served.get(ORDERS)
    assert (described.status, described.json) == (200, made.json)
    topic = described.json
    assert (topic["name"], topic["internal"], topic["replication_factor"]) == ("orders", False, 1)
    assert topic["partitions"] == [
        {
            "partition": number,
            "leader": 0,
            "leader_epoch": 0,
            "replicas": [0],
            "isr": [0],
            "log_start_offset": 0,
            "high_watermark": 0,
            "last_stable_offset": 0,
            "log_end_offset": 0,
            "size_bytes": 0,
            "segments": 0,
        }
        for number in (0, 1)
    ]
    assert topic["config"]["retention.ms"] == {"value": "3600000", "source": "topic"}
    assert topic["config"]["cleanup.policy"] == {"value": "delete", "source": "default"}


async def test_a_description_follows_what_is_written(served: Served) -> None:
    await make(served, partitions=1)
    await served.produce("orders", b"a", b"b")
    served.node.partitions.get("orders", 0).delete_records_before(1)
    (partition,) = (await served.get(ORDERS)).json["partitions"]
    assert (partition["log_start_offset"], partition["high_watermark"], partition["log_end_offset"]) == (1, 2, 2)
    assert partition["size_bytes"] > 100
    assert partition["segments"] == 1


async def test_topics_are_listed_by_name(served: Served) -> None:
    assert (await served.get(TOPICS)).json == {"topics": [], "total": 0}
    for name in ("b", "a"):
        await served.make_topic(name, 3)
    listed = (await served.get(TOPICS)).json["topics"]
    assert [topic["name"] for topic in listed] == ["a", "b"]
    assert {key: value for key, value in listed[0].items() if key != "id"} == {
        "name": "a",
        "partitions": 3,
        "replication_factor": 1,
        "internal": False,
    }
    assert listed[0]["id"] == (await served.get("/api/v1/topics/a")).json["id"]


@pytest.mark.parametrize(
    ("document", "status", "problem"),
    [
        ({"name": "a/b"}, 400, "bad-document"),
        ({"name": "../etc"}, 400, "bad-document"),
        ({"name": ".."}, 400, "bad-document"),
        ({"name": ""}, 400, "bad-document"),
        ({"name": "x" * 250}, 400, "bad-document"),
        ({"partitions": 1}, 400, "bad-document"),
        ({"name": "a", "partitions": 0}, 400, "bad-document"),
        ({"name": "a", "partitions": 10_001}, 400, "bad-document"),
        ({"name": "a", "partitions": "2"}, 400, "bad-document"),
        ({"name": "a", "replication_factor": 3}, 409, "invalid-replication"),
        ({"name": "a", "config": {"retention": 1}}, 400, "bad-document"),
        ({"name": "a", "config": {"retention.ms": "soon"}}, 400, "bad-document"),
        ({"name": "a", "config": {"retention.ms": 10, "local.retention.ms": 20}}, 409, "invalid-config"),
        ({"name": "a", "config": {"min.insync.replicas": 2}}, 409, "invalid-config"),
        ({"name": "orders"}, 409, "topic-exists"),
        ({"name": "a", "replication": 1}, 400, "bad-document"),
    ],
)
async def test_topics_that_cannot_be_made(served: Served, document: dict[str, Any], status: int, problem: str) -> None:
    await make(served)
    reply = await served.post(TOPICS, json=document)
    assert (reply.status, reply.problem) == (status, problem)
    assert [topic["name"] for topic in (await served.get(TOPICS)).json["topics"]] == ["orders"]


@pytest.mark.parametrize(
    ("body", "headers", "status", "problem"),
    [
        (b"{", {"Content-Type": "application/json"}, 400, "bad-json"),
        (b"", {"Content-Type": "application/json"}, 400, "bad-json"),
        (b'{"name":"\xff"}', {"Content-Type": "application/json"}, 400, "bad-json"),
        (b"name=a", {"Content-Type": "application/x-www-form-urlencoded"}, 415, "wrong-media-type"),
        (b"[" * 100_000, {"Content-Type": "application/json"}, 400, "bad-json"),
        (
            b'{"name":"a","config":{' + b" " * 300_000 + b"}}",
            {"Content-Type": "application/json"},
            413,
            "body-too-large",
        ),
    ],
)
async def test_bodies_that_are_no_document(
    served: Served, body: bytes, headers: dict[str, str], status: int, problem: str
) -> None:
    reply = await served.post(TOPICS, data=body, headers=headers)
    assert (reply.status, reply.problem) == (status, problem)


async def test_settings_are_changed_and_put_back(served: Served) -> None:
    await make(served, config={"retention.ms": 5000, "flush": "os"})
    changed = await patch(served, config={"retention.ms": "7000", "flush": None, "remote.storage.enable": True})
    assert changed.status == 200
    config = (await served.get(ORDERS)).json["config"]
    assert config["retention.ms"] == {"value": "7000", "source": "topic"}
    assert config["flush"] == {"value": "commit", "source": "default"}
    assert config["remote.storage.enable"] == {"value": "true", "source": "topic"}


async def test_partitions_are_added(served: Served) -> None:
    await make(served, partitions=2)
    assert len((await patch(served, partitions=5)).json["partitions"]) == 5
    assert len((await patch(served, partitions=5)).json["partitions"]) == 5
    reply = await patch(served, partitions=4, config={"retention.ms": 1})
    assert (reply.status, reply.problem) == (409, "invalid-partitions")
    assert (await served.get(ORDERS)).json["config"]["retention.ms"]["source"] == "default"
    stored = await served.post(f"{ORDERS}/messages?partition=4", data=b"v")
    assert (stored.status, stored.json["partition"]) == (200, 4)


@pytest.mark.parametrize(
    ("document", "status", "problem"),
    [
        ({"config": {"retention.ms": -5}}, 400, "bad-document"),
        ({"config": {"nonsense": "1"}}, 400, "bad-document"),
        ({"config": {"min.insync.replicas": 2}}, 409, "invalid-config"),
        ({"config": {"local.retention.bytes": 9, "retention.bytes": 8}}, 409, "invalid-config"),
        ({"name": "other"}, 400, "bad-document"),
    ],
)
async def test_changes_that_cannot_be_made(served: Served, document: dict[str, Any], status: int, problem: str) -> None:
    await make(served)
    reply = await patch(served, **document)
    assert (reply.status, reply.problem) == (status, problem)


async def test_a_deleted_topic_is_gone_and_can_be_made_anew(served: Served) -> None:
    await make(served, partitions=1)
    await served.produce("orders", b"old")
    gone = await served.call("DELETE", ORDERS)
    assert (gone.status, gone.body) == (204, b"")
    for reply in (
        await served.get(ORDERS),
        await served.call("DELETE", ORDERS),
        await patch(served, partitions=3),
        await served.get(f"{ORDERS}/partitions/0/messages"),
    ):
        assert (reply.status, reply.problem) == (404, "unknown-topic")
    await make(served, partitions=1)
    assert (await served.messages("orders"))["messages"] == []


async def test_the_services_own_topics_are_shown_and_left_alone(served: Served) -> None:
    await make(served)
    commit = {"topic": "orders", "partition": 0, "offset": 0}
    assert (await served.post("/api/v1/consumer-groups/g/offsets", json=commit)).status == 200
    own = "/api/v1/topics/__consumer_offsets"
    assert (await served.get(own)).json["internal"] is True
    refused = await served.post(f"{own}/messages", data=b"v")
    assert (refused.status, refused.problem) == (409, "invalid-topic-name")
    kept = await served.call("DELETE", own)
    assert (kept.status, kept.problem) == (409, "invalid-topic-name")
    made = await served.post(TOPICS, json={"name": "__transaction_state"})
    assert (made.status, made.problem) == (409, "invalid-topic-name")

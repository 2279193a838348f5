"""Consumer groups over HTTP: offsets that continue where they were, lag, reset, and who may move a group."""

from base64 import b64decode
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from tests.gateway.http.conftest import Serve, Served

GROUPS = "/api/v1/consumer-groups"
OFFSETS = "/api/v1/consumer-groups/billing/offsets"
RESET = "/api/v1/consumer-groups/billing/offsets/reset"
AS_BILLING = {"X-Consumer-Group": "billing"}


async def commit(served: Served, offset: int, **more: Any) -> Any:
    return await served.post(OFFSETS, json={"topic": "orders", "partition": 0, "offset": offset, **more})


async def prepared(served: Served, *values: bytes) -> None:
    await served.make_topic("orders", 2)
    await served.produce("orders", *values)


async def read(served: Served, **options: Any) -> list[bytes]:
    page = await served.messages("orders", headers=AS_BILLING, **options)
    return [b64decode(message["value"]) for message in page["messages"]]


async def test_a_group_continues_where_it_committed(served: Served) -> None:
    await prepared(served, b"a", b"b", b"c")
    assert await read(served) == [b"a", b"b", b"c"]
    assert await read(served) == [b"a", b"b", b"c"]
    done = await commit(served, 2)
    assert (done.status, done.json) == (200, {"committed": True})
    assert await read(served) == [b"c"]
    assert await read(served, offset=1) == [b"b", b"c"]
    await commit(served, 3)
    assert await served.messages("orders", headers=AS_BILLING) == {"messages": [], "next_offset": 3}


async def test_groups_are_independent(served: Served) -> None:
    await prepared(served, b"a", b"b")
    await commit(served, 2)
    other = await served.messages("orders", headers={"X-Consumer-Group": "audit"})
    assert len(other["messages"]) == 2


async def test_offsets_with_lag(served: Served) -> None:
    await prepared(served, b"a", b"b", b"c")
    await served.produce("orders", b"x", partition=1)
    await commit(served, 1, metadata="where I am")
    await served.post(OFFSETS, json={"topic": "orders", "partition": 1, "offset": 1})
    assert (await served.get(OFFSETS)).json == {
        "group": "billing",
        "offsets": [
            {
                "topic": "orders",
                "partition": 0,
                "offset": 1,
                "metadata": "where I am",
                "pending": False,
                "log_start_offset": 0,
                "high_watermark": 3,
                "lag": 2,
            },
            {
                "topic": "orders",
                "partition": 1,
                "offset": 1,
                "metadata": "",
                "pending": False,
                "log_start_offset": 0,
                "high_watermark": 1,
                "lag": 0,
            },
        ],
        "lag": 2,
    }
    assert len((await served.get(f"{OFFSETS}?topic=orders")).json["offsets"]) == 2
    assert (await served.get(f"{OFFSETS}?topic=other")).json == {"group": "billing", "offsets": [], "lag": None}
    assert (await served.get(f"{GROUPS}/nobody/offsets")).json == {"group": "nobody", "offsets": [], "lag": None}


async def test_what_retention_took_is_no_lag_and_reading_goes_on_behind_it(served: Served) -> None:
    await prepared(served, b"a", b"b", b"c")
    await commit(served, 0)
    served.node.partitions.get("orders", 0).delete_records_before(2)
    assert (await served.get(OFFSETS)).json["lag"] == 1
    assert await read(served) == [b"c"]


@pytest.mark.parametrize(
    ("document", "status", "problem"),
    [
        ({"topic": "orders", "partition": 0}, 400, "bad-document"),
        ({"topic": "orders", "partition": 0, "offset": -1}, 400, "bad-document"),
        ({"topic": "orders", "partition": 0, "offset": "1"}, 400, "bad-document"),
        ({"topic": "orders", "partition": 0, "offset": 1, "metadata": "x" * 5000}, 400, "bad-document"),
        ({"topic": "orders", "partition": 0, "offset": 1, "metadata": "ü" * 4000}, 409, "metadata-too-large"),
        ({"topic": "orders", "partition": 2, "offset": 0}, 404, "unknown-partition"),
        ({"topic": "nowhere", "partition": 0, "offset": 0}, 404, "unknown-topic"),
        ({"topic": "orders", "partition": 0, "offset": 2}, 409, "offset-out-of-range"),
    ],
)
async def test_commits_that_are_refused(served: Served, document: Any, status: int, problem: str) -> None:
    await prepared(served, b"a")
    reply = await served.post(OFFSETS, json=document)
    assert (reply.status, reply.problem) == (status, problem)
    assert (await served.get(OFFSETS)).json["offsets"] == []


async def test_a_commit_beyond_the_end_says_where_the_end_is(served: Served) -> None:
    await prepared(served, b"a")
    problem = (await commit(served, 9)).json
    assert (problem["earliest_offset"], problem["latest_offset"]) == (0, 1)


async def test_reset_to_the_ends_and_to_a_time(served: Served) -> None:
    await served.make_topic("orders", 2)
    messages = [{"value": f"{n}", "timestamp": 1000 * n, "partition": n % 2} for n in range(1, 9)]
    await served.post("/api/v1/topics/orders/messages/batch", json={"messages": messages})
    for to, expected in (
        ("latest", [4, 4]),
        ("earliest", [0, 0]),
        (4000, [1, 2]),
        ("1970-01-01T00:00:07Z", [3, 3]),
        (99_000, [4, 4]),
    ):
        reply = await served.post(RESET, json={"topic": "orders", "to": to})
        assert reply.status == 200, reply
        assert [each["offset"] for each in reply.json["offsets"]] == expected, to
    one = await served.post(RESET, json={"topic": "orders", "partition": 1, "to": "earliest"})
    assert [each["offset"] for each in one.json["offsets"]] == [4, 0]


@pytest.mark.parametrize(
    ("document", "status", "problem"),
    [
        ({"topic": "orders"}, 400, "bad-document"),
        ({"topic": "orders", "to": "tomorrow"}, 400, "bad-document"),
        ({"topic": "orders", "to": -1}, 400, "bad-document"),
        ({"topic": "nowhere", "to": "latest"}, 404, "unknown-topic"),
        ({"topic": "orders", "partition": 7, "to": "latest"}, 404, "unknown-partition"),
    ],
)
async def test_resets_that_are_refused(served: Served, document: Any, status: int, problem: str) -> None:
    await prepared(served, b"a")
    reply = await served.post(RESET, json=document)
    assert (reply.status, reply.problem) == (status, problem)


async def test_groups_are_listed_described_and_deleted(served: Served) -> None:
    assert (await served.get(GROUPS)).json == {"groups": [], "total": 0}
    await prepared(served, b"a")
    await commit(served, 1)
    assert (await served.get(GROUPS)).json == {
        "groups": [{"group": "billing", "state": "Empty", "protocol_type": "", "members": 0}],
        "total": 1,
    }
    assert (await served.get(f"{GROUPS}/billing")).json == {
        "group": "billing",
        "state": "Empty",
        "protocol_type": "",
        "protocol": "",
        "members": [],
    }
    assert (await served.call("DELETE", f"{GROUPS}/billing")).status == 204
    for method in ("GET", "DELETE"):
        reply = await served.call(method, f"{GROUPS}/billing")
        assert (reply.status, reply.problem) == (404, "unknown-group")
    assert (await served.get(OFFSETS)).json["offsets"] == []


async def test_group_names_may_be_anything_that_can_be_escaped(served: Served) -> None:
    await prepared(served, b"a")
    address = f"{GROUPS}/t%C3%A4m%2F%20a/offsets"
    reply = await served.post(address, json={"topic": "orders", "partition": 0, "offset": 1})
    assert reply.status == 200
    assert (await served.get(address)).json["group"] == "täm/ a"
    assert [each["group"] for each in (await served.get(GROUPS)).json["groups"]] == ["täm/ a"]
    refused = await served.get(f"{GROUPS}/{'x' * 250}/offsets")
    assert (refused.status, refused.problem) == (400, "bad-parameter")


async def test_offsets_survive_a_restart(serve: Serve) -> None:
    first = await serve()
    await prepared(first, b"a", b"b")
    await commit(first, 1)
    await first.end()
    second = await serve()
    await second.node.groups.loaded()
    assert await read(second) == [b"b"]


async def test_while_kafka_consumers_are_in_the_group_they_alone_decide(served: Served) -> None:
    await prepared(served, b"a", b"b")
    consumer = AIOKafkaConsumer("orders", bootstrap_servers=served.kafka, group_id="billing", enable_auto_commit=False)
    await consumer.start()
    try:
        described = (await served.get(f"{GROUPS}/billing")).json
        assert (described["state"], described["protocol_type"]) == ("Stable", "consumer")
        (member,) = described["members"]
        assert member["assignment"] == [{"topic": "orders", "partitions": [0, 1]}]
        for reply in (
            await commit(served, 1),
            await served.post(RESET, json={"topic": "orders", "to": "latest"}),
            await served.call("DELETE", f"{GROUPS}/billing"),
        ):
            assert (reply.status, reply.problem) == (409, "group-not-empty")
    finally:
        await consumer.stop()
    assert (await commit(served, 1)).status == 200


async def test_a_list_is_not_given_while_groups_are_read_back(served: Served) -> None:
    await prepared(served, b"a")
    await commit(served, 1)
    shard = served.node.groups.shards.find("billing")
    shard.loading = True
    reply = await served.get(GROUPS)
    assert (reply.status, reply.problem) == (503, "coordinator-loading")
    shard.loading = False
    assert [each["group"] for each in (await served.get(GROUPS)).json["groups"]] == ["billing"]

"""Dead letters: copied once, with their origin, by request or by themselves, and nothing is skipped or lost."""

import asyncio
from base64 import b64decode
from typing import Any

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer

from gateway.delivery.failed_deliveries import MAX_RECORDS, NONE, decode, encode
from hot_tier.errors import CorruptMetadata, MetadataUnavailable
from tests.gateway.http.conftest import Reply, Serve, Served

GROUP = "/api/v1/consumer-groups/billing"
AS_BILLING = {"X-Consumer-Group": "billing"}
DLQ = "orders.billing.dlq"


async def prepared(served: Served, count: int = 3, partitions: int = 1, **config: Any) -> None:
    await served.make_topic("orders", partitions, **config)
    for number in range(count):
        await served.post(
            "/api/v1/topics/orders/messages?partition=0",
            data=b"%d" % number,
            headers={"X-Partition-Key": f"k{number}", "X-Header-Trace": f"t{number}"},
        )


async def reject(served: Served, offset: int, reason: str = "cannot parse", **more: Any) -> Reply:
    asked = {"topic": "orders", "partition": 0, "offset": offset, "reason": reason, **more}
    return await served.post(f"{GROUP}/dead-letters", json=asked)


async def fail(served: Served, offset: int, reason: str = "timeout", **more: Any) -> Reply:
    asked = {"topic": "orders", "partition": 0, "offset": offset, "reason": reason, **more}
    return await served.post(f"{GROUP}/failures", json=asked)


async def commit(served: Served, offset: int) -> None:
    done = await served.post(f"{GROUP}/offsets", json={"topic": "orders", "partition": 0, "offset": offset})
    assert done.status == 200, done


async def committed(served: Served) -> int | None:
    offsets = (await served.get(f"{GROUP}/offsets")).json["offsets"]
    return offsets[0]["offset"] if offsets else None


async def read(served: Served, **options: Any) -> list[int]:
    page = await served.messages("orders", headers=AS_BILLING, **options)
    return [int(b64decode(message["value"])) for message in page["messages"]]


async def letters(served: Served, partition: int = 0) -> list[dict[str, Any]]:
    found = (await served.messages(DLQ, partition, limit=1000))["messages"]
    for each in found:
        each["headers"] = {header["key"]: header["value"] for header in each["headers"]}
    return found


async def test_a_rejected_record_is_copied_with_its_reason_and_origin(served: Served) -> None:
    await prepared(served, partitions=2)
    original = (await served.messages("orders"))["messages"][0]
    reply = await reject(served, 0, "cannot parse: ü")
    assert (reply.status, reply.json) == (
        201,
        {"dead_lettered": True, "topic": DLQ, "partition": 0, "offset": 0, "committed_offset": 1},
    )
    (letter,) = await letters(served)
    topic_id = (await served.get("/api/v1/topics/orders")).json["id"]
    assert (letter["key"], letter["value"]) == (original["key"], original["value"])
    assert letter["headers"] == {
        "trace": "t0",
        "tierlog.dlq.reason": "cannot parse: ü",
        "tierlog.dlq.group": "billing",
        "tierlog.dlq.topic": "orders",
        "tierlog.dlq.topic_id": topic_id,
        "tierlog.dlq.partition": "0",
        "tierlog.dlq.offset": "0",
        "tierlog.dlq.timestamp": str(original["timestamp"]),
        "tierlog.dlq.failures": "0",
    }
    assert len((await served.get(f"/api/v1/topics/{DLQ}")).json["partitions"]) == 2


async def test_once_however_often_and_whoever_asks(served: Served) -> None:
    await prepared(served)
    replies = await asyncio.gather(*(reject(served, 1) for _ in range(20)))
    assert sorted(reply.status for reply in replies) == [200] * 19 + [201]
    assert {reply.json["offset"] for reply in replies} == {0}
    assert len(await letters(served)) == 1
    counted = await fail(served, 1)
    assert counted.json["dead_lettered"] is True
    assert len(await letters(served)) == 1


async def test_once_across_a_restart(serve: Serve) -> None:
    first = await serve()
    await prepared(first)
    assert (await reject(first, 1)).status == 201
    await first.end()
    second = await serve()
    await second.node.groups.loaded()
    assert (await reject(second, 1)).status == 200
    assert (await reject(second, 2)).status == 201
    assert [letter["headers"]["tierlog.dlq.offset"] for letter in await letters(second)] == ["1", "2"]
    assert await read(second) == [0]


@pytest.mark.parametrize("failing", ["store", "groups"])
async def test_once_when_it_fails_after_the_copy(served: Served, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    await prepared(served)
    await reject(served, 2)
    await fail(served, 0)

    async def unavailable(*_: object) -> None:
        raise MetadataUnavailable("away")

    part = {"store": (served.node.store, "transact"), "groups": (served.node.groups, "move_offset")}[failing]
    with monkeypatch.context() as patched:
        patched.setattr(*part, unavailable)
        first = await reject(served, 0)
    assert (first.status, first.problem) == (503, "metadata-unavailable")
    again = await reject(served, 0)
    assert (again.status, again.json["committed_offset"]) == (200, 1)
    assert [letter["headers"]["tierlog.dlq.offset"] for letter in await letters(served)] == ["2", "0"]


async def test_each_group_has_its_own(served: Served) -> None:
    await prepared(served)
    await reject(served, 0)
    other = {"topic": "orders", "partition": 0, "offset": 0, "reason": "no"}
    reply = await served.post("/api/v1/consumer-groups/audit/dead-letters", json=other)
    assert (reply.status, reply.json["topic"]) == (201, "orders.audit.dlq")


async def test_names_that_meet_in_one_dead_letter_topic_are_told_apart(served: Served) -> None:
    """Topic `orders` for group `a.b`, and topic `orders.a` for group `b`, share `orders.a.b.dlq`."""
    for topic in ("orders", "orders.a"):
        await served.make_topic(topic)
        await served.produce(topic, b"0")
    for topic, group in (("orders", "a.b"), ("orders.a", "b")):
        asked = {"topic": topic, "partition": 0, "offset": 0, "reason": "no"}
        reply = await served.post(f"/api/v1/consumer-groups/{group}/dead-letters", json=asked)
        assert (reply.status, reply.json["topic"]) == (201, "orders.a.b.dlq")


async def test_a_topic_made_anew_starts_without_dead_letters(served: Served) -> None:
    await prepared(served)
    await reject(served, 0)
    await served.call("DELETE", "/api/v1/topics/orders")
    await prepared(served)
    assert await read(served) == [0, 1, 2]
    assert (await reject(served, 0)).status == 201


async def test_the_committed_offset_moves_only_over_what_is_handled(served: Served) -> None:
    await prepared(served, 6)
    await commit(served, 1)
    assert (await reject(served, 3)).json["committed_offset"] == 1
    assert await read(served) == [1, 2, 4, 5]
    assert (await reject(served, 1)).json["committed_offset"] == 2
    assert (await reject(served, 2)).json["committed_offset"] == 4
    assert await read(served) == [4, 5]
    await commit(served, 6)
    assert (await reject(served, 4)).json["committed_offset"] == 6


async def test_dead_letters_are_left_out_of_every_shape(served: Served) -> None:
    await prepared(served, 5)
    await reject(served, 1)
    await reject(served, 3)
    page = await served.messages("orders", headers=AS_BILLING, limit=2)
    assert ([m["offset"] for m in page["messages"]], page["next_offset"]) == ([0, 2], 4)
    address = "/api/v1/topics/orders/partitions/0/messages"
    lines = await served.get(address, headers={**AS_BILLING, "Accept": "application/x-ndjson"})
    assert lines.body.count(b"\n") == 3
    arrow = await served.get(address, headers={**AS_BILLING, "Accept": "application/vnd.apache.arrow.stream"})
    assert pa.ipc.open_stream(arrow.body).read_all()["offset"].to_pylist() == [0, 2, 4]
    assert len((await served.messages("orders"))["messages"]) == 5


@pytest.mark.parametrize(
    ("document", "status", "problem"),
    [
        ({"topic": "orders", "partition": 0, "offset": 0}, 400, "bad-document"),
        ({"topic": "orders", "partition": 0, "offset": 0, "reason": ""}, 400, "bad-document"),
        ({"topic": "orders", "partition": 0, "offset": -1, "reason": "r"}, 400, "bad-document"),
        ({"topic": "orders", "partition": 0, "offset": 3, "reason": "r"}, 409, "offset-out-of-range"),
        ({"topic": "orders", "partition": 9, "offset": 0, "reason": "r"}, 404, "unknown-partition"),
        ({"topic": "nowhere", "partition": 0, "offset": 0, "reason": "r"}, 404, "unknown-topic"),
        ({"topic": "__consumer_offsets", "partition": 0, "offset": 0, "reason": "r"}, 409, "invalid-topic-name"),
    ],
)
async def test_refusals(served: Served, document: Any, status: int, problem: str) -> None:
    await prepared(served)
    await commit(served, 0)
    for address in ("dead-letters", "failures"):
        reply = await served.post(f"{GROUP}/{address}", json=document)
        assert (reply.status, reply.problem) == (status, problem)


async def test_a_group_whose_name_cannot_be_in_a_topics_name_is_told_so(served: Served) -> None:
    await prepared(served)
    asked = {"topic": "orders", "partition": 0, "offset": 0, "reason": "r"}
    reply = await served.post("/api/v1/consumer-groups/a%20b/dead-letters", json=asked)
    assert (reply.status, reply.problem) == (409, "invalid-topic-name")
    assert "group name" in reply.json["hint"]


async def test_the_failure_that_reaches_the_limit_sets_the_record_aside(serve: Serve) -> None:
    served = await serve(max_deliveries=3)
    await prepared(served)
    for expected in (1, 2):
        assert (await fail(served, 0)).json == {
            "failures": expected,
            "max_deliveries": 3,
            "dead_lettered": False,
            "dead_letter": None,
        }
    failing = (await served.get(f"{GROUP}/dead-letters")).json["failing"]
    stamp = failing[0]["last_failure_ms"]
    assert failing == [
        {
            "topic": "orders",
            "partition": 0,
            "offset": 0,
            "failures": 2,
            "reason": "timeout",
            "last_failure_ms": stamp,
        }
    ]
    last = (await fail(served, 0, "gave up")).json
    assert (last["failures"], last["dead_lettered"], last["dead_letter"]["topic"]) == (3, True, DLQ)
    assert last["dead_letter"]["committed_offset"] == 1
    (letter,) = await letters(served)
    assert letter["headers"]["tierlog.dlq.reason"] == "gave up"
    assert letter["headers"]["tierlog.dlq.failures"] == "3"
    assert (await served.get(f"{GROUP}/dead-letters")).json == {
        "group": "billing",
        "topics": [
            {
                "topic": "orders",
                "dead_letter_topic": DLQ,
                "count": 1,
                "partitions": [{"partition": 0, "count": 1}],
            }
        ],
        "failing": [],
    }


async def test_counts_survive_a_restart_and_requests_may_set_the_limit(serve: Serve) -> None:
    first = await serve()
    await prepared(first)
    assert (await fail(first, 2)).json["failures"] == 1
    await first.end()
    second = await serve()
    await second.node.groups.loaded()
    assert (await fail(second, 2, max_deliveries=3)).json["failures"] == 2
    assert (await fail(second, 2, max_deliveries=3)).json["dead_lettered"] is True


async def test_switched_off_nothing_happens_by_itself(serve: Serve) -> None:
    served = await serve(max_deliveries=0)
    await prepared(served)
    for _ in range(10):
        assert (await fail(served, 0)).json["dead_lettered"] is False
    assert (await served.get(f"/api/v1/topics/{DLQ}")).status == 404


async def test_counts_of_one_record_are_not_lost_under_contention(served: Served) -> None:
    await prepared(served)
    replies = await asyncio.gather(*(fail(served, 0, max_deliveries=1000) for _ in range(30)))
    assert sorted(reply.json["failures"] for reply in replies) == list(range(1, 31))


class Clock:
    """The node's time, moved by hand."""

    def __init__(self, served: Served) -> None:
        self._start = served.node.clock()
        self._passed = 0
        served.node.clock = lambda: self._start + self._passed

    def pass_seconds(self, seconds: int) -> None:
        self._passed += seconds * 1000


async def test_a_consumer_that_crashes_at_one_record_gets_past_it_and_loses_no_other(serve: Serve) -> None:
    """The poison is in the middle of the batch; the consumer commits only what it got through."""
    served = await serve(max_deliveries=3)
    await prepared(served, 6)
    clock = Clock(served)
    handled: list[int] = []
    reads = 0
    while (await committed(served) or 0) < 6:
        reads += 1
        assert reads < 30
        clock.pass_seconds(31)
        batch = await read(served)
        if not batch:
            break
        if 3 in batch:
            continue  # it crashes, having committed nothing
        handled += batch
        await commit(served, batch[-1] + 1)
    assert handled == [0, 1, 2, 4, 5]
    (letter,) = await letters(served)
    assert letter["headers"]["tierlog.dlq.offset"] == "3"
    assert letter["headers"]["tierlog.dlq.failures"] == "3"
    assert "not committed" in letter["headers"]["tierlog.dlq.reason"]


async def test_reading_again_at_once_is_the_same_delivery(served: Served) -> None:
    await prepared(served)
    clock = Clock(served)
    for _ in range(50):
        assert await read(served) == [0, 1, 2]
    clock.pass_seconds(29)
    assert await read(served) == [0, 1, 2]
    clock.pass_seconds(2)
    assert await read(served) == [0]
    assert await read(served) == [0]


async def test_one_by_one_ends_behind_the_answer_that_failed(served: Served) -> None:
    await prepared(served, 3)
    clock = Clock(served)
    assert await read(served) == [0, 1, 2]
    await served.produce("orders", b"3", b"4")
    clock.pass_seconds(31)
    for number in range(3):
        assert await read(served) == [number]
        await commit(served, number + 1)
    assert await read(served) == [3, 4]
    await commit(served, 0)
    assert await read(served) == [0, 1, 2, 3, 4]


async def test_explicit_offsets_and_committing_consumers_are_never_counted(serve: Serve) -> None:
    served = await serve(max_deliveries=1)
    await prepared(served, 4)
    clock = Clock(served)
    for _ in range(5):
        assert await read(served, offset=0) == [0, 1, 2, 3]
        clock.pass_seconds(100)
    for number in range(4):
        assert await read(served, limit=1) == [number]
        clock.pass_seconds(100)
        await commit(served, number + 1)
    assert (await served.get(f"/api/v1/topics/{DLQ}")).status == 404


async def test_a_reported_failure_is_not_counted_again_when_the_record_is_read_again(serve: Serve) -> None:
    served = await serve(max_deliveries=3)
    await prepared(served)
    clock = Clock(served)
    for expected in (1, 2):
        assert await read(served, limit=1) == [0]
        assert (await fail(served, 0)).json["failures"] == expected
        clock.pass_seconds(100)
    assert await read(served, limit=1) == [0]


async def test_streams_count_as_deliveries_too(serve: Serve) -> None:
    served = await serve(max_deliveries=2)
    await prepared(served)
    clock = Clock(served)
    address = "/api/v1/topics/orders/partitions/0/messages"
    headers = {**AS_BILLING, "Accept": "application/x-ndjson"}
    sizes = []
    for _ in range(4):
        sizes.append((await served.get(address, headers=headers)).body.count(b"\n"))
        clock.pass_seconds(31)
    assert sizes == [3, 1, 1, 1]
    assert await committed(served) == 1


async def test_redelivery_counting_can_be_switched_off(serve: Serve) -> None:
    served = await serve(max_deliveries=1, redelivery_after_ms=0)
    await prepared(served)
    clock = Clock(served)
    for _ in range(5):
        assert await read(served) == [0, 1, 2]
        clock.pass_seconds(1000)


async def test_a_group_with_kafka_members_keeps_its_offset(served: Served) -> None:
    await prepared(served)
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=served.kafka,
        group_id="billing",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        assert (await consumer.getone()).offset == 0
        assert (await reject(served, 0)).json["committed_offset"] is None
        assert len(await letters(served)) == 1
    finally:
        await consumer.stop()


async def test_a_record_as_large_as_allowed_still_fits_into_the_dead_letter_topic(served: Served) -> None:
    await served.make_topic("orders", max_message_bytes=2000)
    await served.produce("orders", b"x" * 1900)
    assert (await reject(served, 0, "r" * 4000)).status == 201
    assert len(b64decode((await letters(served))[0]["value"])) == 1900


async def test_more_partitions_later(served: Served) -> None:
    await prepared(served)
    await reject(served, 0)
    await served.call("PATCH", "/api/v1/topics/orders", json={"partitions": 3})
    await served.produce("orders", b"new", partition=2)
    asked = {"topic": "orders", "partition": 2, "offset": 0, "reason": "r"}
    reply = await served.post(f"{GROUP}/dead-letters", json=asked)
    assert (reply.status, reply.json["partition"]) == (201, 2)


async def test_a_dead_letter_can_be_dead_lettered(served: Served) -> None:
    await prepared(served)
    await reject(served, 0)
    asked = {"topic": DLQ, "partition": 0, "offset": 0, "reason": "still no"}
    for status in (201, 200):
        reply = await served.post("/api/v1/consumer-groups/repair/dead-letters", json=asked)
        assert (reply.status, reply.json["topic"]) == (status, f"{DLQ}.repair.dlq")


async def test_deleting_the_group_forgets_its_counts(served: Served) -> None:
    await prepared(served)
    await commit(served, 0)
    await fail(served, 0)
    assert (await served.call("DELETE", GROUP)).status == 204
    assert (await fail(served, 0)).json["failures"] == 1


def test_a_tally_keeps_what_matters() -> None:
    tally = NONE
    for offset in range(MAX_RECORDS + 5):
        tally = tally.counted(offset, "r" * 999, 1000 + offset, committed=0)
    assert len(tally.failures) == MAX_RECORDS
    assert min(tally.failures) == 5
    assert decode("k", encode(tally)) == tally
    later = tally.counted(7, "again", 9999, committed=1000)
    assert sorted(later.failures) == [7, *range(1000, MAX_RECORDS + 5)]
    assert later.failures[7].times == 2


@pytest.mark.parametrize("damaged", [b"", b"[]", b"{}", b'{"suspect_end":1,"failures":{"x":[1,"r",2]}}'])
def test_a_damaged_tally_is_told(damaged: bytes) -> None:
    with pytest.raises(CorruptMetadata):
        decode("k", damaged)

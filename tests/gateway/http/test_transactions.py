"""Transactions of services over HTTP: all of it counts or none, whatever is repeated, fenced, late, or restarted."""

import asyncio
from base64 import b64decode
from typing import Any

import pytest

from gateway.http.transactions import session, sessions
from hot_tier.ids import PartitionId
from tests.gateway.http.conftest import Reply, Serve, Served
from tests.support.waiting import until

ID = "/api/v1/transactions/billing-1"


class Transaction:
    """One transaction, as a service keeps it."""

    def __init__(self, served: Served, begun: Any) -> None:
        self.served = served
        self.name = {"X-Transaction": begun["transaction"]}
        self.path = f"/api/v1/transactions/{begun['transactional_id']}"

    async def post(self, topic: str, *messages: dict[str, Any], key: str | None = None) -> Reply:
        headers = self.name if key is None else {**self.name, "Idempotency-Key": key}
        return await self.served.post(
            f"{self.path}/topics/{topic}/messages", json={"messages": list(messages)}, headers=headers
        )

    async def posted(self, topic: str, *values: str, key: str | None = None) -> list[int]:
        reply = await self.post(topic, *({"value": value, "partition": 0} for value in values), key=key)
        assert reply.status == 200, reply
        return [each["offset"] for each in reply.json["results"]]

    async def offsets(self, group: str, topic: str, **offsets: int) -> Reply:
        document = [
            {"topic": topic, "partition": int(name.removeprefix("p")), "offset": at} for name, at in offsets.items()
        ]
        return await self.served.post(
            f"{self.path}/offsets", json={"group": group, "offsets": document}, headers=self.name
        )

    async def end(self, how: str) -> Reply:
        return await self.served.post(f"{self.path}/{how}", headers=self.name)

    async def commit(self) -> None:
        reply = await self.end("commit")
        assert (reply.status, reply.json["outcome"]) == (200, "committed"), reply


async def begin(served: Served, name: str = "billing-1", **document: Any) -> Transaction:
    reply = await served.post(f"/api/v1/transactions/{name}/begin", json=document)
    assert reply.status == 200, reply
    return Transaction(served, reply.json)


async def values(served: Served, topic: str) -> list[bytes]:
    return [b64decode(each["value"]) for each in (await served.messages(topic))["messages"]]


async def decided(served: Served, *topics: str) -> None:
    """Waits until the markers are written: the answer to a commit comes before."""
    for topic in topics:
        partition = served.node.partitions.get(topic, PartitionId(0))
        await until(lambda: partition.last_stable_offset == partition.log_end_offset)  # noqa: B023


async def eventually(served: Served, group: str, expected: dict[tuple[str, int], tuple[int | None, bool]]) -> None:
    async with asyncio.timeout(30):
        while await committed(served, group) != expected:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def committed(served: Served, group: str) -> dict[tuple[str, int], tuple[int | None, bool]]:
    told = (await served.get(f"/api/v1/consumer-groups/{group}/offsets")).json["offsets"]
    return {(each["topic"], each["partition"]): (each["offset"], each["pending"]) for each in told}


@pytest.fixture
async def topics(served: Served) -> Served:
    for name in ("orders", "bills", "audit"):
        await served.make_topic(name)
    return served


async def test_consume_transform_produce(topics: Served) -> None:
    await topics.produce("orders", b"1", b"2", b"3")
    work = await begin(topics)
    assert await work.posted("bills", "one", "two") == [0, 1]
    assert await work.posted("audit", "billed 2") == [0]
    assert (await work.offsets("billing", "orders", p0=2)).json == {"added": True}
    assert await values(topics, "bills") == [] and await values(topics, "audit") == []
    assert await committed(topics, "billing") == {("orders", 0): (None, True)}
    waiting = await topics.get("/api/v1/topics/orders/partitions/0/messages", headers={"X-Consumer-Group": "billing"})
    assert (waiting.status, waiting.problem) == (503, "unstable-offset")
    await work.commit()
    await decided(topics, "bills", "audit")
    assert await values(topics, "bills") == [b"one", b"two"]
    assert await values(topics, "audit") == [b"billed 2"]
    await eventually(topics, "billing", {("orders", 0): (2, False)})
    read = await topics.messages("orders", headers={"X-Consumer-Group": "billing"})
    assert [each["offset"] for each in read["messages"]] == [2]


async def test_nothing_of_an_aborted_transaction_is_seen(topics: Served) -> None:
    work = await begin(topics)
    await work.posted("bills", "one")
    await work.offsets("billing", "orders", p0=0)
    for _ in range(2):
        reply = await work.end("abort")
        assert (reply.status, reply.json) == (200, {"transactional_id": "billing-1", "outcome": "aborted"})
    await decided(topics, "bills")
    assert await values(topics, "bills") == []
    await eventually(topics, "billing", {})
    after = await begin(topics)
    assert await after.posted("bills", "two") == [2], "the marker has offset 1"
    await after.commit()
    await decided(topics, "bills")
    assert await values(topics, "bills") == [b"two"]


async def test_transactions_follow_each_other(topics: Served) -> None:
    for number in range(5):
        work = await begin(topics)
        await work.posted("bills", str(number))
        await work.commit()
    await decided(topics, "bills")
    assert await values(topics, "bills") == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_transaction_that_wrote_nothing(topics: Served) -> None:
    for how in ("commit", "abort"):
        work = await begin(topics)
        assert (await work.end(how)).status == 200


async def test_a_repeated_post_is_stored_once_and_gets_the_first_answer(topics: Served) -> None:
    work = await begin(topics)
    first = await work.posted("bills", "one", "two", key="k1")
    assert await work.posted("bills", "one", "two", key="k1") == first
    assert await work.posted("bills", "one", key="k2") == [2]
    assert await work.posted("bills", "one") == [3], "without a key it is another message"
    again = await work.post("bills", {"value": "other", "partition": 0}, key="k1")
    assert (again.status, again.problem) == (409, "idempotency-key-reused")
    elsewhere = await work.post("audit", {"value": "one"}, {"value": "two"}, key="k1")
    assert (elsewhere.status, elsewhere.problem) == (409, "idempotency-key-reused")
    await work.commit()
    await decided(topics, "bills")
    assert await values(topics, "bills") == [b"one", b"two", b"one", b"one"]


async def test_a_repeated_post_that_meets_the_first_one_is_stored_once(topics: Served) -> None:
    work = await begin(topics)
    found = await asyncio.gather(*(work.posted("bills", "one", key="k") for _ in range(8)))
    assert found == [[0]] * 8
    await work.commit()
    await decided(topics, "bills")
    assert await values(topics, "bills") == [b"one"]


async def test_posts_at_once_are_all_stored(topics: Served) -> None:
    work = await begin(topics)
    found = await asyncio.gather(*(work.posted("bills", str(number)) for number in range(20)))
    assert sorted(offset for (offset,) in found) == list(range(20))
    await work.commit()


async def test_keys_place_messages_as_ever(served: Served) -> None:
    await served.make_topic("many", 8)
    plain = await served.post("/api/v1/topics/many/messages", data=b"v", headers={"X-Partition-Key": "ada"})
    work = await begin(served)
    reply = await work.post("many", {"key": "ada", "value": "v"}, *({"value": str(each)} for each in range(8)))
    results = reply.json["results"]
    assert results[0]["partition"] == plain.json["partition"]
    assert len({each["partition"] for each in results[1:]}) == 8
    assert all(each["topic"] == "many" for each in results)


async def test_an_answer_that_was_lost_is_given_again(topics: Served) -> None:
    work = await begin(topics)
    await work.posted("bills", "one")
    await work.commit()
    await work.commit()
    reply = await work.end("abort")
    assert (reply.status, reply.problem) == (409, "transaction-over")
    reply = await work.post("bills", {"value": "late"})
    assert (reply.status, reply.problem) == (409, "transaction-over")


async def test_the_next_begin_fences_and_aborts_what_a_crashed_instance_left(topics: Served) -> None:
    crashed = await begin(topics)
    await crashed.posted("bills", "lost")
    work = await begin(topics)
    for reply in (
        await crashed.post("bills", {"value": "late"}),
        await crashed.offsets("billing", "orders", p0=1),
        await crashed.end("commit"),
    ):
        assert (reply.status, reply.problem) == (409, "transaction-lost")
        assert "begin" in reply.json["hint"].lower()
    await work.posted("bills", "kept")
    await work.commit()
    await decided(topics, "bills")
    assert await values(topics, "bills") == [b"kept"]


async def test_the_broker_restarts_in_the_middle(serve: Serve) -> None:
    served = await serve()
    for name in ("orders", "bills"):
        await served.make_topic(name)
    done = await begin(served, "done-1")
    await done.posted("bills", "kept")
    await done.commit()
    await decided(served, "bills")
    work = await begin(served)
    await work.posted("bills", "one", key="k")
    await served.end()
    served = done.served = work.served = await serve()
    while (await served.get("/readyz")).status != 200:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    reply = await work.post("bills", {"value": "one"}, key="k")
    assert (reply.status, reply.problem) == (409, "transaction-lost")
    reply = await work.end("commit")
    assert (reply.status, reply.problem) == (409, "transaction-lost"), "nobody knows what was in it"
    await done.commit()  # what was decided before is told again
    assert (await done.end("abort")).status == 409
    assert (await work.end("abort")).status == 200
    again = await begin(served)
    await again.posted("bills", "again")
    await again.commit()
    await decided(served, "bills")
    assert await values(served, "bills") == [b"kept", b"again"]


async def test_a_post_that_may_be_there_in_part_lets_nothing_be_committed(topics: Served) -> None:
    await topics.make_topic("small", max_message_bytes=2000)
    work = await begin(topics)
    await work.posted("bills", "one")
    refused = await work.post("small", {"value": "x" * 3000})
    assert (refused.status, refused.problem) == (413, "message-too-large")
    assert await work.posted("bills", "two") == [1], "nothing of the refused post is stored"
    refused = await work.post("small", {"value": "fits"}, {"value": "x" * 3000})
    assert refused.status == 413
    for reply in (await work.end("commit"), await work.post("bills", {"value": "more"})):
        assert (reply.status, reply.problem) == (409, "transaction-broken")
    assert (await work.end("abort")).status == 200


async def test_what_is_refused(topics: Served) -> None:
    missing = await topics.post(f"{ID}/topics/bills/messages", json={"messages": [{"value": "v"}]})
    assert (missing.status, missing.problem) == (400, "bad-parameter")
    for token in ("x", "1", "-1-0", "1-99999", "1-2-3", "9" * 25 + "-1"):
        reply = await topics.post(f"{ID}/commit", headers={"X-Transaction": token})
        assert (reply.status, reply.problem) == (409, "transaction-lost"), token
    reply = await topics.post(f"{ID}/commit", headers={"X-Transaction": "4000-0"})
    assert (reply.status, reply.problem) == (409, "transaction-lost")
    reply = await topics.post(f"{ID}/begin", json={"timeout_ms": 900_001})
    assert (reply.status, reply.problem) == (409, "transaction-refused")
    assert "transactions.max_timeout_ms" in reply.json["hint"]
    work = await begin(topics)
    for topic, problem in (("none", "unknown-topic"), ("__transaction_state", "invalid-topic-name")):
        assert (await work.post(topic, {"value": "v"})).problem == problem
    assert (await work.post("bills", {"value": "v", "partition": 3})).problem == "unknown-partition"
    reply = await work.offsets("billing", "none", p0=1)
    assert reply.problem == "unknown-topic", reply
    assert (await work.end("commit")).status == 200


async def test_a_group_with_members_decides_itself_where_it_goes_on(topics: Served) -> None:
    from gateway.coordinators.groups.messages import JoinRequest
    from tests.gateway.coordinators.node import RANGE

    request = JoinRequest("", "m-1", None, "m", "/127.0.0.1", 10_000, 10_000, "consumer", RANGE, must_know_id=False)
    joined = await topics.node.groups.join("billing", request)
    assert joined.error is None
    work = await begin(topics)
    reply = await work.offsets("billing", "orders", p0=1)
    assert (reply.status, reply.problem) == (409, "group-not-empty")


async def test_a_transaction_takes_no_longer_than_its_time_out(topics: Served) -> None:
    work = await begin(topics, timeout_ms=1)
    await asyncio.sleep(0.01)
    reply = await work.post("bills", {"value": "late"})
    assert (reply.status, reply.problem) == (409, "transaction-over")


async def test_a_commit_after_the_coordinators_time_out_is_refused(
    topics: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = await begin(topics, timeout_ms=60_000)
    await work.posted("bills", "one")
    coordinator = topics.node.transactions
    later = topics.node.clock() + 3600_000
    monkeypatch.setattr(coordinator, "_clock", lambda: later)
    monkeypatch.setattr(coordinator.changes, "clock", lambda: later)
    await coordinator.abort_timed_out()
    reply = await work.end("commit")
    assert (reply.status, reply.problem) in ((409, "producer-fenced"), (503, "concurrent-transactions"))
    await decided(topics, "bills")
    assert await values(topics, "bills") == []


async def test_only_so_many_at_once(topics: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_SESSIONS", 2)
    first, _ = await begin(topics, "a"), await begin(topics, "b")
    reply = await topics.post("/api/v1/transactions/c/begin", json={})
    assert (reply.status, reply.problem) == (503, "overloaded")
    await begin(topics, "b")
    await first.commit()
    await begin(topics, "c")


async def test_only_so_many_keys(topics: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MOST_HELD_BYTES", 4 * session.ANSWER_BYTES)
    work = await begin(topics)
    await work.posted("bills", "one", key="k")
    reply = await work.post("bills", {"value": "two"}, key="l")
    assert (reply.status, reply.problem) == (429, "too-many-idempotency-keys")
    await work.posted("bills", "one", key="k")
    await work.posted("bills", "three")
    await work.commit()


async def test_list_describe_and_an_operators_abort(topics: Served) -> None:
    assert (await topics.get("/api/v1/transactions")).json == {"transactions": []}
    assert (await topics.get(ID)).problem == "unknown-transactional-id"
    assert (await topics.post(f"{ID}/abort")).problem == "unknown-transactional-id"
    work = await begin(topics)
    nothing = await topics.post(f"{ID}/abort")
    assert (nothing.status, nothing.problem) == (409, "no-open-transaction")
    await work.posted("bills", "one")
    await work.offsets("billing", "orders", p0=0)
    (listed,) = (await topics.get("/api/v1/transactions")).json["transactions"]
    assert (listed["transactional_id"], listed["state"], listed["coordinator"]) == ("billing-1", "Ongoing", 0)
    found = (await topics.get(ID)).json
    assert {name: found[name] for name in listed} == listed
    assert found["timeout_ms"] == 60_000
    assert [each["topic"] for each in found["partitions"]] == ["__consumer_offsets", "bills"]
    assert (await topics.post(f"{ID}/abort")).json["outcome"] == "aborted"
    reply = await work.end("commit")
    assert (reply.status, reply.problem) in ((409, "producer-fenced"), (503, "concurrent-transactions"))
    await decided(topics, "bills")
    assert await values(topics, "bills") == []


async def test_an_id_may_have_any_letters(topics: Served) -> None:
    work = await begin(topics, "a%2Fb%20%C3%BC")
    work.path = "/api/v1/transactions/a%2Fb%20%C3%BC"
    await work.posted("bills", "one")
    assert (await topics.get(work.path)).json["transactional_id"] == "a/b ü"
    await work.commit()

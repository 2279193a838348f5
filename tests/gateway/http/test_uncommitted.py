"""A message that is written and not committed: its sender is told that nobody knows, never that it failed."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from hot_tier.cluster.model import encode, partition_key
from hot_tier.cluster.store import Put
from hot_tier.ids import NodeId, PartitionId
from tests.gateway.http.conftest import Reply, Serve, Served
from tests.support.waiting import until

OTHER = NodeId(5)


async def change(served: Served, partition: int = 0, **changes: Any) -> None:
    """The state of the partition as somebody else writes it; broker 5 never fetches."""
    image = served.node.image
    topic = image.topic("orders")
    state = image.partition_states(topic)[partition]
    key = partition_key(topic.id, PartitionId(partition))
    revision = await served.node.store.transact([], [Put(key, encode(replace(state, **changes)))])
    assert revision is not None
    await image.reached(revision)


async def ask_for_two(served: Served) -> None:
    topic = served.node.image.topic("orders")
    config = {"min.insync.replicas": "2"}
    await served.node.store.transact([], [Put(f"topics/{topic.name}", encode(replace(topic, config=config)))])
    await until(lambda: served.node.image.topic("orders").config == config)


def post(served: Served, many: bool) -> Any:
    if many:
        return served.post("/api/v1/topics/orders/messages/batch", json={"messages": [{"value": "v"}]})
    return served.post("/api/v1/topics/orders/messages", data=b"v")


async def waiting(served: Served, many: bool) -> "asyncio.Future[Reply]":
    """A message that is in the log, and that broker 5 ought to have too."""
    await served.make_topic("orders")
    both = (served.node.node_id, OTHER)
    await change(served, isr=both, replicas=both)
    posted = asyncio.ensure_future(post(served, many))
    partition = served.node.partitions.get("orders", 0)
    await until(lambda: partition.log.log_end_offset == 1)
    assert partition.high_watermark == 0
    return posted


@pytest.mark.parametrize("many", [False, True])
async def test_not_in_time(serve: Serve, many: bool) -> None:
    served = await serve(produce_timeout_ms=200)
    reply = await (await waiting(served, many))
    assert (reply.status, reply.problem) == (503, "outcome-unknown")
    # It was there all the time, and is committed once the replica that does not fetch has left and it is synced.
    await change(served, isr=(served.node.node_id,))
    read = await served.messages("orders", wait_ms=8000)
    assert [each["offset"] for each in read["messages"]] == [0]


@pytest.mark.parametrize("many", [False, True])
async def test_another_broker_takes_over_meanwhile(serve: Serve, many: bool) -> None:
    served = await serve()
    posted = await waiting(served, many)
    [state] = served.node.image.partition_states(served.node.image.topic("orders"))
    await change(served, leader=OTHER, leader_epoch=state.leader_epoch + 1)
    reply = await posted
    assert (reply.status, reply.problem) == (503, "outcome-unknown")
    refused = await post(served, many)
    assert refused.status == 503 and refused.problem in ("no-leader", "not-leader"), "no broker 5 is there"


@pytest.mark.parametrize("many", [False, True])
async def test_stored_by_too_few(serve: Serve, many: bool) -> None:
    served = await serve()
    posted = await waiting(served, many)
    await ask_for_two(served)
    await change(served, isr=(served.node.node_id,))
    reply = await posted
    assert (reply.status, reply.problem) == (503, "outcome-unknown")


async def test_one_of_two_partitions_is_stored_by_too_few_while_the_other_is_waited_for(serve: Serve) -> None:
    served = await serve()
    await served.make_topic("orders", partitions=2)
    both = (served.node.node_id, OTHER)
    for number in (0, 1):
        await change(served, number, isr=both, replicas=both)
    await ask_for_two(served)
    messages = [{"value": "v", "partition": number} for number in (0, 1)]
    posted = asyncio.ensure_future(served.post("/api/v1/topics/orders/messages/batch", json={"messages": messages}))
    first, second = (served.node.partitions.get("orders", number) for number in (0, 1))
    await until(lambda: first.log.log_end_offset == second.log.log_end_offset == 1)
    await change(served, 1, isr=(served.node.node_id,))
    await until(lambda: second.high_watermark == 1)
    first.replica_fetched(OTHER, -1, 1, served.node.clock())
    reply = await posted
    assert reply.status == 207
    stored, unknown = reply.json["results"]
    assert (stored["partition"], stored["offset"]) == (0, 0)
    assert unknown["error"]["type"].endswith("outcome-unknown")

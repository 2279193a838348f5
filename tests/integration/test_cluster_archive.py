"""The archive of a replicated topic: one leader at a time writes it, the next one goes on, followers let go of what it
holds, and a new replica begins where it ends.

    leader     [ bucket ............ )[ local ........ )
    follower   [ bucket ............ )[ local ........ )
    new one                           [ copied ....... )
"""

import asyncio
import base64
import random
from pathlib import Path
from typing import Any

import orjson
import pytest
import uvloop

from hot_tier.ids import NodeId, PartitionId, TopicPartition
from hot_tier.log.partition_log import PartitionLog
from tests.damage.harms import Target, do
from tests.support.members import Member, Members, members
from tests.support.waiting import until

TOPIC = "orders"
TP = TopicPartition(TOPIC, PartitionId(0))
SMALL = {
    "remote_storage_enable": "true",
    "segment_bytes": "20000",
    "local_retention_bytes": "30000",
    "min_insync_replicas": "2",
    "file_delete_delay_ms": "0",
}


def pytest_asyncio_loop_factories(config, item):
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
async def cluster(tmp_path: Path):
    async with members(tmp_path) as found:
        await found.make_topic(TOPIC, 1, 3, **SMALL)
        yield found


async def write(member: Member, first: int, count: int) -> None:
    """Values tell their offset; refusals of an election are waited out, and nothing is sent twice."""
    for number in range(first, first + count, 50):
        batch = [{"value": f"{each}:" + "x" * 300} for each in range(number, min(number + 50, first + count))]
        reply = None
        async with asyncio.timeout(30):
            while reply is None or (reply.status == 503 and "outcome-unknown" not in reply.body.decode()):
                reply = await member.post(f"/api/v1/topics/{TOPIC}/messages/batch", json={"messages": batch})
        assert [each["offset"] for each in reply.json["results"]] == list(range(number, number + len(batch))), reply


async def read(member: Member) -> list[int]:
    """Every record from the start, through this broker; its offset and its value agree."""
    found: list[int] = []
    position: Any = "earliest"
    async with asyncio.timeout(60):
        while True:
            reply = await member.get(
                f"/api/v1/topics/{TOPIC}/partitions/0/messages", params={"offset": str(position), "limit": "1000"}
            )
            if reply.status == 503:
                await asyncio.sleep(0.05)
                continue
            assert reply.status == 200, reply
            for each in reply.json["messages"]:
                assert int(base64.b64decode(each["value"]).partition(b":")[0]) == each["offset"]
                found.append(each["offset"])
            if not reply.json["messages"]:
                return found
            position = reply.json["next_offset"]


def log_of(member: Member) -> PartitionLog | None:
    found = member.broker.node.partitions.find_local(TOPIC, 0)
    return None if found is None else found.log


def leader(cluster: Members) -> Member:
    return cluster[cluster.leader_of(TOPIC, 0)]


async def archived(cluster: Members) -> Any:
    reply = await next(iter(cluster)).get(f"/api/v1/topics/{TOPIC}/archive?limit=0")
    return reply.json["partitions"][0]["archived"]


async def settled(cluster: Members) -> None:
    """All that is sealed is archived, and let go of by every replica as far as local retention says."""
    async with asyncio.timeout(60):
        while True:
            reply = await next(iter(cluster)).get(f"/api/v1/topics/{TOPIC}/archive?limit=0")
            [shown] = reply.json["partitions"]
            logs = [log for log in map(log_of, cluster) if log is not None]
            if (
                shown["archived"] is not None
                and shown["local"] is not None
                and shown["backlog_bytes"] == 0
                and all(log.size_bytes <= 60_000 for log in logs)
            ):
                return
            await asyncio.sleep(0.05)


async def verify(cluster: Members) -> None:
    reply = await next(iter(cluster)).post("/api/v1/archive/verify", json={"topics": [TOPIC]})
    summary = orjson.loads(reply.body.splitlines()[-1])
    assert (summary["type"], summary["problems"]) == ("summary", 0), reply.body


async def test_the_archive_goes_on_under_every_leader(cluster: Members) -> None:
    written, epochs = 0, []
    for _ in range(3):
        await write(next(iter(cluster)), written, 400)
        written += 400
        await settled(cluster)
        shown = await archived(cluster)
        epochs.append(shown["leader_epoch"])
        starts = {member.node_id: log_of(member).local_log_start_offset for member in cluster}
        assert all(0 < start <= shown["end_offset"] for start in starts.values()), (starts, shown)
        assert {log_of(member).log_start_offset for member in cluster} == {0}
        assert shown["rows"] == shown["end_offset"], "no row is missing, none is there twice"
        for member in cluster:
            assert await read(member) == list(range(written))
        await verify(cluster)
        await step_down(cluster)
    assert epochs == sorted(set(epochs)), "each leader published under its own epoch"


async def step_down(cluster: Members) -> None:
    """Its leader stops cleanly and comes back as a follower."""
    node_id = leader(cluster).node_id
    await cluster.stop(node_id)
    await until(lambda: cluster.leader_of(TOPIC, 0) not in (node_id, -1))
    await cluster.start(node_id)
    image = cluster[node_id].broker.node.image
    await until(lambda: len(image.partition_state(TP).isr) == 3)


async def test_a_new_replica_copies_only_what_is_local_at_its_leader(cluster: Members) -> None:
    await write(cluster[1], 0, 1000)
    await settled(cluster)
    shown = await archived(cluster)
    assert shown["end_offset"] > 700
    fourth = await cluster.start(4)
    seen = cluster[1].broker.node.image
    await until(lambda: seen.broker(NodeId(4)) is not None)
    before = sorted(seen.partition_state(TP).replicas)
    outcome = await cluster[1].broker.node.moves.reassign({TP: [NodeId(4), *map(NodeId, before[:2])]})
    assert outcome == {TP: None}
    image = fourth.broker.node.image
    await until(lambda: sorted(image.partition_state(TP).replicas) == sorted([4, *before[:2]]), 40)
    log = log_of(fourth)
    assert log.log_start_offset == 0 and log.local_log_start_offset >= shown["end_offset"] - 100
    assert log.local_log_start_offset > 700, "what is in the bucket was not copied"
    await cluster.agree()
    leading = log_of(leader(cluster))
    assert leading is not None
    assert log.epochs.entries() == leading.epochs.entries()
    # It leads, archives and reads like any other.
    await until(lambda: 4 in image.partition_state(TP).isr)
    await fourth.broker.node.moves.elect([TP])
    await until(lambda: cluster.leader_of(TOPIC, 0) == 4)
    await write(cluster[1], 1000, 400)
    await settled(cluster)
    await cluster.agree()
    for member in cluster:
        assert await read(member) == list(range(1400))
    await verify(cluster)


async def test_a_replica_that_was_away_too_long_begins_at_the_archive(cluster: Members) -> None:
    await write(cluster[1], 0, 100)
    away = next(member.node_id for member in cluster if member.node_id != leader(cluster).node_id)
    await cluster.stop(away)
    await write(next(iter(cluster)), 100, 900)
    await settled(cluster)
    behind = (await archived(cluster))["end_offset"]
    back = await cluster.start(away)
    await until(lambda: len(back.broker.node.image.partition_state(TP).isr) == 3)
    log = log_of(back)
    assert log.log_start_offset == 0 and log.local_log_start_offset >= min(behind, 700)
    assert log.log_end_offset == 1000
    assert await read(back) == list(range(1000))


async def test_the_controller_restores_a_topic_with_its_replicas(cluster: Members) -> None:
    await write(cluster[1], 0, 600)
    await settled(cluster)
    end = (await archived(cluster))["end_offset"]
    assert (await cluster[2].call("DELETE", f"/api/v1/topics/{TOPIC}")).status == 204
    await cluster.agree()
    controller = cluster[1].broker.node.image.controller
    asked = next(member for member in cluster if member.node_id != controller)
    restored = await asked.post("/api/v1/archive/restore", json={"topics": [TOPIC]})
    assert restored.status == 200, restored
    await cluster.agree()
    await until(lambda: len(asked.broker.node.image.partition_state(TP).isr) == 3)
    state = asked.broker.node.image.partition_state(TP)
    assert (state.leader, sorted(state.replicas)) == (controller, [1, 2, 3])
    assert {log_of(member).log_end_offset for member in cluster} == {end}
    for member in cluster:
        assert await read(member) == list(range(end))


async def test_a_segment_that_is_damaged_at_the_leader_is_mended_and_archived_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hot_tier.replication.mender.CHECK_S", 0.2)
    async with members(tmp_path) as cluster:
        await cluster.make_topic(TOPIC, 1, 3, **{**SMALL, "remote_storage_enable": "false", "segment_bytes": "40000"})
        await write(cluster[1], 0, 600)
        leading = log_of(leader(cluster))
        assert leading is not None
        harmed = leading.sealed_segments()[1:4]
        for info, name in zip(harmed, ("head bit 61", "cut at a batch", "removed"), strict=True):
            assert do(name, Target(Path(info.path), random.Random(1)))
        await cluster[1].call("PATCH", f"/api/v1/topics/{TOPIC}", json={"config": {"remote.storage.enable": "true"}})
        await settled(cluster)
        shown = await archived(cluster)
        assert shown["rows"] == shown["end_offset"] > harmed[-1].end_offset
        await verify(cluster)
        for member in cluster:
            assert await read(member) == list(range(600))

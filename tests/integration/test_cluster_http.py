"""HTTP through any broker of a cluster: what is asked of one is done by the one that leads, coordinates or controls.

Three brokers in this process share a real etcd. Topics have one replica here, so that each partition has exactly one
broker that can do it.
"""

import asyncio
import base64
import socket
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import orjson
import pytest
import pytest_asyncio
import uvloop
from aiohttp import web

from gateway.http.peers import peers
from gateway.http.peers.peers import FORWARDED
from gateway.http.settings import HttpSettings
from hot_tier.cluster import model
from hot_tier.cluster.endpoints import simple_endpoints
from hot_tier.cluster.store import Delete, Put
from hot_tier.ids import NodeId, PartitionId
from tests.support.members import Member, Members, members
from tests.support.waiting import until


def pytest_asyncio_loop_factories(config, item):
    return {"uvloop": uvloop.new_event_loop}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory):
    async with members(tmp_path_factory.mktemp("cluster")) as found:
        yield found


pytestmark = pytest.mark.asyncio(loop_scope="module")


def messages_of(topic: str, partition: int) -> str:
    return f"/api/v1/topics/{topic}/partitions/{partition}/messages"


async def values(member: Member, topic: str, partition: int) -> list[bytes]:
    reply = await member.get(messages_of(topic, partition), params={"limit": "1000"})
    assert reply.status == 200, reply
    return [base64.b64decode(each["value"]) for each in reply.json["messages"]]


async def test_one_message_through_every_broker(cluster: Members) -> None:
    await cluster.make_topic("single")
    leaders = {cluster.leader_of("single", number) for number in range(3)}
    assert len(leaders) == 3, "placement spreads the partitions"
    for number in range(3):
        for member in cluster:
            headers = {"X-Partition-Key": "k", "X-Header-Trace": "a", "Content-Type": "text/plain"}
            reply = await member.post(
                f"/api/v1/topics/single/messages?partition={number}", data=b"by %d" % member.node_id, headers=headers
            )
            assert (reply.status, reply.json["partition"]) == (200, number), reply
        for member in cluster:
            read = await member.get(messages_of("single", number))
            assert [base64.b64decode(each["value"]) for each in read.json["messages"]] == [b"by 1", b"by 2", b"by 3"]
            assert {each["key"] for each in read.json["messages"]} == {"k"}
            assert read.json["messages"][0]["headers"] == [{"key": "trace", "value": "a"}]


async def test_a_key_that_is_not_text_is_the_same_through_every_broker(cluster: Members) -> None:
    await cluster.make_topic("binary", 1)
    for member in cluster:
        incoming, outgoing = await asyncio.open_connection(*member.broker.http.address)
        outgoing.write(
            b"POST /api/v1/topics/binary/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nConnection: close\r\n"
            b"X-Partition-Key: k\xff\r\nX-Header-Trace: \xe9t\xe9\r\n\r\nv"
        )
        assert (await incoming.read()).startswith(b"HTTP/1.1 200 ")
        outgoing.close()
    read = (await cluster[1].get(messages_of("binary", 0))).json["messages"]
    assert [base64.b64decode(each["key"]) for each in read] == [b"k\xff"] * 3
    assert [base64.b64decode(each["headers"][0]["value"]) for each in read] == [b"\xe9t\xe9"] * 3


async def test_keys_and_keyless_messages_find_their_partition(cluster: Members) -> None:
    await cluster.make_topic("keyed")
    by_key = {}
    for member in cluster:
        for key in ("a", "b", "c", "d"):
            reply = await member.post("/api/v1/topics/keyed/messages", data=b"v", headers={"X-Partition-Key": key})
            assert by_key.setdefault(key, reply.json["partition"]) == reply.json["partition"]
    spread = [(await cluster[1].post("/api/v1/topics/keyed/messages", data=b"v")).json["partition"] for _ in range(6)]
    assert sorted(set(spread)) == [0, 1, 2]


async def test_a_batch_is_split_among_the_leaders(cluster: Members) -> None:
    await cluster.make_topic("batch")
    sent = [
        {"value": f"{number}", "partition": number % 3, "headers": [{"key": "n", "value": "x"}]} for number in range(30)
    ]
    reply = await cluster[2].post("/api/v1/topics/batch/messages/batch", json={"messages": sent})
    assert reply.status == 200, reply
    results = reply.json["results"]
    assert [(each["partition"], each["offset"]) for each in results] == [(n % 3, n // 3) for n in range(30)]
    for number in range(3):
        assert await values(cluster[1], "batch", number) == [b"%d" % n for n in range(number, 30, 3)]


async def test_a_batch_larger_than_one_request_once_it_names_partitions(cluster: Members) -> None:
    """Naming the partition makes messages longer; what was within the limit is sent in two requests."""
    await cluster.make_topic("large", 1, max_message_bytes="20000000")
    away = cluster.not_leading("large", 0)
    limit = HttpSettings().max_batch_bytes
    count, room = 20_000, limit - 100
    value = "x" * (room // count - len('{"value":""},'))
    body = orjson.dumps({"messages": [{"value": value}] * count})
    assert limit - 20 * count < len(body) <= limit
    reply = await away.post(
        "/api/v1/topics/large/messages/batch", data=body, headers={"Content-Type": "application/json"}
    )
    assert reply.status == 200, reply.body[:300]
    assert [each["offset"] for each in reply.json["results"]] == list(range(count))


async def test_what_is_refused_there_is_refused_here(cluster: Members) -> None:
    await cluster.make_topic("strict", 3, max_message_bytes="2000")
    away = cluster.not_leading("strict", 0)
    reply = await away.post("/api/v1/topics/strict/messages?partition=0", data=b"x" * 3000)
    assert (reply.status, reply.problem) == (413, "message-too-large")
    mixed = [{"value": "x" * 3000, "partition": 0}, {"value": "good", "partition": cluster_partition(cluster, away)}]
    reply = await away.post("/api/v1/topics/strict/messages/batch", json={"messages": mixed})
    assert reply.status == 207
    assert reply.json["results"][0]["error"]["type"].endswith("message-too-large")
    assert reply.json["results"][1]["offset"] == 0
    reply = await away.post("/api/v1/topics/strict/messages/batch", json={"messages": mixed[:1]})
    assert (reply.status, reply.problem) == (413, "message-too-large")
    out = await away.get(messages_of("strict", 0), params={"offset": "7"})
    assert (out.status, out.problem, out.json["latest_offset"]) == (409, "offset-out-of-range", 0)


def cluster_partition(cluster: Members, member: Member) -> int:
    return next(n for n in range(3) if cluster.leader_of("strict", n) == member.node_id)


async def test_streams_and_long_polls_pass_through(cluster: Members) -> None:
    await cluster.make_topic("streams")
    away = cluster.not_leading("streams", 0)
    for number in range(5):
        await away.post("/api/v1/topics/streams/messages?partition=0", data=b"%d" % number)
    lines = await away.get(messages_of("streams", 0), headers={"Accept": "application/x-ndjson"})
    assert lines.headers["Content-Type"] == "application/x-ndjson"
    assert [orjson.loads(line)["offset"] for line in lines.body.splitlines()] == [0, 1, 2, 3, 4]
    waiting = asyncio.ensure_future(away.get(messages_of("streams", 0), params={"offset": "5", "wait_ms": "8000"}))
    leader = cluster[cluster.leader_of("streams", 0)]
    await until(lambda: leader.api.metrics.long_polls == 1)
    await away.post("/api/v1/topics/streams/messages?partition=0", data=b"5")
    assert [each["offset"] for each in (await waiting).json["messages"]] == [5]


async def test_a_reader_that_goes_away_is_not_waited_for_at_the_leader(cluster: Members) -> None:
    await cluster.make_topic("gone", 1)
    away, leader = cluster.not_leading("gone", 0), cluster[cluster.leader_of("gone", 0)]
    waiting = asyncio.ensure_future(away.get(messages_of("gone", 0), params={"wait_ms": "8000"}))
    await until(lambda: leader.api.metrics.long_polls == 1)
    waiting.cancel()
    await until(lambda: leader.api.metrics.long_polls == 0, 5)


async def test_groups_are_served_by_every_broker(cluster: Members) -> None:
    await cluster.make_topic("grouped")
    for number in range(3):
        for _ in range(4):
            await cluster[1].post(f"/api/v1/topics/grouped/messages?partition={number}", data=b"v")
    names = [f"group {n} ü" for n in range(6)]
    for member, name in zip([*cluster, *cluster], names, strict=True):
        path = f"/api/v1/consumer-groups/{name}/offsets"
        for number in range(3):
            commit = {"topic": "grouped", "partition": number, "offset": number}
            assert (await member.post(path, json=commit)).status == 200
        beyond = await member.post(path, json={"topic": "grouped", "partition": 0, "offset": 5})
        assert (beyond.status, beyond.problem, beyond.json["latest_offset"]) == (409, "offset-out-of-range", 4)
    coordinators = {cluster[1].broker.node.groups.find_existing(name) for name in names}
    assert len(coordinators) > 1
    for member in cluster:
        listed = (await member.get("/api/v1/consumer-groups")).json["groups"]
        assert [each["group"] for each in listed if each["group"].startswith("group ")] == names
        for name in names:
            shown = (await member.get(f"/api/v1/consumer-groups/{name}/offsets")).json
            assert [(each["offset"], each["lag"]) for each in shown["offsets"]] == [(0, 4), (1, 3), (2, 2)]
            assert shown["lag"] == 9
            assert (await member.get(f"/api/v1/consumer-groups/{name}")).json["state"] == "Empty"
            # A group's read begins where it has committed, whoever leads the partition and whoever keeps the offset.
            read = await member.get(messages_of("grouped", 2), headers={"X-Consumer-Group": name})
            assert [each["offset"] for each in read.json["messages"]] == [2, 3]
    for member, to in zip(cluster, ("earliest", "latest", 1), strict=True):
        reset = await member.post(
            f"/api/v1/consumer-groups/{names[0]}/offsets/reset", json={"topic": "grouped", "to": to}
        )
        assert {each["offset"] for each in reset.json["offsets"]} == {4 if to == "latest" else 0}
    assert (await cluster[3].call("DELETE", f"/api/v1/consumer-groups/{names[0]}")).status == 204
    assert (await cluster[1].get(f"/api/v1/consumer-groups/{names[0]}")).status == 404


async def test_a_commit_that_expects_what_is_not_there(cluster: Members) -> None:
    await cluster.make_topic("expected", 1)
    for _ in range(3):
        await cluster[1].post("/api/v1/topics/expected/messages", data=b"v")
    path, commit = "/api/v1/consumer-groups/careful/offsets", {"topic": "expected", "partition": 0}
    assert (await cluster[1].post(path, json={**commit, "offset": 1, "expected_offset": None})).status == 200
    refused = await cluster[2].post(path, json={**commit, "offset": 2, "expected_offset": None})
    assert (refused.status, refused.problem) == (409, "offset-moved")
    assert (await cluster[3].post(path, json={**commit, "offset": 2, "expected_offset": 1})).status == 200


async def test_topics_and_archives_are_described_whole(cluster: Members) -> None:
    await cluster.make_topic("whole", 3, remote_storage_enable="true")
    for number in range(3):
        for _ in range(number + 1):
            await cluster[1].post(f"/api/v1/topics/whole/messages?partition={number}", data=b"v")
    for member in cluster:
        described = (await member.get("/api/v1/topics/whole")).json["partitions"]
        assert [each["log_end_offset"] for each in described] == [1, 2, 3]
        archive = (await member.get("/api/v1/topics/whole/archive")).json["partitions"]
        assert [each["local"]["end_offset"] for each in archive] == [1, 2, 3]
        one = (await member.get("/api/v1/topics/whole/archive?partition=2")).json["partitions"]
        assert [each["local"]["end_offset"] for each in one] == [3]
    async with asyncio.timeout(20):
        while (await cluster[2].post("/api/v1/archive/gc")).json["failed"]:  # noqa: ASYNC110 — asked of three brokers
            await asyncio.sleep(0.05)  # Until the manifests of all three are loaded.


async def test_dead_letters_go_through_the_leaders(cluster: Members) -> None:
    await cluster.make_topic("letters")
    for number in range(3):
        for value in (b"good", b"bad", b"fine"):
            await cluster[1].post(f"/api/v1/topics/letters/messages?partition={number}", data=value)
    path = "/api/v1/consumer-groups/billing/dead-letters"
    leads = set()
    for number in range(3):
        for member in cluster:
            rejected = {"topic": "letters", "partition": number, "offset": 1, "reason": "bad"}
            reply = await member.post(path, json=rejected)
            assert (reply.status, reply.json["offset"]) == (201 if member.node_id == 1 else 200, 0), reply
        failed = {"topic": "letters", "partition": number, "offset": 2, "reason": "slow"}
        assert (await cluster[1].post("/api/v1/consumer-groups/billing/failures", json=failed)).json["failures"] == 1
        leads.add((cluster.leader_of("letters", number), cluster.leader_of("letters.billing.dlq", number)))
    for member in cluster:
        shown = (await member.get(path)).json
        assert [each["count"] for each in shown["topics"]] == [3]
        assert [(each["partition"], each["offset"]) for each in shown["failing"]] == [(0, 2), (1, 2), (2, 2)]
    # The first record set aside too: the offset moves behind both, at whichever broker keeps it.
    first = await cluster[2].post(path, json={"topic": "letters", "partition": 0, "offset": 0, "reason": "no"})
    assert (first.status, first.json["committed_offset"]) == (201, 2)
    read = await cluster[3].get(messages_of("letters", 0), headers={"X-Consumer-Group": "billing"})
    assert [each["offset"] for each in read.json["messages"]] == [2]


async def test_dead_letters_whose_topic_another_broker_leads(cluster: Members) -> None:
    await cluster.make_topic("apart", 1)
    await cluster.make_topic("apart.billing.dlq", 3)
    number = next(n for n in range(3) if cluster.leader_of("apart.billing.dlq", n) != cluster.leader_of("apart", 0))
    # The dead-letter partition has the number of its origin's, so the origin gets that many partitions.
    grown = await cluster[1].call("PATCH", "/api/v1/topics/apart", json={"partitions": 3})
    assert grown.status == 200
    await cluster.agree()
    leaders = [(cluster.leader_of("apart", n), cluster.leader_of("apart.billing.dlq", n)) for n in range(3)]
    number = next((n for n, (one, other) in enumerate(leaders) if one != other), None)
    assert number is not None, leaders
    headers = {"X-Partition-Key": "key", "X-Header-Kind": "a"}
    for value in (b"\xff\x00", b"second"):
        await cluster[1].post(f"/api/v1/topics/apart/messages?partition={number}", data=value, headers=headers)
    path = "/api/v1/consumer-groups/billing/dead-letters"
    rejected = {"topic": "apart", "partition": number, "offset": 0, "reason": "bad"}
    first = await cluster[1].post(path, json=rejected)
    again = await cluster[2].post(path, json=rejected)
    assert (first.status, again.status, first.json["committed_offset"]) == (201, 200, 1), (first, again)
    [copy] = (await cluster[1].get(messages_of("apart.billing.dlq", number))).json["messages"]
    assert (copy["key"], base64.b64decode(copy["value"])) == ("key", b"\xff\x00")
    noted = {each["key"]: each["value"] for each in copy["headers"]}
    assert (noted["kind"], noted["tierlog.dlq.offset"], noted["tierlog.dlq.group"]) == ("a", "0", "billing")
    # Known again by whoever has not copied: read back from the other broker.
    origin = cluster[cluster.leader_of("apart", number)]
    origin.api.dead_letters.topics._known.clear()
    assert (await cluster[3].post(path, json=rejected)).status == 200


async def test_a_forwarded_request_goes_no_further(cluster: Members) -> None:
    await cluster.make_topic("loop", 1)
    away = cluster.not_leading("loop", 0)
    marked = {FORWARDED: f"9@{away.broker.node.image.revision};"}
    for reply in (
        await away.get(messages_of("loop", 0), headers=marked),
        await away.post("/api/v1/topics/loop/messages", data=b"v", headers=marked),
        await away.post("/api/v1/topics/loop/messages/batch", json={"messages": [{"value": "v"}]}, headers=marked),
    ):
        assert (reply.status, reply.problem) == (503, "not-leader")
        assert reply.headers["Retry-After"] == "1"
    assert await values(away, "loop", 0) == []


async def test_a_broker_that_is_behind_catches_up_first(cluster: Members) -> None:
    """The sender's revision comes along: a topic made through one broker is never unknown to the next."""
    for number in range(10):
        name = f"new-{number}"
        made = await cluster[1].post("/api/v1/topics", json={"name": name, "partitions": 3})
        assert made.status == 201
        batch = {"messages": [{"value": "v", "partition": each} for each in range(3)]}
        stored = await cluster[1].post(f"/api/v1/topics/{name}/messages/batch", json=batch)
        assert stored.status == 200, stored


async def test_a_broker_that_cannot_catch_up_waits_only_once(cluster: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata that is away must not make every request slow."""
    await cluster.make_topic("stale", 1)
    leader = cluster[cluster.leader_of("stale", 0)]
    ahead = {FORWARDED: f"9@{leader.broker.node.image.revision + 10**9};"}
    for limit_s in (0.1, 3600.0):
        monkeypatch.setattr(peers, "CATCH_UP_S", limit_s)
        reply = await asyncio.wait_for(leader.get(messages_of("stale", 0), headers=ahead), 10)
        assert reply.status == 200


async def test_nobody_leads(cluster: Members) -> None:
    await cluster.make_topic("leaderless", 1)
    node = cluster[1].broker.node
    topic = node.image.topic("leaderless")
    [state] = node.image.partition_states(topic)
    key = model.partition_key(topic.id, PartitionId(0))
    gone = (NodeId(77),)
    await node.store.transact([], [Put(key, model.encode(replace(state, leader=gone[0], isr=gone, replicas=gone)))])
    await cluster.agree()
    await until(lambda: cluster.leader_of("leaderless", 0) in (77, -1))
    for reply in (
        await cluster[1].get(messages_of("leaderless", 0)),
        await cluster[2].post("/api/v1/topics/leaderless/messages", data=b"v"),
    ):
        assert reply.status == 503 and reply.problem in ("no-leader", "not-leader"), reply
        assert reply.headers["Retry-After"] == "1"


# A leader that behaves badly, put in place of a real one


@asynccontextmanager
async def stand_in(cluster: Members, topic: str, answer):
    """Partition 0 of `topic` is led by broker 8, which is this function."""
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    await cluster.make_topic(topic, 1)
    node = cluster[1].broker.node
    described = node.image.topic(topic)
    [state] = node.image.partition_states(described)
    led = replace(state, leader=NodeId(8), isr=(NodeId(8),), replicas=(NodeId(8),))
    broker = model.BrokerInfo(NodeId(8), simple_endpoints("127.0.0.1", 1, "127.0.0.1", port))
    writes = [
        Put(model.broker_key(NodeId(8)), model.encode(broker)),
        Put(model.partition_key(described.id, PartitionId(0)), model.encode(led)),
    ]
    await node.store.transact([], writes)
    await until(lambda: all(each.broker.node.image.broker(NodeId(8)) is not None for each in cluster))
    await until(lambda: cluster.leader_of(topic, 0) == 8)
    try:
        yield broker
    finally:
        await node.store.transact([], [Delete(model.broker_key(NodeId(8)))])
        await until(lambda: all(each.broker.node.image.broker(NodeId(8)) is None for each in cluster))
        await runner.cleanup()


async def test_an_answer_that_is_lost(cluster: Members) -> None:
    asked = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append((request.method, await request.read()))
        request.transport.abort()
        return web.Response()

    async with stand_in(cluster, "lost", answer):
        reply = await cluster[1].post("/api/v1/topics/lost/messages", data=b"once")
        assert (reply.status, reply.problem) == (503, "outcome-unknown")
        assert asked == [("POST", b"once")], "a produce is never sent twice"
        batch = await cluster[1].post("/api/v1/topics/lost/messages/batch", json={"messages": [{"value": "v"}]})
        assert (batch.status, batch.problem, len(asked)) == (503, "outcome-unknown", 2)
        read = await cluster[1].get(messages_of("lost", 0))
        assert (read.status, read.problem) == (503, "broker-unreachable")


async def test_a_leader_that_is_lost_while_it_is_waited_for(cluster: Members) -> None:
    """Its registration ends: who waits is told at once."""
    arrived, never = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        arrived.set()
        await never.wait()
        return web.Response()

    async with stand_in(cluster, "paused", answer):
        waiting = asyncio.ensure_future(cluster[1].post("/api/v1/topics/paused/messages", data=b"v"))
        await asyncio.wait_for(arrived.wait(), 10)
        await cluster[1].broker.node.store.transact([], [Delete(model.broker_key(NodeId(8)))])
        reply = await asyncio.wait_for(waiting, 10)
    assert (reply.status, reply.problem) == (503, "outcome-unknown")


async def test_a_stream_that_breaks_off_there_breaks_off_here(cluster: Members) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(b'{"offset":0}\n')
        await asyncio.sleep(0.1)
        request.transport.abort()
        return response

    async with stand_in(cluster, "broken", answer):
        with pytest.raises(aiohttp.ClientPayloadError):
            await cluster[1].get(messages_of("broken", 0), headers={"Accept": "application/x-ndjson"})


async def test_nothing_listens(cluster: Members) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response()

    async with stand_in(cluster, "refusing", answer) as broker:
        node = cluster[1].broker.node
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            closed = replace(broker, endpoints=simple_endpoints("127.0.0.1", 1, *unused.getsockname()))
            await node.store.transact([], [Put(model.broker_key(NodeId(8)), model.encode(closed))])
            await until(lambda: node.image.broker(NodeId(8)) == closed)
            reply = await cluster[1].post("/api/v1/topics/refusing/messages", data=b"v")
        assert (reply.status, reply.problem) == (503, "broker-unreachable")


async def test_a_node_that_stops_does_not_wait_for_polls_it_passed_on(cluster: Members) -> None:
    await cluster.make_topic("stopping", 1)
    away, leader = cluster.not_leading("stopping", 0), cluster[cluster.leader_of("stopping", 0)]
    waiting = asyncio.ensure_future(away.get(messages_of("stopping", 0), params={"wait_ms": "8000"}))
    await until(lambda: leader.api.metrics.long_polls == 1)
    away.api.stopping.set()
    reply = await asyncio.wait_for(waiting, 5)
    away.api.stopping.clear()
    assert (reply.status, reply.problem) == (503, "stopping")

"""A query gives what a consumer reads, to the row: while producers write, and while segments move to the bucket."""

import asyncio

import aiohttp
import pytest
import uvloop

from tests.support.members import members
from tests.support.service import services
from tests.support.waiting import until

pytest.importorskip("duckdb")

MOVING = {"segment.bytes": "4000", "remote.storage.enable": "true", "local.retention.ms": "1", "retention.ms": "-1"}
PARTITIONS = 3
QUERIES = 8


def pytest_asyncio_loop_factories(config, item):
    return {"uvloop": uvloop.new_event_loop}


class Writer:
    """Writes numbered records to all partitions, and remembers what is acknowledged."""

    def __init__(self, client: aiohttp.ClientSession) -> None:
        self._client = client
        self.acknowledged: list[list[str]] = [[] for _ in range(PARTITIONS)]
        self.stopping = False

    async def run(self) -> None:
        number = 0
        while not self.stopping:
            for partition in range(PARTITIONS):
                values = [f"{partition} {number + n} {'x' * 100}" for n in range(10)]
                messages = [{"key": f"k{number % 50}", "value": value, "partition": partition} for value in values]
                async with self._client.post(
                    "/api/v1/topics/moving/messages/batch", json={"messages": messages}
                ) as told:
                    assert told.status == 200, await told.text()
                    results = (await told.json())["results"]
                assert [each["offset"] for each in results] == list(
                    range(len(self.acknowledged[partition]), len(self.acknowledged[partition]) + 10)
                )
                self.acknowledged[partition] += values
            number += 10
            # On a busy machine queries take long: without a pause they would meet ever more files.
            await asyncio.sleep(0.02)


async def query(client: aiohttp.ClientSession, text: str) -> dict:
    document = {"query": text, "max_rows": 1_000_000, "timeout_ms": 60_000}
    async with client.post("/api/v1/sql", json=document) as told:
        assert told.status == 200, await told.text()
        return await told.json()


async def consumed(client: aiohttp.ClientSession, partition: int) -> list[tuple[int, str, str]]:
    rows, offset = [], 0
    while True:
        path = f"/api/v1/topics/moving/partitions/{partition}/messages"
        params = {"offset": str(offset), "limit": "1000", "value_encoding": "text"}
        async with client.get(path, params=params) as told:
            page = await told.json()
        rows += [(each["offset"], each["key"], each["value"]) for each in page["messages"]]
        if page["next_offset"] == offset:
            return rows
        offset = page["next_offset"]


async def check(clients: list[aiohttp.ClientSession]) -> None:
    """Queries go to each client in turn, until several of them have read both tiers."""
    writer = Writer(clients[0])
    writing = asyncio.create_task(writer.run())
    both = 0
    try:
        for number in range(QUERIES):
            before = [len(each) for each in writer.acknowledged]
            told = await query(clients[number % len(clients)], "SELECT partition, offset, value FROM moving")
            seen: list[list[str]] = [[] for _ in range(PARTITIONS)]
            for partition, offset, value in told["rows"]:
                assert offset == len(seen[partition]), "a row is missing or there twice"
                seen[partition].append(value)
            for partition in range(PARTITIONS):
                assert len(seen[partition]) >= before[partition], "an acknowledged record is missing"
                known = writer.acknowledged[partition]
                assert all(mine == theirs for mine, theirs in zip(seen[partition], known, strict=False))
            both += told["scanned"]["archived_rows"] > 0 and told["scanned"]["hot_rows"] > 0
    finally:
        writer.stopping = True
        await writing
    assert both >= 2
    for client in clients:
        told = await query(client, "SELECT partition, offset, key, value FROM moving")
        for partition in range(PARTITIONS):
            rows = [tuple(row[1:]) for row in told["rows"] if row[0] == partition]
            assert rows == await consumed(client, partition)


async def test_one_node(tmp_path):
    with services(tmp_path) as serve:
        process = await asyncio.to_thread(serve, "--set", "archive.check_ms=50")
        async with aiohttp.ClientSession(process.url) as client:
            document = {"name": "moving", "partitions": PARTITIONS, "config": MOVING}
            async with client.post("/api/v1/topics", json=document) as made:
                assert made.status == 201, await made.text()
            await check([client])


async def test_any_broker_of_a_cluster(tmp_path):
    async with members(tmp_path) as cluster:
        await cluster.make_topic("moving", PARTITIONS, 1, **MOVING)
        assert len({cluster.leader_of("moving", number) for number in range(PARTITIONS)}) == 3
        await check([member.client for member in cluster])
        for member in cluster:
            found = await member.get("/api/v1/topics/moving/keys/k10", params={"limit": "1000"})
            assert found.status == 200, found
            told = await query(member.client, "SELECT count(*) FROM moving WHERE key = 'k10'")
            assert len(found.json["messages"]) == min(1000, told["rows"][0][0])
        first, second = list(cluster)[:2]
        slow = "SELECT count(*) FROM range(100000000000) a, range(1000) b"
        running = asyncio.create_task(first.post("/api/v1/sql", json={"query": slow, "id": "mine"}))
        await until(lambda: "mine" in first.api.queries._running)
        assert (await second.call("DELETE", "/api/v1/sql/queries/mine")).status == 204
        assert (await running).problem == "query-cancelled"

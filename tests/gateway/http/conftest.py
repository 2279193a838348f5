"""A whole node in the test's process, and callers for its HTTP interface."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import orjson
import pytest
import uvloop
from multidict import CIMultiDictProxy

from gateway.authorizer import AuthorizationSettings
from gateway.coordinators.settings import GroupSettings
from gateway.http.api import Api
from gateway.http.settings import HttpSettings
from gateway.kafka_settings import KafkaSettings
from gateway.sql.settings import SqlSettings
from hot_tier.log.config import TopicConfig
from hot_tier.log.settings import LogSettings
from tierlog.broker import Broker
from tierlog.settings import Settings


def pytest_asyncio_loop_factories(config, item):
    return {"uvloop": uvloop.new_event_loop}


class Reply(NamedTuple):
    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def problem(self) -> str:
        """The problem's name, after checking that it is a whole one."""
        assert self.headers["Content-Type"] == "application/problem+json", self
        document = self.json
        assert document["status"] == self.status
        assert {"type", "title", "status", "detail", "instance", "hint"} <= set(document)
        assert document["hint"] and document["detail"]
        return document["type"].removeprefix("urn:tierlog:problem:")


class Served:
    """A running node."""

    def __init__(self, broker: Broker, client: aiohttp.ClientSession) -> None:
        self.node = broker.node
        self.http = broker.http
        self.api = broker.http.app[Api.KEY]
        self.kafka = broker.kafka_address
        self.client = client
        self.host, self.port = broker.http.address
        self._broker = broker

    async def end(self) -> None:
        """Stop cleanly; the next node of the test goes on with the same data."""
        await self._broker.stop()

    async def call(self, method: str, path: str, **options: Any) -> Reply:
        async with self.client.request(method, path, **options) as response:
            return Reply(response.status, response.headers, await response.read())

    async def get(self, path: str, **options: Any) -> Reply:
        return await self.call("GET", path, **options)

    async def post(self, path: str, **options: Any) -> Reply:
        return await self.call("POST", path, **options)

    async def make_topic(self, name: str, partitions: int = 1, **config: Any) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        made = await self.post("/api/v1/topics", json={"name": name, "partitions": partitions, "config": settings})
        assert made.status == 201, made

    async def produce(self, topic: str, *values: bytes, partition: int = 0) -> None:
        for value in values:
            stored = await self.post(f"/api/v1/topics/{topic}/messages?partition={partition}", data=value)
            assert stored.status == 200, stored

    async def messages(self, topic: str, partition: int = 0, **options: Any) -> Any:
        query = {name.rstrip("_"): str(value) for name, value in options.items() if name != "headers"}
        address = f"/api/v1/topics/{topic}/partitions/{partition}/messages"
        reply = await self.get(address, params=query, headers=options.get("headers"))
        assert reply.status == 200, reply
        return reply.json


Serve = Callable[..., Awaitable[Served]]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Starts a node on the test's directory: `await serve(max_deliveries=2)` with these settings of `[http]`."""
    async with AsyncExitStack() as stack:

        async def start(
            authorization: AuthorizationSettings | None = None, sql: SqlSettings | None = None, **settings: Any
        ) -> Served:
            broker = Broker(
                Settings(
                    log=LogSettings(data_dir=str(tmp_path), min_free_bytes=0),
                    kafka=KafkaSettings(port=0),
                    http=HttpSettings(port=0, **settings),
                    authorization=authorization or AuthorizationSettings(),
                    sql=sql or SqlSettings(),
                    groups=GroupSettings(offsets_topic_partitions=4, initial_rebalance_delay_ms=0),
                    # Tests write records of any age, and retention would take the old ones while they look.
                    topic=TopicConfig(retention_ms=-1),
                )
            )
            await broker.start()
            stack.push_async_callback(broker.stop)
            client = await stack.enter_async_context(aiohttp.ClientSession(f"http://{broker.http_address}"))
            return Served(broker, client)

        yield start


@pytest.fixture
async def served(serve: Serve) -> Served:
    return await serve()

"""One real broker with idle connections and with groups of one member each, and what that does to a producer.

An idle connection has asked for ApiVersions, as every client does first. Members of groups send heartbeats.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from benchmarks.client import load
from benchmarks.service import TierlogServer
from gateway.kafka.protocol.messages.api_versions import ApiVersionsRequest
from gateway.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from gateway.kafka.protocol.messages.heartbeat import HeartbeatRequest
from gateway.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from gateway.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.gateway.kafka.wire import Wire

HEARTBEAT_S = 3.0
SESSION_MS = 45_000
SUBSCRIPTION = b"\0\0\0\0\0\1\0\4load\xff\xff\xff\xff"
AT_ONCE = 100
"""Connections opened together: more than a listen queue holds would only measure retries."""


def measure(directory: Path, connections: int, groups: int) -> dict[str, Any]:
    more = ["--set", f"kafka.max_connections={connections + groups + 100}"]
    more += ["--set", f"kafka.max_connections_per_ip={connections + groups + 100}"]
    broker = TierlogServer(directory, arguments=more)
    try:
        return asyncio.run(_measure(broker.start(), connections, groups))
    finally:
        broker.kill()


async def _measure(broker: TierlogServer, connections: int, groups: int) -> dict[str, Any]:
    found: dict[str, Any] = {"connections": connections, "groups": groups}

    async def note(what: str) -> None:
        before_s, began = broker.cpu_seconds(), time.monotonic()
        await asyncio.sleep(5)
        found[f"cores {what}"] = (broker.cpu_seconds() - before_s) / (time.monotonic() - began)
        found[f"memory {what}, MB"] = broker.rss_bytes() / 1e6
        found[f"p99 {what}, ms"] = await asyncio.to_thread(_p99, broker)

    await asyncio.to_thread(_p99, broker)
    await note("alone")
    began = time.monotonic()
    async with contextlib.AsyncExitStack() as open_ones:
        await _open_idle(broker, connections, open_ones)
        found["time to connect, s"] = time.monotonic() - began
        await note("with connections")
        began = time.monotonic()
        await open_ones.enter_async_context(_groups(broker, groups))
        found["time to join, s"] = time.monotonic() - began
        await note("with connections and groups")
        found["open files"] = broker.open_files()
    return found


def _p99(broker: TierlogServer) -> float:
    settings = {"producer:acks": "all", "producer:linger.ms": "0"}
    return load.latency(broker.bootstrap, "load", 4, 1000, 500, 5, settings).p99_ms


async def _open_idle(broker: TierlogServer, count: int, open_ones: contextlib.AsyncExitStack) -> None:
    async def one() -> None:
        wire = await open_ones.enter_async_context(Wire(broker.host, broker.port))
        await wire.ask(ApiVersionsRequest(), 0)

    for begin in range(0, count, AT_ONCE):
        await asyncio.gather(*(one() for _ in range(min(AT_ONCE, count - begin))))


@contextlib.asynccontextmanager
async def _groups(broker: TierlogServer, count: int) -> AsyncIterator[None]:
    """Joins the groups and keeps them alive until the block ends. A refused heartbeat fails the benchmark."""
    members: list[asyncio.Task[None]] = []
    for begin in range(0, count, AT_ONCE):
        some = [Member(broker, f"group-{number}") for number in range(begin, min(begin + AT_ONCE, count))]
        await asyncio.gather(*(member.join() for member in some))
        members += [asyncio.create_task(member.stay()) for member in some]
    yield
    for task in members:
        assert not task.done(), task.exception()
        task.cancel()
    await asyncio.gather(*members, return_exceptions=True)


class Member:
    def __init__(self, broker: TierlogServer, group: str) -> None:
        self._wire = Wire(broker.host, broker.port)
        self._group = group
        self._id, self._generation = "", 0

    async def join(self) -> None:
        await self._wire.__aenter__()
        await self._answered(FindCoordinatorRequest(key=self._group), 1)
        protocols = [JoinGroupRequestProtocol("range", SUBSCRIPTION)]
        request = JoinGroupRequest(self._group, SESSION_MS, SESSION_MS, "", None, "consumer", protocols)
        joined = await self._answered(request, 3)
        self._id, self._generation = joined.member_id, joined.generation_id
        assignments = [SyncGroupRequestAssignment(self._id, b"")]
        synced = await self._wire.ask(
            SyncGroupRequest(self._group, self._generation, self._id, None, None, None, assignments), 2
        )
        assert synced.error_code == 0, synced

    async def _answered(self, request: Any, version: int) -> Any:
        """Returns the first answer without an error. The broker may still be loading what it knows of the group."""
        while True:
            answer = await self._wire.ask(request, version)
            if answer.error_code == 0:
                return answer
            await asyncio.sleep(0.2)

    async def stay(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            answer = await self._wire.ask(HeartbeatRequest(self._group, self._generation, self._id), 2)
            assert answer.error_code == 0, f"{self._group}: heartbeat answered with {answer.error_code}"

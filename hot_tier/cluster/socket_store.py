"""The metadata store of a worker: another process of this machine has it and serves it over a Unix socket.

- Calls share one connection and are answered in any order. A connection that ended is made anew by the next call.
- Each watch has a connection of its own. When that ends, the watch goes on after the last transaction it delivered.
- No call waits for longer than `CALL_S`. A write that was sent and not answered raises MetadataAnswerLost.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from itertools import count
from typing import Any, Final

import structlog

from hot_tier.cluster import served_wire as wire
from hot_tier.cluster.served import reachable_path
from hot_tier.cluster.store import (
    Compare,
    Delete,
    Event,
    KeyValue,
    LeaseId,
    Put,
    Range,
    Revision,
    check_transaction,
)
from hot_tier.errors import MetadataAnswerLost, MetadataUnavailable

CALL_S: Final = 5.0
AGAIN_S: Final = 0.2

_log = structlog.get_logger()


class SocketStore:
    """`MetadataStore` over a socket. Call `open` first, from the loop that uses it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._calls: _Connection | None = None
        self._connecting = asyncio.Lock()
        self._watches: set[asyncio.StreamWriter] = set()
        self._closed = asyncio.Event()

    async def open(self) -> None:
        """Raises MetadataUnavailable if nobody serves the store."""
        await self._connected()

    async def get(self, key: str) -> KeyValue | None:
        return wire.item_from_json(await self._call("get", key))

    async def range(self, prefix: str) -> Range:
        return wire.range_from_json(await self._call("range", prefix))

    async def transact(self, compares: Sequence[Compare], writes: Sequence[Put | Delete]) -> Revision | None:
        check_transaction(compares, writes)
        revision: Revision | None = await self._call(
            "transact", wire.compares_as_json(compares), wire.writes_as_json(writes)
        )
        return revision

    async def watch(self, prefix: str, from_revision: Revision) -> AsyncIterator[Sequence[Event]]:
        seen, told = from_revision, False
        while not self._closed.is_set():
            try:
                async with aclosing(self._watched(prefix, seen)) as batches:
                    async for events in batches:
                        seen, told = events[-1].revision, False
                        yield events
            except (wire.Broken, OSError, MetadataUnavailable) as error:
                if self._closed.is_set():
                    return
                if not told:
                    _log.warning("metadata watch interrupted", where=self._path, reason=str(error))
                told = True
                await asyncio.sleep(AGAIN_S)

    async def grant_lease(self, ttl_ms: int) -> LeaseId:
        lease: LeaseId = await self._call("grant_lease", ttl_ms)
        return lease

    async def keep_alive(self, lease: LeaseId) -> bool:
        alive: bool = await self._call("keep_alive", lease)
        return alive

    async def revoke_lease(self, lease: LeaseId) -> None:
        await self._call("revoke_lease", lease)

    async def close(self) -> None:
        self._closed.set()
        for writer in self._watches:
            writer.close()
        if self._calls is not None:
            await self._calls.close()

    async def _call(self, name: str, *arguments: Any) -> Any:
        connection = await self._connected()
        lost = MetadataAnswerLost if name == "transact" else MetadataUnavailable
        try:
            async with asyncio.timeout(CALL_S):
                return await connection.call(name, *arguments)
        except TimeoutError:
            raise lost(f"no answer within {CALL_S:.0f} s", where=self._path) from None
        except (wire.Broken, OSError) as error:
            raise lost(f"the connection ended: {error}", where=self._path) from None

    async def _connected(self) -> "_Connection":
        async with self._connecting:
            if self._closed.is_set():
                raise MetadataUnavailable("the metadata store is closed", where=self._path)
            if self._calls is None or self._calls.broken:
                try:
                    self._calls = _Connection(*await self._connect())
                except OSError as error:
                    raise MetadataUnavailable(
                        f"nobody serves metadata: {error.strerror}", where=self._path, hint="is the service running?"
                    ) from None
            return self._calls

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with reachable_path(self._path) as path:
                connecting.connect(path)
            connecting.setblocking(False)
            return await asyncio.open_unix_connection(sock=connecting)
        except BaseException:
            connecting.close()
            raise

    async def _watched(self, prefix: str, seen: Revision) -> AsyncGenerator[tuple[Event, ...], None]:
        """Yields what one connection delivers. It always ends with an error."""
        reader, writer = await self._connect()
        self._watches.add(writer)
        try:
            if self._closed.is_set():
                raise wire.Broken("closed")
            writer.write(wire.frame(0, "watch", prefix, seen))
            while True:
                _, value, *failed = await wire.read_frame(reader, wire.LONGEST_ANSWER)
                if failed:
                    raise wire.error_from_json(failed[0])
                yield wire.events_from_json(value)
        finally:
            self._watches.discard(writer)
            writer.close()


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.broken = False
        self._reader = reader
        self._writer = writer
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._reading = asyncio.get_running_loop().create_task(self._read(), name="metadata answers")

    async def call(self, name: str, *arguments: Any) -> Any:
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(wire.frame(number, name, *arguments))
            return await answer
        finally:
            del self._waiting[number]

    async def _read(self) -> None:
        try:
            while True:
                number, value, *failed = await wire.read_frame(self._reader, wire.LONGEST_ANSWER)
                answer = self._waiting.get(number)
                if answer is None or answer.done():
                    continue
                if failed:
                    answer.set_exception(wire.error_from_json(failed[0]))
                else:
                    answer.set_result(value)
        except wire.Broken as error:
            self._end(error)

    def _end(self, why: wire.Broken) -> None:
        self.broken = True
        self._writer.close()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(why)

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._end(wire.Broken("closed"))

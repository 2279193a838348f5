"""Serves a metadata store to other processes of this machine, over a Unix socket that only this user can open.

The workers of one host are a cluster of their own without etcd: the process that starts them owns the store, and each
of them is a client (`hot_tier.cluster.socket_store`). Why: docs/decisions/workers.md.

- Calls of one connection begin in the order they came, and are answered as they finish.
- A client that is gone keeps its leases until they end by themselves. A lost connection does not prove that its process
  is gone.
- A watch has a connection of its own. A reader that does not read holds up nobody but itself.
"""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import structlog

from hot_tier.cluster import served_wire as wire
from hot_tier.cluster.store import LeaseId, MetadataStore, Revision
from hot_tier.errors import MetadataCompacted, StorageFailure, TierlogError

WAITING: Final = 64
"""Connections that may wait to be taken."""
_NO_KEY: Final = "\x7f"
"""No key begins with it, so a range of it costs nothing and tells the revision."""

_log = structlog.get_logger()


class StoreServer:
    def __init__(self, store: MetadataStore, path: str) -> None:
        self._store = store
        self._path = path
        self._server: asyncio.Server
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Raises StorageFailure if the socket cannot be made. A socket that is there already is replaced: the caller
        holds the lock of the directory."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with suppress(FileNotFoundError):
                os.unlink(self._path)
            with reachable_path(self._path) as path:
                listener.bind(path)
            os.chmod(self._path, 0o600)
        except OSError as error:
            listener.close()
            raise StorageFailure(f"cannot make a socket: {error.strerror}", where=self._path) from None
        listener.setblocking(False)
        self._server = await asyncio.start_unix_server(self._accepted, sock=listener, backlog=WAITING)

    async def close(self) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(serving)
        serving.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.TaskGroup() as calls:
                while True:
                    call = await wire.read_frame(reader, wire.LONGEST_CALL)
                    calls.create_task(self._answer(call, writer))
        except* (wire.Broken, OSError) as ended:
            _log.debug("a client of the metadata store is gone", why=str(ended.exceptions[0]))
        finally:
            writer.close()

    async def _answer(self, call: list[Any], writer: asyncio.StreamWriter) -> None:
        with wire.malformed():
            number, name, *arguments = call
        try:
            with wire.malformed():
                if name == "watch":
                    await self._watch(writer, number, *arguments)
                else:
                    writer.write(wire.frame(number, await self._call(name, arguments)))
        except TierlogError as error:
            writer.write(wire.frame(number, None, wire.error_as_json(error, writing=name == "transact")))
        await writer.drain()

    async def _call(self, name: str, arguments: list[Any]) -> Any:
        store = self._store
        match name, arguments:
            case "get", [str(key)]:
                return wire.item_as_json(await store.get(key))
            case "range", [str(prefix)]:
                return wire.range_as_json(await store.range(prefix))
            case "transact", [compares, writes]:
                return await store.transact(wire.compares_from_json(compares), wire.writes_from_json(writes))
            case "grant_lease", [int(ttl_ms)]:
                return await store.grant_lease(ttl_ms)
            case "keep_alive", [int(lease)]:
                return await store.keep_alive(LeaseId(lease))
            case "revoke_lease", [int(lease)]:
                return await store.revoke_lease(LeaseId(lease))
            case _:
                raise wire.Broken(f"a call that nobody makes: {name!r}")

    async def _watch(self, writer: asyncio.StreamWriter, number: int, prefix: str, seen: Revision) -> None:
        known = (await self._store.range(_NO_KEY)).revision
        if known < seen:
            raise MetadataCompacted(
                f"metadata is at revision {known}, this node has seen {seen}: an older state was restored", where=prefix
            )
        async for events in self._store.watch(prefix, seen):
            writer.write(wire.frame(number, wire.events_as_json(events)))
            await writer.drain()


@contextmanager
def reachable_path(path: str) -> Iterator[str]:
    """Yields a short name for the same socket: the kernel takes no more than 107 bytes of a path."""
    directory = os.open(os.path.dirname(os.path.abspath(path)), os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{os.path.basename(path)}"
    finally:
        os.close(directory)

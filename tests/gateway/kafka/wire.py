"""A Kafka client of bytes: one connection, frames out, frames in, nothing hidden."""

import asyncio
import socket
import ssl
import struct
from typing import Any

from gateway.kafka.protocol.api_keys import ApiKey, response_class
from gateway.kafka.protocol.readers import reader
from gateway.kafka.protocol.schema import message_info
from gateway.kafka.protocol.writers import writer

DEADLINE_S = 10


def free_port() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.setblocking(False)
    return listener


def request_frame(request: Any, version: int, correlation_id: int = 1, client_id: str | None = "test") -> bytes:
    info = message_info(type(request))
    name = (client_id or "").encode()
    parts = [struct.pack(">hhih", info.api_key, version, correlation_id, -1 if client_id is None else len(name)), name]
    if version >= info.flexible_since:
        parts.append(b"\0")
    writer(type(request), version)(request, parts.append)
    frame = b"".join(parts)
    return struct.pack(">i", len(frame)) + frame


def read_response(api_key: ApiKey, version: int, frame: bytes) -> tuple[int, Any]:
    cls = response_class(api_key)
    body_at = 4
    if version >= message_info(cls).flexible_since and api_key is not ApiKey.API_VERSIONS:
        body_at = 5
    return struct.unpack_from(">i", frame)[0], reader(cls, version)(memoryview(frame)[body_at:])


class Wire:
    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._address = host, port
        self._tls = tls
        self._correlation_id = 0

    async def __aenter__(self) -> "Wire":
        self.incoming, self.outgoing = await asyncio.open_connection(*self._address, ssl=self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.outgoing.close()

    async def send_bytes(self, data: bytes) -> None:
        self.outgoing.write(data)
        await self.outgoing.drain()

    async def receive_bytes(self) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            (size,) = struct.unpack(">i", await self.incoming.readexactly(4))
            return await self.incoming.readexactly(size)

    async def send(self, request: Any, version: int) -> int:
        self._correlation_id += 1
        await self.send_bytes(request_frame(request, version, self._correlation_id))
        return self._correlation_id

    async def receive(self, api_key: ApiKey, version: int) -> tuple[int, Any]:
        return read_response(api_key, version, await self.receive_bytes())

    async def ask(self, request: Any, version: int) -> Any:
        sent = await self.send(request, version)
        correlation_id, response = await self.receive(ApiKey(message_info(type(request)).api_key), version)
        assert correlation_id == sent
        return response

    async def closed(self) -> bytes:
        """Everything until the other side closes."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self.incoming.read(-1)
            except ConnectionResetError:
                return b""

"""Speaks Kafka to another broker. Only this module opens such connections and reads their frames.

It owns the connection, the numbers of requests, and the buffer that answers are received into. Its `Receiver` knows
what an answer means.

- An answer is passed on in the receive buffer: its bytes are valid until `Receiver.answered` returns.
- Received bytes are not trusted: a frame's length is checked before memory is allocated, then its fields.
- The connection ends if anything contradicts the protocol.
- What is not sent when the connection ends is never sent: a marker of one transaction that comes after a cut of the
  network could meet the next one. So the kernel drops it (`SO_LINGER`).
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from gateway.kafka.errors import DecodeError
from gateway.kafka.protocol.readers import reader
from gateway.kafka.protocol.schema import Buffer, message_info
from gateway.kafka.protocol.writers import writer
from hot_tier.cluster.endpoints import KAFKA_PROTOCOLS, SASL, SECURE
from hot_tier.cluster.model import BrokerInfo

RECEIVE_BYTES: Final = 256 * 1024
KEEP_BYTES: Final = 4 * 1024 * 1024
MAX_FRAME_BYTES: Final = 1 << 30

_LENGTH: Final = Struct(">i")
_HEADER: Final = Struct(">ihhih")
_ANSWER_HEADER_BYTES: Final = 5
_NO_LINGER: Final = Struct("ii").pack(1, 0)

Request = TypeVar("Request")
Response = TypeVar("Response")


class Exchange(Generic[Request, Response]):
    """One version of one API with flexible headers: writes its request and reads its response."""

    def __init__(self, request: type[Request], response: type[Response], version: int) -> None:
        self.api_key = message_info(request).api_key
        self.version = version
        self.write = writer(request, version)
        self.read = cast(Callable[[memoryview], Response], reader(response, version))


class Receiver(Protocol):
    def answered(self, number: int, body: memoryview) -> None:
        """Gets the answer to request `number`. Raises DecodeError if the answer is malformed."""
        ...

    def lost(self, error: Exception) -> None:
        """The connection is gone. This is called once, and no call follows it."""
        ...


async def connect(
    broker: BrokerInfo, client_id: str, receiver: Receiver, tls: ssl.SSLContext | None = None
) -> "KafkaClient":
    """Connects to a broker's listener for peers. Raises OSError or BrokerUnreachable if it cannot."""
    spoken = KAFKA_PROTOCOLS - SASL
    where = broker.for_peers(spoken if tls is not None else spoken - SECURE)
    context = tls if where.protocol in SECURE else None
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(
        lambda: KafkaClient(client_id.encode(), receiver), where.host, where.port, ssl=context
    )
    return client


class KafkaClient(asyncio.BufferedProtocol):
    def __init__(self, client_id: bytes, receiver: Receiver) -> None:
        self._client_id = client_id
        self._receiver: Receiver | None = receiver
        self._transport: asyncio.Transport
        self._sent = 0
        self._answered = 0
        self._view = memoryview(bytearray(RECEIVE_BYTES))
        self._start = 0
        self._end = 0

    def send(self, exchange: Exchange[Request, Any], request: Request) -> int:
        """Returns the request's number: one more than the number of the request before."""
        self._sent += 1
        name = self._client_id
        parts: list[Buffer] = [b"", name, b"\0"]
        exchange.write(request, parts.append)
        size = _HEADER.size - _LENGTH.size + sum(map(len, parts))
        parts[0] = _HEADER.pack(size, exchange.api_key, exchange.version, self._sent, len(name))
        self._transport.write(b"".join(parts))
        return self._sent

    def close(self) -> None:
        """Closes the connection without a call of `Receiver.lost`."""
        self._receiver = None
        self._transport.abort()

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(exc or ConnectionResetError("the other side closed the connection"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        try:
            while (frame := self._next_frame()) is not None:
                self._take(frame)
        except DecodeError as error:
            self._transport.abort()
            self._lose(error)

    def _lose(self, error: Exception) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.lost(error)

    def _next_frame(self) -> memoryview | None:
        start, available = self._start, self._end - self._start
        wanted = _LENGTH.size
        if available >= wanted:
            (length,) = _LENGTH.unpack_from(self._view, start)
            if not _ANSWER_HEADER_BYTES <= length <= MAX_FRAME_BYTES:
                raise DecodeError(f"an answer claims an impossible length: {length} bytes")
            wanted += length
            if available >= wanted:
                self._start += wanted
                return self._view[start + _LENGTH.size : start + wanted]
        if not available:
            self._start = self._end = 0
            if len(self._view) > KEEP_BYTES:
                self._view = memoryview(bytearray(RECEIVE_BYTES))
        elif start + wanted > len(self._view):
            view = self._view
            if wanted > len(view):
                view = memoryview(bytearray(wanted))
            view[:available] = self._view[start : self._end]
            self._view, self._start, self._end = view, 0, available
        return None

    def _take(self, frame: memoryview) -> None:
        if self._receiver is None:
            return
        (correlation_id,) = _LENGTH.unpack_from(frame)
        number = self._answered + 1
        if correlation_id != number:
            raise DecodeError(f"answer {correlation_id} came where {number} was expected")
        self._answered = number
        self._receiver.answered(number, frame[_ANSWER_HEADER_BYTES:])


class Asker:
    """Asks one broker one question after the other, and waits for each answer."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._client: KafkaClient
        self._answer: asyncio.Future[bytes] | None = None
        self._lost: Exception | None = None

    async def connect(self, broker: BrokerInfo, client_id: str, tls: ssl.SSLContext | None) -> None:
        async with asyncio.timeout(self._wait_s):
            self._client = await connect(broker, client_id, self, tls)

    async def ask(self, exchange: Exchange[Request, Response], request: Request) -> Response:
        """Returns the answer. Raises DecodeError, OSError or TimeoutError if none comes."""
        if self._lost is not None:
            raise self._lost
        self._answer = asyncio.get_running_loop().create_future()
        self._client.send(exchange, request)
        async with asyncio.timeout(self._wait_s):
            return exchange.read(memoryview(await self._answer))

    @property
    def is_open(self) -> bool:
        return self._lost is None

    def close(self) -> None:
        self._client.close()

    # Called as a `Receiver`

    def answered(self, number: int, body: memoryview) -> None:
        if self._answer is None or self._answer.done():
            raise DecodeError("an answer came that nobody waits for")
        self._answer.set_result(bytes(body))

    def lost(self, error: Exception) -> None:
        self._lost = error
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

"""How answers are handed to a connection's transport.

Without TLS it takes them as they are. With TLS it encrypts what is written at once and whole, into memory that grows
with it and is copied twice more. So an answer is cut into pieces, and each is written once the one before has left. The
pieces that wait are not encrypted yet, and are counted here, because the transport does not count them. Pieces of
128 KiB, which fit into the CPU's cache, cost a fifth less than answers of 4 MB in one, and less than pieces of 32, 64
or 256 KiB.
"""

from asyncio import Transport
from collections import deque
from collections.abc import Iterable, Iterator
from typing import ClassVar, Final

from gateway.kafka.protocol.schema import Buffer

UNSENT_HIGH_BYTES: Final = 1024 * 1024
PIECE_BYTES: Final = 128 * 1024
SMALL_BYTES: Final = 4 * 1024
LAST_READ_S: Final = 0.1
"""From the last answer to the end of a connection. Clients lose an answer that comes together with the end."""


class Sender:
    """Its owner tells it what the transport tells the owner: `pause` and `resume`."""

    __slots__ = ("_transport",)

    HIGH_BYTES: ClassVar = UNSENT_HIGH_BYTES

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def begin(self) -> None:
        """With TLS, what is left of the handshake may be over the limit: then the owner is told to pause in here."""
        self._transport.set_write_buffer_limits(high=self.HIGH_BYTES)

    def send(self, parts: list[Buffer]) -> None:
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.writelines(parts)

    @property
    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    def pause(self) -> None:
        pass

    def resume(self) -> bool:
        """Returns whether more may be sent: what waited has left."""
        return True

    def close(self) -> None:
        """Hands all that waits to the transport, and closes it."""
        self._transport.close()

    def drop(self) -> None:
        """Called when the client is gone."""


class TlsSender(Sender):
    __slots__ = ("_paused", "_waiting", "_waiting_bytes")

    HIGH_BYTES = 1

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._waiting: deque[Buffer] = deque()
        self._waiting_bytes = 0
        self._paused = False

    def send(self, parts: list[Buffer]) -> None:
        for piece in pieces(parts):
            self._waiting.append(piece)
            self._waiting_bytes += len(piece)
        self._go_on()

    @property
    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size() + self._waiting_bytes

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> bool:
        self._paused = False
        self._go_on()
        return not self._paused

    def close(self) -> None:
        while self._waiting:
            self._write()
        self._transport.close()

    def drop(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0

    def _go_on(self) -> None:
        while self._waiting and not self._paused:
            self._write()

    def _write(self) -> None:
        piece = self._waiting.popleft()
        self._waiting_bytes -= len(piece)
        self._transport.write(piece)


def pieces(parts: Iterable[Buffer]) -> Iterator[Buffer]:
    """Joins small parts, because each write makes a TLS record, and cuts large ones."""
    small: list[Buffer] = []
    for part in parts:
        if len(part) <= SMALL_BYTES:
            small.append(part)
            continue
        if small:
            yield b"".join(small)
            small = []
        view = memoryview(part)
        for start in range(0, len(view), PIECE_BYTES):
            yield view[start : start + PIECE_BYTES]
    if small:
        yield b"".join(small)

"""Accepts connections at a listener with TLS, and bounds those whose handshake is not done.

The loop's own server shows a connection to its protocol when the handshake is done: until then no limit of connections
counts it, and whoever opens connections and says nothing would take all the files that this process may open.

- At most `MOST` handshakes are under way at a listener, and `MOST_OF_ADDRESS` of one address: one more ends the oldest
  of them, which had the most time. So clients that say nothing cannot keep out a client that goes on.
- A handshake that takes more than `HANDSHAKE_S` is ended.
"""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

from gateway.listener import Listener

HANDSHAKE_S: Final = 10.0
MOST: Final = 1_000
MOST_OF_ADDRESS: Final = 100
"""A handshake takes about 2 ms of the loop, so all of an address together hold it for a fifth of a second."""
ACCEPTED_AT_ONCE: Final = 64
BACKLOG: Final = 1024
PAUSE_S: Final = 1.0
"""How long nobody is accepted when this process may open no more files."""

_log = structlog.get_logger()


async def serve(
    listener: Listener, make: Callable[[], asyncio.BaseProtocol], refuse: Callable[[str], None]
) -> "asyncio.Server | TlsServer":
    """Accepts connections. `make` makes the protocol of one. `refuse` is told the address of each whose handshake is
    over a limit."""
    if listener.tls is None:
        return await asyncio.get_running_loop().create_server(make, sock=listener.socket, backlog=BACKLOG)
    server = TlsServer(listener.socket, listener.tls, make, refuse)
    server.start()
    return server


class TlsServer:
    def __init__(
        self,
        bound: socket.socket,
        tls: ssl.SSLContext,
        make: Callable[[], asyncio.BaseProtocol],
        refuse: Callable[[str], None],
    ) -> None:
        self._socket = bound
        self._tls = tls
        self._make = make
        self._refuse = refuse
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[asyncio.Task[None], str] = {}
        """The oldest first, with their addresses."""
        self._of_address: Counter[str] = Counter()
        self._pause: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._socket.setblocking(False)
        self._socket.listen(BACKLOG)
        self._accept_on()

    def close(self) -> None:
        """Accepts nobody any more, and ends the handshakes under way. May be called again."""
        if self._socket.fileno() < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        for task in self._under_way:
            task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._under_way, return_exceptions=True)

    def _accept_on(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.error("no connection can be accepted for now", error=str(error))
                self._loop.remove_reader(self._socket.fileno())
                self._pause = self._loop.call_later(PAUSE_S, self._accept_on)
                return
            accepted.setblocking(False)
            self._begin(accepted, str(peer[0]))

    def _begin(self, accepted: socket.socket, address: str) -> None:
        if self._of_address[address] >= MOST_OF_ADDRESS:
            self._end(next(task for task, theirs in self._under_way.items() if theirs == address))
        elif len(self._under_way) >= MOST:
            self._end(next(iter(self._under_way)))
        task = self._loop.create_task(self._shake_hands(accepted))
        self._under_way[task] = address
        self._of_address[address] += 1
        task.add_done_callback(self._forget)

    def _end(self, task: "asyncio.Task[None]") -> None:
        self._refuse(self._under_way[task])
        self._forget(task)
        task.cancel()

    async def _shake_hands(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make, accepted, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE_S
            )
        except OSError as error:  # Also what goes wrong in TLS.
            _log.debug("a handshake failed", error=str(error))

    def _forget(self, task: "asyncio.Task[None]") -> None:
        address = self._under_way.pop(task, None)
        if address is not None:
            self._of_address[address] -= 1
            if not self._of_address[address]:
                del self._of_address[address]

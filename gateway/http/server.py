"""The HTTP server: accepts connections on its listeners, closes those that are too slow, and drains at the end.

aiohttp leaves a connection open that sends its headers byte by byte, or that never reads its answer. `Connection`
closes both; `gateway.http.body` handles bodies that do not arrive. One watchdog looks at all connections, so that a
request costs no timer.

Up to `RESERVED` connections over a limit are accepted nevertheless: they get answers for `SERVICE_PATHS`, so that
monitoring still works, and a refusal for everything else. One more such connection replaces the oldest.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import structlog
from aiohttp import web
from aiohttp.abc import AbstractAccessLogger
from aiohttp.web_request import BaseRequest

from gateway.handshakes import TlsServer, serve
from gateway.http.api import Api
from gateway.http.app import SIGNED, make_app
from gateway.http.kinds import INTERNAL
from gateway.http.problems import BAD_REQUEST, OVERLOADED, TOO_MUCH, Problem, respond
from gateway.http.settings import HttpSettings
from gateway.kafka.server import KafkaServer
from gateway.listener import Listener
from gateway.node import Node
from gateway.principal import anonymous
from gateway.sql.queries import Queries

WATCH_INTERVAL_S: Final = 0.5
RESERVED: Final = 64
RESERVED_HEADER_S: Final = 2.0
_log = structlog.get_logger()


class Connection(web.RequestHandler):
    """A connection that knows how long it has been waiting for its peer."""

    __slots__ = (
        "_admission",
        "address",
        "header_since",
        "listener",
        "lost",
        "over",
        "port",
        "principal",
        "unsent",
        "unsent_since",
    )

    def __init__(
        self,
        manager: web.Server,
        listener: Listener,
        admission: "Admission",
        *,
        loop: asyncio.AbstractEventLoop,
        **options: Any,
    ) -> None:
        super().__init__(manager, loop=loop, **options)
        self.listener = listener
        self.principal = anonymous(listener.name, "")
        self._admission = admission
        self.address = ""
        self.port = 0
        self.over: Problem | None = None
        """Why this connection is over a limit."""
        self.header_since: float | None = loop.time()
        """When we began to wait for headers: at the start, or at the first byte of a later request."""
        self.unsent = 0
        self.unsent_since = 0.0
        self.lost = asyncio.Event()
        """Set when the peer has disconnected: nobody waits for the answer."""

    @property
    def is_idle(self) -> bool:
        return self._current_request is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        self.address, self.port = (str(peer[0]), int(peer[1])) if peer else ("", 0)
        principal = self.listener.principal(transport, self.address)
        self.over = self._admission.admit(self)
        super().connection_made(transport)
        if principal is None:
            self.force_close()
        else:
            self.principal = principal

    def connection_lost(self, exc: BaseException | None) -> None:
        self._admission.forget(self)
        self.lost.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # aiohttp sets `_waiter` while there is no request to work on; it is unresolved while headers are incomplete.
        waiting = self._waiter
        if self._messages or self._current_request is not None or waiting is None or waiting.done():
            self.header_since = None
        elif self.header_since is None:
            self.header_since = self._loop.time()

    def check(self, now: float, header_timeout_s: float, send_timeout_s: float) -> None:
        transport = self.transport
        if transport is None:
            return
        if self.over is not None:
            header_timeout_s = min(header_timeout_s, RESERVED_HEADER_S)
        if self.header_since is not None and now - self.header_since > header_timeout_s:
            self.force_close()
            return
        unsent = transport.get_write_buffer_size()
        if unsent == 0 or unsent != self.unsent:
            self.unsent = unsent
            self.unsent_since = now
        elif now - self.unsent_since > send_timeout_s:
            transport.abort()

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Returns a problem for input that is not HTTP, or a failure outside all handlers. The connection is closed."""
        if request.writer.output_size > 0 or isinstance(exc, ConnectionError):
            raise ConnectionError("the response has begun already, or the client has disconnected") from exc
        if status >= 500:
            _log.error("request failed", exc_info=exc)
            return _signed(respond(Problem(INTERNAL, "the request failed", close=True), request.path))
        detail = (message or "this is not HTTP/1.1").splitlines()[0]
        return _signed(respond(Problem(BAD_REQUEST, detail, close=True), request.path))


def _signed(response: web.Response) -> web.Response:
    """Sets our headers. This answer passes no handler, and would otherwise name the versions of Python and aiohttp."""
    response.headers.update(SIGNED)
    return response


class Admission:
    """The open connections: their total, the number per address, and those in the places reserved for monitoring."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self.admitted = 0
        self.refused = 0
        self._by_address: Counter[str] = Counter()
        self._reserved: dict[Connection, None] = {}

    def admit(self, connection: Connection) -> Problem | None:
        settings = self._settings
        over = None
        if self.admitted >= settings.max_connections:
            over = Problem(OVERLOADED, "there are too many connections", close=True)
        elif self._by_address[connection.address] >= settings.max_connections_per_ip:
            over = Problem(TOO_MUCH, f"there are too many connections from {connection.address}", close=True)
        if over is None:
            self.admitted += 1
            self._by_address[connection.address] += 1
            return None
        self.refuse(connection.address)
        if len(self._reserved) >= RESERVED:
            oldest = next((each for each in self._reserved if each.is_idle), next(iter(self._reserved)))
            del self._reserved[oldest]
            oldest.force_close()
        self._reserved[connection] = None
        return over

    def refuse(self, _: str) -> None:
        self.refused += 1

    def forget(self, connection: Connection) -> None:
        if connection.over is not None:
            self._reserved.pop(connection, None)
            return
        self.admitted -= 1
        self._by_address[connection.address] -= 1
        if not self._by_address[connection.address]:
            del self._by_address[connection.address]


class _NoAccessLog(AbstractAccessLogger):
    @property
    def enabled(self) -> bool:
        return False

    def log(self, request: BaseRequest, response: web.StreamResponse, time: float) -> None: ...


class HttpServer:
    def __init__(
        self,
        node: Node,
        settings: HttpSettings | None = None,
        kafka: KafkaServer | None = None,
        queries: Queries | None = None,
    ) -> None:
        self.settings = settings or HttpSettings()
        self.app = make_app(node, self.settings, kafka, queries)
        self._admission = Admission(self.settings)
        self._runner = web.AppRunner(
            self.app, access_log_class=_NoAccessLog, shutdown_timeout=self.settings.drain_timeout_ms / 1000
        )
        self.listeners: tuple[Listener, ...] = ()
        self._listening: list[asyncio.Server | TlsServer] = []
        self._watchdog: asyncio.Task[None] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """The address of its first listener, with the real port instead of port 0."""
        host, port = self.listeners[0].socket.getsockname()[:2]
        return host, port

    @property
    def refused_connections(self) -> int:
        return self._admission.refused

    @property
    def connections(self) -> int:
        server = self._runner.server
        return 0 if server is None else len(server.connections)

    async def start(self, listeners: Iterable[Listener]) -> None:
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self.listeners = tuple(listeners)
        for listener in self.listeners:
            accept = partial(self._accept, listener)
            self._listening.append(await serve(listener, accept, self._admission.refuse))
        self._watchdog = loop.create_task(self._watch(), name="http watchdog")
        self.app[Api.KEY].server = self

    async def stop(self) -> None:
        """Stops accepting, wakes long polls, lets requests finish, and closes."""
        self.app[Api.KEY].stopping.set()
        for each in self._listening:
            each.close()
        if self._watchdog is not None:
            self._watchdog.cancel()
        await self._runner.cleanup()
        for each in self._listening:
            await each.wait_closed()

    def _accept(self, listener: Listener) -> asyncio.Protocol:
        server = self._runner.server
        assert server is not None
        settings = self.settings
        return Connection(
            server,
            listener,
            self._admission,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=settings.keepalive_timeout_ms / 1000,
            access_log_class=_NoAccessLog,
            max_line_size=settings.max_header_bytes,
            max_field_size=settings.max_header_bytes,
            lingering_time=2.0,
        )

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        header_s, send_s = self.settings.header_timeout_ms / 1000, self.settings.send_timeout_ms / 1000
        interval = min(WATCH_INTERVAL_S, header_s / 4, send_s / 4)
        while True:
            await asyncio.sleep(interval)
            server = self._runner.server
            for each in server.connections if server is not None else ():
                if isinstance(each, Connection):
                    each.check(loop.time(), header_s, send_s)

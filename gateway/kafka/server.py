"""The Kafka server: accepts connections on its listeners, watches them, and drains them at the end.

The limits of connections and memory apply to all listeners together.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final

import structlog

from gateway.handshakes import TlsServer, serve
from gateway.kafka.apis import Apis, load_handlers
from gateway.kafka.buffers import Buffers
from gateway.kafka.connection import Connection
from gateway.kafka.sessions.fetch import FetchSessions
from gateway.kafka.sessions.replicas import ReplicaSessions
from gateway.kafka_settings import KafkaSettings
from gateway.listener import Listener
from gateway.node import Node

CHECK_S: Final = 1.0
TELL_S: Final = 60.0

_log = structlog.get_logger()


class KafkaServer:
    def __init__(self, node: Node, settings: KafkaSettings, apis: Apis | None = None) -> None:
        self.node = node
        self.settings = settings
        self.apis = apis or Apis(load_handlers())
        self.buffers = Buffers(settings.max_receiving_bytes, settings.max_unsent_bytes)
        self.fetch_sessions = FetchSessions(settings.max_fetch_sessions)
        self.replica_sessions = ReplicaSessions()
        self.loop: asyncio.AbstractEventLoop
        self.now_s = 0.0
        """The loop's time at the last check: exact enough for time-outs, and it costs nothing."""
        self.connections: set[Connection] = set()
        self.accepted = 0
        self.refused = 0
        self._refusal_told_s = -TELL_S
        self.received_bytes = 0
        self.sent_bytes = 0
        self.bad_requests = 0
        self.unexpected_errors = 0
        self._per_host: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.listeners: tuple[Listener, ...] = ()
        self._servers: list[asyncio.Server | TlsServer] = []
        self._checking: asyncio.TimerHandle | None = None
        self._stopping = False
        self.progress = asyncio.Event()
        """Set whenever a connection has answered or closed; a shutdown waits for this."""

    async def start(self, listeners: Iterable[Listener]) -> None:
        self.loop = asyncio.get_running_loop()
        self.apis.warm()
        self._check()
        self.listeners = tuple(listeners)
        for listener in self.listeners:
            if self.settings.send_buffer_bytes:
                # Connections inherit it. If the system grows the buffer to 4 MB, consumers lose a fifth of their speed.
                listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.settings.send_buffer_bytes)
            accept = partial(Connection, self, listener)
            self._servers.append(await serve(listener, accept, self._refuse))

    async def stop(self) -> None:
        """Stops accepting, answers the open requests, and closes."""
        self._stopping = True
        for server in self._servers:
            server.close()
        for connection in tuple(self.connections):
            connection.stop_reading()
        deadline = self.loop.time() + self.settings.drain_timeout_ms / 1000
        await self._until(lambda: not any(connection.at_work for connection in self.connections), deadline)
        for connection in tuple(self.connections):
            connection.close()
        await self._until(lambda: not self.connections, deadline)
        for connection in tuple(self.connections):
            connection.abort("shutting down")
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._checking is not None:
            self._checking.cancel()

    async def _until(self, condition: Callable[[], bool], deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                while not condition():
                    self.progress.clear()
                    await self.progress.wait()
        except TimeoutError:
            _log.warning("requests given up at shutdown", connections=len(self.connections))

    def admit(self, connection: Connection) -> bool:
        limits = self.settings
        host = connection.host
        if (
            self._stopping
            or len(self.connections) >= limits.max_connections
            or self._per_host[host] >= limits.max_connections_per_ip
        ):
            self._refuse(host)
            return False
        self.accepted += 1
        self._per_host[host] += 1
        self.connections.add(connection)
        return True

    def _refuse(self, address: str) -> None:
        self.refused += 1
        if self.now_s >= self._refusal_told_s + TELL_S:  # Whoever is refused often must not fill the log.
            self._refusal_told_s = self.now_s
            _log.warning(
                "a connection is refused", address=address, connections=len(self.connections), refused=self.refused
            )

    def forget(self, connection: Connection) -> None:
        self.progress.set()
        if connection in self.connections:
            self.connections.remove(connection)
            self._per_host[connection.host] -= 1
            if not self._per_host[connection.host]:
                del self._per_host[connection.host]

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def report(self, error: BaseException, **where: object) -> None:
        """Logs an exception that is none of our errors: a mistake that must be found and fixed."""
        self.unexpected_errors += 1
        _log.error("request failed", exc_info=error, **where)

    def _check(self) -> None:
        self.now_s = self.loop.time()
        for connection in tuple(self.connections):
            connection.check(self.now_s)
        self._checking = self.loop.call_later(CHECK_S, self._check)

"""Requests to an etcd cluster through its JSON gateway: which endpoint, how long, and what a failure means.

Owns: the connections, the endpoint in use, the authentication token.

- One endpoint is used until it fails; then the next one is, for every request.
- An endpoint has `SILENCE_S` to say something, a call `OPERATION_S` to be answered by any. A repeatable call (reads,
  leases) goes to the next endpoint then. One that must happen once is sent again only when the first was
  certainly not carried out; otherwise it is MetadataAnswerLost.
- Reads are linearizable: nothing here asks for a serializable one, which a cut-off member would answer from the past.

Bodies and the meaning of answers are `hot_tier.cluster.etcd_wire`.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import aiohttp
import orjson

from hot_tier.cluster import etcd_wire as wire
from hot_tier.cluster.etcd_wire import EtcdError, Garbled, Verdict
from hot_tier.cluster.store import Revision
from hot_tier.errors import LeaseExpired, MetadataAnswerLost, MetadataCompacted, MetadataUnavailable

OPERATION_S: Final = 5.0
SILENCE_S: Final = 1.0
"""A write that was forwarded to a leader which died is never answered, and a new leader is there within a second:
waiting longer only delays whoever has to decide anew."""
CONNECT_S: Final = 1.0
PAUSE_S: Final = 0.05
"""Between rounds over all endpoints."""

T = TypeVar("T")


class Interrupted(Exception):
    """One endpoint failed one request. `sent` is False when it cannot have been carried out."""

    def __init__(self, what: str, *, sent: bool) -> None:
        super().__init__(what)
        self.sent = sent


class EtcdClient:
    """Call `open` first, from the loop that uses it."""

    def __init__(
        self, endpoints: Sequence[str], tls: ssl.SSLContext | None = None, user: str = "", password: str = ""
    ) -> None:
        self.endpoints = tuple(endpoints)
        self.closed = False
        self._tls = tls
        self._user = user
        self._password = password
        self._token = ""
        self._authenticating = asyncio.Lock()
        self._current = 0
        self._session: aiohttp.ClientSession

    async def open(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls or True, socket_factory=_watched_socket)
        self._session = aiohttp.ClientSession(connector=connector)

    async def close(self) -> None:
        self.closed = True
        await self._session.close()

    @property
    def endpoint(self) -> str:
        return self.endpoints[self._current]

    def leave(self, endpoint: str) -> None:
        """Leaves an endpoint that failed for the next one, unless another request has done so already."""
        if endpoint == self.endpoint:
            self._current = (self._current + 1) % len(self.endpoints)

    async def call(
        self, path: str, body: Mapping[str, Any], read: Callable[[wire.Document], T], *, repeatable: bool = True
    ) -> T:
        """Sends a request and returns the answer as `read` parses it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + OPERATION_S
        data = orjson.dumps(body)
        attempts = 0
        reason: Exception | None = None
        while True:
            self._check_open()
            endpoint = self.endpoint
            try:
                return await self._ask(endpoint, path, data, read, deadline - loop.time())
            except EtcdError as error:
                failure = self.judge(endpoint, error)
            except Interrupted as interrupted:
                failure = interrupted
            self.leave(endpoint)
            if failure.sent and not repeatable:
                raise MetadataAnswerLost(
                    f"no answer to a write: {failure}", where=endpoint, hint="it may or may not have happened"
                ) from failure
            attempts += 1
            if reason is None or loop.time() < deadline:
                reason = failure  # The deadline may have ended the last attempt early, so its error says nothing.
            if attempts % len(self.endpoints) == 0:
                await asyncio.sleep(PAUSE_S)
            if loop.time() >= deadline:
                raise MetadataUnavailable(
                    f"no endpoint of etcd answers: {reason}",
                    where=",".join(self.endpoints),
                    hint="is etcd running and reachable? See cluster.metadata",
                ) from reason

    async def revision(self, endpoint: str, key: str) -> Revision:
        """Returns the store's revision from this endpoint, which has to ask a majority for it."""
        data = orjson.dumps(wire.count_body(key))
        return await self._ask(endpoint, "/v3/kv/range", data, wire.read_revision, SILENCE_S)

    @asynccontextmanager
    async def stream(self, endpoint: str, path: str, body: Mapping[str, Any]) -> AsyncIterator[aiohttp.StreamReader]:
        """Returns a stream of messages, which are lines of any length. Only the beginning of the stream has a
        deadline."""
        try:
            async with asyncio.timeout(OPERATION_S) as beginning:
                async with self._post(endpoint, path, orjson.dumps(body), None, None) as response:
                    beginning.reschedule(None)
                    yield response.content
        except TimeoutError as error:
            raise Interrupted("no answer in time", sent=True) from error

    async def _ask(
        self, endpoint: str, path: str, data: bytes, read: Callable[[wire.Document], T], total_s: float
    ) -> T:
        """Sends one request to one endpoint and returns its answer. Raises `EtcdError` or `Interrupted`."""
        async with self._post(endpoint, path, data, SILENCE_S, total_s) as response:
            return read(wire.parse(await response.read()))

    @asynccontextmanager
    async def _post(
        self, endpoint: str, path: str, data: bytes, silence_s: float | None, total_s: float | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = {"Content-Type": "application/json"}
        if self._user:
            headers["Authorization"] = await self._authenticate(endpoint)
        if self.closed:
            raise Interrupted("closed", sent=False)
        timeout = aiohttp.ClientTimeout(total=total_s, sock_connect=CONNECT_S, sock_read=silence_s)
        try:
            async with self._session.post(endpoint + path, data=data, headers=headers, timeout=timeout) as response:
                yield response
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Interrupted(str(error) or "no connection", sent=False) from error
        except (aiohttp.ClientError, TimeoutError, OSError, Garbled) as error:
            raise Interrupted(str(error) or "no answer in time", sent=True) from error

    async def _authenticate(self, endpoint: str) -> str:
        """Returns the token. It is asked for once, because a password check costs etcd some 80 ms."""
        async with self._authenticating:
            if not self._token:
                body = orjson.dumps({"name": self._user, "password": self._password})
                timeout = aiohttp.ClientTimeout(total=OPERATION_S, sock_connect=CONNECT_S)
                try:
                    async with self._session.post(
                        f"{endpoint}/v3/auth/authenticate", data=body, timeout=timeout
                    ) as response:
                        self._token = str(wire.parse(await response.read()).get("token", ""))
                except (aiohttp.ClientError, TimeoutError, OSError, Garbled) as error:
                    raise Interrupted(str(error) or "no answer to authentication", sent=False) from error
            return self._token

    def judge(self, endpoint: str, error: EtcdError) -> Interrupted:
        match error.verdict:
            case Verdict.LEASE_GONE:
                raise LeaseExpired("the lease is gone", where=endpoint)
            case Verdict.COMPACTED:
                raise MetadataCompacted(error.message, where=endpoint)
            case Verdict.REFUSED:
                raise MetadataUnavailable(f"etcd refuses: {error.message}", where=endpoint, hint=error.hint)
            case Verdict.TOKEN_EXPIRED:
                self._token = ""
                return Interrupted(error.message, sent=False)
            case Verdict.BUSY:
                return Interrupted(error.message, sent=False)
            case Verdict.LOST:
                return Interrupted(error.message, sent=True)

    def _check_open(self) -> None:
        if self.closed:
            raise MetadataUnavailable("the metadata store is closed", where=",".join(self.endpoints))


def _watched_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Returns a socket with keep-alives. A watch may be silent for days, so the kernel has to find out that the other
    host is gone."""
    family, kind, protocol = address[:3]
    found = socket.socket(family, kind, protocol)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 2)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    return found

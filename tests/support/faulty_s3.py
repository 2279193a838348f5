"""A reverse proxy in front of an S3 server that misbehaves as it is told. Which requests, and how, is data (`Fault`).

It runs on a loop in a thread of its own. Requests pass with their Host header, which SigV4 signs.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto

from aiohttp import ClientSession, TCPConnector, web
from yarl import URL

READS = frozenset({"GET", "HEAD"})
WRITES = frozenset({"PUT", "POST"})
ALL = READS | WRITES | {"DELETE"}
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding"}


class Act(Enum):
    ANSWER = auto()
    """An error, without asking the server."""
    HANG = auto()
    """Nothing happens until the client gives up."""
    CUT_UPLOAD = auto()
    """The connection goes in the middle of the request's body; the server never sees it."""
    CUT_RESPONSE = auto()
    """The connection goes in the middle of the response's body."""
    FLIP = auto()
    """One bit of the response's body is another."""
    LOSE_ANSWER = auto()
    """The server does it, and the connection goes before it can say so."""
    REFUSE = auto()
    """The connection goes at once: the server is down."""


@dataclass(frozen=True)
class Fault:
    act: Act
    methods: frozenset[str] = ALL
    containing: str = ""
    """Only requests whose path has this in it."""
    every: int = 1
    """Only the first of so many that match."""
    status: int = 503
    code: str = "SlowDown"


@dataclass
class FaultyS3:
    upstream: str
    endpoint: str = ""
    faults: tuple[Fault, ...] = ()
    """What goes wrong now; put another tuple here to change it."""
    met: int = 0
    """Requests that a fault befell."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Every request: method and path."""
    seen: Callable[[web.Request, bytes], None] = lambda request, body: None
    """Told of every request that is passed on, with its body."""
    _matched: dict[Fault, int] = field(default_factory=dict)

    def _fault(self, request: web.Request) -> Fault | None:
        listing = request.method == "GET" and "list-type" in request.query
        for fault in self.faults:
            if fault.act is Act.FLIP and listing:
                continue  # A store's own XML; objects are what checksums guard.
            if request.method in fault.methods and fault.containing in request.path:
                self._matched[fault] = count = self._matched.get(fault, 0) + 1
                if count % fault.every == 1 % fault.every:
                    self.met += 1
                    return fault
        return None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        fault = self._fault(request)
        self.requests.append((request.method, request.path))
        act = fault.act if fault is not None else None
        if fault is not None and act is Act.ANSWER:
            await request.read()
            text = f"<?xml version='1.0'?><Error><Code>{fault.code}</Code></Error>"
            return web.Response(status=fault.status, text=text, content_type="application/xml")
        if act is Act.HANG:
            await asyncio.sleep(3600)
        if act is Act.REFUSE:
            return _gone(request)
        if act is Act.CUT_UPLOAD:
            await request.content.readany()
            return _gone(request)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        url = URL(self.upstream + request.raw_path, encoded=True)
        sent = await request.read()
        self.seen(request, sent)
        async with self._session.request(
            request.method, url, headers=headers, data=sent, allow_redirects=False
        ) as answer:
            body = bytearray(await answer.read())
            if act is Act.LOSE_ANSWER:
                return _gone(request)
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
            response = web.StreamResponse(status=answer.status, headers=kept)
        if act is Act.FLIP and body:
            body[len(body) // 2] ^= 0x10
        await response.prepare(request)
        if act is Act.CUT_RESPONSE and request.method == "GET":
            await response.write(bytes(body[: len(body) // 2]))
            return _gone(request)
        if request.method != "HEAD":
            await response.write(bytes(body))
        await response.write_eof()
        return response

    async def _serve(self, ready: threading.Event, stop: asyncio.Event) -> None:
        async with ClientSession(connector=TCPConnector(limit=0), auto_decompress=False) as self._session:
            app = web.Application(client_max_size=1 << 30)
            app.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            self.endpoint = f"http://{host}:{port}"
            ready.set()
            await stop.wait()
            await runner.cleanup()


def _gone(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


@contextmanager
def faulty(upstream: str) -> Iterator[FaultyS3]:
    proxy, ready, loop, stop = FaultyS3(upstream), threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(proxy._serve(ready, stop)), name="faulty-s3")
    thread.start()
    assert ready.wait(10)
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        assert not thread.is_alive()
        loop.close()

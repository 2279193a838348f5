"""Forwards a request that came to the wrong broker to the right one, and passes the answer back.

An operation's `place` says which broker is right: the leader of the partition, the coordinator of the group, or the
controller. Clients may use any broker's port and need not know.

- The right broker gets a request at most once per attempt of the client: it is forwarded once and not tried again.
- If there is no broker to forward to, the answer is 503 with Retry-After. If the answer to a produce is lost, it is 503
  `outcome-unknown`.
- Parameters and body are checked here first. Quotas are charged at the broker that does the work.
- Bodies of requests are within the usual limits. Answers are passed back piece by piece as they come, no faster than
  the client reads. If the answer breaks off there, it is cut off here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from aiohttp import web

from gateway.http.peers.behalf import SENDER, write_sender
from gateway.http.peers.peers import SAFE_METHODS, lost
from gateway.http.problems import STOPPING, Problem
from hot_tier.cluster.model import BrokerInfo

if TYPE_CHECKING:
    from gateway.http.operation import Call

Place = Callable[["Call"], Awaitable[BrokerInfo | None]]
"""Returns the broker that does a request; None if it is this one."""

NOT_PASSED_ON: Final = frozenset(
    {
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "origin",
        "sec-fetch-dest",
        "sec-fetch-mode",
        "sec-fetch-site",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-api-key",
        SENDER.lower(),
    }
)
"""Request headers that are not forwarded: those of one connection, those that describe the body before it was read,
those in which a browser describes a page, and the login. The last two were checked here."""
NOT_PASSED_BACK: Final = NOT_PASSED_ON | {"date", "server"}


async def relay(call: "Call", broker: BrokerInfo, params: Mapping[str, str] | None = None) -> web.StreamResponse:
    """Forwards the request, with these query parameters if given, and passes the answer back."""
    request, peers = call.request, call.api.peers
    if call.forwarded:
        peers.refuse_hop(broker, request.path)
    peers.forwarded += 1
    headers = [(name, value) for name, value in request.headers.items() if name.lower() not in NOT_PASSED_ON]
    headers.append((SENDER, write_sender(call.principal)))
    sending = asyncio.ensure_future(
        peers.send(
            broker,
            request.method,
            request.rel_url.raw_path,
            params=request.rel_url.query if params is None else params,
            headers=headers,
            data=call.raw,
        )
    )
    upstream = await _unless_lost(sending, call)
    async with upstream:
        response = web.StreamResponse(status=upstream.status, reason=upstream.reason)
        for name, value in upstream.headers.items():
            if name.lower() not in NOT_PASSED_BACK:
                response.headers.add(name, value)
        response.content_length = upstream.content_length
        if upstream.content_length is None and upstream.status != 204:
            response.enable_chunked_encoding()
        pieces = upstream.content.iter_any()
        try:
            first = await anext(pieces, b"")
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise lost(broker, request.method, request.path, error) from error
        await response.prepare(request)
        try:
            if first:
                await response.write(first)
            async for piece in pieces:
                await response.write(piece)
        except (aiohttp.ClientError, TimeoutError) as error:
            # The rest of the answer does not come. The client must not believe that it has the whole answer.
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError(f"the answer of broker {broker.id} broke off before its end") from error
        await response.write_eof()
        return response


async def _unless_lost(sending: "asyncio.Future[aiohttp.ClientResponse]", call: "Call") -> aiohttp.ClientResponse:
    """Returns the answer's head. A read stops waiting when its client has disconnected or this node stops. A change
    waits, because it cannot be undone."""
    gone: asyncio.Event | None = getattr(call.request.protocol, "lost", None)
    if gone is None or call.request.method not in SAFE_METHODS:
        return await sending
    ends: list[asyncio.Future[Any]] = [asyncio.ensure_future(each.wait()) for each in (gone, call.api.stopping)]
    try:
        await asyncio.wait([sending, *ends], return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            return sending.result()
        if call.api.stopping.is_set():
            raise Problem(STOPPING, "the node is stopping")
        raise ConnectionResetError("the client has disconnected")
    finally:
        for each in ends:
            each.cancel()
        if not sending.done():
            sending.cancel()


# Places


async def at_leader(call: "Call") -> BrokerInfo | None:
    """Returns the leader of the partition in the path."""
    return call.api.peers.leader(call.values["topic"], call.values["partition"])


async def at_leader_in_body(call: "Call") -> BrokerInfo | None:
    """Returns the leader of the partition in the document."""
    return call.api.peers.leader(call.body.topic, call.body.partition)


async def at_coordinator(call: "Call") -> BrokerInfo | None:
    """Returns the group's coordinator if there is one. A read about a group does not make the offsets topic."""
    coordinator = call.api.node.groups.find_existing(call.values["group"])
    return None if coordinator is None else call.api.peers.registered(coordinator, call.values["group"])


async def at_new_coordinator(call: "Call") -> BrokerInfo | None:
    """Returns the group's coordinator. Makes the offsets topic if there is none."""
    broker = await call.api.node.groups.find(call.values["group"])
    return call.api.peers.registered(broker.id, call.values["group"])


async def at_controller(call: "Call") -> BrokerInfo | None:
    return call.api.peers.registered(call.api.node.image.controller, "the controller")

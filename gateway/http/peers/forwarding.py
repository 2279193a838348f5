"""A request that came to the wrong broker is passed on to the right one, and its answer is passed back.

Which broker that is, an operation says by its `place`: who leads the partition, who coordinates the group, who is the
controller. Clients may use any broker's port and need not know.

- A request is done at its place at most once per attempt of the client: it is passed on once and not tried again.
- Nobody to pass it to is 503 with Retry-After; a produce whose answer was lost is 503 `outcome-unknown`.
- Checks of parameters and body are made here first, quotas are kept there, where the work is done.
- Bodies of requests are within the limits of any request; answers are passed on piece by piece as they come, no faster
  than the client reads. An answer that breaks off there is broken off here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from aiohttp import web

from gateway.http.peers.peers import SAFE_METHODS, lost
from gateway.http.problems import STOPPING, Problem
from hot_tier.cluster.model import BrokerInfo

if TYPE_CHECKING:
    from gateway.http.operation import Call

Place = Callable[["Call"], Awaitable[BrokerInfo | None]]
"""Where a request is done; None: here."""

NOT_PASSED_ON: Final = frozenset(
    {
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
    }
)
"""Of requests: what belongs to one connection, what was true of the body before it was read, and what a browser says of
a page, which was checked here."""
NOT_PASSED_BACK: Final = NOT_PASSED_ON | {"date", "server"}


async def relay(call: "Call", broker: BrokerInfo, params: Mapping[str, str] | None = None) -> web.StreamResponse:
    """Pass the request on, with these query parameters instead of its own, and the answer back."""
    request, peers = call.request, call.api.peers
    if call.forwarded:
        peers.refuse_hop(broker, request.path)
    peers.forwarded += 1
    headers = [(name, value) for name, value in request.headers.items() if name.lower() not in NOT_PASSED_ON]
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
            # What was promised does not come: the client must not take what it has for the whole.
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError(f"the answer of broker {broker.id} broke off") from error
        await response.write_eof()
        return response


async def _unless_lost(sending: "asyncio.Future[aiohttp.ClientResponse]", call: "Call") -> aiohttp.ClientResponse:
    """The answer's head. A read is not waited for when its client has gone away or this node stops; a change is, for it
    cannot be taken back."""
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
        raise ConnectionResetError("the client has gone away")
    finally:
        for each in ends:
            each.cancel()
        if not sending.done():
            sending.cancel()


# Places


async def at_leader(call: "Call") -> BrokerInfo | None:
    """Of the partition that the address names."""
    return call.api.peers.leader(call.values["topic"], call.values["partition"])


async def at_leader_in_body(call: "Call") -> BrokerInfo | None:
    """Of the partition that the document names."""
    return call.api.peers.leader(call.body.topic, call.body.partition)


async def at_coordinator(call: "Call") -> BrokerInfo | None:
    """Of the group, as far as there is one: looking at a group makes no topic for offsets."""
    coordinator = call.api.node.groups.find_existing(call.values["group"])
    return None if coordinator is None else call.api.peers.registered(coordinator, call.values["group"])


async def at_new_coordinator(call: "Call") -> BrokerInfo | None:
    """Of the group, made a place for if there is none."""
    broker = await call.api.node.groups.find(call.values["group"])
    return call.api.peers.registered(broker.id, call.values["group"])


async def at_controller(call: "Call") -> BrokerInfo | None:
    return call.api.peers.registered(call.api.node.image.controller, "the controller")

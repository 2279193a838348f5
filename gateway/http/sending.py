"""Sends large answers no faster than the client reads, within the memory for answers."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from aiohttp import web

from gateway.http.budget import Lease

if TYPE_CHECKING:
    from gateway.http.api import Api

PIECE_BYTES: Final = 64 * 1024


def pieces(body: bytes) -> Iterable[memoryview]:
    view = memoryview(body)
    return (view[start : start + PIECE_BYTES] for start in range(0, len(body), PIECE_BYTES))


async def send_large(api: "Api", request: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
    """Sends the answer if its body is large. Returns a small answer unsent: aiohttp sends it in one step."""
    body = answer.body if isinstance(answer, web.Response) else None
    if not isinstance(body, bytes | bytearray) or len(body) <= PIECE_BYTES or answer.prepared:
        return answer
    with Lease(api.answers, request) as lease:
        lease.need(len(body))
        response = web.StreamResponse(status=answer.status, headers=answer.headers)
        response.content_length = len(body)
        await response.prepare(request)
        for piece in pieces(bytes(body)):
            await response.write(piece)
        await response.write_eof()
    return response

"""Reads request bodies within limits: of size before anything is allocated, of time, and of memory over all clients.

A client that announces too many bytes is refused before one is read. A client that announces no length (chunked) is cut
off when it passes the limit. aiohttp itself waits for a body for ever, so the time limit is here. The size counts after
decompression.
"""

import asyncio
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from gateway.http.budget import Budget, address_of
from gateway.http.problems import BAD_REQUEST, BODY_TIMEOUT, BODY_TOO_LARGE, Problem
from gateway.off_loop import off_loop

JOIN_BYTES: Final = 1024
"""So many bytes of a body count as one record for `off_loop`: bodies of a megabyte and more are joined in a thread."""


class BodyReader:
    """One per server. `buffered_bytes` counts the bodies that are in memory now."""

    def __init__(self, timeout_ms: int, max_buffered_bytes: int) -> None:
        self.timeout_s = timeout_ms / 1000
        self.budget = Budget("request bodies", max_buffered_bytes)

    @property
    def buffered_bytes(self) -> int:
        return self.budget.used

    def check_announced(self, request: web.Request, limit: int) -> None:
        announced = request.content_length
        if announced is not None and announced > limit:
            raise self._too_large(limit)

    async def read(self, request: web.Request, limit: int) -> bytes:
        """Returns the whole body. The caller calls `release(request, len(body))` when the request is done."""
        self.check_announced(request, limit)
        if not request.body_exists:
            return b""
        content, budget, address = request.content, self.budget, address_of(request)
        body = b""
        chunks: list[bytes] = []
        size = counted = 0
        try:
            async with asyncio.timeout(self.timeout_s):
                while not content.at_eof():
                    chunk = await content.readany()
                    size += len(chunk)
                    if size > limit:
                        raise self._too_large(limit)
                    if not budget.take(address, len(chunk)):
                        raise budget.refusal(address)
                    counted = size
                    chunks.append(chunk)
            # For a long body, the first access to its memory pages costs tens of milliseconds.
            body = chunks[0] if len(chunks) == 1 else await off_loop(size // JOIN_BYTES, b"".join, chunks)
            counted -= len(body)
            return body
        except TimeoutError:
            raise Problem(BODY_TIMEOUT, f"only {size} bytes arrived in {self.timeout_s:g} s", close=True) from None
        except (RequestPayloadError, HttpProcessingError) as error:
            raise Problem(BAD_REQUEST, f"the body cannot be read: {error}", close=True) from None
        finally:
            budget.give_back(address, counted)

    def release(self, request: web.Request, size: int) -> None:
        self.budget.give_back(address_of(request), size)

    def _too_large(self, limit: int) -> Problem:
        return Problem(BODY_TOO_LARGE, f"the body is longer than {limit} bytes", extra={"max_bytes": limit}, close=True)

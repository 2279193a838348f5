"""What web pages of other origins may do (CORS). Off unless origins are set; each is compared as a whole.

A page gets no credentials of the browser: it sends its own `Authorization`. `Sites` lets its requests in, and the
answers here let the browser show them to it.
"""

from collections.abc import Iterable
from typing import Final

from aiohttp import web

ASKS_METHOD: Final = "Access-Control-Request-Method"
ANSWER: Final = {
    "Access-Control-Allow-Methods": "GET, HEAD, POST, PUT, PATCH, DELETE",
    # `*` stands for every header but this one.
    "Access-Control-Allow-Headers": "*, Authorization",
    "Access-Control-Max-Age": "600",
}


class Cors:
    def __init__(self, origins: Iterable[str]) -> None:
        self.origins = frozenset(origins)

    def preflight(self, request: web.Request) -> web.Response | None:
        """Returns the answer if a browser asks whether a page may send a request; it carries no login."""
        if request.method != "OPTIONS" or ASKS_METHOD not in request.headers:
            return None
        return web.Response(status=204, headers=ANSWER) if request.headers.get("Origin") in self.origins else None

    def sign(self, request: web.BaseRequest, response: web.StreamResponse) -> None:
        if not self.origins:
            return
        response.headers.add("Vary", "Origin")
        origin = request.headers.get("Origin")
        if origin in self.origins:
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = "*"

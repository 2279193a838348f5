"""Who sends an HTTP request where a login is required.

It shows a password (`Authorization: Basic`), a token of the identity provider or an API key (`Authorization: Bearer`),
or an API key in `X-Api-Key`. Where a certificate is wanted but not required, one is a login too, for requests that show
nothing else.

A password costs some milliseconds of a core to check, a token a tenth of one. What was right is remembered for a
minute, under a keyed hash, while the user's password or the provider's keys stay the same. Each request has its own
sender: requests of several users may share a connection.
"""

import asyncio
import hmac
import os
from base64 import b64decode
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

import structlog
from aiohttp import web

from gateway.http.problems import LOGIN_FAILED, LOGIN_NEEDED, Problem
from gateway.http.sites import by_script
from gateway.node import Node
from gateway.principal import Principal
from gateway.sasl import LoginFailed, PlainExchange
from gateway.tokens.check import MAX_TOKEN, TokenRefused
from hot_tier.cluster.api_keys import MARK, split_key

if TYPE_CHECKING:
    from gateway.http.server import Connection

PRINCIPAL: Final = web.RequestKey("principal", Principal)
API_KEY: Final = "X-Api-Key"
ASK: Final = {"WWW-Authenticate": 'Basic realm="tierlog", charset="UTF-8", Bearer realm="tierlog"'}
ASK_SCRIPT: Final = {"WWW-Authenticate": 'Bearer realm="tierlog"'}
"""For scripts in a browser: see `gateway.http.sites`."""
REMEMBERED_S: Final = 60.0
MOST_REMEMBERED: Final = 10_000
MAX_PASSWORD: Final = 4096

_log = structlog.get_logger()


def sender(request: web.Request) -> Principal:
    """Returns who sends this request: by its own login, or else by its connection."""
    return request.get(PRINCIPAL) or cast("Connection", request.protocol).principal


class _Right(NamedTuple):
    user: str
    kind: Literal["password", "token"]
    by: Any
    """The object that it was checked against. When keys or passwords change, another object takes its place."""
    until_s: float


class HttpLogin:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._secret = os.urandom(32)
        self._right: dict[bytes, _Right] = {}

    async def check(self, request: web.Request) -> None:
        """Gives the request its sender. Raises a Problem if it does not show a right login."""
        connection = cast("Connection", request.protocol)
        listener = connection.listener
        sent = [*request.headers.getall("Authorization", ()), *request.headers.getall(API_KEY, ())]
        if not sent and listener.certificate_is_login and connection.principal.kind == "certificate":
            return
        if not sent or not sent[0]:
            raise Problem(LOGIN_NEEDED, f"the listener {listener.name!r} asks for a login", headers=_ask(request))
        try:
            if len(sent) > 1:
                raise LoginFailed("more than one login in one request")
            scheme, shown = ("bearer", sent[0]) if API_KEY in request.headers else _split(sent[0])
            if scheme == "bearer" and shown.startswith(MARK):
                request[PRINCIPAL] = self._by_key(shown, connection)
                return
            known = self._remembered(scheme, shown, listener.name)
        except LoginFailed as error:
            raise await self._refused(request, error) from None
        if known is None:
            async with self._node.failed_logins.turn(connection.address):
                if connection.lost.is_set():
                    raise ConnectionResetError("the client has disconnected")
                try:
                    known = await (self._by_password(shown) if scheme == "basic" else self._by_token(shown))
                except (LoginFailed, TokenRefused) as error:
                    raise await self._refused(request, error) from None
            self._remember(scheme, shown, listener.name, known)
        request[PRINCIPAL] = Principal(known.user, known.kind, listener.name, connection.address)

    async def _refused(self, request: web.Request, error: Exception) -> Problem:
        """Returns the answer to a wrong login, when its time has come."""
        connection = cast("Connection", request.protocol)
        _log.warning("login failed", address=connection.address, listener=connection.listener.name, reason=str(error))
        await self._node.failed_logins.wait(connection.address)
        return Problem(LOGIN_FAILED, str(error), headers=_ask(request))

    async def knows(self, request: web.Request) -> bool:
        """Returns whether the sender of a request that needs no login shows one, or nobody logs in here. Raises a
        Problem if it is wrong."""
        if cast("Connection", request.protocol).listener.mechanisms:
            try:
                await self.check(request)
            except Problem as problem:
                if problem.kind is not LOGIN_NEEDED:
                    raise
                return False
        return True

    def _remembered(self, scheme: str, shown: str, listener: str) -> _Right | None:
        if scheme not in ("basic", "bearer") or len(shown) > (MAX_PASSWORD if scheme == "basic" else MAX_TOKEN):
            raise LoginFailed("neither a password, nor a token, nor an API key")
        known = self._right.get(self._digest(scheme, shown, listener))
        held = known is not None and self._by(known.kind, known.user) is known.by and _now_s() <= known.until_s
        return known if held else None

    def _remember(self, scheme: str, shown: str, listener: str, known: _Right) -> None:
        if len(self._right) >= MOST_REMEMBERED:
            self._right.clear()
        self._right[self._digest(scheme, shown, listener)] = known

    def _digest(self, scheme: str, shown: str, listener: str) -> bytes:
        return hmac.digest(self._secret, f"{listener} {scheme} {shown}".encode(errors="replace"), "sha256")

    def _by(self, kind: str, user: str) -> Any:
        tokens = self._node.tokens
        if kind == "token":
            return None if tokens is None else tokens.found
        return self._node.image.users.get(user)

    async def _by_password(self, shown: str) -> _Right:
        users = self._node.image.users
        exchange = PlainExchange(lambda name: users.get(name, {}))
        try:
            user, _, password = b64decode(shown, validate=True).decode().partition(":")
        except ValueError:
            raise LoginFailed("not a user and a password") from None
        credentials = users.get(user)
        await self._node.failed_logins.check(exchange.step, f"\0{user}\0{password}".encode())
        return _Right(user, "password", credentials, _now_s() + REMEMBERED_S)

    async def _by_token(self, shown: str) -> _Right:
        tokens = self._node.tokens
        if tokens is None:
            raise LoginFailed("this broker takes no tokens, and it is not an API key")
        token = await tokens.check(shown)
        held_s = min(REMEMBERED_S, token.until_s - self._node.clock() / 1000)
        return _Right(token.user, "token", tokens.found, _now_s() + held_s)

    def _by_key(self, shown: str, connection: "Connection") -> Principal:
        key_id, secret = split_key(shown) or ("", "")
        known = self._node.image.api_keys.get(key_id)
        if known is None or not known.accepts(secret) or known.user not in self._node.image.users:
            raise LoginFailed("wrong API key")
        if known.expires_ms is not None and self._node.clock() >= known.expires_ms:
            raise LoginFailed("the API key has expired")
        return Principal(known.user, "api-key", connection.listener.name, connection.address, known.scope)


def _ask(request: web.Request) -> dict[str, str]:
    return ASK_SCRIPT if by_script(request.headers) else ASK


def _split(sent: str) -> tuple[str, str]:
    scheme, _, shown = sent.partition(" ")
    return scheme.lower(), shown.strip()


def _now_s() -> float:
    return asyncio.get_running_loop().time()

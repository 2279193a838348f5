"""The login of one connection at a listener with SASL: which mechanism, how far the exchange is, and for how long it
holds.

Until it is done the connection may ask for nothing else (`Connection`). When its time is over (KIP-368) the client logs
in again on the same connection, as the same user. A login with a token ends with the token's time.
"""

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from gateway.kafka.errors import ErrorCode
from gateway.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from gateway.sasl import BearerExchange, Exchange, LoginFailed, PlainExchange, new_exchange
from gateway.tokens.check import TokenRefused

if TYPE_CHECKING:
    from gateway.kafka.connection import Connection
    from gateway.kafka.server import KafkaServer

MAX_FRAME_BYTES: Final = 64 * 1024
"""Of a request before the login is done."""

_log = structlog.get_logger()


class _Step(NamedTuple):
    answer: bytes
    user: str | None = None
    lifetime_ms: int | None = None
    """How long the login holds; None: without end."""


class Login:
    def __init__(self, connection: "Connection", server: "KafkaServer", mechanisms: tuple[str, ...]) -> None:
        self._connection = connection
        self._server = server
        self.mechanisms = mechanisms
        self._exchange: Exchange | None = None
        self._mechanism = ""
        self._user: str | None = None
        self.until_s = 0.0

    def holds(self) -> bool:
        return self._user is not None and self._server.loop.time() < self.until_s

    def begin(self, mechanism: str) -> ErrorCode:
        if self._exchange is not None:
            return ErrorCode.ILLEGAL_SASL_STATE
        if mechanism not in self.mechanisms:
            self._connection.end_with_answer()
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self._mechanism = mechanism
        image = self._server.node.image
        self._exchange = new_exchange(mechanism, lambda name: image.users.get(name, {}), image.salts)
        return ErrorCode.NONE

    async def step(self, message: bytes) -> SaslAuthenticateResponse:
        exchange = self._exchange
        if exchange is None:
            self._connection.end_with_answer()
            return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, "choose a mechanism with SaslHandshake first")
        async with self._server.node.failed_logins.turn(self._connection.host):
            if self._connection not in self._server.connections:  # It is gone: nobody reads the answer.
                return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED)
            return await self._checked(exchange, message)

    async def _checked(self, exchange: Exchange, message: bytes) -> SaslAuthenticateResponse:
        try:
            step = await self._step(exchange, message)
            if step.user is not None and self._user not in (None, step.user):
                raise LoginFailed("another user than before")
        except LoginFailed as error:
            self._connection.end_with_answer()
            if not (isinstance(exchange, BearerExchange) and exchange.refused):
                await self._failed(str(error), exchange.claimed)
            said = f"Authentication failed during authentication with SASL mechanism {self._mechanism}: {error}"
            return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, said)
        if step.user is None:
            return SaslAuthenticateResponse(auth_bytes=step.answer)
        return self._done(step.user, step)

    def _done(self, user: str, step: _Step) -> SaslAuthenticateResponse:
        self._user, self._exchange = user, None
        limits = [each for each in (self._server.settings.max_login_ms, step.lifetime_ms) if each]
        lifetime_ms = min(limits, default=0)
        self.until_s = self._server.loop.time() + lifetime_ms / 1000 if lifetime_ms else math.inf
        self._connection.logged_in(user, "password" if step.lifetime_ms is None else "token")
        self._connection.responses.note_login(self._mechanism)
        return SaslAuthenticateResponse(auth_bytes=step.answer, session_lifetime_ms=lifetime_ms)

    async def _step(self, exchange: Exchange, message: bytes) -> _Step:
        if isinstance(exchange, BearerExchange):
            return await self._check_token(exchange, message)
        if isinstance(exchange, PlainExchange):
            return _Step(*await self._server.node.failed_logins.check(exchange.step, message))
        return _Step(*exchange.step(message))

    async def _check_token(self, exchange: BearerExchange, message: bytes) -> _Step:
        shown, node = exchange.token(message), self._server.node
        try:
            if node.tokens is None:
                raise TokenRefused("this broker takes no tokens")
            token = await node.tokens.check(shown.token)
            if shown.acting_as not in ("", token.user):
                raise TokenRefused("the client wants to be another user than the token's")
        except TokenRefused as error:
            await self._failed(str(error), exchange.claimed)
            return _Step(exchange.refuse(str(error)))
        return _Step(b"", token.user, max(1, int(token.until_s * 1000) - node.clock()))

    async def _failed(self, reason: str, claimed: str) -> None:
        """Notes a failure. Returns when it may be answered."""
        address = self._connection.host
        _log.warning("login failed", address=address, mechanism=self._mechanism, reason=reason)
        self._connection.responses.note_login(self._mechanism, reason, claimed)
        await self._server.node.failed_logins.wait(address)

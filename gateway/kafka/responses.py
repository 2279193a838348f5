"""Turns what a handler returns or raises into the bytes of its answer, at once or in slices, and tells the audit.

What a handler raises becomes the error response of its API; if the API has none, the connection is closed. If a
response says that the client is throttled, this also throttles the connection.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gateway.audit.audit import Audit
from gateway.audit.events import SUCCESS, Result, cut
from gateway.audit.trail import Trail
from gateway.kafka.apis import Route
from gateway.kafka.audited import CLOSED, UNANSWERED, admit, follow, note_answer, note_answer_steps, note_unanswered
from gateway.kafka.error_response import error_response, error_response_steps
from gateway.kafka.errors import DecodeError, error_code, error_message
from gateway.kafka.handler import CloseConnection, RequestContext
from gateway.kafka.protocol.frames import response_frame
from gateway.kafka.protocol.schema import Buffer
from gateway.kafka.protocol.writers import TakesLong
from gateway.kafka.slices import write_response
from gateway.lane import Lane
from gateway.listener import Listener
from gateway.principal import Principal
from hot_tier.errors import TierlogError


class Responses:
    """`report` logs mistakes of ours; `throttle` stops reading from the connection for a number of milliseconds."""

    __slots__ = ("_lane", "_report", "_throttle", "peer", "trail")

    def __init__(self, lane: Lane, report: Callable[..., None], throttle: Callable[[int], None]) -> None:
        self._lane = lane
        self._report = report
        self._throttle = throttle
        self.peer = ""
        self.trail: Trail | None = None
        """None if nothing is audited."""

    # What the audit is told

    def follow(self, audit: Audit | None, principal: Principal | None, listener: Listener, peer: Sequence[Any]) -> None:
        """Begins to note what this connection does; with None nothing is noted."""
        if audit is not None:
            self.trail = follow(audit, principal, listener, peer)

    def end(self) -> None:
        if self.trail is not None:
            self.trail.flush()

    def sender_is(self, principal: Principal) -> None:
        if self.trail is not None:
            self.trail.is_now(principal)

    def client_is(self, client_id: str) -> None:
        if self.trail is not None:
            self.trail.client_id = cut(client_id)

    def ask(self, route: Route, request: Any, context: RequestContext) -> Any:
        """Returns what the handler returns. Raises if the request may not be done because it could not be noted."""
        if self.trail is not None:
            admit(self.trail, route, request)
        return (route.guarded if context.guarded else route.function)(request, context)

    def note_login(self, mechanism: str, failure: str = "", claimed: str | None = None) -> None:
        if self.trail is not None:
            self.trail.login("kafka", mechanism, Result("refused", detail=failure) if failure else SUCCESS, claimed)

    def not_taken(self, route: Route, error: DecodeError) -> None:
        """Called for what the listener does not take from this sender."""
        if self.trail is not None:
            note_unanswered(self.trail, route, None, Result("refused", "CLOSED", str(error)))

    def unanswered(self, route: Route, request: Any, *, closed: bool = False) -> None:
        """Called for each other request that gets no answer."""
        if self.trail is not None:
            note_unanswered(self.trail, route, request, CLOSED if closed else UNANSWERED)

    # Answers

    async def work(self, route: Route, correlation_id: int, request: Any, work: Awaitable[Any]) -> list[Buffer] | None:
        """Returns the whole answer of a handler that is not done at once; None if there is no answer."""
        try:
            response = await work
        except CloseConnection:
            raise
        except Exception as error:
            response = await self._failed_in_slices(route, request, error)
        if response is None:
            self.unanswered(route, request)
            return None
        try:
            return self.encode(route, correlation_id, request, response)
        except TakesLong:
            pass
        try:
            return await self.encode_in_slices(route, correlation_id, request, response)
        except Exception as error:
            response = await self._failed_in_slices(route, request, error)
            return await self.encode_in_slices(route, correlation_id, request, response)

    def encode(self, route: Route, correlation_id: int, request: Any, response: Any) -> list[Buffer]:
        """Returns the frame. Raises TakesLong if the response is long; then it must be written in slices."""
        body: list[Buffer] = [b""]
        try:
            route.write(response, body.append)
        except TakesLong:
            raise
        except Exception as error:
            body = [b""]
            response = self.failed(route, request, error)
            route.write(response, body.append)
        if self.trail is not None:
            try:
                note_answer(self.trail, route, request, response)
            except Exception as error:
                # A mistake of ours: what is done is answered, and the log says that it is not in the audit.
                self._report(error, api=route.api_key.name, version=route.version, peer=self.peer)
        return self._frame(route, correlation_id, response, body)

    async def encode_in_slices(self, route: Route, correlation_id: int, request: Any, response: Any) -> list[Buffer]:
        turn = self._lane.turn()
        body = await write_response(route, response, turn)
        if self.trail is not None:
            await turn.run(note_answer_steps(self.trail, route, request, response))
        return self._frame(route, correlation_id, response, body)

    def failed(self, route: Route, request: Any, error: Exception) -> Any:
        """Returns the response for an error that the handler raised."""
        self._tell(route, error)
        made = error_response(route.response, route.version, request, error_code(error), error_message(error))
        if made is None:
            self.unanswered(route, request, closed=True)
            raise CloseConnection
        return made

    async def _failed_in_slices(self, route: Route, request: Any, error: Exception) -> Any:
        self._tell(route, error)
        steps = error_response_steps(route.response, route.version, request, error_code(error), error_message(error))
        made = await self._lane.turn().run(steps)
        if made is None:
            self.unanswered(route, request, closed=True)
            raise CloseConnection
        return made

    def _tell(self, route: Route, error: Exception) -> None:
        if not isinstance(error, TierlogError | TimeoutError):
            self._report(error, api=route.api_key.name, version=route.version, peer=self.peer)

    def _frame(self, route: Route, correlation_id: int, response: Any, body: list[Buffer]) -> list[Buffer]:
        if route.throttles and response.throttle_time_ms > 0:
            self._throttle(response.throttle_time_ms)
        return response_frame(correlation_id, body, route.flexible_response)

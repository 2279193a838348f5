"""From what a handler returns or raises to the bytes of its answer, at once or in slices.

What a handler raises becomes the error response of its API; where that has none the connection is closed. A response
that says for how long the client is throttled is also carried out.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from gateway.kafka.apis import Route
from gateway.kafka.error_response import error_response, error_response_steps
from gateway.kafka.errors import error_code, error_message
from gateway.kafka.handler import CloseConnection
from gateway.kafka.protocol.frames import response_frame
from gateway.kafka.protocol.schema import Buffer
from gateway.kafka.protocol.writers import TakesLong
from gateway.kafka.slices import write_response
from gateway.lane import Lane
from hot_tier.errors import TierlogError


class Responses:
    """`report` is told of mistakes of ours; `throttle` stops reading from the connection for so many milliseconds."""

    __slots__ = ("_lane", "_report", "_throttle", "peer")

    def __init__(self, lane: Lane, report: Callable[..., None], throttle: Callable[[int], None]) -> None:
        self._lane = lane
        self._report = report
        self._throttle = throttle
        self.peer = ""

    async def work(self, route: Route, correlation_id: int, request: Any, work: Awaitable[Any]) -> list[Buffer] | None:
        """Returns the whole answer of a handler that takes its time; None if there is none."""
        try:
            response = await work
        except CloseConnection:
            raise
        except Exception as error:
            response = await self._failed_in_slices(route, request, error)
        if response is None:
            return None
        try:
            return self.encode(route, correlation_id, request, response)
        except TakesLong:
            pass
        try:
            return await self.encode_in_slices(route, correlation_id, response)
        except Exception as error:
            response = await self._failed_in_slices(route, request, error)
            return await self.encode_in_slices(route, correlation_id, response)

    def encode(self, route: Route, correlation_id: int, request: Any, response: Any) -> list[Buffer]:
        """TakesLong: in slices, then."""
        body: list[Buffer] = [b""]
        try:
            route.write(response, body.append)
        except TakesLong:
            raise
        except Exception as error:
            body = [b""]
            response = self.failed(route, request, error)
            route.write(response, body.append)
        return self._frame(route, correlation_id, response, body)

    async def encode_in_slices(self, route: Route, correlation_id: int, response: Any) -> list[Buffer]:
        body = await write_response(route, response, self._lane.turn())
        return self._frame(route, correlation_id, response, body)

    def failed(self, route: Route, request: Any, error: Exception) -> Any:
        """Returns the response that tells of an error that the handler did not."""
        self._tell(route, error)
        made = error_response(route.response, route.version, request, error_code(error), error_message(error))
        if made is None:
            raise CloseConnection
        return made

    async def _failed_in_slices(self, route: Route, request: Any, error: Exception) -> Any:
        self._tell(route, error)
        steps = error_response_steps(route.response, route.version, request, error_code(error), error_message(error))
        made = await self._lane.turn().run(steps)
        if made is None:
            raise CloseConnection
        return made

    def _tell(self, route: Route, error: Exception) -> None:
        if not isinstance(error, TierlogError | TimeoutError):
            self._report(error, api=route.api_key.name, version=route.version, peer=self.peer)

    def _frame(self, route: Route, correlation_id: int, response: Any, body: list[Buffer]) -> list[Buffer]:
        if route.throttles and response.throttle_time_ms > 0:
            self._throttle(response.throttle_time_ms)
        return response_frame(correlation_id, body, route.flexible_response)

"""One client's connection: bytes in, frames to handlers, answers out in order.

Owns: the receive buffer, the queue of answers, and when the socket is read.
Leaves to: `receive` where bytes are put, `apis` what a frame means, handlers what is done about it, the listener
(`server`) who may connect and for how long.

- Frames are handled in the order they came, answers leave in that order, whatever finishes first.
- A frame is handled where it was received; what a handler keeps beyond its return it copies.
- The socket is not read (but for a few bytes) while the connection is blocked: an answer that the next request must
  wait for is open, too many are open or wait behind one that is, the client does not take its answers, or it is
  throttled. So what a client can make us hold is bounded, and the rest waits in its kernel.
- No task per request: only a handler that returns a coroutine costs one, and a request or answer so long that it is
  read or written in slices. Such a request stays where it was received, and nothing is received until it is answered.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable
from functools import partial
from inspect import isawaitable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

from gateway.kafka.apis import Route
from gateway.kafka.error_response import error_response, error_response_steps
from gateway.kafka.errors import DecodeError, TooManyElements, UnsupportedVersion, error_code, error_message
from gateway.kafka.handler import CloseConnection, Overtakable, RequestContext
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.frames import read_header, response_frame, skip_tagged
from gateway.kafka.protocol.schema import Buffer
from gateway.kafka.protocol.writers import TakesLong
from gateway.kafka.receive import ReceiveBuffer
from gateway.kafka.refusals import Refusals
from gateway.kafka.slices import read_request, write_response
from hot_tier.errors import TierlogError

if TYPE_CHECKING:
    from gateway.kafka.server import KafkaServer

MAX_ROUTES: Final = 256
PEEK_BYTES: Final = 8 * 1024
UNSENT_HIGH_BYTES: Final = 1024 * 1024
SEND_BYTES: Final = 256 * 1024
"""Answers to requests that arrived together leave together, up to this much."""
SLOWEST_BYTES_PER_S: Final = 100 * 1024
"""A large request may take longer than the time-out for one, but not slower than this, and only while there is memory
for others."""

_log = structlog.get_logger()


# Why a connection's next request has to wait; plain integers, because enum flags cost a microsecond each.
ANSWER: Final = 1
QUEUE: Final = 2
UNSENT: Final = 4
THROTTLED: Final = 8
DRAINING: Final = 16
CLOSING: Final = 32
LARGE: Final = 64


class _Answer:
    """A place in the queue of answers; `frame` is None until it is ready."""

    __slots__ = ("frame", "future", "overlaps", "patient")

    def __init__(self) -> None:
        self.frame: list[Buffer] | None = None
        self.future: asyncio.Future[Any] | None = None
        self.overlaps = False
        """The next request need not wait for it."""
        self.patient = False


class Connection(asyncio.BufferedProtocol):
    def __init__(self, server: "KafkaServer") -> None:
        self._server = server
        self._apis = server.apis
        self._received = ReceiveBuffer(server.settings.max_request_bytes, server.buffers)
        self._answers: deque[_Answer] = deque()
        self._held_bytes = 0
        """Of answers that are ready and wait for one before them."""
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._blocked = 0
        self._reading = True
        self._ending = False
        self._routes: dict[tuple[int, int, str], tuple[Route, RequestContext]] = {}
        self._refusals = Refusals()
        self._transport: asyncio.Transport
        self._unsent_bytes = 0
        self._throttling: asyncio.TimerHandle | None = None
        self.peer = ""
        self.host = ""
        self.active_at = server.now_s
        self.frame_since_s: float | None = None
        self.stuck_since_s: float | None = None

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername") or ("unknown", 0)
        self.host, self.peer = str(peer[0]), f"{peer[0]}:{peer[1]}"
        self._received.address = self.host
        if not self._server.admit(self):
            self._blocked |= CLOSING
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=UNSENT_HIGH_BYTES)

    def connection_lost(self, exc: Exception | None) -> None:
        self._blocked |= CLOSING
        if self._throttling is not None:
            self._throttling.cancel()
        self._received.release()
        self._count_unsent(0)
        for answer in self._answers:
            if answer.future is not None and not isinstance(answer.future, asyncio.Task):
                answer.future.cancel()
        self._answers.clear()
        self._out = []
        self._server.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._received.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.active_at = self._server.now_s
        self._server.received_bytes += nbytes
        self._received.filled(nbytes)
        self._handle_frames()

    def eof_received(self) -> bool:
        """The client sends no more. It may still read: what is worked on is answered first."""
        self._ending = self.at_work
        return self._ending

    def pause_writing(self) -> None:
        self._blocked |= UNSENT
        self._count_unsent(self._transport.get_write_buffer_size())
        self.stuck_since_s = self._server.now_s

    def resume_writing(self) -> None:
        self._count_unsent(0)
        self.stuck_since_s = None
        self._unblock(UNSENT)

    def _count_unsent(self, nbytes: int) -> None:
        self._server.buffers.unsent_bytes += nbytes - self._unsent_bytes
        self._unsent_bytes = nbytes

    # Requests

    def _handle_frames(self) -> None:
        received = self._received
        try:
            while not self._blocked:
                frame = received.next_frame()
                if frame is None:
                    break
                self._handle(frame)
            # A large frame is still where it was received.
            pending_bytes = 0 if self._blocked & LARGE else received.settle()
        except DecodeError as error:
            self._fail(error)
            return
        except CloseConnection:
            self.close()
            return
        if self._out:
            self._send()
        if self._blocked or not pending_bytes:
            self.frame_since_s = None
        elif self.frame_since_s is None:
            self.frame_since_s = self._server.now_s
        # While an answer is waited for, a little is still read: that is how we learn that the client has gone.
        reading = not self._blocked or (self._blocked == ANSWER and pending_bytes < PEEK_BYTES)
        if self._reading != reading:
            self._read(reading)

    def _read(self, on: bool) -> None:
        self._reading = on
        if self._transport.is_closing():
            return
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _handle(self, frame: memoryview) -> None:
        api_key, version, correlation_id, client_id, body_at = read_header(frame)
        known = self._routes.get((api_key, version, client_id))
        if known is None:
            try:
                known = self._new_route(api_key, version, client_id)
            except UnsupportedVersion as error:
                if api_key != ApiKey.API_VERSIONS:
                    raise DecodeError(str(error)) from None
                self._answer_unknown_version(correlation_id)
                return
        route, context = known
        if route.flexible_request:
            body_at = skip_tagged(frame, body_at)
        route.requests += 1
        try:
            request = route.read(frame[body_at:])
        except TooManyElements:
            self._handle_large(route, context, correlation_id, frame[body_at:])
            return
        try:
            result = route.function(request, context)
        except CloseConnection:
            raise
        except Exception as error:
            result = self._failed(route, request, error)
        if type(result) is route.response:
            try:
                self._put(self._encode(route, correlation_id, request, result))
            except TakesLong:
                self._wait(route, correlation_id, request, self._encode_in_slices(route, correlation_id, result))
        elif type(result) is CoroutineType:
            self._wait(route, correlation_id, request, self._work(route, correlation_id, request, result))
        elif result is not None:
            self._wait(route, correlation_id, request, result)

    def _handle_large(self, route: Route, context: RequestContext, correlation_id: int, body: memoryview) -> None:
        self._blocked |= LARGE
        copied_bytes = 0
        if self._received.is_shared:
            copied_bytes = len(body)
            self._server.buffers.receive(self.host, copied_bytes)
            body = memoryview(bytes(body))
        work = self._work_large(route, context, correlation_id, body, copied_bytes)
        self._wait(route, correlation_id, None, work)

    async def _work_large(
        self, route: Route, context: RequestContext, correlation_id: int, body: memoryview, copied_bytes: int
    ) -> list[Buffer] | None:
        try:
            turn = self._server.node.lane.turn()
            await turn.rest()
            request = await read_request(route, body, turn)
            return await self._work(route, correlation_id, request, self._result(route, context, request))
        finally:
            self._server.buffers.receiving.give_back(self.host, copied_bytes)

    async def _result(self, route: Route, context: RequestContext, request: Any) -> Any:
        result = route.function(request, context)
        return await result if isawaitable(result) else result

    async def _work(self, route: Route, correlation_id: int, request: Any, work: Awaitable[Any]) -> list[Buffer] | None:
        """The whole answer of a handler that takes its time; None if there is none."""
        try:
            response = await work
        except CloseConnection:
            raise
        except Exception as error:
            response = await self._failed_in_slices(route, request, error)
        if response is None:
            return None
        try:
            return self._encode(route, correlation_id, request, response)
        except TakesLong:
            pass
        try:
            return await self._encode_in_slices(route, correlation_id, response)
        except Exception as error:
            response = await self._failed_in_slices(route, request, error)
            return await self._encode_in_slices(route, correlation_id, response)

    def _new_route(self, api_key: int, version: int, client_id: str) -> tuple[Route, RequestContext]:
        if len(self._routes) >= MAX_ROUTES:
            self._routes.clear()
        server = self._server
        route = self._apis.route(api_key, version)
        context = RequestContext(
            server.node,
            version,
            client_id,
            server.principal,
            self.peer,
            server.listener,
            server.buffers,
            server.report,
            self._throttle,
            self._refusals,
        )
        self._routes[(api_key, version, client_id)] = route, context
        return route, context

    def _answer_unknown_version(self, correlation_id: int) -> None:
        """A client that speaks a newer ApiVersions than we do reads the ranges from a body of version 0."""
        route = self._apis.route(ApiKey.API_VERSIONS, 0)
        self._put(self._encode(route, correlation_id, None, self._apis.unknown_version()))

    def _wait(self, route: Route, correlation_id: int, request: Any, result: Any) -> None:
        answer = _Answer()
        if type(result) is CoroutineType:
            answer.future = self._server.spawn(result)
        else:
            answer.future = result
            answer.overlaps = route.overlaps or isinstance(result, Overtakable)
        answer.patient = route.patient
        answer.future.add_done_callback(partial(self._done, answer, route, correlation_id, request))
        if not answer.overlaps:
            self._blocked |= ANSWER
        self._queue(answer)

    def _queue(self, answer: _Answer) -> None:
        self._answers.append(answer)
        if self._is_crowded():
            self._blocked |= QUEUE

    def _is_crowded(self) -> bool:
        return (
            len(self._answers) >= self._server.settings.max_inflight_requests or self._held_bytes >= UNSENT_HIGH_BYTES
        )

    def _done(
        self, answer: _Answer, route: Route, correlation_id: int, request: Any, future: asyncio.Future[Any]
    ) -> None:
        try:
            error = future.exception()
            if error is None:
                result = future.result()
            elif isinstance(error, CloseConnection | DecodeError):
                raise error
            else:
                result = self._failed(route, request, cast(Exception, error))
            if self._blocked & CLOSING:
                return
            if result is None:
                answer.frame = []
            elif type(result) is list:
                answer.frame = result
            else:
                answer.frame = self._encode(route, correlation_id, request, result)
        except TakesLong:
            answer.future = self._server.spawn(self._encode_in_slices(route, correlation_id, result))
            answer.future.add_done_callback(partial(self._done, answer, route, correlation_id, request))
            return
        except DecodeError as wrong:
            self._fail(wrong)
            return
        except (CloseConnection, asyncio.CancelledError):
            self.close()
            return
        self._held_bytes += sum(map(len, answer.frame))
        while self._answers and (frame := self._answers[0].frame) is not None:
            self._answers.popleft()
            self._out.extend(frame)
            size = sum(map(len, frame))
            self._held_bytes -= size
            self._out_bytes += size
        if self._out:
            self._send()
        if self._ending and not self._answers:
            self.close()
            return
        if self._blocked & DRAINING:
            self._server.progress.set()
        over = 0 if answer.overlaps else ANSWER | LARGE
        if self._blocked & QUEUE and not self._is_crowded():
            over |= QUEUE
        if over:
            self._unblock(over)

    def _failed(self, route: Route, request: Any, error: Exception) -> Any:
        """The response that tells of an error that the handler did not."""
        if not isinstance(error, TierlogError | TimeoutError):
            self._server.report(error, api=route.api_key.name, version=route.version, peer=self.peer)
        made = error_response(route.response, route.version, request, error_code(error), error_message(error))
        if made is None:
            raise CloseConnection
        return made

    async def _failed_in_slices(self, route: Route, request: Any, error: Exception) -> Any:
        if not isinstance(error, TierlogError | TimeoutError):
            self._server.report(error, api=route.api_key.name, version=route.version, peer=self.peer)
        steps = error_response_steps(route.response, route.version, request, error_code(error), error_message(error))
        made = await self._server.node.lane.turn().run(steps)
        if made is None:
            raise CloseConnection
        return made

    # Answers

    def _encode(self, route: Route, correlation_id: int, request: Any, response: Any) -> list[Buffer]:
        """TakesLong: in slices, then."""
        body: list[Buffer] = [b""]
        try:
            route.write(response, body.append)
        except TakesLong:
            raise
        except Exception as error:
            body = [b""]
            response = self._failed(route, request, error)
            route.write(response, body.append)
        return self._frame(route, correlation_id, response, body)

    async def _encode_in_slices(self, route: Route, correlation_id: int, response: Any) -> list[Buffer]:
        body = await write_response(route, response, self._server.node.lane.turn())
        return self._frame(route, correlation_id, response, body)

    def _frame(self, route: Route, correlation_id: int, response: Any, body: list[Buffer]) -> list[Buffer]:
        if route.throttles and response.throttle_time_ms > 0:
            self._throttle(response.throttle_time_ms)
        return response_frame(correlation_id, body, route.flexible_response)

    def _put(self, frame: list[Buffer]) -> None:
        if self._answers:
            answer = _Answer()
            answer.frame = frame
            self._held_bytes += sum(map(len, frame))
            self._queue(answer)
        else:
            self._out.extend(frame)
            self._out_bytes += sum(map(len, frame))
            if self._out_bytes >= SEND_BYTES:
                self._send()

    def _send(self) -> None:
        out, self._out = self._out, []
        self._server.sent_bytes += self._out_bytes
        self._out_bytes = 0
        if len(out) == 1:
            self._transport.write(out[0])
        else:
            self._transport.writelines(out)

    def _throttle(self, throttle_ms: int) -> None:
        if not self._blocked & THROTTLED:
            self._blocked |= THROTTLED
            self._throttling = self._server.loop.call_later(throttle_ms / 1000, self._unblock, THROTTLED)

    def _unblock(self, reason: int) -> None:
        self._blocked &= ~reason
        if not self._blocked:
            self._handle_frames()

    # The end

    def _fail(self, error: DecodeError) -> None:
        self._server.bad_requests += 1
        _log.debug("connection closed", peer=self.peer, reason=str(error))
        self.close()

    def close(self) -> None:
        """Send what is ready, then close."""
        if self._blocked & CLOSING:
            return
        self._blocked |= CLOSING
        self.stuck_since_s = self._server.now_s
        if self._out:
            self._send()
        self._transport.close()

    def abort(self, reason: str) -> None:
        _log.debug("connection closed", peer=self.peer, reason=reason)
        self._blocked |= CLOSING
        self._transport.abort()

    @property
    def at_work(self) -> bool:
        """Requests are being worked on; a long poll is not work."""
        return any(not answer.patient for answer in self._answers)

    def stop_reading(self) -> None:
        """No further request is taken; those at work are answered."""
        self._blocked |= DRAINING
        if self._reading:
            self._read(False)

    def check(self, now_s: float) -> None:
        """Called every so often: closes what has stopped making progress."""
        settings = self._server.settings
        timeout_s = settings.io_timeout_ms / 1000
        if self.stuck_since_s is not None:
            unsent = self._transport.get_write_buffer_size()
            if unsent < self._unsent_bytes:
                self._count_unsent(unsent)
                self.stuck_since_s = now_s
            elif now_s - self.stuck_since_s > timeout_s:
                self.abort("the client does not take its answers")
        elif self.frame_since_s is not None:
            patience_s = 0 if self._server.buffers.scarce else self._received.wanted_bytes / SLOWEST_BYTES_PER_S
            if now_s - self.frame_since_s > timeout_s + patience_s:
                self.abort("a request was begun and not sent")
        elif not self._answers and now_s - self.active_at > settings.connections_max_idle_ms / 1000:
            self.abort("idle")
        elif now_s - self.active_at > timeout_s:
            self._received.shrink()

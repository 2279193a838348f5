"""One client's connection: bytes in, frames to handlers, answers out in order.

It decides when the socket is read and what happens to each frame. `receive` decides where bytes are put, `apis` what a
frame means, handlers what is done, `responses` how an answer is written, `answers` in which order answers leave,
`sending` how they leave, and the listener (`server`) who may connect and for how long.

- Frames are handled in the order they came, and answers leave in that order, whatever finishes first.
- A frame is handled in the receive buffer; a handler copies what it keeps after it returns.
- The socket is not read (except for a few bytes) while the connection is blocked: an answer is open that the next
  request must wait for, too many answers are open or wait for one that is, the client does not read its answers, or it
  is throttled. So the memory that a client can take is limited, and the rest waits in its kernel.
- There is no task per request. A task is needed only by a handler that returns a coroutine, and by a request or answer
  so long that it is read or written in slices. Such a request stays in the receive buffer, and nothing is received
  until it is answered.
"""

import asyncio
from functools import partial
from inspect import isawaitable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import structlog

from gateway.kafka.answers import Answer, Answers
from gateway.kafka.apis import Route
from gateway.kafka.errors import DecodeError, TooManyElements, UnsupportedVersion
from gateway.kafka.handler import CloseConnection, Overtakable, RequestContext
from gateway.kafka.login import MAX_FRAME_BYTES, Login
from gateway.kafka.protocol.api_keys import ApiKey
from gateway.kafka.protocol.frames import read_header, skip_tagged
from gateway.kafka.protocol.schema import Buffer
from gateway.kafka.protocol.writers import TakesLong
from gateway.kafka.receive import ReceiveBuffer
from gateway.kafka.refusals import Refusals
from gateway.kafka.responses import Responses
from gateway.kafka.sending import LAST_READ_S, Sender, TlsSender
from gateway.kafka.slices import read_request
from gateway.kafka.taken import check_taken
from gateway.kafka.wake_ups import WakeUps
from gateway.listener import Listener
from gateway.principal import Principal, anonymous

if TYPE_CHECKING:
    from gateway.kafka.server import KafkaServer

MAX_ROUTES: Final = 256
PEEK_BYTES: Final = 8 * 1024
SEND_BYTES: Final = 256 * 1024
"""Answers to requests that arrived together are sent together, up to this size."""
SLOWEST_BYTES_PER_S: Final = 100 * 1024
"""A large request may exceed the time-out if it is not slower than this, and only while memory is not scarce."""

_log = structlog.get_logger()


# Why a connection's next request must wait. These are plain integers, because enum flags cost a microsecond each.
ANSWER: Final = 1
QUEUE: Final = 2
UNSENT: Final = 4
THROTTLED: Final = 8
DRAINING: Final = 16
CLOSING: Final = 32
LARGE: Final = 64


class Connection(asyncio.BufferedProtocol):
    def __init__(self, server: "KafkaServer", listener: Listener) -> None:
        self._server = server
        self._listener = listener
        self.principal = anonymous(listener.name, "")
        self._apis = server.apis
        self._login = Login(self, server, listener.mechanisms) if listener.mechanisms else None
        self._received = ReceiveBuffer(server.settings.max_request_bytes, server.buffers)
        self._answers = Answers(server.settings.max_inflight_requests)
        self.responses = Responses(server.node.lane, server.report, self._throttle)
        self._blocked = 0
        self._reading, self._ending = True, False
        self._routes: dict[tuple[int, int, str], tuple[Route, RequestContext]] = {}
        self._refusals = Refusals()
        self._transport: asyncio.Transport
        self._sender: Sender
        self._unsent_bytes = 0
        self._throttling: asyncio.TimerHandle | None = None
        self.peer = self.host = ""
        self.active_at, self._connected_s = server.now_s, server.loop.time()
        self.frame_since_s: float | None = None
        self.stuck_since_s: float | None = None

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._sender = (Sender if self._listener.tls is None else TlsSender)(self._transport)
        self._sender.begin()
        peer = transport.get_extra_info("peername") or ("unknown", 0)
        self.host, self.peer = str(peer[0]), f"{peer[0]}:{peer[1]}"
        principal = self._listener.principal(transport, self.host)
        self._received.follow(self.host, None if self._listener.tls is None else WakeUps(transport))
        self.responses.peer = self.peer
        self.responses.follow(self._server.node.audit, principal, self._listener, peer)
        if principal is None or not self._server.admit(self):
            self._blocked |= CLOSING
            self._transport.abort()
            return
        self.principal = principal
        if self._login is not None:
            self._received.max_frame_bytes = MAX_FRAME_BYTES

    def connection_lost(self, exc: Exception | None) -> None:
        self._blocked |= CLOSING
        if self._throttling is not None:
            self._throttling.cancel()
        self._received.release()
        self._sender.drop()
        self._count_unsent(0)
        self._answers.drop()
        self.responses.end()
        self._server.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._received.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.active_at = self._server.now_s
        self._server.received_bytes += nbytes
        self._received.filled(nbytes)
        self._handle_frames()

    def eof_received(self) -> bool:
        """The client sends no more, but it may still read: open requests are answered first."""
        self._ending = self.at_work
        return self._ending

    def pause_writing(self) -> None:
        self._blocked |= UNSENT
        self._sender.pause()
        self._count_unsent(self._sender.unsent_bytes)
        self.stuck_since_s = self._server.now_s

    def resume_writing(self) -> None:
        if not self._sender.resume():
            return
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
            # A large frame is still in the receive buffer.
            pending_bytes = 0 if self._blocked & LARGE else received.settle()
        except DecodeError as error:
            self._fail(error)
            return
        except CloseConnection:
            self.close()
            return
        if self._answers.out:
            self._send()
        if self._blocked or not pending_bytes:
            self.frame_since_s = None
        elif self.frame_since_s is None:
            self.frame_since_s = self._server.now_s
        # While the client waits for an answer, we still read a little, to notice if it disconnects.
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
            result = self.responses.ask(route, request, context)
        except CloseConnection:
            self.responses.unanswered(route, request, closed=True)
            raise
        except Exception as error:
            result = self.responses.failed(route, request, error)
        if type(result) is route.response:
            try:
                self._put(self.responses.encode(route, correlation_id, request, result))
            except TakesLong:
                work = self.responses.encode_in_slices(route, correlation_id, request, result)
                self._wait(route, correlation_id, request, work)
        elif type(result) is CoroutineType:
            self._wait(route, correlation_id, request, self.responses.work(route, correlation_id, request, result))
        elif result is not None:
            self._wait(route, correlation_id, request, result)
        else:
            self.responses.unanswered(route, request)

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
            return await self.responses.work(route, correlation_id, request, self._result(route, context, request))
        finally:
            self._server.buffers.receiving.give_back(self.host, copied_bytes)

    async def _result(self, route: Route, context: RequestContext, request: Any) -> Any:
        result = self.responses.ask(route, request, context)
        return await result if isawaitable(result) else result

    def _new_route(self, api_key: int, version: int, client_id: str) -> tuple[Route, RequestContext]:
        if len(self._routes) >= MAX_ROUTES:
            self._routes.clear()
        server = self._server
        route = self._apis.route(api_key, version)
        try:
            check_taken(route, self._listener, self.principal, self._login)
        except DecodeError as error:
            self.responses.not_taken(route, error)
            raise
        context = RequestContext(
            server.node,
            version,
            client_id,
            self.principal,
            self.peer,
            self._listener,
            server.buffers,
            server.report,
            self._throttle,
            self._refusals,
            server.fetch_sessions,
            server.replica_sessions,
            self._login,
            server.node.authorizer.guards(self.principal),
            self._connected_s,
        )
        self._routes[(api_key, version, client_id)] = route, context
        self.responses.client_is(client_id)
        return route, context

    def logged_in(self, user: str, kind: Literal["password", "token"]) -> None:
        self.principal = Principal(user, kind, self._listener.name, self.host)
        self.responses.sender_is(self.principal)
        self._received.max_frame_bytes = self._server.settings.max_request_bytes
        self._routes.clear()

    def end_with_answer(self) -> None:
        """Closes the connection when what is asked now is answered."""
        self._ending = True

    def _answer_unknown_version(self, correlation_id: int) -> None:
        """Answers a client with a newer ApiVersions than ours: it reads the ranges from a body of version 0."""
        route = self._apis.route(ApiKey.API_VERSIONS, 0)
        self._put(self.responses.encode(route, correlation_id, None, self._apis.unknown_version()))

    def _wait(self, route: Route, correlation_id: int, request: Any, result: Any) -> None:
        if type(result) is CoroutineType:
            answer = Answer(self._server.spawn(result), patient=route.patient)
        else:
            overlaps = route.overlaps or isinstance(result, Overtakable)
            answer = Answer(result, overlaps=overlaps, patient=route.patient)
        self._settle_when_done(answer, route, correlation_id, request)
        if not answer.overlaps:
            self._blocked |= ANSWER
        self._answers.expect(answer)
        if self._answers.is_crowded:
            self._blocked |= QUEUE

    def _settle_when_done(self, answer: Answer, route: Route, correlation_id: int, request: Any) -> None:
        assert answer.future is not None
        answer.future.add_done_callback(partial(self._done, answer, route, correlation_id, request))

    def _done(
        self, answer: Answer, route: Route, correlation_id: int, request: Any, future: asyncio.Future[Any]
    ) -> None:
        try:
            error = future.exception()
            if error is None:
                result = future.result()
            elif isinstance(error, CloseConnection | DecodeError):
                raise error
            else:
                result = self.responses.failed(route, request, cast(Exception, error))
            if self._blocked & CLOSING:
                if type(result) is route.response:
                    self.responses.unanswered(route, request)
                return
            if result is None:
                frame: list[Buffer] = []
            elif type(result) is list:
                frame = result
            else:
                frame = self.responses.encode(route, correlation_id, request, result)
        except TakesLong:
            work = self.responses.encode_in_slices(route, correlation_id, request, result)
            answer.future = self._server.spawn(work)
            self._settle_when_done(answer, route, correlation_id, request)
            return
        except DecodeError as wrong:
            self._fail(wrong)
            return
        except (CloseConnection, asyncio.CancelledError):
            self.responses.unanswered(route, request)
            self.close()
            return
        self._answers.settle(answer, frame)
        self._answered(answer)

    def _answered(self, answer: Answer) -> None:
        if self._answers.out:
            self._send()
        if self._ending and not self._answers:
            self.stop_reading()
            self._server.loop.call_later(LAST_READ_S, self.close)
            return
        if self._blocked & DRAINING:
            self._server.progress.set()
        over = 0 if answer.overlaps else ANSWER | LARGE
        if self._blocked & QUEUE and not self._answers.is_crowded:
            over |= QUEUE
        if over:
            self._unblock(over)

    # Answers

    def _put(self, frame: list[Buffer]) -> None:
        answers = self._answers
        if answers.put(frame):
            if answers.is_crowded:
                self._blocked |= QUEUE
        elif answers.out_bytes >= SEND_BYTES:
            self._send()

    def _send(self) -> None:
        out, nbytes = self._answers.take()
        self._server.sent_bytes += nbytes
        self._sender.send(out)

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
        """Sends the answers that are ready, then closes."""
        if self._blocked & CLOSING:
            return
        self._blocked |= CLOSING
        self.stuck_since_s = self._server.now_s
        if self._answers.out:
            self._send()
        self._sender.close()

    def abort(self, reason: str) -> None:
        _log.debug("connection closed", peer=self.peer, reason=reason)
        self._blocked |= CLOSING
        self._transport.abort()

    @property
    def at_work(self) -> bool:
        """Whether requests are being worked on; a long poll is not work."""
        return self._answers.at_work

    def stop_reading(self) -> None:
        """Takes no further requests. Open requests are answered."""
        self._blocked |= DRAINING
        if self._reading:
            self._read(False)

    def check(self, now_s: float) -> None:
        """Called regularly: closes the connection if it makes no progress."""
        settings = self._server.settings
        timeout_s = settings.io_timeout_ms / 1000
        if self._login is not None and not self._login.holds():
            self._routes.clear()
            if now_s - max(self._connected_s, self._login.until_s) > timeout_s:
                self.abort("no login in time")
                return
        if self.stuck_since_s is not None:
            unsent = self._sender.unsent_bytes
            if unsent < self._unsent_bytes:
                self._count_unsent(unsent)
                self.stuck_since_s = now_s
            elif now_s - self.stuck_since_s > timeout_s:
                self.abort("the client does not read its answers")
        elif self.frame_since_s is not None:
            patience_s = 0 if self._server.buffers.scarce else self._received.wanted_bytes / SLOWEST_BYTES_PER_S
            if now_s - self.frame_since_s > timeout_s + patience_s:
                self.abort("the client did not finish sending a request")
        elif not self._answers and now_s - self.active_at > settings.connections_max_idle_ms / 1000:
            self.abort("idle")
        elif now_s - self.active_at > timeout_s:
            self._received.shrink()

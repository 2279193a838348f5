"""What an HTTP request tells the audit: the operation, the things that it names, and how it was answered.

Two middlewares of the app, where something is audited. Every request passes the outer one once, also when its client
is gone before the answer. Requests that another broker forwards are noted by that broker, if a certificate shows that
it is one; from anybody else the header hides nothing.
"""

from base64 import b64decode
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, cast

from aiohttp import web
from aiohttp.typedefs import Middleware
from pydantic import BaseModel

from gateway.audit.audit import Audit, AuditFull
from gateway.audit.events import SUCCESS, HttpExchange, Resource, Result, cut
from gateway.audit.kinds import HTTP, UNKNOWN
from gateway.audit.trail import Call
from gateway.http.kinds import AUDIT_FULL
from gateway.http.login import sender
from gateway.http.operation import ASKED, Operation
from gateway.http.peers.peers import FORWARDED
from gateway.http.problems import LOGIN_FAILED, Problem, as_problem

if TYPE_CHECKING:
    from gateway.http.server import Connection

OPERATION: Final = "operation"
"""The attribute of a route's handler that has its operation."""
PROBLEM: Final = web.RequestKey("problem", Problem)
"""Where a request has the problem that answers it."""
REFUSED: Final = frozenset({401, 403})
PATH_NAMES: Final = ("topic", "group", "user", "broker", "transactional_id")
BODY_NAMES: Final = (("name", "topic"), ("topic", "topic"), ("group", "group"))
GONE: Final = 499
OWN_TOPIC: Final = "invalid-topic-name"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def middlewares(audit: Audit | None, answer_problems: Middleware) -> list[Middleware]:
    if audit is None:
        return [answer_problems]

    @web.middleware
    async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
        status = GONE
        try:
            response = await handler(request)
            status = response.status
            return response
        finally:
            note_request(audit, request, status, request.get(PROBLEM))

    @web.middleware
    async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
        call = _call(request)
        try:
            audit.admit(None if call is None else call.act)
        except AuditFull as full:
            raise as_problem(full) from None
        return await handler(request)

    return [note, answer_problems, admit]


def note_request(audit: Audit, request: web.Request, status: int, problem: Problem | None) -> None:
    call = _call(request)
    connection = cast("Connection", request.protocol)
    listener, principal = connection.listener, sender(request)
    if problem is not None and problem.kind is AUDIT_FULL:
        return  # nothing was done
    if call is None or (FORWARDED in request.headers and listener.peers and listener.is_peer(connection.principal)):
        return
    trail = audit.shared_trail(principal, connection.port)
    trail.client_id = cut(request.headers.get("X-Client-Id", ""))
    if problem is not None and problem.kind is LOGIN_FAILED:
        trail.login("http", _scheme(request), Result("refused", problem.kind.name, problem.detail), _claimed(request))
        return
    if principal.kind != "anonymous" and trail.login_is_due():
        how = principal.kind if principal.kind in ("certificate", "api-key") else _scheme(request)
        trail.login("http", how, SUCCESS)
    result = SUCCESS
    if status >= 400:
        code = str(status) if problem is None else problem.kind.name
        # A write to a topic of the service is refused with this code.
        refused = status in REFUSED or (call.act.kind == "produce" and code == OWN_TOPIC)
        result = Result("refused" if refused else "failed", code)
    if audit.wants(call.act.kind, principal.name, result):
        agent = request.headers.get("User-Agent", "")
        exchange = HttpExchange(request.method, cut(request.path), cut(agent), status)
        trail.note(call, result, list(_resources(request)), http=exchange)


def _call(request: web.Request) -> Call | None:
    """Returns what the request does; None if that is not noted."""
    operation: Operation | None = getattr(request.match_info.handler, OPERATION, None)
    if operation is None:
        return Call("http", "unknown", "1", UNKNOWN)
    act = HTTP[operation.name]
    return None if act is None else Call("http", operation.name, "1", act)


def _resources(request: web.Request) -> dict[Resource, None]:
    found: dict[Resource, None] = {}
    for name in PATH_NAMES:
        if (value := request.match_info.get(name)) is not None:
            found[Resource(name.replace("_", "-"), cut(value))] = None
    asked = request.get(ASKED)
    if asked is not None:
        if isinstance(topic := asked.values.get("topic"), str):
            found[Resource("topic", cut(topic))] = None
        if isinstance(asked.body, BaseModel):
            for member, kind in BODY_NAMES:
                if isinstance(value := getattr(asked.body, member, None), str):
                    found[Resource(kind, cut(value))] = None
    return found


def _scheme(request: web.Request) -> str:
    """Returns how the sender logs in, such as `basic`; the rest of the header is secret."""
    scheme, space, _ = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() if space and scheme.isalpha() and len(scheme) <= 16 else "unknown"


def _claimed(request: web.Request) -> str:
    """Returns the user that a header of Basic names. What has no password beside it may be one, and is not shown."""
    if _scheme(request) != "basic":
        return ""
    try:
        user, colon, _ = (
            b64decode(request.headers["Authorization"].split(" ", 1)[1], validate=True).decode().partition(":")
        )
    except ValueError:
        return ""
    return user if colon else ""

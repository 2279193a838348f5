"""The aiohttp application: the route table, and the only place where an exception becomes a problem document."""

import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, cast

import orjson
import structlog
from aiohttp import web

from gateway.http.api import Api
from gateway.http.audited import OPERATION, PROBLEM, middlewares
from gateway.http.kinds import INTERNAL, kind_of
from gateway.http.login import PRINCIPAL
from gateway.http.openapi import render
from gateway.http.operation import JSON, Answer, Call, Document, Operation, RawBody
from gateway.http.peers.behalf import SENDER, read_sender
from gateway.http.peers.peers import FORWARDED
from gateway.http.permissions import Open
from gateway.http.problems import (
    BAD_EXPECTATION,
    BODY_TOO_LARGE,
    NOT_FOUND,
    READ_ONLY,
    WRONG_LISTENER,
    WRONG_METHOD,
    Problem,
    as_problem,
    respond,
)
from gateway.http.routes import (
    acls,
    archive,
    cluster,
    console,
    dead_letters,
    figures,
    groups,
    keys,
    reading,
    service,
    sql,
    topics,
    transactions,
    users,
    writing,
)
from gateway.http.sending import send_large
from gateway.http.settings import HttpSettings
from gateway.http.sites import by_script, needs_no_login
from gateway.kafka.server import KafkaServer
from gateway.node import Node
from gateway.sql.queries import Queries
from hot_tier.cluster.acls import Operation as Permitted
from hot_tier.cluster.acls import ResourceType
from hot_tier.errors import TierlogError

if TYPE_CHECKING:
    from gateway.http.server import Connection

OPERATIONS: Final[tuple[Operation, ...]] = (
    *writing.OPERATIONS,
    *reading.OPERATIONS,
    *topics.OPERATIONS,
    *groups.OPERATIONS,
    *transactions.OPERATIONS,
    *dead_letters.OPERATIONS,
    *sql.OPERATIONS,
    *archive.OPERATIONS,
    *cluster.OPERATIONS,
    *figures.OPERATIONS,
    *console.OPERATIONS,
    *users.OPERATIONS,
    *keys.OPERATIONS,
    *acls.OPERATIONS,
    *service.OPERATIONS,
)

SIGNED: Final = {
    "Server": "tierlog",
    # Records may look like a web page. A browser must not show them as one.
    "X-Content-Type-Options": "nosniff",
}

SERVICE_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths that are answered even on a connection over the limits."""

_log = structlog.get_logger()


def make_app(
    node: Node,
    settings: HttpSettings | None = None,
    kafka: KafkaServer | None = None,
    queries: Queries | None = None,
) -> web.Application:
    """Returns the app. Must be called on the loop that runs it. With `kafka`, /metrics shows that listener too."""
    api = Api(node, settings or HttpSettings(), kafka, queries)
    app = web.Application(middlewares=middlewares(node.audit, _answer_problems), client_max_size=0)
    app[Api.KEY] = api
    app.on_response_prepare.append(_sign)
    app.on_startup.append(_start_measuring)
    app.on_cleanup.append(_close_peers)
    operations = (*OPERATIONS, _describe_operation())
    for operation in operations:
        app.router.add_route(
            operation.method, operation.path, _route(api, operation), expect_handler=_expect(api, operation)
        )
    return app


async def _start_measuring(app: web.Application) -> None:
    app[Api.KEY].sampler.start()


async def _close_peers(app: web.Application) -> None:
    await app[Api.KEY].sampler.stop()
    app[Api.KEY].scrape.close()
    app[Api.KEY].transactions.close()
    await app[Api.KEY].peers.close()


async def _sign(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(SIGNED)
    request.app[Api.KEY].cors.sign(request, response)


def _route(api: Api, operation: Operation) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    timer = api.metrics.timer(operation.name)

    async def route(request: web.Request) -> web.StreamResponse:
        started = time.perf_counter()
        status = 499
        try:
            if api.settings.console == "read-only" and operation.changes and by_script(request.headers):
                raise Problem(READ_ONLY, "the console of this broker is read-only")
            response = await send_large(api, request, await operation.run(api, request))
            status = response.status
            return response
        except Problem as problem:
            status = problem.kind.status
            raise
        except TierlogError as error:
            status = kind_of(error).status
            raise as_problem(error) from error
        except Exception:
            status = 500
            raise
        finally:
            # The task belongs to the connection and continues after this request.
            api.node.lane.leave()
            timer.observe(status, time.perf_counter() - started)

    setattr(route, OPERATION, operation)
    return route


def _expect(api: Api, operation: Operation) -> Callable[[web.Request], Awaitable[web.StreamResponse | None]]:
    """Handles `Expect: 100-continue`: a body that is too large is refused before it is sent."""

    async def expect(request: web.Request) -> web.StreamResponse | None:
        if request.headers.get("Expect", "").lower() != "100-continue":
            return respond(
                Problem(BAD_EXPECTATION, "only `Expect: 100-continue` is supported", close=True), request.path
            )
        if isinstance(operation.body, RawBody | Document):
            try:
                api.bodies.check_announced(request, getattr(api.settings, operation.body.limit))
            except Problem as problem:
                return respond(problem, request.path)
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # The bytes written so far are not part of the response.
        request.writer.output_size = 0
        return None

    return expect


@web.middleware
async def _answer_problems(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    over = getattr(request.protocol, "over", None)
    try:
        if over is not None and request.path not in SERVICE_PATHS:
            raise over
        _check_taken(request)
        api = request.app[Api.KEY]
        api.sites.check(request.method, request.path, request.headers, secure=request.secure)
        if (allowed := api.cors.preflight(request)) is not None:
            return allowed
        if cast("Connection", request.protocol).listener.mechanisms and not needs_no_login(request.path):
            await api.login.check(request)
        response = await handler(request)
        if over is not None:
            response.force_close()
        return response
    except Problem as problem:
        found = problem
    except web.HTTPMethodNotAllowed as refused:
        methods = {"Allow": ", ".join(sorted(refused.allowed_methods))}
        found = Problem(WRONG_METHOD, f"{request.method} does not apply to {request.path}", headers=methods)
    except web.HTTPNotFound:
        found = Problem(NOT_FOUND, f"there is nothing at {request.path}")
    except web.HTTPRequestEntityTooLarge as refused:
        found = Problem(BODY_TOO_LARGE, refused.text or "the body is too large", close=True)
    except ConnectionError:
        raise
    except Exception:
        _log.exception("request failed", method=request.method, path=request.path)
        found = Problem(INTERNAL, "the request failed inside the node")
    request[PROBLEM] = found
    return respond(found, request.path)


def _check_taken(request: web.Request) -> None:
    """Raises Problem if the listener does not take this sender. A broker says for whom it forwards. Every listener
    answers monitoring."""
    connection = cast("Connection", request.protocol)
    listener = connection.listener
    if FORWARDED in request.headers:
        may = request.app[Api.KEY].node.authorizer.allows(
            connection.principal, Permitted.CLUSTER_ACTION, ResourceType.CLUSTER
        )
        if not may or not listener.is_peer(connection.principal):
            raise Problem(WRONG_LISTENER, f"the listener {listener.name!r} takes no requests from other brokers")
        if listener.peers and SENDER in request.headers:
            request[PRINCIPAL] = read_sender(request.headers[SENDER])
    elif not listener.takes_clients and request.path not in SERVICE_PATHS:
        raise Problem(WRONG_LISTENER, f"the listener {listener.name!r} takes only requests from other brokers")


def _describe_operation() -> Operation:
    rendered = b""

    async def describe(call: Call) -> web.StreamResponse:
        nonlocal rendered
        rendered = rendered or orjson.dumps(render((*OPERATIONS, operation), version("tierlog")))
        return web.Response(body=rendered, content_type=JSON)

    operation = Operation(
        name="describeApi",
        method="GET",
        path="/openapi.json",
        tag="service",
        summary="This description",
        handler=describe,
        needs=Open("it tells nothing of the cluster"),
        answers={200: Answer("The OpenAPI document.", {JSON: {"type": "object"}})},
    )
    return operation

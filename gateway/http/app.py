"""The aiohttp application: the route table, and the one place where an exception becomes a problem document."""

import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, cast

import orjson
import structlog
from aiohttp import web

from gateway.http.api import Api
from gateway.http.openapi import render
from gateway.http.operation import JSON, Answer, Call, Document, Operation, RawBody
from gateway.http.peers.peers import FORWARDED
from gateway.http.problems import (
    BAD_EXPECTATION,
    BODY_TOO_LARGE,
    INTERNAL,
    NOT_FOUND,
    WRONG_LISTENER,
    WRONG_METHOD,
    Problem,
    as_problem,
    kind_of,
    respond,
)
from gateway.http.routes import archive, cluster, dead_letters, groups, reading, service, topics, writing
from gateway.http.sending import send_large
from gateway.http.settings import HttpSettings
from gateway.kafka.server import KafkaServer
from gateway.node import Node
from hot_tier.errors import TierlogError

if TYPE_CHECKING:
    from gateway.http.server import Connection

OPERATIONS: Final[tuple[Operation, ...]] = (
    *writing.OPERATIONS,
    *reading.OPERATIONS,
    *topics.OPERATIONS,
    *groups.OPERATIONS,
    *dead_letters.OPERATIONS,
    *archive.OPERATIONS,
    *cluster.OPERATIONS,
    *service.OPERATIONS,
)

SERVICE_PATHS: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""What is answered also to a connection over the limits."""

_log = structlog.get_logger()


def make_app(node: Node, settings: HttpSettings | None = None, kafka: KafkaServer | None = None) -> web.Application:
    """Called on the loop it will run on. With `kafka`, /metrics has the figures of that listener too."""
    api = Api(node, settings or HttpSettings(), kafka)
    app = web.Application(middlewares=[_answer_problems], client_max_size=0)
    app[Api.KEY] = api
    app.on_response_prepare.append(_sign)
    app.on_cleanup.append(_close_peers)
    operations = (*OPERATIONS, _describe_operation())
    for operation in operations:
        app.router.add_route(
            operation.method, operation.path, _route(api, operation), expect_handler=_expect(api, operation)
        )
    return app


async def _close_peers(app: web.Application) -> None:
    app[Api.KEY].scrape.close()
    await app[Api.KEY].peers.close()


async def _sign(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = "tierlog"
    # Records may look like a page: a browser must not take them for one.
    response.headers["X-Content-Type-Options"] = "nosniff"


def _route(api: Api, operation: Operation) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    timer = api.metrics.timer(operation.name)

    async def route(request: web.Request) -> web.StreamResponse:
        started = time.perf_counter()
        status = 499
        try:
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
            # The task is the connection's, and goes on.
            api.node.lane.leave()
            timer.observe(status, time.perf_counter() - started)

    return route


def _expect(api: Api, operation: Operation) -> Callable[[web.Request], Awaitable[web.StreamResponse | None]]:
    """`Expect: 100-continue`: a body that is too large is refused before it is sent."""

    async def expect(request: web.Request) -> web.StreamResponse | None:
        if request.headers.get("Expect", "").lower() != "100-continue":
            return respond(Problem(BAD_EXPECTATION, "only 100-continue is understood", close=True), request.path)
        if isinstance(operation.body, RawBody | Document):
            try:
                api.bodies.check_announced(request, getattr(api.settings, operation.body.limit))
            except Problem as problem:
                return respond(problem, request.path)
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # What was written so far is not part of the response.
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
        request.app[Api.KEY].sites.check(request.method, request.path, request.headers)
        response = await handler(request)
        if over is not None:
            response.force_close()
        return response
    except Problem as problem:
        found = problem
    except web.HTTPMethodNotAllowed as refused:
        allowed = ", ".join(sorted(refused.allowed_methods))
        found = Problem(WRONG_METHOD, f"{request.method} does not apply to {request.path}", headers={"Allow": allowed})
    except web.HTTPNotFound:
        found = Problem(NOT_FOUND, f"there is nothing at {request.path}")
    except web.HTTPRequestEntityTooLarge as refused:
        found = Problem(BODY_TOO_LARGE, refused.text or "the body is too large", close=True)
    except ConnectionError:
        raise
    except Exception:
        _log.exception("request failed", method=request.method, path=request.path)
        found = Problem(INTERNAL, "the request failed inside the node")
    return respond(found, request.path)


def _check_taken(request: web.Request) -> None:
    """Whoever watches over the node may ask at every listener."""
    listener = cast("Connection", request.protocol).listener
    if FORWARDED in request.headers:
        if not listener.takes_peers:
            raise Problem(WRONG_LISTENER, f"the listener {listener.name!r} takes no requests of other brokers")
    elif not listener.takes_clients and request.path not in SERVICE_PATHS:
        raise Problem(WRONG_LISTENER, f"the listener {listener.name!r} takes only requests of other brokers")


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
        answers={200: Answer("The OpenAPI document.", {JSON: {"type": "object"}})},
    )
    return operation

"""An operation of the API: path, parameters, body, answers, handler.

The route table and /openapi.json are both made from operations only, so the document cannot promise what the server
does not do. `Operation.run` reads the parameters and the body, and only then calls the handler, so a handler sees valid
values. The broker that an operation's `place` returns does it; the others forward it.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from aiohttp import web
from pydantic import BaseModel, ValidationError

from gateway.http.login import sender
from gateway.http.parameters import Parameter, read_parameters
from gateway.http.peers.behalf import SENDER
from gateway.http.peers.forwarding import Place, relay
from gateway.http.permissions import Needs, check
from gateway.http.problems import BAD_DOCUMENT, BAD_JSON, WRONG_MEDIA_TYPE, Problem
from gateway.off_loop import off_loop
from gateway.principal import Principal
from hot_tier.cluster.acls import CLUSTER_NAME, ResourceType
from hot_tier.cluster.acls import Operation as Permitted

if TYPE_CHECKING:
    from gateway.http.api import Api
    from gateway.http.server import Connection

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
TEXT: Final = "text/plain"
ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"

MOST_VALUES: Final = 10_100
"""Limit for one document. If all of these values are wrong, it takes 60 ms to report them."""
RECORD_BYTES: Final = 64
"""So many bytes of a document count as one record, to guess how many records it may hold."""

Schema = Mapping[str, Any]


@dataclass(slots=True)
class Call:
    """One request, read and checked."""

    api: "Api"
    request: web.Request
    values: dict[str, Any]
    body: Any
    """bytes for a raw body; the model, or what `Document.read` returned, for a document; None without a body."""
    raw: bytes | None = None
    """The body as it was received."""
    forwarded: bool = False
    """Another broker has forwarded the request: this broker does it or refuses it."""
    alone: bool = False
    """Another broker asks for what this broker has itself."""

    @property
    def principal(self) -> Principal:
        """Returns the client, also of a request that another broker has forwarded."""
        return sender(self.request)

    def may(self, operation: Permitted, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        return self.api.node.authorizer.allows(self.principal, operation, kind, name)

    @property
    def by_broker(self) -> bool:
        """Returns whether another broker sent the request for itself, and its certificate shows that it is one."""
        connection = cast("Connection", self.request.protocol)
        its_own = self.forwarded and SENDER not in self.request.headers
        return its_own and bool(connection.listener.peers) and connection.listener.is_peer(connection.principal)


ASKED: Final = web.RequestKey("asked", Call)
"""Where a request has its `Call`, for those who look at it afterwards."""

Handler = Callable[[Call], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class RawBody:
    """Any bytes of any media type, used unchanged."""

    description: str
    limit: Literal["max_message_bytes"] = "max_message_bytes"


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON document that `model` describes."""

    model: type[BaseModel]
    limit: Literal["max_batch_bytes", "max_document_bytes"] = "max_document_bytes"
    read: Callable[[bytes], Any] | None = None
    """Turns the document into what the handler gets. Without it, the handler gets the checked model."""


@dataclass(frozen=True, slots=True)
class Answer:
    description: str
    content: Mapping[str, type[BaseModel] | Schema] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operation:
    name: str
    """The operationId, and the label of this operation in the metrics."""
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    tag: str
    summary: str
    handler: Handler
    answers: Mapping[int, Answer]
    problems: tuple[int, ...] = ()
    """Statuses that this operation may answer, besides those that every operation may answer."""
    parameters: tuple[Parameter, ...] = ()
    body: RawBody | Document | None = None
    description: str = ""
    place: Place | None = None
    """Which broker does it; None if any broker can."""
    reads: bool = False
    """A POST that changes nothing: its document is a question."""
    needs: Needs = field(kw_only=True)
    """What the sender must be allowed to do."""

    @property
    def changes(self) -> bool:
        return not self.reads and self.method not in ("GET", "HEAD")

    async def run(self, api: "Api", request: web.Request) -> web.StreamResponse:
        call = request[ASKED] = await self._call(api, request)
        check(self.needs, call, of_body=False)
        shape = self.body
        if shape is None:
            return await self._run_at_place(call)
        if isinstance(shape, Document):
            _check_media_type(request)
        raw = await api.bodies.read(request, getattr(api.settings, shape.limit))
        try:
            call.raw = call.body = raw
            if isinstance(shape, Document):
                parse = shape.read or partial(read_document, shape.model)
                call.body = await off_loop(len(raw) // RECORD_BYTES, parse, raw)
            check(self.needs, call, of_body=True)
            return await self._run_at_place(call)
        finally:
            api.bodies.release(request, len(raw))

    async def _call(self, api: "Api", request: web.Request) -> Call:
        values = read_parameters(request, self.parameters)
        forwarded, alone = await api.peers.admit(request)
        return Call(api, request, values, None, None, forwarded, alone)

    async def _run_at_place(self, call: Call) -> web.StreamResponse:
        if self.place is not None and (broker := await self.place(call)) is not None:
            return await relay(call, broker)
        return await self.handler(call)


def _check_media_type(request: web.Request) -> None:
    """Requires the JSON media type. A web page of another site can send a body without one, but not with this one."""
    if request.content_type != JSON:
        sent = request.headers.get("Content-Type")
        announced = "without a Content-Type" if sent is None else f"as {sent!r}"
        raise Problem(WRONG_MEDIA_TYPE, f"the body was sent {announced}, but this address takes only {JSON}")


def read_document(model: type[BaseModel], raw: bytes) -> BaseModel:
    if raw.count(b",") > MOST_VALUES:
        raise Problem(BAD_DOCUMENT, f"the document has more than {MOST_VALUES} values")
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise document_problem(error) from None


def document_problem(error: ValidationError, first_message: int | None = None) -> Problem:
    """Returns the problem for a document, or for those of its messages that begin at `first_message`."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if found[0]["type"] == "json_invalid":
        where = "" if first_message is None else f"after {first_message} messages: "
        return Problem(BAD_JSON, where + found[0]["msg"])
    places = []
    for each in found[:20]:
        place = each["loc"]
        if first_message is not None:
            place = ("messages", first_message + int(place[0]), *place[1:])
        pointer = "".join(f"/{part}" for part in place)
        places.append({"pointer": pointer, "detail": each["msg"].removeprefix("Value error, ")})
    first = places[0]
    return Problem(BAD_DOCUMENT, f"{first['pointer'] or 'the document'}: {first['detail']}", extra={"errors": places})


def json_response(model: BaseModel, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        status=status, body=model.model_dump_json(by_alias=True).encode(), content_type=JSON, headers=headers
    )

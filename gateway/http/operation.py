"""An operation of the API: address, parameters, body, answers, handler. The route table and /openapi.json are
both made from these and from nothing else, so that the document cannot promise what the server does not do.

`Operation.run` reads the parameters and the body, and only then calls the handler: a handler sees valid values. An
operation with a `place` is done by the broker that is there; others pass it on.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from aiohttp import web
from pydantic import BaseModel, ValidationError

from gateway.http.parameters import Parameter, read_parameters
from gateway.http.peers.forwarding import Place, relay
from gateway.http.problems import BAD_DOCUMENT, BAD_JSON, WRONG_MEDIA_TYPE, Problem
from gateway.off_loop import off_loop
from gateway.principal import Principal

if TYPE_CHECKING:
    from gateway.http.api import Api
    from gateway.http.server import Connection

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
TEXT: Final = "text/plain"
ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"

MOST_VALUES: Final = 10_100
"""Of a document. It takes 60 ms to say that all of so many are wrong."""
RECORD_BYTES: Final = 64
"""Of a document, for guessing how many records it may hold."""

Schema = Mapping[str, Any]


@dataclass(slots=True)
class Call:
    """One request, read and checked."""

    api: "Api"
    request: web.Request
    values: dict[str, Any]
    body: Any
    """bytes for a raw body; the model, or what `Document.read` made, for a document; None without a body."""
    raw: bytes | None = None
    """The body as it came."""
    forwarded: bool = False
    """Another broker has passed it on: it is done here or refused."""
    alone: bool = False
    """Another broker asks for what this one has itself."""

    @property
    def principal(self) -> Principal:
        return cast("Connection", self.request.protocol).principal


Handler = Callable[[Call], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class RawBody:
    """Any bytes of any media type, taken as they are."""

    description: str
    limit: Literal["max_message_bytes"] = "max_message_bytes"


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON document that `model` describes."""

    model: type[BaseModel]
    limit: Literal["max_batch_bytes", "max_document_bytes"] = "max_document_bytes"
    read: Callable[[bytes], Any] | None = None
    """Makes of the document what the handler gets; else it gets the model, read and checked."""


@dataclass(frozen=True, slots=True)
class Answer:
    description: str
    content: Mapping[str, type[BaseModel] | Schema] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operation:
    name: str
    """The operationId, and the label of this operation in the metrics."""
    method: Literal["GET", "HEAD", "POST", "PATCH", "DELETE"]
    path: str
    tag: str
    summary: str
    handler: Handler
    answers: Mapping[int, Answer]
    problems: tuple[int, ...] = ()
    """Statuses that this operation answers beside those every operation may."""
    parameters: tuple[Parameter, ...] = ()
    body: RawBody | Document | None = None
    description: str = ""
    place: Place | None = None
    """Which broker does it, if not any."""

    async def run(self, api: "Api", request: web.Request) -> web.StreamResponse:
        call = Call(api, request, read_parameters(request, self.parameters), None)
        shape = self.body
        if shape is None:
            return await self._run_at_place(call)
        if isinstance(shape, Document):
            _check_media_type(request)
        raw = await api.bodies.read(request, getattr(api.settings, shape.limit))
        try:
            call.raw = call.body = raw
            if isinstance(shape, Document):
                read = shape.read or partial(read_document, shape.model)
                call.body = await off_loop(len(raw) // RECORD_BYTES, read, raw)
            return await self._run_at_place(call)
        finally:
            api.bodies.release(request, len(raw))

    async def _run_at_place(self, call: Call) -> web.StreamResponse:
        call.forwarded, call.alone = await call.api.peers.admit(call.request)
        if self.place is not None and (broker := await self.place(call)) is not None:
            return await relay(call, broker)
        return await self.handler(call)


def _check_media_type(request: web.Request) -> None:
    """Also that one is given: a web page of another site can send a body without one, and none with this one."""
    if request.content_type != JSON:
        sent = request.headers.get("Content-Type")
        announced = "without a Content-Type" if sent is None else f"as {sent!r}"
        raise Problem(WRONG_MEDIA_TYPE, f"the body is announced {announced}, and this address takes {JSON}")


def read_document(model: type[BaseModel], raw: bytes) -> BaseModel:
    if raw.count(b",") > MOST_VALUES:
        raise Problem(BAD_DOCUMENT, f"the document has more than {MOST_VALUES} values")
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise document_problem(error) from None


def document_problem(error: ValidationError, first_message: int | None = None) -> Problem:
    """What to say of a document, or of the messages of one from `first_message` on."""
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

"""The console's files, the way to them, and what the console has to know of who looks at it."""

from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import Final, Literal, cast

from aiohttp import web
from pydantic import Field

from gateway.http.console.files import HEADERS, PAGE, File, read_files
from gateway.http.operation import JSON, Answer, Call, Operation, json_response
from gateway.http.parameters import Parameter
from gateway.http.permissions import Open
from gateway.http.problems import NOT_FOUND, Problem
from gateway.http.schemas import Reply
from gateway.http.settings import ConsoleMode
from gateway.http.sites import CONSOLE
from hot_tier.cluster.acls import Operation as Permitted
from hot_tier.cluster.acls import ResourceType

HTML: Final = "text/html"
FILE: Final = Parameter("file", "path", "The file's name.", {"type": "string"}, str, required=True)


class Session(Reply):
    user: str
    login: str = Field(description="How the user is known: `anonymous`, `certificate`, `password`, `token`, `api-key`.")
    can_sign_out: bool = Field(description="Whether the request showed a login of its own.")
    console: ConsoleMode
    version: str
    cluster_id: str
    node_id: int
    archive: bool = Field(description="Whether this broker has a bucket.")
    bucket: str | None = Field(description="Its address, for who may describe the cluster.")
    authorization: bool = Field(description="Whether access rules are checked.")
    audit: bool
    sql: bool = Field(description="Whether this broker answers queries.")
    may: list[Literal["describe", "alter", "create"]] = Field(description="What the user may do with the cluster.")


@cache
def _files() -> dict[str, File]:
    return read_files()


async def get_root(call: Call) -> web.StreamResponse:
    if HTML not in call.request.headers.get("Accept", "") or call.api.settings.console == "off":
        raise Problem(NOT_FOUND, "there is nothing at /")
    return web.Response(status=302, headers={"Location": "console", "Vary": "Accept"})


async def lead_to_page(call: Call) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": "../console"})


async def get_page(call: Call) -> web.StreamResponse:
    return _answer(call, PAGE)


async def get_file(call: Call) -> web.StreamResponse:
    return _answer(call, call.values["file"])


def _answer(call: Call, name: str) -> web.StreamResponse:
    found = _files().get(name)
    if found is None or call.api.settings.console == "off":
        raise Problem(NOT_FOUND, f"there is nothing at {call.request.path}")
    headers = {**HEADERS, "ETag": found.etag, "Content-Type": found.media_type}
    if call.request.headers.get("If-None-Match") == found.etag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=found.body, headers=headers)


def _answers_queries(call: Call) -> bool:
    queries = call.api.queries
    return queries is not None and queries.settings.enabled and find_spec("duckdb") is not None


async def get_session(call: Call) -> web.StreamResponse:
    node, who = call.api.node, call.principal
    wanted = (("describe", Permitted.DESCRIBE), ("alter", Permitted.ALTER), ("create", Permitted.CREATE))
    may = [name for name, operation in wanted if call.may(operation, ResourceType.CLUSTER)]
    return json_response(
        Session(
            user=who.name,
            login=who.kind,
            can_sign_out=who.kind in ("password", "token", "api-key"),
            console=call.api.settings.console,
            version=version("tierlog"),
            cluster_id=node.cluster_id,
            node_id=node.node_id,
            archive=node.archive is not None,
            bucket=node.archive.bucket if node.archive is not None and "describe" in may else None,
            authorization=node.authorization.enabled,
            audit=node.audit is not None,
            sql=_answers_queries(call),
            may=cast("list[Literal['describe', 'alter', 'create']]", may),
        )
    )


_STATIC: Final = Open("files of the program, the same for everybody, and an address of them")

OPERATIONS: Final = (
    Operation(
        name="getRoot",
        method="GET",
        path="/",
        tag="console",
        summary="Lead a browser to the console",
        handler=get_root,
        needs=_STATIC,
        answers={302: Answer("To the console, for who accepts HTML.")},
        problems=(404,),
    ),
    Operation(
        name="getConsole",
        method="GET",
        path=CONSOLE,
        tag="console",
        summary="The console",
        handler=get_page,
        needs=_STATIC,
        answers={200: Answer("A web page.", {HTML: {"type": "string"}})},
        problems=(404,),
    ),
    Operation(
        name="getConsoleFolder",
        method="GET",
        path=CONSOLE + "/",
        tag="console",
        summary="Lead to the console",
        handler=lead_to_page,
        needs=_STATIC,
        answers={302: Answer("To the console.")},
    ),
    Operation(
        name="getConsoleFile",
        method="GET",
        path=CONSOLE + "/{file}",
        tag="console",
        summary="A file of the console",
        handler=get_file,
        needs=_STATIC,
        parameters=(FILE,),
        answers={200: Answer("The file.", {"*/*": {"type": "string"}})},
        problems=(404,),
    ),
    Operation(
        name="getSession",
        method="GET",
        path="/api/v1/session",
        tag="console",
        summary="Who you are here, and what this broker offers",
        handler=get_session,
        needs=Open("it tells the sender of itself"),
        answers={200: Answer("The sender and the broker.", {JSON: Session})},
    ),
)

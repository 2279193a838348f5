"""SQL and the search by key over HTTP.

A query's result is made whole before the first byte of the answer: it is within `sql.max_rows` and
`sql.max_result_bytes`, and so an error is always a problem document, and every form of answer says whether it was cut
off. Only NDJSON is sent while the query runs: it has a line of progress every second.
"""

import asyncio
from base64 import b64decode
from typing import Any, Final

import orjson
from aiohttp import web

from gateway.http.budget import Lease
from gateway.http.message_codec import message
from gateway.http.operation import ARROW_STREAM, JSON, NDJSON, Answer, Call, Document, Operation, json_response
from gateway.http.parameters import CLIENT_ID, TIME_SCHEMA, TOPIC, Parameter, integer_schema, parse_time, whole_number
from gateway.http.peers.behalf import SENDER, write_sender
from gateway.http.permissions import Named, Open, on_topic
from gateway.http.problems import NOT_BASE64, Problem, as_problem, document
from gateway.http.query_sources import CallSources
from gateway.http.routes.read_parameters import VALUE_ENCODING
from gateway.http.routes.reading import choose_media
from gateway.http.sql_schemas import KeyMessages, SqlEstimate, SqlEstimateQuery, SqlQuery, SqlResult, SqlTopicEstimate
from gateway.sql.errors import SqlNotInstalled, UnknownQuery
from gateway.sql.frames import PIECE_BYTES
from gateway.sql.jobs import EstimateJob, FindJob, Form, QueryJob
from gateway.sql.queries import Queries, Running
from hot_tier.cluster.acls import Operation as Permitted
from hot_tier.cluster.acls import ResourceType
from hot_tier.errors import TierlogError
from hot_tier.record.records import Record

CSV: Final = "text/csv"
PARQUET: Final = "application/vnd.apache.parquet"
SERVED: Final = (JSON, NDJSON, CSV, ARROW_STREAM, PARQUET)
FORMS: Final[dict[str, Form]] = {JSON: "json", NDJSON: "ndjson", CSV: "csv", ARROW_STREAM: "arrow", PARQUET: "parquet"}
MOST_KEYS: Final = 1_000
PROGRESS_S: Final = 1.0
SEARCHED: Final = ("files", "files_skipped", "hot_rows", "requests", "bytes")

READ_TOPICS: Final = (Named(Permitted.READ, ResourceType.TOPIC),)

QUERY_ID: Final = Parameter(
    "query",
    "path",
    "The query's id.",
    {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
    lambda text: text,
    required=True,
)
KEY: Final = Parameter("key", "path", "The key.", {"type": "string"}, lambda text: text, required=True)
KEY_ENCODING: Final = Parameter(
    "key_encoding",
    "query",
    "How `key` is written: as `text`, or as `base64` (with - and _ where it is in a path).",
    {"type": "string", "enum": ["text", "base64"], "default": "text"},
    lambda text: text,
    default="text",
)
HISTORY: Final = Parameter(
    "limit",
    "query",
    "At most so many messages, newest first; without it the latest alone.",
    integer_schema(1, MOST_KEYS, default=1),
    whole_number(1, MOST_KEYS),
    default=1,
)
FROM: Final = Parameter("from", "query", "Only messages from this time on.", TIME_SCHEMA, parse_time)
TO: Final = Parameter("to", "query", "Only messages before this time.", TIME_SCHEMA, parse_time)


async def run_sql(call: Call) -> web.StreamResponse:
    asked = call.body
    assert isinstance(asked, SqlQuery)
    queries = _queries(call)
    settings = queries.settings
    media = choose_media(call.request.headers.get("Accept", ""), SERVED)
    rows = min(asked.max_rows or settings.rows, settings.max_rows)
    job = QueryJob(asked.query, FORMS[media], rows, settings.max_result_bytes)
    async with queries.run(
        job,
        CallSources(call),
        owner=call.principal.name,
        query_id=asked.id,
        timeout_ms=asked.timeout_ms,
        ends=_ends(call),
    ) as (name, running):
        if media == NDJSON:
            return await _stream_lines(call, name, running)
        head = await running.head()
        assert head is not None
        with Lease(call.api.answers, call.request) as lease:
            await lease.hold(2 * PIECE_BYTES)
            response = web.StreamResponse(
                headers={
                    "Content-Type": media,
                    "X-Tierlog-Query": name,
                    "X-Tierlog-Rows": str(head["row_count"]),
                    "X-Tierlog-Truncated": head["truncated"] or "no",
                }
            )
            await response.prepare(call.request)
            if media == JSON:
                opening, closing = _document(name, running, head)
                await response.write(opening)
                await _pass_on(response, running)
                await response.write(closing)
            else:
                await _pass_on(response, running)
            await response.write_eof()
        return response


def _document(name: str, running: Running, head: dict[str, Any]) -> tuple[bytes, bytes]:
    """Returns what comes before and after the rows in the JSON document."""
    summary = _summary(name, running, head)
    whole = orjson.dumps(summary)
    opening = orjson.dumps({"id": name, "columns": head["columns"]})[:-1] + b',"rows":'
    return opening, b"," + whole[whole.index(b'"row_count"') :]


def _summary(name: str, running: Running, head: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": name,
        "row_count": head["row_count"],
        "truncated": head["truncated"],
        "elapsed_ms": running.elapsed_ms,
        "scanned": head["scanned"],
    }


async def _stream_lines(call: Call, name: str, running: Running) -> web.StreamResponse:
    head = await running.head(PROGRESS_S)  # An error by then is a problem document.
    with Lease(call.api.answers, call.request) as lease:
        await lease.hold(2 * PIECE_BYTES)
        response = web.StreamResponse(headers={"Content-Type": NDJSON, "X-Tierlog-Query": name})
        response.enable_chunked_encoding()
        await response.prepare(call.request)
        try:
            while head is None:
                said = {"type": "progress", "id": name, "elapsed_ms": running.elapsed_ms, "scanned": running.progress}
                await response.write(_line(said))
                head = await running.head(PROGRESS_S)
            await response.write(_line({"type": "columns", "columns": head["columns"]}))
            await _pass_on(response, running)
            await response.write(_line({"type": "summary", **_summary(name, running, head)}))
        except (TierlogError, Problem) as error:
            problem = error if isinstance(error, Problem) else as_problem(error)
            await response.write(_line({"type": "error", "error": document(problem, call.request.path)}))
        await response.write_eof()
    return response


def _line(said: dict[str, Any]) -> bytes:
    return orjson.dumps(said, option=orjson.OPT_APPEND_NEWLINE)


async def _pass_on(response: web.StreamResponse, running: Running) -> None:
    async for piece in running.pieces():
        await response.write(piece)


async def estimate_sql(call: Call) -> web.StreamResponse:
    queries = _queries(call)
    async with queries.run(
        EstimateJob(call.body.query), CallSources(call), owner=call.principal.name, ends=_ends(call)
    ) as (_, running):
        head = await running.head()
        assert head is not None
        async for _piece in running.pieces():
            pass
    topics = [SqlTopicEstimate.model_validate(each) for each in head["topics"]]
    requests = sum(each.requests for each in topics)
    return json_response(
        SqlEstimate(
            topics=topics,
            files=sum(each.files for each in topics),
            bytes=sum(each.bytes for each in topics),
            requests=requests,
            hot_offsets=sum(each.hot_offsets for each in topics),
            cost=requests / 1000 * queries.get_per_1000,
        )
    )


async def cancel_sql(call: Call) -> web.StreamResponse:
    """Any broker takes it, and asks the others if the query is not its own."""
    owner = None if call.may(Permitted.ALTER, ResourceType.CLUSTER) else call.principal.name
    try:
        _queries(call).cancel(call.values["query"], owner)
    except UnknownQuery:
        if call.alone or not await _cancelled_elsewhere(call):
            raise
    return web.Response(status=204)


async def _cancelled_elsewhere(call: Call) -> bool:
    sender = [(SENDER, write_sender(call.principal))]
    told = await call.api.view.everywhere("DELETE", call.request.rel_url.raw_path, headers=sender)
    return any(not isinstance(answer, Problem | TierlogError) for _, answer in told)


async def find_key(call: Call) -> web.StreamResponse:
    values, api = call.values, call.api
    try:
        key = _key(values["key"], values["key_encoding"])
    except ValueError:
        raise Problem(NOT_BASE64, "the path parameter key is not base64") from None
    sources = CallSources(call)
    extents = await sources.extents(api.node.image.topic(values["topic"]))
    job = FindJob(extents, key, values["limit"], values["from"], values["to"])
    body = bytearray()
    async with _queries(call).run(job, sources, owner=call.principal.name, ends=_ends(call)) as (_, running):
        head = await running.head()
        assert head is not None
        with Lease(api.answers, call.request) as lease:
            async for piece in running.pieces():
                lease.need(3 * len(piece))
                body += piece
            elapsed_ms = running.elapsed_ms
            searched = {name: head["scanned"][name] for name in SEARCHED} | {
                name: head[name] for name in ("partitions", "files_without_filter")
            }
            shown = {
                "topic": values["topic"],
                "messages": [_found(row, as_text=values["value_encoding"] == "text") for row in orjson.loads(body)],
                "complete": head["complete"],
                "searched": searched,
                "elapsed_ms": elapsed_ms,
            }
            return web.Response(body=orjson.dumps(shown), content_type=JSON)


def _key(text: str, encoding: str) -> bytes:
    return text.encode() if encoding == "text" else b64decode(text.encode(), altchars=b"-_", validate=True)


def _found(row: dict[str, Any], *, as_text: bool) -> dict[str, Any]:
    headers = tuple((name, _bytes(value)) for name, value in row["headers"])
    record = Record(
        row["offset"], row["timestamp"], row["timestampType"], _bytes(row["key"]), _bytes(row["value"]), headers
    )
    return {"partition": row["partition"], **message(record, as_text=as_text)}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def _queries(call: Call) -> Queries:
    if call.api.queries is None:
        raise SqlNotInstalled("this broker answers no queries")
    return call.api.queries


def _ends(call: Call) -> list[asyncio.Event]:
    gone: asyncio.Event | None = getattr(call.request.protocol, "lost", None)
    return [call.api.stopping] if gone is None else [gone, call.api.stopping]


OPERATIONS: Final = (
    Operation(
        name="runSql",
        method="POST",
        path="/api/v1/sql",
        tag="sql",
        summary="Query topics with SQL",
        description="Any broker answers, over both tiers and all partitions, up to the last committed record at its "
        "start. `X-Tierlog-Rows` and `X-Tierlog-Truncated` (`rows`, `bytes` or `no`) are there for every form but "
        "NDJSON, whose lines are told apart by `type`: `progress` (every second: `elapsed_ms`, `scanned`), `columns`, "
        "`rows` (up to 1,000 of them), `summary` (as the JSON document without columns and rows) at the end, or "
        "`error` with a problem document.",
        handler=run_sql,
        needs=READ_TOPICS,
        parameters=(CLIENT_ID,),
        body=Document(SqlQuery),
        reads=True,
        answers={
            200: Answer(
                "The rows, and whether that is all of them.",
                {
                    JSON: SqlResult,
                    NDJSON: {"type": "string", "description": "Lines while the query runs, and its rows."},
                    CSV: {"type": "string"},
                    ARROW_STREAM: {"type": "string", "format": "binary"},
                    PARQUET: {"type": "string", "format": "binary"},
                },
            )
        },
        problems=(404, 406, 409, 410, 413, 415, 503),
    ),
    Operation(
        name="estimateSql",
        method="POST",
        path="/api/v1/sql/estimate",
        tag="sql",
        summary="What a query would read and cost",
        description="Nothing is read but manifests. An upper bound: what filters of keys exclude is not known yet.",
        handler=estimate_sql,
        needs=READ_TOPICS,
        parameters=(CLIENT_ID,),
        body=Document(SqlEstimateQuery),
        reads=True,
        answers={200: Answer("Files, bytes, requests.", {JSON: SqlEstimate})},
        problems=(404, 409, 413, 415, 503),
    ),
    Operation(
        name="cancelSql",
        method="DELETE",
        path="/api/v1/sql/queries/{query}",
        tag="sql",
        summary="Cancel a query",
        description="A query also ends when its client disconnects.",
        handler=cancel_sql,
        needs=Open("it knows only the sender's own queries"),
        parameters=(QUERY_ID,),
        reads=True,
        answers={204: Answer("It ends.")},
        problems=(404,),
    ),
    Operation(
        name="findKey",
        method="GET",
        path="/api/v1/topics/{topic}/keys/{key}",
        tag="messages",
        summary="Find the latest messages with a key",
        description="In both tiers and all partitions. Archived files have filters of their keys, so that months are "
        "searched in about a second.",
        handler=find_key,
        needs=(on_topic(Permitted.READ),),
        parameters=(TOPIC, KEY, KEY_ENCODING, HISTORY, FROM, TO, VALUE_ENCODING, CLIENT_ID),
        answers={200: Answer("Messages, newest first; none if there is none.", {JSON: KeyMessages})},
        problems=(404, 409, 410, 503),
    ),
)

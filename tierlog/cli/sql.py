"""`tierlog sql` and `tierlog find`: questions about what topics hold, over both tiers."""

import shutil
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from hot_tier.clock import wall_ms
from tierlog.cli import output
from tierlog.cli.options import DEFAULT_SERVER, Json, Server, TopicName
from tierlog.cli.times import parse_duration, parse_range, show_time
from tierlog.client import Client, path

BESIDE_S = 30
"""How much longer than the query itself may take the client waits: other queries may come first."""
PIECE_BYTES = 1 << 20


class Form(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"


MEDIA = {
    Form.JSON: "application/json",
    Form.CSV: "text/csv",
    Form.ARROW: "application/vnd.apache.arrow.stream",
    Form.PARQUET: "application/vnd.apache.parquet",
}


def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", show_default=False, help="One SELECT; topics are tables.")],
    form: Annotated[Form, typer.Option("--format", help="The form of the result.")] = Form.TABLE,
    to: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help="Write the result to this file.", show_default=False)
    ] = None,
    max_rows: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="At most so many rows. [default: the node's sql.rows]")
    ] = None,
    timeout: Annotated[str, typer.Option(metavar="TIME", help="How long the query may take.")] = "30s",
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Read nothing: show what the query would read and cost.")
    ] = False,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    timeout_ms = parse_duration(timeout)
    with Client(server, timeout_s=timeout_ms / 1000 + BESIDE_S) as client:
        if estimate:
            _show_estimate(client.post(path("sql", "estimate"), {"query": query}), json=json)
            return
        asked: dict[str, Any] = {"query": query, "timeout_ms": timeout_ms}
        if max_rows is not None:
            asked["max_rows"] = max_rows
        if json:
            form = Form.JSON
        if form in (Form.TABLE, Form.JSON) and to is None:
            _show(client.post(path("sql"), asked), as_json=form is Form.JSON)
            return
        if form is Form.TABLE:
            raise typer.BadParameter("a table is for the screen: name a --format for the file")
        if to is None and form in (Form.ARROW, Form.PARQUET) and sys.stdout.isatty():
            raise typer.BadParameter(f"{form} is not for a screen: name an --output")
        response = client.post_raw(path("sql"), asked, MEDIA[form])
        if to is None:
            shutil.copyfileobj(response, sys.stdout.buffer, PIECE_BYTES)
            sys.stdout.flush()
        else:
            with open(to, "wb") as file:
                shutil.copyfileobj(response, file, PIECE_BYTES)
        _tell_of_the_rest(response.headers.get("X-Tierlog-Truncated"), response.headers.get("X-Tierlog-Rows"))


def _show(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.print_json(result)
    else:
        numbers = {"BIGINT", "INTEGER", "DOUBLE", "HUGEINT", "SMALLINT", "TINYINT", "UBIGINT", "FLOAT"}
        columns = [each["name"] + (">" if each["type"] in numbers else "") for each in result["columns"]]
        output.print_table(columns, [["" if cell is None else cell for cell in row] for row in result["rows"]])
    _tell_of_the_rest(result["truncated"], result["row_count"])
    scanned = result["scanned"]
    if scanned["not_text"]:
        output.note(
            f'{scanned["not_text"]} keys and values are not text and are shown as nothing; "TOPIC$raw" has their bytes'
        )
    if not as_json:
        read = f"{scanned['files']} files, {output.show_bytes(scanned['bytes'])}, {scanned['hot_rows']} hot records"
        output.note(f"{result['row_count']} rows in {result['elapsed_ms'] / 1000:.2f} s; read {read}")


def _tell_of_the_rest(truncated: str | None, rows: object) -> None:
    if truncated in ("rows", "bytes"):
        output.note(f"truncated: these are the first {rows} rows, cut off by the limit of {truncated} (--max-rows)")


def _show_estimate(told: dict[str, Any], *, json: bool) -> None:
    if json:
        output.print_json(told)
        return
    rows = [
        (
            each["topic"],
            each["files"],
            each["files_skipped"],
            each["rows"],
            output.show_bytes(each["bytes"]),
            each["requests"],
            each["hot_offsets"],
        )
        for each in told["topics"]
    ]
    output.print_table(("topic", "files>", "skipped>", "rows>", "bytes>", "requests>", "hot offsets>"), rows)
    print(f"at most {told['requests']} requests, ${told['cost']:.6f}")


def find(
    topic: TopicName,
    key: Annotated[str, typer.Option(metavar="KEY", show_default=False, help="The key.")],
    base64: Annotated[
        bool, typer.Option("--base64", help="KEY is base64 (with - and _), for keys that are no text.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="So many records, newest first.")] = 1,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Only records from then on.", show_default=False)
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Only records before then.", show_default=False)
    ] = None,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    from_ms, to_ms = parse_range(from_, to, wall_ms())
    query: dict[str, Any] = {"limit": limit, "from": from_ms, "to": to_ms, "value_encoding": "text"}
    if base64:
        query["key_encoding"] = "base64"
    with Client(server) as client:
        found = client.get(path("topics", topic, "keys", key), **query)
    if json:
        output.print_json(found)
        return
    output.print_table(
        ("partition>", "offset>", "time", "value"),
        [
            (
                each["partition"],
                each["offset"],
                show_time(each["timestamp"]),
                "" if each["value"] is None else each["value"],
            )
            for each in found["messages"]
        ],
    )
    searched = found["searched"]
    more = "" if found["complete"] else "; there are older ones (--limit)"
    read = f"{searched['files']} of {searched['files'] + searched['files_skipped']} files"
    output.note(f"{len(found['messages'])} found in {found['elapsed_ms'] / 1000:.2f} s; read {read}{more}")


def register(app: typer.Typer) -> None:
    app.command(help="Query topics with SQL, over both tiers.")(sql)
    app.command(help="Find the latest records with a key, over both tiers.")(find)

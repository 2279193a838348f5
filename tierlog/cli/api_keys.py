"""`tierlog apikey list|create|delete`."""

from typing import Annotated

import typer

from hot_tier.clock import wall_ms
from tierlog.cli import output
from tierlog.cli.help import Commands
from tierlog.cli.options import DEFAULT_SERVER, Json, Server
from tierlog.cli.times import parse_duration, show_time
from tierlog.client import Client, path

User = Annotated[str, typer.Argument(metavar="USER", show_default=False, help="The user that the key acts as.")]
Id = Annotated[str, typer.Argument(metavar="ID", show_default=False, help="The key's id, as `apikey list` shows it.")]
Expires = Annotated[
    str,
    typer.Option("--expires", metavar="TIME", help="After which time it ends: 12h, 30d.", show_default="never"),
]
Scope = Annotated[
    str,
    typer.Option(
        "--scope",
        metavar="OPERATION,…",
        help="What it may be used for: read, write, describe and Kafka's other operations.",
        show_default="all that the user may do",
    ),
]


def register(app: typer.Typer) -> None:
    keys = Commands(no_args_is_help=True, help="Keys for the HTTP API, for programs that act as a user.")
    keys.command("list", help="List the keys.")(list_)
    keys.command("create", help="Make a key. It is shown once.")(create)
    keys.command("delete", help="Delete a key.")(delete)
    app.add_typer(keys, name="apikey")


def list_(server: Server = DEFAULT_SERVER, json: Json = False) -> None:
    with Client(server) as client:
        keys = client.get(path("api-keys"))["api_keys"]
    if json:
        output.print_json(keys)
        return
    rows = [
        (
            each["id"],
            each["user"],
            show_time(each["created_ms"]),
            "never" if each["expires_ms"] is None else show_time(each["expires_ms"]),
            "all" if each["scope"] is None else ", ".join(each["scope"]),
        )
        for each in keys
    ]
    output.print_table(("id", "user", "made", "expires", "scope"), rows)


def create(
    user: User, expires: Expires = "", scope: Scope = "", server: Server = DEFAULT_SERVER, json: Json = False
) -> None:
    document = {
        "user": user,
        "expires_ms": wall_ms() + parse_duration(expires) if expires else None,
        "scope": [each.strip() for each in scope.split(",")] if scope else None,
    }
    with Client(server) as client:
        made = client.post(path("api-keys"), document)
    if json:
        output.print_json(made)
        return
    print(made["key"])


def delete(key: Id, server: Server = DEFAULT_SERVER) -> None:
    with Client(server) as client:
        client.delete(path("api-keys", key))

"""`tierlog user list|create|password|delete`."""

import sys
from typing import Annotated

import typer

from hot_tier.errors import SettingsError
from tierlog.cli import output
from tierlog.cli.help import Commands
from tierlog.cli.options import DEFAULT_SERVER, Json, Server
from tierlog.client import Client, path

UserName = Annotated[str, typer.Argument(metavar="USER", show_default=False, help="The user's name.")]
PasswordFile = Annotated[
    str,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="A file with the password; - reads it from standard input.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    user = Commands(no_args_is_help=True, help="Users that log in with a password.")
    user.command("list", help="List the users.")(list_)
    user.command("create", help="Make a user.")(create)
    user.command("password", help="Change a user's password.")(password)
    user.command("delete", help="Delete a user.")(delete)
    app.add_typer(user, name="user")


def list_(server: Server = DEFAULT_SERVER, json: Json = False) -> None:
    with Client(server) as client:
        users = client.get(path("users"))["users"]
    if json:
        output.print_json(users)
        return
    output.print_table(("user", "mechanisms"), [(each["name"], ", ".join(each["mechanisms"])) for each in users])


def create(user: UserName, password_file: PasswordFile = "", server: Server = DEFAULT_SERVER) -> None:
    with Client(server) as client:
        if any(each["name"] == user for each in client.get(path("users"))["users"]):
            raise SettingsError(
                f"there is a user {user!r} already", hint="change its password with `tierlog user password`"
            )
        client.put(path("users", user, "password"), {"password": _read(password_file)})


def password(user: UserName, password_file: PasswordFile = "", server: Server = DEFAULT_SERVER) -> None:
    with Client(server) as client:
        if all(each["name"] != user for each in client.get(path("users"))["users"]):
            raise SettingsError(f"there is no user {user!r}", hint="make it with `tierlog user create`")
        client.put(path("users", user, "password"), {"password": _read(password_file)})


def delete(user: UserName, server: Server = DEFAULT_SERVER) -> None:
    with Client(server) as client:
        client.delete(path("users", user))


def _read(file: str) -> str:
    """Passwords are no arguments: other users of the machine see those."""
    if file == "-":
        return sys.stdin.readline().rstrip("\n")
    if file:
        try:
            with open(file) as opened:
                return opened.readline().rstrip("\n")
        except OSError as error:
            raise SettingsError(f"cannot be read: {error.strerror}", where=file) from None
    found: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    return found

"""`tierlog acl list|add|remove`."""

from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from hot_tier.errors import SettingsError
from tierlog.cli import output
from tierlog.cli.help import Commands
from tierlog.cli.options import DEFAULT_SERVER, Json, Server
from tierlog.client import Client, path

USER: Final = "User:"
CLUSTER_NAME: Final = "kafka-cluster"
COLUMNS: Final = ("principal", "host", "permission", "operation", "resource_type", "pattern", "name")


def _resource(what: str) -> Any:
    return typer.Option(metavar="NAME", help=f"The rule is about {what} of this name; * for all.", show_default=False)


Principal = Annotated[
    str, typer.Argument(metavar="USER", show_default=False, help="The user, such as ada or User:ada; * for everybody.")
]
Operations = Annotated[
    str,
    typer.Argument(
        metavar="OPERATIONS", show_default=False, help="Such as read, or read,write; all stands for every operation."
    ),
]
Topic = Annotated[str | None, _resource("the topic")]
Group = Annotated[str | None, _resource("the consumer group")]
TransactionalId = Annotated[str | None, _resource("the transactional id")]
Cluster = Annotated[bool, typer.Option("--cluster", help="The rule is about the cluster itself.")]
Prefix = Annotated[bool, typer.Option("--prefix", help="About all names that begin so.")]
Host = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Only from this address.", show_default=False)]
Deny = Annotated[bool, typer.Option("--deny", help="The rule denies. It wins over every rule that allows.")]


def register(app: typer.Typer) -> None:
    acl = Commands(no_args_is_help=True, help="Access rules: who may do what.")
    acl.command("list", help="List the rules.")(list_)
    acl.command("add", help="Add rules.")(add)
    acl.command("remove", help="Remove rules, named as they were added.")(remove)
    app.add_typer(acl, name="acl")


def list_(
    user: Annotated[str | None, typer.Option(metavar="USER", help="Only of this user.", show_default=False)] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only those that hold for this topic.", show_default=False)
    ] = None,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    wanted: dict[str, Any] = {"principal": None if user is None else _principal(user)}
    if topic is not None:
        wanted |= {"resource_type": "topic", "name": topic, "pattern": "match"}
    with Client(server) as client:
        rules = client.get(path("acls"), **wanted)["acls"]
    if json:
        output.print_json(rules)
        return
    output.print_table(COLUMNS, [tuple(rule[column] for column in COLUMNS) for rule in rules])


def add(
    user: Principal,
    operations: Operations,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    prefix: Prefix = False,
    host: Host = None,
    deny: Deny = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    resource = _one_resource(topic, group, transactional_id, cluster)
    rules = list(_rules(user, operations, resource, prefix, host or "*", deny))
    with Client(server) as client:
        client.post(path("acls"), {"acls": rules})


def remove(
    user: Principal,
    operations: Operations,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    prefix: Prefix = False,
    host: Host = None,
    deny: Deny = False,
    server: Server = DEFAULT_SERVER,
) -> None:
    resource = _one_resource(topic, group, transactional_id, cluster)
    with Client(server) as client:
        removed = [
            gone
            for rule in _rules(user, operations, resource, prefix, host or "*", deny)
            for gone in client.delete(path("acls"), **rule)["acls"]
        ]
    if not removed:
        raise SettingsError("there is no such rule", hint="`tierlog acl list` shows the rules")


def _rules(
    user: str, operations: str, resource: tuple[str, str], prefix: bool, host: str, deny: bool
) -> Iterator[dict[str, str]]:
    for operation in operations.split(","):
        yield {
            "resource_type": resource[0],
            "name": resource[1],
            "pattern": "prefixed" if prefix else "literal",
            "principal": _principal(user),
            "host": host,
            "operation": operation.strip().lower().replace("-", "_"),
            "permission": "deny" if deny else "allow",
        }


def _principal(user: str) -> str:
    return user if user.startswith(USER) else USER + user


def _one_resource(topic: str | None, group: str | None, transactional_id: str | None, cluster: bool) -> tuple[str, str]:
    asked = {"topic": topic, "group": group, "transactional_id": transactional_id}
    named = [(kind, name) for kind, name in asked.items() if name is not None]
    if cluster:
        named.append(("cluster", CLUSTER_NAME))
    if len(named) != 1:
        raise SettingsError(
            "a rule is about one thing", hint="give one of --topic, --group, --transactional-id and --cluster"
        )
    return named[0]

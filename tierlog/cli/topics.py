"""`tierlog topic create|list|describe|alter|delete`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from hot_tier.errors import UnknownPartition
from tierlog.cli import output
from tierlog.cli.help import Commands
from tierlog.cli.options import DEFAULT_SERVER, Json, Server, TopicName
from tierlog.client import Client, ServerUnreachable, path

Config = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="NAME=VALUE", help="A topic setting by Kafka's name; may be repeated."),
]


def register(app: typer.Typer) -> None:
    topic = Commands(no_args_is_help=True, help="Make, list, describe, change and delete topics.")
    topic.command("create", help="Make a topic.")(create)
    topic.command("list", help="List the topics.")(list_)
    topic.command("describe", help="Show a topic's partitions, offsets, sizes and settings.")(describe)
    topic.command("alter", help="Add partitions, change settings or go back to defaults.")(alter)
    topic.command("delete", help="Delete a topic and its records.")(delete)
    app.add_typer(topic, name="topic")


def create(
    topic: TopicName,
    partitions: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many partitions. [default: the node's]")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many copies of each. [default: the node's]")
    ] = None,
    config: Config = None,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    wanted: dict[str, Any] = {"name": topic, "config": settings_of(config)}
    if partitions is not None:
        wanted["partitions"] = partitions
    if replication_factor is not None:
        wanted["replication_factor"] = replication_factor
    with Client(server) as client:
        made = client.post(path("topics"), wanted)
    if json:
        output.print_json(made)
    else:
        print(f"created {topic} with {len(made['partitions'])} partitions")


def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Also those that belong to the service.")] = False,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    with Client(server) as client:
        topics = client.get(path("topics"))["topics"]
    shown = [topic for topic in topics if internal or not topic["internal"]]
    if json:
        output.print_json(shown)
        return
    rows = [(each["name"], each["partitions"], each["replication_factor"], each["id"]) for each in shown]
    output.print_table(("topic", "partitions>", "replicas>", "id"), rows)


def describe(topic: TopicName, server: Server = DEFAULT_SERVER, json: Json = False) -> None:
    with Client(server) as client:
        found = client.get(path("topics", topic))
    if json:
        output.print_json(found)
        return
    from tierlog.cli.times import show_time

    print(f"{found['name']}  id {found['id']}  made {show_time(found['created_ms'])}")
    print()
    output.print_table(
        ("partition>", "leader>", "epoch>", "in sync", "first offset>", "next offset>", "bytes>", "segments>"),
        [
            (
                each["partition"],
                _known(each["leader"]),
                each["leader_epoch"],
                ",".join(str(node) for node in each["isr"]),
                _known(each["log_start_offset"]),
                _known(each["high_watermark"]),
                _known(each["size_bytes"]),
                _known(each["segments"]),
            )
            for each in found["partitions"]
        ],
    )
    own = [(name, each["value"]) for name, each in found["config"].items() if each["source"] == "topic"]
    print()
    if own:
        output.print_table(("setting", "value"), own)
    else:
        print("all settings are the node's defaults (--json shows them)")


def alter(
    topic: TopicName,
    partitions: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The new, higher number of partitions.")
    ] = None,
    config: Config = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="Back to the node's default; may be repeated.")
    ] = None,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    changes: dict[str, str | None] = {**settings_of(config), **dict.fromkeys(unset or ())}
    wanted: dict[str, Any] = {"config": changes} if changes else {}
    if partitions is not None:
        wanted["partitions"] = partitions
    if not wanted:
        raise typer.BadParameter("nothing to change: give --partitions, --config or --unset")
    with Client(server) as client:
        changed = client.patch(path("topics", topic), wanted)
    if json:
        output.print_json(changed)
    else:
        print(f"changed {topic}")


def delete(topic: TopicName, server: Server = DEFAULT_SERVER, json: Json = False) -> None:
    with Client(server) as client:
        client.delete(path("topics", topic))
    if json:
        output.print_json({"deleted": topic})
    else:
        print(f"deleted {topic}")


def settings_of(pairs: Sequence[str] | None) -> dict[str, str]:
    settings = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--config")
        settings[name] = value
    return settings


def partitions_to_read(described: Mapping[str, Any], wanted: Sequence[int] | None) -> list[dict[str, Any]]:
    """Returns the wanted partitions of a topic's description, or all. Raises an error if a partition's leader did not
    answer: only the leader knows where it begins and ends."""
    partitions = {each["partition"]: each for each in described["partitions"]}
    for number in wanted or partitions:
        if number not in partitions:
            raise UnknownPartition(
                f"there is no partition {number}",
                where=described["name"],
                hint=f"it has the partitions 0 to {len(partitions) - 1}",
            )
        if partitions[number]["high_watermark"] is None:
            raise ServerUnreachable(
                f"the leader of partition {number} does not answer",
                where=described["name"],
                hint="try again; `tierlog cluster status` shows who leads",
            )
    return [partitions[number] for number in wanted or partitions]


def _known(value: object) -> object:
    return "?" if value is None else value

"""`tierlog group list|describe|reset|delete`."""

from typing import Annotated, Any

import typer

from hot_tier.clock import wall_ms
from tierlog.cli import output
from tierlog.cli.help import Commands
from tierlog.cli.options import DEFAULT_SERVER, GroupName, Json, Server
from tierlog.cli.times import parse_time
from tierlog.client import Client, path


def register(app: typer.Typer) -> None:
    group = Commands(no_args_is_help=True, help="Look at consumer groups and move them.")
    group.command("list", help="List the groups.")(list_)
    group.command("describe", help="Show a group's members, offsets and lag.")(describe)
    group.command("reset", help="Move a group without members to another place in a topic.")(reset)
    group.command("delete", help="Delete a group without members, and its offsets.")(delete)
    app.add_typer(group, name="group")


def list_(
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Only groups that read this topic, with their lag in it.")
    ] = None,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    with Client(server) as client:
        where = path("consumer-groups") if topic is None else path("topics", topic, "groups")
        groups = client.get(where)["groups"]
    if json:
        output.print_json(groups)
        return
    if topic is not None:
        rows = [(each["group"], each["state"], each["members"], _known(each["lag"])) for each in groups]
        output.print_table(("group", "state", "members>", "lag>"), rows)
        return
    output.print_table(
        ("group", "state", "type", "members>"),
        [(each["group"], each["state"], each["protocol_type"] or "-", each["members"]) for each in groups],
    )


def describe(group: GroupName, server: Server = DEFAULT_SERVER, json: Json = False) -> None:
    with Client(server) as client:
        found = client.get(path("consumer-groups", group))
        offsets = client.get(path("consumer-groups", group, "offsets"))
    if json:
        output.print_json({**found, "offsets": offsets["offsets"], "lag": offsets["lag"]})
        return
    print(f"{group}  {found['state']}  {found['protocol'] or 'no assignor'}  lag {_lag(offsets)}")
    if offsets["offsets"]:
        print()
        output.print_table(
            ("topic", "partition>", "next to read>", "end>", "lag>"),
            [tuple(_known(each[name]) for name in _OFFSET_COLUMNS) for each in offsets["offsets"]],
        )
    if found["members"]:
        print()
        output.print_table(
            ("member", "client", "host", "partitions"),
            [(each["member_id"], each["client_id"], each["host"], _assignment(each)) for each in found["members"]],
        )


def _lag(offsets: dict[str, Any]) -> str:
    """The lag shown is never too low. For a partition without a committed offset it is unknown."""
    if offsets["lag"] is not None:
        return str(offsets["lag"])
    lags = [each["lag"] for each in offsets["offsets"]]
    if not lags:
        return "unknown: nothing is committed"
    known = sum(lag or 0 for lag in lags)
    return f"{known} or more: not known for {lags.count(None)} of {len(lags)} partitions"


def _known(value: object) -> object:
    return "?" if value is None else value


_OFFSET_COLUMNS = ("topic", "partition", "offset", "high_watermark", "lag")


def _assignment(member: dict[str, list[dict[str, object]] | None]) -> str:
    return " ".join(
        f"{each['topic']}:{','.join(map(str, each['partitions']))}"  # type: ignore[call-overload]
        for each in member["assignment"] or ()
    )


def reset(
    group: GroupName,
    topic: Annotated[str, typer.Option(metavar="TOPIC", help="The topic to move in.", show_default=False)],
    to: Annotated[
        str | None, typer.Option(metavar="earliest|latest|TIME", help="The new place; a time as for `tierlog consume`.")
    ] = None,
    offset: Annotated[int | None, typer.Option(min=0, metavar="N", help="The new place as an offset.")] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Only this partition. [default: all]")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --to: only show where the group would be.")] = False,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    if (to is None) == (offset is None):
        raise typer.BadParameter("say where to: --to earliest, --to latest, --to TIME or --offset N")
    if dry_run and to is None:
        raise typer.BadParameter("--dry-run needs --to: an offset is where you say")
    with Client(server) as client:
        if to is not None:
            target = to if to in ("earliest", "latest") else parse_time(to, wall_ms())
            wanted = {"topic": topic, "to": target} | ({} if partition is None else {"partition": partition})
            wanted |= {"dry_run": True} if dry_run else {}
            now = client.post(path("consumer-groups", group, "offsets", "reset"), wanted)["offsets"]
        else:
            known = [each["partition"] for each in client.get(path("topics", topic))["partitions"]]
            for number in known if partition is None else [partition]:
                committed = {"topic": topic, "partition": number, "offset": offset}
                client.post(path("consumer-groups", group, "offsets"), committed)
            now = client.get(path("consumer-groups", group, "offsets"))["offsets"]
    moved = [each for each in now if each["topic"] == topic and partition in (None, each["partition"])]
    if json:
        output.print_json(moved)
    else:
        output.print_table(
            ("topic", "partition>", "next to read>"), [(topic, each["partition"], each["offset"]) for each in moved]
        )


def delete(group: GroupName, server: Server = DEFAULT_SERVER, json: Json = False) -> None:
    with Client(server) as client:
        client.delete(path("consumer-groups", group))
    if json:
        output.print_json({"deleted": group})
    else:
        print(f"deleted {group}")

"""`tierlog cluster decommission|rebalance`: starts it and waits until it is done. If the wait is interrupted, it still
goes on.
"""

import time
from typing import Annotated, Any, Final

import typer

from tierlog.cli import output
from tierlog.cli.options import DEFAULT_SERVER, Json, Server
from tierlog.client import Client, path

LOOK_S: Final = 0.5

Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Return when everything is where it should be.")]


def register(cluster: typer.Typer) -> None:
    cluster.command("decommission", help="Move everything off a broker. It can be switched off then.")(decommission)
    cluster.command("rebalance", help="Even out replicas and preferred leaders over the brokers.")(rebalance)


def decommission(
    broker: Annotated[int, typer.Argument(metavar="BROKER", show_default=False, min=0, help="The broker's number.")],
    cancel: Annotated[bool, typer.Option("--cancel", help="Let the broker take replicas again.")] = False,
    wait: Wait = True,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    where = path("cluster", "brokers", broker, "decommission")
    with Client(server) as client:
        if cancel:
            found = client.delete(where)
        else:
            found = client.post(where, b"")
            if wait:
                found = _until_empty(client, where, found)
    if json:
        output.print_json(found)
    elif cancel:
        print(f"broker {broker} takes replicas again")
    elif found["replicas"]:
        print(f"{found['replicas']} replicas are to leave broker {broker}")
    else:
        print(f"broker {broker} holds nothing any more")


def _until_empty(client: Client, where: str, found: dict[str, Any]) -> dict[str, Any]:
    with output.progress("replicas moved", found["replicas"]) as advance:
        while found["replicas"]:
            time.sleep(LOOK_S)
            before, found = found["replicas"], client.get(where)
            advance(before - found["replicas"])
    return found


def rebalance(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would move.")] = False,
    wait: Wait = True,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    with Client(server) as client:
        moves = client.post(path("cluster", "rebalance"), {"dry_run": dry_run})["moves"]
        if wait and not dry_run:
            _until_settled(client)
    if json:
        output.print_json({"moves": moves})
    elif not moves:
        print("the load is even, nothing moves")
    else:
        output.print_table(
            ("topic", "partition>", "from", "to"),
            [(each["topic"], each["partition"], _nodes(each["before"]), _nodes(each["after"])) for each in moves],
        )


def _until_settled(client: Client) -> None:
    left = len(client.get(path("cluster", "moves"))["moves"])
    with output.progress("partitions moved", left) as advance:
        while left:
            time.sleep(LOOK_S)
            before, left = left, len(client.get(path("cluster", "moves"))["moves"])
            advance(before - left)


def _nodes(nodes: list[int]) -> str:
    return ", ".join(map(str, nodes))

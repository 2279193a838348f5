"""`tierlog txn list|describe|abort`."""

from typing import Annotated, Any

import typer

from hot_tier.clock import wall_ms
from tierlog.cli import output
from tierlog.cli.help import Commands
from tierlog.cli.options import DEFAULT_SERVER, Json, Server
from tierlog.client import Client, path

TransactionalId = Annotated[
    str, typer.Argument(metavar="ID", show_default=False, help="The transactional id, as its producer sets it.")
]


def register(app: typer.Typer) -> None:
    txn = Commands(no_args_is_help=True, help="Look at transactions, and abort one that nobody ends.")
    txn.command("list", help="List the transactional ids and how their transactions stand.")(list_)
    txn.command("describe", help="Show what an open transaction has written to.")(describe)
    txn.command("abort", help="Abort an open transaction and fence its producer.")(abort)
    app.add_typer(txn, name="txn")


def list_(
    opened: Annotated[
        bool, typer.Option("--open", help="Only those with an open transaction, the oldest first.")
    ] = False,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    with Client(server) as client:
        found = client.get(path("transactions"))["transactions"]
    if opened:
        found = sorted((each for each in found if each["started_ms"] is not None), key=lambda each: each["started_ms"])
    if json:
        output.print_json(found)
        return
    now_ms = wall_ms()
    output.print_table(
        ("transactional id", "state", "open for>", "producer id>", "coordinator>"),
        [
            (
                each["transactional_id"],
                each["state"],
                _open_for(each, now_ms),
                each["producer_id"],
                each["coordinator"],
            )
            for each in found
        ],
    )


def describe(transactional_id: TransactionalId, server: Server = DEFAULT_SERVER, json: Json = False) -> None:
    with Client(server) as client:
        found = client.get(path("transactions", transactional_id))
    if json:
        output.print_json(found)
        return
    producer = f"producer {found['producer_id']}, epoch {found['producer_epoch']}"
    print(f"{transactional_id}  {found['state']}  {producer}  time-out {found['timeout_ms'] / 1000:g} s")
    if found["started_ms"] is not None:
        print(f"open for {_open_for(found, wall_ms())}")
    if found["partitions"]:
        print()
        by_topic: dict[str, list[int]] = {}
        for each in found["partitions"]:
            by_topic.setdefault(each["topic"], []).append(each["partition"])
        output.print_table(
            ("topic", "partitions"), [(topic, " ".join(map(str, numbers))) for topic, numbers in by_topic.items()]
        )


def abort(transactional_id: TransactionalId, server: Server = DEFAULT_SERVER, json: Json = False) -> None:
    with Client(server) as client:
        done = client.post(path("transactions", transactional_id, "abort"), b"")
    if json:
        output.print_json(done)
    else:
        print(f"aborted the transaction of {transactional_id}; its producer is fenced and has to begin anew")


def _open_for(transaction: dict[str, Any], now_ms: int) -> str:
    """Returns how long it is open, such as `2 min 5 s`; `-` while none is."""
    if transaction["started_ms"] is None:
        return "-"
    seconds = max(0, now_ms - transaction["started_ms"]) // 1000
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"

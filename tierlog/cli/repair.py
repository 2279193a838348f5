"""`tierlog archive recover|accept-loss|take-over`: what a person decides about a stopped archive."""

from typing import Annotated, Any

import typer

from tierlog.cli import output
from tierlog.cli.options import DEFAULT_SERVER, Json, Server
from tierlog.client import Client, path

_LONG_S = 3600.0
"""Segments that are added again are first read completely."""

Topic = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
Partition = Annotated[
    int | None, typer.Argument(metavar="PARTITION", show_default=False, min=0, help="All stopped ones if missing.")
]


def recover(topic: Topic, partition: Partition = None, server: Server = DEFAULT_SERVER, json: Json = False) -> None:
    _decide("recover", topic, partition, server, json)


def accept_loss(topic: Topic, partition: Partition = None, server: Server = DEFAULT_SERVER, json: Json = False) -> None:
    _decide("accept-loss", topic, partition, server, json)


def take_over(topic: Topic, partition: Partition = None, server: Server = DEFAULT_SERVER, json: Json = False) -> None:
    _decide("take-over", topic, partition, server, json)


def _decide(decision: str, topic: str, partition: int | None, server: str, json: bool) -> None:
    repaired: list[dict[str, Any]] = []
    with Client(server, timeout_s=_LONG_S) as client:
        if partition is None:
            document = client.get(path("topics", topic, "archive"), limit=0)
            partitions = [each["partition"] for each in document["partitions"] if each["stopped"]]
        else:
            partitions = [partition]
        for number in partitions:
            where = path("topics", topic, "partitions", str(number), "archive", "repair")
            repaired.append(client.post(where, {"decision": decision}))
            if not json:
                _say(topic, repaired[-1])
    if json:
        output.print_json({"topic": topic, "partitions": repaired})
    elif not partitions:
        print(f"no archive of {topic} is stopped")


def _say(topic: str, repaired: dict[str, Any]) -> None:
    print(
        f"{topic}-{repaired['partition']}: archived up to offset {repaired['end_offset']}, "
        f"{repaired['taken_up']} segments taken up again"
    )
    for each in repaired["lost"]:
        output.note(
            f"{topic}-{repaired['partition']}: offsets {each['start_offset']} to {each['end_offset'] - 1} are lost"
        )

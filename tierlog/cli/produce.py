"""`tierlog produce`: sends lines or JSON from files or standard input to a topic, many per request."""

import json as jsonlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from typing import Annotated, Any, BinaryIO, Literal

import typer

from hot_tier.clock import steady_s
from hot_tier.errors import TierlogError
from tierlog.cli import output, records
from tierlog.cli.options import DEFAULT_SERVER, Json, Server, TopicName
from tierlog.client import Client, path

BATCH_BYTES = 4 * 1024 * 1024
"""The text of one request: well below the node's limit, and far above the size where more would be faster."""


class NotAllStored(TierlogError):
    """The node stored a part of the messages and said why it refused the others."""


def register(app: typer.Typer) -> None:
    app.command("produce", help="Send records to a topic, one per line of the input.")(produce)


def produce(
    topic: TopicName,
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE", help="Standard input if none is named.")] = None,
    input_: Annotated[
        Literal["lines", "json"], typer.Option("--input", help="What a line is: the value, or a record as JSON.")
    ] = "lines",
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What separates key and value in a line. Write \\t for a tab.")
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="The key of every record that has none.")] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header of every record; may be repeated.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Send all records to this partition.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="Most records in one request.")] = 5_000,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    if input_ == "json" and key_separator is not None:
        raise typer.BadParameter("--key-separator is for --input lines")
    given: dict[str, Any] = {}
    if key is not None:
        given["key"] = key
    if partition is not None:
        given["partition"] = partition
    headers = [_header(each) for each in header or ()]
    separator = None if key_separator is None else records.separator(key_separator)
    names = files or ["-"]
    sent = requests = 0
    began = steady_s()
    with ExitStack() as stack:
        client = stack.enter_context(Client(server))
        messages = chain.from_iterable(
            records.read_json(lines, name) if input_ == "json" else records.read_lines(lines, name, separator)
            for name, lines in _inputs(names, stack)
        )
        advance = stack.enter_context(output.progress(f"produce to {topic}", None))
        try:
            # Typed lines are sent one by one.
            most = 1 if "-" in names and sys.stdin.isatty() else batch
            for part in _batches(_completed(messages, given, headers), most):
                send(client, topic, part, sent)
                sent += len(part)
                requests += 1
                advance(len(part))
        except TierlogError as error:
            if sent and not isinstance(error, NotAllStored):
                error.what += f"; {sent:,} records before are stored"
            raise
        except KeyboardInterrupt:
            output.note(f"interrupted after {sent} records")
            raise typer.Exit(130) from None
    seconds = steady_s() - began
    if json:
        output.print_json({"topic": topic, "records": sent, "requests": requests, "seconds": round(seconds, 3)})
    else:
        output.note(f"{sent:,} records to {topic} in {seconds:.1f} s")


def _inputs(files: Iterable[str], stack: ExitStack) -> Iterator[tuple[str, BinaryIO]]:
    for name in files:
        if name == "-":
            yield "standard input", sys.stdin.buffer
            continue
        try:
            yield name, stack.enter_context(open(name, "rb"))  # noqa: SIM115 — the stack closes it
        except OSError as error:
            raise records.BadInput(f"cannot be read: {error.strerror}", where=name) from None


def _completed(
    messages: Iterable[records.Message], given: dict[str, Any], headers: list[dict[str, str]]
) -> Iterator[records.Message]:
    for message in messages:
        if headers:
            message["headers"] = [*message.get("headers", ()), *headers]
        yield (
            {**given, **message} if "partition" not in given else {**given, **message, "partition": given["partition"]}
        )


def _batches(messages: Iterable[records.Message], most: int) -> Iterator[list[str]]:
    """Yields encoded messages in groups, with at most `most` messages and `BATCH_BYTES` each."""
    part: list[str] = []
    size = 0
    for message in messages:
        text = jsonlib.dumps(message)
        if part and size + len(text) > BATCH_BYTES:
            yield part
            part, size = [], 0
        part.append(text)
        size += len(text)
        if len(part) == most:
            yield part
            part, size = [], 0
    if part:
        yield part


def send(client: Client, topic: str, part: list[str], before: int) -> list[dict[str, Any]]:
    """Sends encoded messages and returns where each is stored. A refusal counts from `before`, those sent earlier."""
    document = f'{{"messages":[{",".join(part)}]}}'.encode()
    results: list[dict[str, Any]] = client.post(path("topics", topic, "messages", "batch"), document)["results"]
    refused = [(index, each["error"]) for index, each in enumerate(results) if "error" in each]
    if refused:
        index, problem = refused[0]
        raise NotAllStored(
            f"{len(refused)} of {len(part)} records refused; number {before + index + 1}: {problem['detail']}",
            where=topic,
            hint=f"{problem['hint']} {before + len(part) - len(refused)} records are stored.",
        )
    return results


def _header(text: str) -> dict[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
    return {"key": name, "value": value}

"""`tierlog archive pin|pins`: long jobs that read a topic's archive suspend its retention (`cold_tier.pins`)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hot_tier.errors import TierlogError, UnknownTopic
from tierlog.cli import output
from tierlog.cli.options import DEFAULT_SERVER, BucketUrl, Json, S3Endpoint, Server, TopicName, Topics
from tierlog.cli.times import parse_duration, show_time
from tierlog.client import Client, path

if TYPE_CHECKING:
    from tierlog.settings import Settings


class NoSuchPin(TierlogError):
    """The topic has no pin of this name."""


def pin(
    topic: TopicName,
    bucket: Annotated[str, typer.Option("--bucket", metavar="URL", help="file:///path or s3://bucket/prefix.")],
    name: Annotated[
        str, typer.Option(metavar="NAME", help="The job's name. The same name again extends its pin.")
    ] = "pin",
    hold: Annotated[
        str, typer.Option("--for", metavar="TIME", help="How long the pin holds at most, such as 12h or 7d.")
    ] = "24h",
    release: Annotated[bool, typer.Option("--release", help="The job is done: take its pin away.")] = False,
    s3_endpoint: S3Endpoint = None,
    json: Json = False,
) -> None:
    from tierlog.cli.archive import bucket_settings, run_async

    hold_ms = None if release else parse_duration(hold)
    held = run_async(_pin(bucket_settings(bucket, s3_endpoint), topic, name, hold_ms))
    if json:
        output.print_json({"topic": topic, "pins": held})
        return
    print(f"{topic}: {'released' if release else 'pinned by'} {name}")
    for each in held:
        print(f"held by {each['name']} until {show_time(each['expires_ms'])}")


def pins(
    topics: Topics = None,
    bucket: BucketUrl = None,
    s3_endpoint: S3Endpoint = None,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    from tierlog.cli.archive import bucket_settings, run_async

    if bucket is None:
        with Client(server) as client:
            asked: Sequence[str | None] = topics or [None]
            answers = [client.get(path("archive", "pins"), topic=name) for name in asked]
            held = [each for answer in answers for each in answer["pins"]]
    else:
        held = run_async(bucket_pins(bucket_settings(bucket, s3_endpoint), topics or ()))
    if json:
        output.print_json(held)
    elif held:
        output.print_table(
            ("topic", "pin", "since", "until"),
            [(each["topic"], each["name"], *map(show_time, (each["created_ms"], each["expires_ms"]))) for each in held],
        )
    else:
        print("no pin holds")


async def _pin(settings: "Settings", topic: str, name: str, hold_ms: int | None) -> list[dict[str, Any]]:
    """Places the pin, or deletes it if `hold_ms` is None. Returns all pins that hold the topic after that."""
    from dataclasses import asdict

    from cold_tier import pins
    from cold_tier.inventory import find_topics
    from hot_tier.clock import wall_ms
    from tierlog.cli.archive import NOT_ARCHIVED, opened

    async with opened(settings) as store:
        lives = await find_topics(store, topic)
        if not lives:
            raise UnknownTopic(f"the archive has no topic {topic!r}", where=store.url, hint=NOT_ARCHIVED)
        found: list[dict[str, Any]] = []
        released = False
        for life in lives:
            if hold_ms is None:
                released |= await pins.release(store, topic, life.id, name)
            else:
                await pins.place(store, topic, life.id, name, wall_ms(), hold_ms)
            found += map(asdict, await pins.held(store, topic, life.id, wall_ms()))
        if hold_ms is None and not released:
            names = ", ".join(each["name"] for each in found) or "none"
            raise NoSuchPin(f"no pin {name!r} holds {topic}", where=store.url, hint=f"pins that hold it: {names}")
        return found


async def bucket_pins(settings: "Settings", topics: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the pins in the form of the HTTP API."""
    from dataclasses import asdict

    from cold_tier import pins
    from hot_tier.clock import wall_ms
    from tierlog.cli.archive import find_archived, opened

    async with opened(settings) as store:
        return [
            {"topic": life.name, "id": str(life.id), **asdict(each)}
            for life in await find_archived(store, topics)
            for each in await pins.held(store, life.name, life.id, wall_ms())
        ]

"""`tierlog archive pin`: a job that reads a topic's archive for long holds its retention. `cold_tier.pins` says how."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hot_tier.errors import UnknownTopic
from tierlog.cli import output
from tierlog.cli.options import Json, S3Endpoint, TopicName
from tierlog.cli.times import parse_duration, show_time

if TYPE_CHECKING:
    from tierlog.settings import Settings


def pin(
    topic: TopicName,
    bucket: Annotated[str, typer.Option("--bucket", metavar="URL", help="file:///path or s3://bucket/prefix.")],
    name: Annotated[str, typer.Option(metavar="NAME", help="Of the job; the same name again extends its pin.")] = "pin",
    hold: Annotated[
        str, typer.Option("--for", metavar="TIME", help="The pin is void after so long, as 12h or 7d.")
    ] = "24h",
    release: Annotated[bool, typer.Option("--release", help="The job is done: take its pin away.")] = False,
    s3_endpoint: S3Endpoint = None,
    json: Json = False,
) -> None:
    from tierlog.cli.archive import bucket_settings, run_async

    hold_ms = 0 if release else parse_duration(hold)
    held = run_async(_pin(bucket_settings(bucket, s3_endpoint), topic, name, hold_ms))
    if json:
        output.print_json({"topic": topic, "pins": held})
        return
    print(f"{topic}: {'released' if release else 'pinned by'} {name}")
    for each in held:
        print(f"held by {each['name']} until {show_time(each['expires_ms'])}")


async def _pin(settings: "Settings", topic: str, name: str, hold_ms: int) -> list[dict[str, Any]]:
    """Places the pin, or takes it away where `hold_ms` is 0; all that hold the topic then."""
    from dataclasses import asdict

    from cold_tier import pins
    from cold_tier.inventory import find_topics
    from tierlog.broker import now_ms
    from tierlog.cli.archive import NOT_ARCHIVED, opened

    async with opened(settings) as store:
        lives = await find_topics(store, topic)
        if not lives:
            raise UnknownTopic(f"the archive has no topic {topic!r}", where=store.url, hint=NOT_ARCHIVED)
        found: list[dict[str, Any]] = []
        for life in lives:
            if hold_ms:
                await pins.place(store, topic, life.id, name, now_ms(), hold_ms)
            else:
                await pins.release(store, topic, life.id, name)
            found += map(asdict, await pins.held(store, topic, life.id, now_ms()))
        return found

"""`tierlog cost`: what topics cost per month in the bucket, compared with the same history on local disks."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tierlog.cli import output
from tierlog.cli.archive import bucket_settings, bucket_status, node_status, opened, run_async
from tierlog.cli.options import DEFAULT_SERVER, BucketUrl, Json, S3Endpoint, Server, Topics
from tierlog.cli.times import parse_duration
from tierlog.client import Client, path

if TYPE_CHECKING:
    from cold_tier.reports import Estimate, TopicFacts
    from tierlog.settings import Settings

SHORT_MS = 3_600_000
"""With less history than this, a note says that the rate is uncertain."""


def register(app: typer.Typer) -> None:
    app.command("cost", help="Show what topics cost per month, beside local disks alone.")(cost)


def cost(
    topics: Topics = None,
    retention: Annotated[
        str | None, typer.Option(metavar="TIME", help="Reckon with this retention: 30d, 12h. [default: as it is]")
    ] = None,
    replays: Annotated[float, typer.Option(min=0, metavar="N", help="How often all of it is read per month.")] = 1,
    config: Annotated[
        str | None, typer.Option(envvar="TIERLOG_CONFIG", metavar="FILE", help="TOML file with prices in [cost].")
    ] = None,
    bucket: BucketUrl = None,
    s3_endpoint: S3Endpoint = None,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    from offloader.cost import estimate
    from tierlog.settings import load_settings

    planned = None if retention is None else parse_duration(retention)
    if bucket is None:
        settings = load_settings(config=config, environment=os.environ)
        found = list(_node_facts(server, topics or ()))
    else:
        settings = bucket_settings(bucket, s3_endpoint, config=config)
        found = run_async(_bucket_facts(settings, topics or ()))
    shown = []
    for name, facts in found:
        result = estimate(
            facts,
            settings.cost,
            retention_ms=planned,
            replays=replays,
            garbage_check_ms=settings.archive.garbage_check_ms,
        )
        if json:
            shown.append(_document(name, facts, result))
        else:
            _show(name, facts, result)
    if json:
        output.print_json(shown)


def _node_facts(server: str, topics: Sequence[str]) -> Iterator[tuple[str, "TopicFacts"]]:
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for each in node_status(server, topics):
        by_topic.setdefault(each["topic"], []).append(each)
    with Client(server) as client:
        for name, partitions in by_topic.items():
            described = client.get(path("topics", name))["config"]
            yield name, _facts(partitions, {key: each["value"] for key, each in described.items()})


async def _bucket_facts(settings: "Settings", topics: Sequence[str]) -> list[tuple[str, "TopicFacts"]]:
    from cold_tier.errors import CorruptObject
    from cold_tier.inventory import describe, find_topics
    from hot_tier.log.config import describe_topic_config, parse_topic_config

    by_life: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in await bucket_status(settings, topics):
        by_life.setdefault((each["topic"], each["id"]), []).append(each)
    found = []
    async with opened(settings) as store:
        lives = {(topic.name, str(topic.id)): topic for topic in await find_topics(store)}
        for life, partitions in by_life.items():
            try:
                overrides = (await describe(store, lives[life])).config
            except CorruptObject:
                overrides = {}
            config = describe_topic_config(parse_topic_config(overrides, settings.topic), overrides)
            found.append((life[0], _facts(partitions, {entry.name: entry.value for entry in config})))
    return found


def _facts(partitions: Sequence[Mapping[str, Any]], config: Mapping[str, str]) -> "TopicFacts":
    from cold_tier.reports import TopicFacts

    archived = [each["archived"] for each in partitions if each["archived"]]
    spans = [each["max_timestamp"] - each["min_timestamp"] for each in archived if each["max_timestamp"] is not None]
    return TopicFacts(
        partitions=len(archived),
        segments=sum(each["segments"] for each in archived),
        rows_bytes=sum(each["rows_bytes"] for each in archived),
        # A node of version 0.1 does not say what is aside: it has nothing there.
        index_bytes=sum(each["index_bytes"] + each.get("aside_bytes", 0) for each in archived),
        log_bytes=sum(each["log_bytes"] for each in archived),
        span_ms=max(spans, default=0),
        retention_ms=int(config["retention.ms"]),
        local_retention_ms=int(config["local.retention.ms"]),
    )


def _document(name: str, facts: "TopicFacts", result: "Estimate") -> dict[str, Any]:
    from dataclasses import asdict

    def lines(each: Any) -> list[dict[str, Any]]:
        return [{**asdict(line), "cost": line.cost} for line in each]

    return {
        "topic": name,
        "archived": asdict(facts),
        "retention_ms": result.retention_ms,
        "log_bytes_per_month": result.log_bytes_per_month,
        "held_log_bytes": result.held_log_bytes,
        "bucket": lines(result.bucket),
        "local": lines(result.local),
        "local_disks_alone": lines(result.disks),
        "monthly_with_archive": result.with_archive,
        "monthly_local_disks_alone": result.without_archive,
    }


def _show(name: str, facts: "TopicFacts", result: "Estimate") -> None:
    if not facts.segments:
        output.note(f"{name}: nothing of it is archived yet, so there is no rate to reckon with")
        return
    days = facts.span_ms / 86_400_000
    print(
        f"{name}: {output.show_bytes(facts.log_bytes)} of log over {days:.2f} days are "
        f"{output.show_bytes(facts.rows_bytes + facts.index_bytes)} in the bucket; "
        f"{output.show_bytes(int(result.log_bytes_per_month))} of log come per month, "
        f"{output.show_bytes(int(result.held_log_bytes))} are held"
    )
    rows = [
        (line.what, f"{line.amount:,.3f}", line.unit, f"${line.price:g}", f"${line.cost:,.4f}")
        for line in (*result.bucket, *result.local)
    ]
    rows.append(("per month with the archive", "", "", "", f"${result.with_archive:,.4f}"))
    rows += [
        (line.what, f"{line.amount:,.3f}", line.unit, f"${line.price:g}", f"${line.cost:,.4f}") for line in result.disks
    ]
    rows.append(("per month on local disks alone", "", "", "", f"${result.without_archive:,.4f}"))
    output.print_table(("", "amount>", "unit", "price>", "cost>"), rows)
    if facts.span_ms < SHORT_MS:
        output.note(
            f"{name}: its rate is taken from {facts.span_ms / 1000:.0f} s of history; wait for more to trust it"
        )
    print()

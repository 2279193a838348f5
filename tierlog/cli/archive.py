"""`tierlog archive …`: commands for the archive, through a node, or with `--bucket` on a bucket alone.

On a bucket alone nothing is changed unless `--offline` says that no broker runs: only the leader of a partition may
decide what of it is deleted.
"""

import os
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from hot_tier.clock import wall_ms
from hot_tier.errors import UnknownTopic
from tierlog.cli import output
from tierlog.cli.help import Commands
from tierlog.cli.keys import shred
from tierlog.cli.options import DEFAULT_SERVER, BucketUrl, Json, S3Endpoint, Server, Topics
from tierlog.cli.pin import bucket_pins, pin, pins
from tierlog.cli.repair import accept_loss, recover, take_over
from tierlog.cli.times import show_time
from tierlog.cli.topics import Config, settings_of
from tierlog.client import Client, path

if TYPE_CHECKING:
    from cold_tier.inventory import ArchivedTopic
    from cold_tier.objects.bucket import Bucket
    from cold_tier.reports import Garbage, RestoredTopic
    from tierlog.settings import Settings

T = TypeVar("T")

NOT_ARCHIVED = "check the bucket and the name; a topic is there once its first segment is archived"

_IN_BUCKET = ("rows_bytes", "index_bytes", "aside_bytes")
RECENT_MS = 3_600_000
"""How long `status` reports that archiving works again."""
LOOK_MS = 10_000
"""How long a command waits for a bucket before it reports that it does not answer."""
LONG_S = 3600.0
"""How long a node may be silent while it reads a large object."""


def register(app: typer.Typer) -> None:
    archive = Commands(no_args_is_help=True, help="Look after what is in the bucket.")
    archive.command(
        "status",
        help="Show what is local, in the bucket, and waiting. "
        "Ends with 1 while a damaged file is in the way or an archive is stopped.",
    )(status)
    archive.command("verify", help="Check every object against manifests and checksums. Ends with 1 if any is wrong.")(
        verify
    )
    archive.command("gc", help="Delete what the archive no longer needs. On a bucket alone, show it.")(gc)
    archive.command("restore", help="Bring topics back from the bucket to a node without them.")(restore)
    archive.command("pin", help="Hold a topic's retention while a job reads its archive.")(pin)
    archive.command("pins", help="List the jobs that hold topics' retention.")(pins)
    archive.command(
        "recover",
        help="Add to an archive again what its bucket still has. For a bucket that went back to an older state: its "
        "objects are there, but no manifest names them.",
    )(recover)
    archive.command(
        "accept-loss",
        help="Give up records that no bucket and no disk has. Does what `recover` does first.",
    )(accept_loss)
    archive.command(
        "shred",
        help="Destroy the key of an encrypted topic, for good.",
    )(shred)
    archive.command(
        "take-over",
        help="Make an archive this cluster's own. For an archive to which another cluster has published.",
    )(take_over)
    app.add_typer(archive, name="archive")


# Status


def status(
    topics: Topics = None,
    bucket: BucketUrl = None,
    s3_endpoint: S3Endpoint = None,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    """Ends with 1 while archiving fails, so that a script can look at the exit code alone."""
    state = {"works": True}
    if bucket is None:
        found = list(node_status(server, topics or ()))
        with Client(server) as client:
            state = client.get(path("archive"))
            held_by = client.get(path("archive", "pins"))["pins"] if state["works"] else []
    else:
        found = run_async(bucket_status(bucket_settings(bucket, s3_endpoint), topics or ()))
        held_by = run_async(bucket_pins(bucket_settings(bucket, s3_endpoint), topics or ()))
    held_by = [each for each in held_by if not topics or each["topic"] in topics]
    fails = not state["works"] or any(each["last_failure"] or each["held"] or each["stopped"] for each in found)
    if json:
        output.print_json(
            [{**each, "pins": [pin for pin in held_by if pin["topic"] == each["topic"]]} for each in found]
        )
    else:
        _show_status(found, state, held_by)
    if fails:
        raise typer.Exit(1)


def _show_status(found: Sequence[dict[str, Any]], state: dict[str, Any], held_by: Sequence[dict[str, Any]]) -> None:
    output.print_table(
        ("topic", "partition>", "local", "bucket", "both>", "backlog>", "local bytes>", "bucket bytes>", "segments>"),
        [
            (
                each["topic"],
                each["partition"],
                _range(each["local"]),
                _range(each["archived"]),
                each["overlap"],
                "?" if each["backlog_bytes"] is None else output.show_bytes(each["backlog_bytes"]),
                output.show_bytes(each["local"]["bytes"]) if each["local"] else "?",
                output.show_bytes(sum(each["archived"].get(kind, 0) for kind in _IN_BUCKET))
                if each["archived"]
                else "-",
                each["archived"]["segments"] if each["archived"] else "-",
            )
            for each in found
        ],
    )
    for each in held_by:
        print(f"{each['topic']}: held by {each['name']} until {show_time(each['expires_ms'])}")
    if not state["works"]:
        output.note(f"the bucket does not work: {state['failure']}")
    for each in found:
        name = f"{each['topic']}-{each['partition']}"
        if each["stopped"]:
            output.note(f"{name}: the archive is stopped: {each['stopped']}")
        elif each["last_failure"]:
            since = f" since {show_time(each['failing_since'])}" if each["failing_since"] else ""
            output.note(f"{name}: archiving fails{since}: {each['last_failure']}")
        elif each["recovered"] and each["recovered"] > wall_ms() - RECENT_MS:
            output.note(f"{name}: archiving works again since {show_time(each['recovered'])}")
        if each["held"]:
            output.note(f"{name}: needs repair: {each['held']['why']}")
        if held := each.get("held_by"):
            output.note(f"{name}: held by {held['what']}, since {show_time(held['since_ms'])}; {held['hint']}")


def node_status(server: str, topics: Sequence[str]) -> Iterator[dict[str, Any]]:
    with Client(server) as client:
        names = topics or [each["name"] for each in client.get(path("topics"))["topics"] if not each["internal"]]
        for name in names:
            document = client.get(path("topics", name, "archive"), limit=0)
            for each in document["partitions"]:
                yield _without_segments(name, document["id"], each)


def _without_segments(topic: str, topic_id: str, partition: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in partition.items() if name not in ("segments", "next_offset")}
    return {"topic": topic, "id": topic_id, **rest}


async def bucket_status(settings: "Settings", topics: Sequence[str]) -> list[dict[str, Any]]:
    from cold_tier.manifest.reader import load_newest
    from cold_tier.reports import ArchivedRange, PartitionStatus
    from gateway.http.archive_schemas import PartitionArchiveDocument

    shown = []
    async with opened(settings) as store:
        for topic in await find_archived(store, topics):
            for layout in topic.layouts:
                snapshot = await load_newest(store, layout)
                if snapshot is None:
                    continue
                found = PartitionStatus(
                    topic.name,
                    topic.id,
                    layout.partition,
                    None,
                    snapshot.log_start_offset,
                    None,
                    ArchivedRange.of(snapshot),
                )
                document = PartitionArchiveDocument.of(found, [], None).model_dump()
                shown.append(_without_segments(topic.name, str(topic.id), document) | {"enabled": None})
    return shown


def _range(held: dict[str, Any] | None) -> str:
    return f"{held['start_offset']} – {held['end_offset']}" if held else "-"


# Verify


def verify(
    topics: Topics = None,
    bucket: BucketUrl = None,
    s3_endpoint: S3Endpoint = None,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    findings: list[dict[str, Any]] = []
    summary: dict[str, Any] | None = None
    if bucket is None:
        lines = _node_verification(server, topics or ())
    else:
        lines = _in_step(_bucket_verification(bucket_settings(bucket, s3_endpoint), topics or ()))
    with output.progress("verify", None) as advance:
        done = 0
        for line in lines:
            if line["type"] in ("progress", "summary"):
                advance(line["segments"] - done)
                done = line["segments"]
            if line["type"] == "finding":
                findings.append(line)
            elif line["type"] == "summary":
                summary = line
    assert summary is not None
    if json:
        shown = [{name: value for name, value in each.items() if name != "type"} for each in findings]
        output.print_json({**{n: v for n, v in summary.items() if n != "type"}, "findings": shown})
    else:
        if findings:
            output.print_table(("finding", "object", "what"), [(f["kind"], f["where"], f["what"]) for f in findings])
        print(
            f"{summary['segments']} segments of {summary['partitions']} partitions, "
            f"{output.show_bytes(summary['bytes'])} read: "
            f"{summary['problems'] or 'no'} problems, {summary['orphans'] or 'no'} orphans"
        )
    if summary["problems"]:
        raise typer.Exit(1)


def _node_verification(server: str, topics: Sequence[str]) -> Iterator[dict[str, Any]]:
    from tierlog.client import Refused, ServerUnreachable

    with Client(server, timeout_s=LONG_S) as client:
        last = None
        for line in client.post_lines(path("archive", "verify"), {"topics": list(topics)}):
            last = line["type"]
            if last == "error":
                raise Refused(line["error"]["status"], line["error"], where=server)
            yield line
        if last != "summary":
            raise ServerUnreachable("the node stopped before it was done", where=server, hint="run it again")


async def _bucket_verification(settings: "Settings", topics: Sequence[str]) -> AsyncIterator[dict[str, Any]]:
    from cold_tier.checking.verify import verify as verify_bucket
    from gateway.http.routes.archive import verification_lines

    async with opened(settings) as store:
        events = verify_bucket(store, await find_archived(store, topics), all_topics=not topics)
        async for line in verification_lines(await anext(events, None), events):
            yield line.model_dump()


def _in_step(lines: AsyncIterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields what an asynchronous iterator yields."""

    async def following() -> dict[str, Any] | None:
        return await anext(lines, None)

    import asyncio

    with asyncio.Runner() as runner:
        while (line := runner.run(following())) is not None:
            yield line


# Garbage


def gc(
    topics: Topics = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Delete, do not only show. Only if no broker runs on this bucket.")
    ] = False,
    bucket: BucketUrl = None,
    s3_endpoint: S3Endpoint = None,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    if bucket is None:
        if topics or offline:
            raise typer.BadParameter("a node collects everything it leads: use topics and --offline only with --bucket")
        with Client(server, timeout_s=LONG_S) as client:
            collected = client.post(path("archive", "gc"), {})
        if json:
            output.print_json(collected)
        else:
            print(
                f"deleted {collected['removed']} removed objects, {collected['orphans']} orphans and old manifests, "
                f"{collected['of_deleted_topics']} objects of deleted topics"
            )
            for failure in collected["failed"]:
                output.note(f"left for later: {failure}")
        if collected["failed"]:
            raise typer.Exit(1)
        return
    found = run_async(_bucket_garbage(bucket_settings(bucket, s3_endpoint), topics or (), delete=offline))
    total = sum(each.bytes for each in found)
    if json:
        objects = [{"kind": each.kind, "object": each.key, "bytes": each.bytes} for each in found]
        output.print_json({"deleted": offline, "objects": objects, "bytes": total})
        return
    if found and not offline:
        rows = [(each.kind, each.key, output.show_bytes(each.bytes)) for each in found]
        output.print_table(("why", "object", "bytes>"), rows)
    print(f"{'deleted' if offline else 'would delete'} {len(found)} objects, {output.show_bytes(total)}")
    if found and not offline:
        output.note("nothing was changed: say --offline if no broker runs on this bucket")


async def _bucket_garbage(settings: "Settings", topics: Sequence[str], *, delete: bool) -> list["Garbage"]:
    from cold_tier.checking.garbage import find_garbage

    found: list[Garbage] = []
    async with opened(settings) as store:
        lives: dict[tuple[str, int], list[Any]] = {}
        for topic in await find_archived(store, topics):
            for layout in (*topic.layouts, *topic.bare):
                lives.setdefault((topic.name, layout.partition), []).append(layout)
        with output.progress("look for garbage", len(lives)) as advance:
            for layouts in lives.values():
                garbage = await find_garbage(store, layouts, settings.archive, wall_ms())
                if delete and garbage:
                    await store.delete([each.key for each in garbage])
                found += garbage
                advance(1)
    return found


# Restore


def restore(
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Only this one; may be repeated.")
    ] = None,
    config: Config = None,
    data_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="The data directory of a node that does not run. Needs --bucket.")
    ] = None,
    bucket: BucketUrl = None,
    s3_endpoint: S3Endpoint = None,
    server: Server = DEFAULT_SERVER,
    json: Json = False,
) -> None:
    if (data_dir is None) != (bucket is None):
        raise typer.BadParameter(
            "give both --bucket and --data-dir to restore without a node; through a node, give neither"
        )
    names, settings = topic or [], settings_of(config)
    if data_dir is None or bucket is None:
        with Client(server, timeout_s=LONG_S) as client:
            documents = client.post(path("archive", "restore"), {"topics": names, "config": settings})["topics"]
    else:
        documents = run_async(_restore(bucket_settings(bucket, s3_endpoint, data_dir=data_dir), names, settings))
    if json:
        output.print_json({"topics": documents})
    else:
        for each in documents:
            _say_restored(each)
        print(f"restored {sum(each['restored'] for each in documents)} of {len(documents)} topics")
    if any(each["failure"] for each in documents):
        raise typer.Exit(1)


def _say_restored(topic: dict[str, Any]) -> None:
    if topic["failure"]:
        output.note(f"{topic['name']}: not restored: {topic['failure']}")
    elif not topic["restored"]:
        output.note(f"{topic['name']}: exists already, left alone")
    else:
        rows = sum(each["rows"] for each in topic["partitions"])
        print(f"{topic['name']}: {rows:,} records in {len(topic['partitions'])} partitions")
    for warning in topic["warnings"]:
        output.note(f"{topic['name']}: {warning}")


async def _restore(settings: "Settings", names: Sequence[str], config: dict[str, str]) -> list[dict[str, Any]]:
    from gateway.http.archive_schemas import RestoredTopicDocument
    from tierlog.exclusive import keep_files_private
    from tierlog.restore import restore_offline

    keep_files_private()
    restored: list[RestoredTopic] = []
    with output.progress("restore", None) as advance:
        async for topic in restore_offline(settings, names, config):
            restored.append(topic)
            advance(1)
    return [RestoredTopicDocument.of(each).model_dump() for each in restored]


# The bucket alone


def run_async(what: Coroutine[Any, Any, T]) -> T:
    """Loads asyncio only when it is needed, because `tierlog --help` is faster without it."""
    import asyncio

    return asyncio.run(what)


def bucket_settings(
    bucket: str, s3_endpoint: str | None, *, data_dir: str | None = None, config: str | None = None
) -> "Settings":
    from tierlog.settings import Given, load_settings

    flags = [Given("store.bucket", bucket, "--bucket")]
    if s3_endpoint is not None:
        flags.append(Given("store.s3_endpoint", s3_endpoint, "--s3-endpoint"))
    if data_dir is not None:
        flags.append(Given("log.data_dir", data_dir, "--data-dir"))
    return load_settings(config=config, environment=os.environ, flags=flags)


@asynccontextmanager
async def opened(settings: "Settings") -> AsyncIterator["Bucket"]:
    from cold_tier.layout import PROBES
    from cold_tier.objects.open import open_store
    from tierlog.logging import configure_logging

    configure_logging("error")  # The command itself reports failures, and standard output is for its result.
    store = open_store(settings.store)
    try:
        await anext(aiter(store.within(LOOK_MS).list(PROBES)), None)
        yield store
    finally:
        await store.close()


async def find_archived(store: "Bucket", topics: Sequence[str]) -> list["ArchivedTopic"]:
    from cold_tier.inventory import find_topics

    found = await find_topics(store, topics[0] if len(topics) == 1 else None)
    for name in topics:
        if not any(topic.name == name for topic in found):
            raise UnknownTopic(f"the archive has no topic {name!r}", where=store.url, hint=NOT_ARCHIVED)
    if not found:
        output.note(f"nothing is archived at {store.url}: is it the right place?")
    return [topic for topic in found if not topics or topic.name in topics]

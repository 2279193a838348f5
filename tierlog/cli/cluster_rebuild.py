"""`tierlog cluster survey|rebuild`: metadata made anew from brokers' data directories, where etcd is lost."""

import json as json_module
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hot_tier.errors import CorruptMetadata, SettingsError
from hot_tier.ids import NodeId
from tierlog.cli import output
from tierlog.cli.archive import run_async
from tierlog.cli.options import Json

if TYPE_CHECKING:
    from tierlog.rebuild import Rebuilt
    from tierlog.settings import Settings
    from tierlog.survey import Survey


def register(cluster: typer.Typer) -> None:
    cluster.command("survey", help="Write down what a stopped broker holds, for rebuild.")(survey)
    cluster.command("rebuild", help="Make lost cluster metadata anew from surveys.")(rebuild)


def survey(
    node_id: Annotated[int, typer.Option(min=0, metavar="N", show_default=False, help="The broker's number.")],
    data_dir: Annotated[str, typer.Option(metavar="DIR", show_default=False, help="Its data directory.")],
) -> None:
    from tierlog.exclusive import keep_files_private
    from tierlog.logging import configure_logging
    from tierlog.survey import survey as take

    if not Path(data_dir, "logs").is_dir():
        raise SettingsError("is not a data directory of a broker", where=data_dir, hint="it has a directory logs")
    configure_logging("warning")
    keep_files_private()
    output.print_json(run_async(take(os.path.abspath(data_dir), NodeId(node_id))).document())


def rebuild(
    surveys: Annotated[
        list[Path], typer.Argument(metavar="SURVEY…", show_default=False, help="What survey wrote, of every broker.")
    ],
    metadata: Annotated[
        str, typer.Option(metavar="URL", show_default=False, help="The new, empty etcd: etcd://host:port[,…][/name].")
    ],
    bucket: Annotated[str, typer.Option(metavar="URL", show_default=False, help="The cluster's bucket.")],
    partitions: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC=N", help="How many a topic has, if some were never written to; may be repeated."),
    ] = None,
    s3_endpoint: Annotated[str | None, typer.Option(metavar="URL", help="An S3-compatible store's address.")] = None,
    json: Json = False,
) -> None:
    from tierlog.logging import configure_logging
    from tierlog.settings import Given, load_settings

    configure_logging("warning")
    flags = [Given("cluster.metadata", metadata, "--metadata"), Given("store.bucket", bucket, "--bucket")]
    if s3_endpoint is not None:
        flags.append(Given("store.s3_endpoint", s3_endpoint, "--s3-endpoint"))
    settings = load_settings(environment=os.environ, flags=flags)
    if settings.cluster.alone:
        raise SettingsError("only the metadata of a cluster is made anew", where="--metadata", hint="name an etcd")
    rebuilt = run_async(_rebuild(settings, [_read(path) for path in surveys], _counts(partitions or [])))
    if json:
        output.print_json({"topics": [_document(each) for each in rebuilt]})
    else:
        for each in rebuilt:
            if each.topic is not None:
                print(f"{each.name}: {each.topic.partitions} partitions, {each.topic.replication_factor} replicas")
            for note in each.notes:
                output.note(f"{each.name}: {'' if each.topic is not None else 'left out: '}{note}")
    if any(each.topic is None for each in rebuilt):
        raise typer.Exit(1)


def _read(path: Path) -> "Survey":
    from tierlog.survey import Survey

    try:
        document = json_module.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CorruptMetadata(f"cannot be read: {error}", where=str(path)) from None
    return Survey.of(document, str(path))


def _counts(given: list[str]) -> dict[str, int]:
    counts = {}
    for each in given:
        topic, _, count = each.rpartition("=")
        if not topic or not count.isdecimal() or int(count) < 1:
            raise typer.BadParameter(f"--partitions {each}: give TOPIC=N, such as orders=12")
        counts[topic] = int(count)
    return counts


def _document(rebuilt: "Rebuilt") -> dict[str, Any]:
    topic = rebuilt.topic
    return {
        "name": rebuilt.name,
        "rebuilt": topic is not None,
        "partitions": None if topic is None else topic.partitions,
        "config": {} if topic is None else dict(topic.config),
        "notes": list(rebuilt.notes),
    }


async def _rebuild(settings: "Settings", surveys: "list[Survey]", partitions: dict[str, int]) -> "list[Rebuilt]":
    from contextlib import AsyncExitStack

    from cold_tier.objects.open import open_store
    from gateway.coordinators.offsets_topic.topic import offsets_topic
    from gateway.coordinators.transactions.topic import transactions_topic
    from hot_tier.clock import wall_ms
    from hot_tier.cluster.admin import TopicAdmin
    from hot_tier.cluster.image import ClusterImage
    from hot_tier.cluster.open import metadata_store
    from hot_tier.cluster.producer_ids import ProducerIds
    from hot_tier.cluster.standalone import name_cluster
    from tierlog.rebuild import look_at_archive, plan, refuse_known_cluster, write

    async with AsyncExitStack() as parts:
        bucket = open_store(settings.store)
        parts.push_async_callback(bucket.close)
        store = metadata_store(settings.cluster.metadata, settings.etcd, "")
        await store.open()
        parts.push_async_callback(store.close)
        await refuse_known_cluster(store)
        journals = [offsets_topic(settings.groups), transactions_topic(settings.transactions)]
        by_name = {each.name: each for each in journals}
        topics = plan(surveys, await look_at_archive(bucket), partitions, by_name)
        await name_cluster(store)
        image = ClusterImage(store)
        await image.open()
        parts.push_async_callback(image.close)
        admin = TopicAdmin(store, image, defaults=settings.topic, settings=settings.cluster, clock=wall_ms)
        await write(store, admin, ProducerIds(store), surveys, topics)
        return topics

"""Mirrors archived topics as Iceberg tables without a copy: registers the offloader's own files in a catalog.

    tierlog spark iceberg --bucket s3://bucket/prefix --catalog lake orders --every 60

A table mirrors its topic's manifests: it has the files that they name, and loses those that retention or compaction
removes from them. One run makes at most one commit per table, with all that is new and all that is gone. A commit also
records in table properties which manifests it follows. So nothing is added twice, also when a run is repeated, when two
runs meet, or after a change of leader: the commit of the second run is refused, and it begins again with the new state.

Tables are partitioned by `partition`. The files do not hold this column; Iceberg takes it from its own metadata. Tables
are never partitioned by day, because a segment may contain midnight. Statistics come from the footers inside the
indexes: no Parquet file is opened. Snapshots expire when the archive may have deleted objects that they name. The data
files belong to the archive, and nothing here deletes one.

The job needs neither Spark nor Java.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from cold_tier.format.open import open_segment
from cold_tier.inventory import find_topics, newest_lives
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import SegmentEntry
from cold_tier.objects.bucket import Bucket
from hot_tier.clock import wall_ms
from hot_tier.errors import SettingsError, TierlogError, UnknownTopic
from spark.jobs.command import job_parser, print_json, print_table, report
from spark.jobs.survey import SurveyedPartition, load_partition
from spark.options import store_settings
from spark.plan import with_store

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyiceberg.catalog import Catalog

TOPIC_ID: Final = "tierlog.topic-id"
MANIFESTS: Final = "tierlog.manifests"
"""A table property: by partition, the leader epoch and sequence of the manifest that the table follows."""

_ATTEMPTS: Final = 5
_AT_ONCE: Final = 16
_KEPT: Final = timedelta(minutes=10)
"""As long as archive.delete_grace_ms: an older snapshot may name objects that are gone."""


class TableRefused(TierlogError):
    """The table is not what it should be, or others keep changing it."""


@dataclass(frozen=True, slots=True)
class NewFile:
    path: str
    partition: int
    size: int
    metadata: "pq.FileMetaData"


@dataclass(frozen=True, slots=True)
class Mirrored:
    """What one run did to a table."""

    topic: str
    table: str
    added: int
    removed: int
    files: int
    """The number of files in the table now."""
    rows: int
    snapshot_id: int | None


def mirror(
    catalog: "Catalog", bucket: str, topics: Sequence[str] = (), *, namespace: str = "tierlog", s3_endpoint: str = ""
) -> list[Mirrored]:
    """Updates the tables of `topics`, or of all, to what the manifests say now."""
    settings = store_settings(bucket, s3_endpoint)

    async def work(store: Bucket) -> list[Mirrored]:
        lives = await _find(store, topics)
        return [await _mirror_topic(store, catalog, namespace, layouts) for layouts in lives]

    return with_store(settings, work)


async def _find(store: Bucket, names: Sequence[str]) -> list[tuple[PartitionLayout, ...]]:
    lives = [life for life in await find_topics(store) if life.layouts and (not names or life.name in names)]
    for name in names:
        if name not in {life.name for life in lives}:
            raise UnknownTopic(f"the archive has no topic {name!r}", where=store.url, hint="check bucket and name")
    layouts = {life.id: life.layouts for life in lives}
    return [layouts[description.id] async for description in newest_lives(store, lives)]


async def _mirror_topic(
    store: Bucket, catalog: "Catalog", namespace: str, layouts: Sequence[PartitionLayout]
) -> Mirrored:
    from pyiceberg.exceptions import CommitFailedException

    # This module needs pyiceberg, which may not be installed.
    from spark.jobs.iceberg_table import MirrorTable

    topic = layouts[0].topic
    for _ in range(_ATTEMPTS):
        try:
            table = MirrorTable.open(catalog, (namespace, topic), str(layouts[0].topic_id))
            held = [each for layout in layouts if (each := await load_partition(store, layout)) is not None]
            if any(segment.master_key for each in held for segment in each.segments):
                raise TableRefused(
                    "its files are encrypted, and readers of Iceberg tables cannot decrypt them",
                    where=topic,
                    hint="leave the topic out, or write a plain copy: tierlog spark export --decrypt --table",
                )
            token = _token(table.token, held)
            if token == table.token:
                return table.mirrored(topic, 0, 0)
            named = {
                f"{store.url}{each.layout.rows(segment.name)}": (each.layout, segment)
                for each in held
                for segment in each.segments
                if segment.rows
            }
            known = table.files(f"{store.url}topic={topic}/")
            new = await _described(store, {path: named[path] for path in named.keys() - known.keys()})
            gone = [file for path, file in known.items() if path not in named]
            table.commit(new, gone, token)
            table.expire_before(datetime.fromtimestamp(wall_ms() / 1000, UTC) - _KEPT)
            return table.mirrored(topic, len(new), len(gone))
        except CommitFailedException:
            continue  # Another run was first. Read again what it has done.
    raise TableRefused(
        f"{_ATTEMPTS} commits in a row failed because of another writer",
        where=f"{namespace}.{topic}",
        hint="run it again; one run at a time is enough",
    )


def _token(before: dict[str, list[int]], held: Sequence[SurveyedPartition]) -> dict[str, list[int]]:
    """Returns the manifest versions to follow. Raises TableRefused if the table follows newer ones than there are."""
    token = {str(each.layout.partition): [*each.snapshot.version] for each in held}
    for partition, version in before.items():
        if token.get(partition, [-1, -1]) < version:
            raise TableRefused(
                f"the table follows manifest {version} of partition {partition}, the bucket has {token.get(partition)}",
                hint="check whether it is another bucket or an older copy; drop the table to begin again",
            )
    return token


async def _described(store: Bucket, segments: dict[str, tuple[PartitionLayout, SegmentEntry]]) -> list[NewFile]:
    """Returns the new files with their Parquet footers, which the indexes hold."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(path: str, layout: PartitionLayout, segment: SegmentEntry) -> NewFile:
        async with room:
            opened = await open_segment(store, layout, segment)
        return NewFile(path, layout.partition, segment.rows_bytes, opened.metadata)

    found = await asyncio.gather(*(one(path, *each) for path, each in segments.items()))
    return sorted(found, key=lambda file: file.path)


def open_catalog(name: str) -> "Catalog":
    try:
        from pyiceberg.catalog import load_catalog
    except ModuleNotFoundError:
        raise SettingsError("pyiceberg is not installed", hint="pip install 'tierlog[spark]'") from None
    try:
        return load_catalog(name)
    except Exception as error:  # A catalog's client may raise any error.
        raise SettingsError(
            f"the catalog cannot be opened: {error}",
            where=name,
            hint="describe it in .pyiceberg.yaml, or in PYICEBERG_CATALOG__… variables",
        ) from error


def parser() -> argparse.ArgumentParser:
    made = job_parser("iceberg", "Registers archived files in Iceberg tables, without a copy; needs no Java.")
    made.add_argument("topics", nargs="*", metavar="TOPIC", help="all if none is named")
    made.add_argument(
        "--catalog", default="default", metavar="NAME", help="a catalog of pyiceberg's settings [default]"
    )
    made.add_argument(
        "--namespace", default="tierlog", metavar="NAME", help="namespace that gets a table per topic [tierlog]"
    )
    made.add_argument(
        "--every", type=float, default=0.0, metavar="SECONDS", help="repeat for ever, with this pause between runs"
    )
    return made


def main(arguments: Sequence[str]) -> int:
    given = parser().parse_args(arguments)
    try:
        catalog = open_catalog(given.catalog)
        while True:
            done = mirror(catalog, given.bucket, given.topics, namespace=given.namespace, s3_endpoint=given.s3_endpoint)
            _show(done, given.json)
            if not given.every:
                return 0
            time.sleep(given.every)
    except TierlogError as error:
        return report(error, as_json=given.json)
    except KeyboardInterrupt:
        return 130


def _show(done: Sequence[Mirrored], as_json: bool) -> None:
    if as_json:
        print_json({"tables": [asdict(each) for each in done]})
        return
    rows = [(each.topic, each.table, each.added, each.removed, each.files, each.rows) for each in done]
    print_table(("topic", "table", "added>", "removed>", "files>", "rows>"), rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

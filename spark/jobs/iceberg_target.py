"""Exports into an Iceberg table: Spark writes the files, pyiceberg commits them. Iceberg has no runtime for this Spark.

One commit takes the rows of the range out of the table and puts the new files in. So a range that is exported again, by
a run that was killed and repeated too, is there once, and no reader sees it half done. The table of undecodable
records, `<name>_undecodable`, is committed first: a run that is killed between the two is put right by repeating it.

Files lie in each table's own folder. Those of a run that failed before its commit are deleted; where nobody knows
whether a commit took effect they stay, and are either the table's or left over for Iceberg's orphan removal.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from hot_tier.errors import SettingsError
from spark.jobs.export_ranges import TABLES, Chunk, Folder
from spark.jobs.iceberg import TableRefused

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


class IcebergTarget:
    def __init__(self, spark: SparkSession, catalog: "Catalog", name: str) -> None:
        self.url = name
        self.partition_by: tuple[str, ...] = ()
        self._spark = spark
        self._catalog = catalog
        self._names = dict(zip(TABLES, (name, f"{name}_undecodable"), strict=True))
        self._staged: dict[str, Folder] = {}

    def check(self, topic: str, chunks: Mapping[int, Chunk]) -> None:
        """A commit replaces whatever of the range is there, so nothing can contradict it."""

    def stage(self, token: str, schemas: Mapping[str, StructType]) -> dict[str, str]:
        namespace = self.url.rpartition(".")[0]
        if not namespace:
            raise SettingsError(f"{self.url!r} names no namespace", hint="write --table namespace.name")
        self._catalog.create_namespace_if_not_exists(namespace)
        for table, schema in schemas.items():
            name, wanted = self._names[table], to_arrow_schema(schema, timezone="UTC")
            # By itself pyiceberg puts a commit on top of one that came between: a range would be there twice.
            made = self._catalog.create_table_if_not_exists(name, wanted, properties={"commit.retry.num-retries": "0"})
            with made.update_schema() as update:
                update.union_by_name(wanted)
            self._staged[table] = Folder(self._spark, f"{made.location()}/data/export-{token}")
        return {table: folder.url for table, folder in self._staged.items()}

    def publish(self, topic: str, chunks: Mapping[int, Chunk]) -> None:
        for table in reversed(TABLES):
            self._commit(table, topic, chunks)

    def clear(self) -> None:
        for folder in self._staged.values():
            folder.delete("")

    def _commit(self, name: str, topic: str, chunks: Mapping[int, Chunk]) -> None:
        from pyiceberg.exceptions import CommitFailedException

        table = self._catalog.load_table(self._names[name])
        folder = self._staged[name]
        base = f"{table.location()}/data/{folder.url.rpartition('/')[2]}"
        files = [f"{base}/{file}" for file in folder.names("") if file.endswith(".parquet")]
        ranges = {str(number): chunk.name for number, chunk in chunks.items()}
        about = {"tierlog.export.topic": topic, "tierlog.export.ranges": json.dumps(ranges)}
        # From here on the files may be the table's.
        del self._staged[name]
        try:
            with table.transaction() as transaction:
                if chunks and table.current_snapshot() is not None:
                    transaction.delete(rows_of(topic, chunks), snapshot_properties=about)
                if files:
                    transaction.add_files(files, snapshot_properties=about, check_duplicate_files=False)
        except CommitFailedException as error:
            self._staged[name] = folder
            raise TableRefused(
                f"another writer came first: {error}", where=self._names[name], hint="run the same export again"
            ) from error


def rows_of(topic: str, chunks: Mapping[int, Chunk]) -> str:
    """The range as Iceberg's filter; partitions with the same range share a term."""
    shared: dict[Chunk, list[str]] = {}
    for partition, chunk in sorted(chunks.items()):
        shared.setdefault(chunk, []).append(str(partition))
    terms = []
    for chunk, partitions in shared.items():
        if chunk.by == "offsets":
            within = f"offset >= {chunk.start} and offset < {chunk.end}"
        else:
            within = f"timestamp >= '{_moment(chunk.start)}' and timestamp < '{_moment(chunk.end)}'"
        terms.append(f"(topic = '{topic}' and partition in ({', '.join(partitions)}) and {within})")
    return " or ".join(terms)


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()

"""Exports into an Iceberg table: Spark writes the files, pyiceberg commits them. Iceberg has no runtime for this Spark.

One commit removes the rows of the range from the table and adds the new files. So a range that is exported again, also
after a run that was killed, is there once, and no reader sees a part of it. The table of undecodable records,
`<name>_undecodable`, is committed first. If a run is killed between the two commits, repeating it puts this right.

Files lie in each table's own folder. Files of a run that failed before its commit are deleted. If it is unknown whether
a commit took effect, they stay: they belong to the table, or Iceberg's orphan removal deletes them.
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
        """A commit replaces all rows of the range, so nothing can contradict it."""

    def stage(self, token: str, schemas: Mapping[str, StructType]) -> dict[str, str]:
        namespace = self.url.rpartition(".")[0]
        if not namespace:
            raise SettingsError(f"{self.url!r} has no namespace", hint="write --table namespace.name")
        self._catalog.create_namespace_if_not_exists(namespace)
        for table, schema in schemas.items():
            name, wanted = self._names[table], to_arrow_schema(schema, timezone="UTC")
            # By default pyiceberg repeats a refused commit on top of the other one, and the range would be there twice.
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
        # From here on the files may belong to the table.
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
                f"another writer has committed meanwhile: {error}",
                where=self._names[name],
                hint="run the same export again",
            ) from error


def rows_of(topic: str, chunks: Mapping[int, Chunk]) -> str:
    """Returns the range as a filter of Iceberg. Partitions with the same range share a term."""
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

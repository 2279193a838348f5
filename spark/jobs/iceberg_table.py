"""One Iceberg table that mirrors a topic: its shape, its files, and the single commit that changes them.

Field ids are those inside our Parquet files (`cold_tier.format.schema`), because Iceberg's readers find columns by id.
The columns of the files come first, and `partition`, which is in no file, gets the next free id.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType

from cold_tier.format.schema import row_schema
from spark.jobs.iceberg import MANIFESTS, TOPIC_ID, Mirrored, NewFile, TableRefused

_PROPERTIES: Final = {
    # The data files belong to the archive: no maintenance of the table may delete them.
    "gc.enabled": "false",
    # By default pyiceberg repeats a refused commit on top of the other one, and files would be there twice.
    "commit.retry.num-retries": "0",
    # These keep commits as fast as the first: few manifests, and little old metadata.
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "10",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    # Keep bounds only for columns by which a query may prune. The files have none for values and headers.
    "write.metadata.metrics.default": "none",
    "write.metadata.metrics.column.offset": "full",
    "write.metadata.metrics.column.timestamp": "full",
    "write.metadata.metrics.column.key": "truncate(16)",
}


class MirrorTable:
    def __init__(self, table: Table, topic_id: str) -> None:
        self._table = table
        self._topic_id = topic_id

    @classmethod
    def open(cls, catalog: Catalog, name: tuple[str, str], topic_id: str) -> "MirrorTable":
        """Returns the table. Makes it if it does not exist, and completes it if an earlier run stopped halfway."""
        catalog.create_namespace_if_not_exists(name[0])
        # Load it first, because catalogs write metadata for a table even if they then refuse to make it.
        try:
            table = catalog.load_table(name)
        except NoSuchTableError:
            table = catalog.create_table_if_not_exists(name, row_schema(), properties=_PROPERTIES)
        _check_ids(table)
        if "partition" not in table.schema().column_names:
            with table.transaction() as transaction:
                with transaction.update_schema() as schema:
                    schema.add_column("partition", IntegerType())
                with transaction.update_spec() as spec:
                    spec.add_field("partition", IdentityTransform(), "partition")
        if any(table.properties.get(name) != value for name, value in _PROPERTIES.items()):
            with table.transaction() as transaction:
                transaction.set_properties(_PROPERTIES)
        return cls(table, topic_id)

    @property
    def token(self) -> dict[str, list[int]]:
        """Returns, by partition, the manifest that the table follows. Empty if it follows none of this topic."""
        properties = self._table.properties
        if properties.get(TOPIC_ID) != self._topic_id:
            return {}
        found: dict[str, list[int]] = json.loads(properties.get(MANIFESTS, "{}"))
        return found

    def files(self, folder: str) -> dict[str, DataFile]:
        """Returns the table's files by path. Raises TableRefused for a file that is not in the archive's `folder`."""
        found = {}
        snapshot = self._table.current_snapshot()
        for manifest in snapshot.manifests(self._table.io) if snapshot is not None else ():
            for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=True):
                path = entry.data_file.file_path
                if not path.startswith(folder):
                    raise TableRefused(
                        f"the table holds {path}, which is not of this archive",
                        where=".".join(self._table.name()),
                        hint="nothing else may write or compact a mirrored table; drop it to begin again",
                    )
                found[path] = entry.data_file
        return found

    def commit(self, new: Sequence[NewFile], gone: Sequence[DataFile], token: dict[str, list[int]]) -> None:
        """Commits all at once. Raises pyiceberg's CommitFailedException if the table has changed since it was read."""
        marks = {TOPIC_ID: self._topic_id, MANIFESTS: json.dumps(token, sort_keys=True)}
        with self._table.transaction() as transaction:
            transaction.set_properties(marks)
            if new or gone:
                update = transaction.update_snapshot(snapshot_properties=marks)
                with update.overwrite() if gone else update.merge_append() as change:
                    for file in gone:
                        change.delete_data_file(file)
                    for made in new:
                        change.append_data_file(self._data_file(made))

    def expire_before(self, moment: datetime) -> None:
        """Expires earlier snapshots and deletes their lists and manifests: only metadata, never data."""
        before = self._metadata_files()
        self._table.maintenance.expire_snapshots().older_than(moment).commit()
        self._table.refresh()
        for path in before - self._metadata_files():
            self._table.io.delete(path)

    def mirrored(self, topic: str, added: int, removed: int) -> Mirrored:
        snapshot = self._table.current_snapshot()
        summary: Any = {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
        return Mirrored(
            topic,
            ".".join(self._table.name()),
            added,
            removed,
            int(summary.get("total-data-files", 0)),
            int(summary.get("total-records", 0)),
            None if snapshot is None else snapshot.snapshot_id,
        )

    def _metadata_files(self) -> set[str]:
        found = set()
        for snapshot in self._table.metadata.snapshots:
            found.add(snapshot.manifest_list)
            found |= {manifest.manifest_path for manifest in snapshot.manifests(self._table.io)}
        return found

    def _data_file(self, file: NewFile) -> DataFile:
        schema = self._table.schema()
        statistics = data_file_statistics_from_parquet_metadata(
            file.metadata, compute_statistics_plan(schema, self._table.properties), parquet_path_to_id_mapping(schema)
        )
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=file.path,
            file_format=FileFormat.PARQUET,
            partition=Record(file.partition),
            file_size_in_bytes=file.size,
            sort_order_id=None,
            spec_id=self._table.spec().spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )


def _check_ids(table: Table) -> None:
    ids = {field.name: field.field_id for field in table.schema().fields}
    for field in row_schema():
        wanted = int((field.metadata or {})[b"PARQUET:field_id"])
        if ids.get(field.name) != wanted:
            raise TableRefused(
                f"its column {field.name} has the id {ids.get(field.name)}, but in the files it has {wanted}",
                where=".".join(table.name()),
                hint="another program made this table; name another namespace, or drop the table",
            )

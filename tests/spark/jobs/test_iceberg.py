"""Archived topics as Iceberg tables: the rows of the manifests, each once, whoever runs when and how often."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from cold_tier.layout import PartitionLayout
from cold_tier.manifest.replacement import Replacement
from cold_tier.manifest.writer import ManifestWriter
from cold_tier.objects.open import StoreSettings
from cold_tier.rewrite import Rewrite, rewrite
from hot_tier.record.batch import read_header
from hot_tier.record.columns import NewRecord, encode_records
from offloader.archive import archive_segment
from spark.jobs import iceberg, iceberg_table
from spark.jobs.iceberg import MANIFESTS, Mirrored, TableRefused, main, mirror
from spark.jobs.iceberg_table import MirrorTable
from tests.offloader.harness import TOPIC, Archived, archived_node

KEEPING = {"local.retention.ms": "-1", "retention.ms": "-1"}
NAME = ("tierlog", TOPIC)


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    (tmp_path / "warehouse").mkdir()
    return SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")


@asynccontextmanager
async def archived(tmp_path: Path, count: int = 60) -> AsyncIterator[Archived]:
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        for worker in node.offloader._workers:
            worker.archive = lambda job: archive_segment(node.store, job, str(tmp_path))
        batch = encode_records([NewRecord(node.clock(), None, None, ()), NewRecord(node.clock(), b"", b"", ())])
        node.partition.append(batch, read_header(batch), node.clock())
        await grow(node, count)
        yield node


async def grow(node: Archived, count: int) -> None:
    await node.produce(count)
    await node.settle()


async def run(catalog: Catalog, tmp_path: Path) -> Mirrored:
    [done] = await asyncio.to_thread(mirror, catalog, f"file://{tmp_path}/bucket")
    return done


def in_bucket(tmp_path: Path, node: Archived) -> pa.Table:
    """Rows of the files that the manifest names, by Parquet alone."""
    snapshot = node.catalog.get(node.layout).snapshot
    parts = [pq.read_table(tmp_path / "bucket" / node.layout.rows(s.name), partitioning=None) for s in snapshot.tail]
    return pa.concat_tables(parts).sort_by("offset")


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    columns = ["offset", "timestamp", "timestampType", "key", "value", "headers", "leaderEpoch"]
    rows = table.select(columns).sort_by("offset").to_pylist()
    # pyiceberg makes a null list an empty one.
    return [{**row, "headers": row["headers"] or None} for row in rows]


async def test_a_table_has_the_rows_of_the_archive(catalog: Catalog, tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        done = await run(catalog, tmp_path)
        expected = in_bucket(tmp_path, node)
        assert (done.added, done.removed, done.files) == (
            len(node.catalog.get(node.layout).snapshot.tail),
            0,
            done.added,
        )
        assert done.rows == expected.num_rows
    table = catalog.load_table(NAME)
    found = table.scan().to_arrow()
    assert rows_of(found) == rows_of(expected)
    assert set(found.column("partition").to_pylist()) == {0}
    assert found.column("key").null_count == found.column("value").null_count == 1
    assert table.properties["gc.enabled"] == "false"
    assert not list((tmp_path / "warehouse").rglob("*.parquet")), "no copy"
    few = table.scan(row_filter="offset >= 20 and offset < 25", selected_fields=("offset", "partition"))
    assert sorted(few.to_arrow().column("offset").to_pylist()) == [20, 21, 22, 23, 24]
    assert len(list(few.plan_files())) < done.files, "bounds of offsets prune files"
    assert list(table.scan(row_filter="partition = 7").plan_files()) == []

    connection = table.scan().to_duckdb("t")
    counted = connection.sql('select count(*), sum("offset"), sum(octet_length(value)) from t')
    assert counted.fetchall() == [totals(expected)]
    polars = pl.scan_iceberg(table).select(pl.len(), pl.col("offset").sum()).collect().row(0)
    assert polars == totals(expected)[:2]


def totals(table: pa.Table) -> tuple[int, int, int]:
    rows = table.to_pylist()
    return len(rows), sum(row["offset"] for row in rows), sum(len(row["value"] or b"") for row in rows)


async def test_duckdb_reads_the_table_by_its_metadata(catalog: Catalog, tmp_path: Path) -> None:
    connection = duckdb.connect()
    try:
        connection.execute("install iceberg; load iceberg")
    except duckdb.Error as error:
        pytest.skip(f"DuckDB's Iceberg extension cannot be had here: {str(error).splitlines()[0]}")
    async with archived(tmp_path) as node:
        await run(catalog, tmp_path)
        expected = in_bucket(tmp_path, node)
    where = catalog.load_table(NAME).metadata_location
    query = f"select count(*), sum(\"offset\"), sum(octet_length(value)) from iceberg_scan('{where}')"
    assert connection.sql(query).fetchall() == [totals(expected)]


async def test_running_again_adds_what_is_new_and_nothing_else(catalog: Catalog, tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        first = await run(catalog, tmp_path)
        assert await run(catalog, tmp_path) == Mirrored(
            TOPIC, "tierlog.orders", 0, 0, first.files, first.rows, first.snapshot_id
        )
        await grow(node, 60)
        second = await run(catalog, tmp_path)
        assert second.added == second.files - first.files > 1
        assert len(catalog.load_table(NAME).snapshots()) == 2, "one commit, however many segments"
        assert rows_of(catalog.load_table(NAME).scan().to_arrow()) == rows_of(in_bucket(tmp_path, node))


async def test_what_expired_or_was_rewritten_leaves_the_table(catalog: Catalog, tmp_path: Path) -> None:
    async with archived(tmp_path, 120) as node:
        await run(catalog, tmp_path)
        [archive] = node.offloader
        tail = archive.writer.current.tail
        old = tail[2:5]
        new = await asyncio.to_thread(
            rewrite, StoreSettings(bucket=f"file://{tmp_path}/bucket"), Rewrite(node.layout, old)
        )
        await archive.replace([Replacement(tuple(each.name for each in old), (new,))], node.clock())
        node.partition.log.delete_records_before(tail[0].end_offset)
        await archive.apply_retention(node.clock())
        done = await run(catalog, tmp_path)
        assert (done.added, done.removed) == (1, 4)
        assert rows_of(catalog.load_table(NAME).scan().to_arrow()) == rows_of(in_bucket(tmp_path, node))


async def test_a_table_has_no_aborted_record(catalog: Catalog, tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        for number in range(8):
            await node.transaction([4, 9], commit=bool(number % 2), epoch=number)
        await grow(node, 30)
        aborted = node.partition.aborted_transactions(0, node.partition.log_end_offset)
        assert len(aborted) == 4
        await run(catalog, tmp_path)
        found = rows_of(catalog.load_table(NAME).scan().to_arrow())
        assert found == rows_of(in_bucket(tmp_path, node))
        offsets = {row["offset"] for row in found}
        assert not offsets & {offset for each in aborted for offset in range(each.first_offset, each.last_offset + 1)}
        end = node.catalog.get(node.layout).snapshot.end_offset
        # Two records of the fixture are not in `sent`.
        committed = [r.offset for r in node.sent if not any(a[1] <= r.offset <= a[2] for a in aborted)]
        assert len(offsets) == len([offset for offset in committed if offset < end]) + 2


async def test_two_runs_that_meet_add_each_row_once(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with archived(tmp_path) as node:
        await run(catalog, tmp_path)
        await grow(node, 30)
        commit, met = MirrorTable.commit, []

        def commit_second(self: MirrorTable, *change: Any) -> None:
            if not met:
                met.append(True)
                [other] = mirror(catalog, f"file://{tmp_path}/bucket")
                assert other.added > 0
            commit(self, *change)

        monkeypatch.setattr(MirrorTable, "commit", commit_second)
        done = await run(catalog, tmp_path)
        assert met and (done.added, done.removed) == (0, 0)
        assert rows_of(catalog.load_table(NAME).scan().to_arrow()) == rows_of(in_bucket(tmp_path, node))


async def test_two_runs_that_meet_over_a_new_table(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with archived(tmp_path) as node:
        check, met = iceberg_table._check_ids, []

        def made_meanwhile(table: Table) -> None:
            check(table)
            if not met:
                met.append(True)
                mirror(catalog, f"file://{tmp_path}/bucket")

        monkeypatch.setattr(iceberg_table, "_check_ids", made_meanwhile)
        done = await run(catalog, tmp_path)
        assert met and (done.added, done.removed) == (0, 0)
        assert rows_of(catalog.load_table(NAME).scan().to_arrow()) == rows_of(in_bucket(tmp_path, node))


async def test_a_new_leader_adds_nothing_twice(catalog: Catalog, tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        first = await run(catalog, tmp_path)
        [archive] = node.offloader
        await ManifestWriter.open(node.store, node.layout, archive.leader_epoch + 1, 0, node.clock())
        after = await run(catalog, tmp_path)
        assert (after.added, after.removed, after.rows) == (0, 0, first.rows)
        token = json.loads(catalog.load_table(NAME).properties[MANIFESTS])
        assert token == {"0": [archive.leader_epoch + 1, 0]}


async def test_a_table_does_not_go_back(catalog: Catalog, tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        manifests = tmp_path / "bucket" / node.layout.manifest_folder
        before = set(manifests.iterdir())
        await grow(node, 30)
        await run(catalog, tmp_path)
        for path in set(manifests.iterdir()) - before:
            path.unlink()
        with pytest.raises(TableRefused, match="older copy"):
            await run(catalog, tmp_path)


async def test_a_table_with_other_files_is_left_alone(catalog: Catalog, tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        await run(catalog, tmp_path)
        table = catalog.load_table(NAME)
        one = table.scan(limit=1).to_arrow()
        table.append(one)
        await grow(node, 30)
        with pytest.raises(TableRefused, match="not of this archive"):
            await run(catalog, tmp_path)


async def test_a_table_of_other_columns_is_left_alone(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_namespace("tierlog")
    catalog.create_table(NAME, pa.schema([("key", pa.binary()), ("offset", pa.int64())]))
    async with archived(tmp_path):
        with pytest.raises(TableRefused, match="column offset"):
            await run(catalog, tmp_path)


async def test_metadata_does_not_pile_up(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg, "_KEPT", timedelta(0))
    async with archived(tmp_path) as node:
        counts = []
        for _ in range(24):
            await grow(node, 10)
            await run(catalog, tmp_path)
            counts.append(len(list((tmp_path / "warehouse").rglob("metadata/*"))))
        assert len(catalog.load_table(NAME).snapshots()) == 1
        assert max(counts) <= 30, counts
        assert rows_of(catalog.load_table(NAME).scan().to_arrow()) == rows_of(in_bucket(tmp_path, node))


async def test_a_topic_made_again_is_a_new_history(catalog: Catalog, tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        await run(catalog, tmp_path)
        old = node.layout
        assert isinstance(old, PartitionLayout)
        await node.running.node.admin.delete_topic(TOPIC)
        node.clock.now_ms += 1
        await node.running.node.admin.create_topic(
            TOPIC, 1, 1, {"segment.bytes": "2000", "remote.storage.enable": "true"}
        )
        await grow(node, 40)
        assert node.layout != old
        done = await run(catalog, tmp_path)
        assert done.removed > 0
        assert rows_of(catalog.load_table(NAME).scan().to_arrow()) == rows_of(in_bucket(tmp_path, node))


async def test_the_command(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    environment = {f"PYICEBERG_CATALOG__LAKE__{name.upper()}": value for name, value in settings.items()}
    bucket = f"file://{tmp_path}/bucket"
    async with archived(tmp_path):
        # In a process of its own: pyiceberg reads the environment when it is loaded.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "spark.jobs.iceberg", "--bucket", bucket, "--catalog", "lake", "--json", TOPIC),
            env={**os.environ, **environment},
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
    assert process.returncode == 0
    [table] = json.loads(output)["tables"]
    assert table["table"] == f"tierlog.{TOPIC}" and table["added"] == table["files"] > 1
    assert catalog.load_table(NAME).scan().count() == table["rows"]
    monkeypatch.setattr(iceberg, "open_catalog", lambda name: catalog)
    assert main(["--bucket", bucket, "nowhere"]) == 3
    monkeypatch.undo()
    assert main(["--bucket", bucket, "--catalog", "none-such"]) == 2
    assert "none-such" in capsys.readouterr().err

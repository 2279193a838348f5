"""Every row of a range is either a typed record or in the side table, once, however often the range is exported."""

import json
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import DataFrame, Row, SparkSession

from hot_tier.errors import SettingsError
from hot_tier.record.columns import NewRecord
from spark.jobs.export import ExportReport, ParquetFolder, export, main
from spark.jobs.export_ranges import Chunk, ExportRefused, replaced
from spark.jobs.iceberg_target import IcebergTarget
from spark.jobs.values import Values
from tests.spark.jobs.buckets import archive_of
from tests.spark.topics import START_MS, STEP_MS

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

COUNT = 100
JSON = Values()


def value(number: int) -> bytes | None:
    if number % 10 == 3:
        return None
    if number % 10 == 7:
        return b"order %d" % number
    return json.dumps({"id": number, "total": number / 4, "lines": [{"sku": f"s{number}", "n": 1}]}).encode()


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> str:
    records = [
        [NewRecord(START_MS + n * STEP_MS, b"k%d" % (n % 5), value(n), (("h", b"x"),)) for n in range(COUNT)]
        for _ in range(2)
    ]
    return archive_of(tmp_path_factory.mktemp("export") / "bucket", "orders", records)


def upto(end: int, start: int = 0) -> dict[str, dict[str, dict[str, int]]]:
    return {
        "startingOffsets": {"orders": {"0": start, "1": start}},
        "endingOffsets": {"orders": {"0": end, "1": end}},
    }


def places(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in frame.select("partition", "offset").collect())


def expected(start: int, end: int, *, undecodable: bool) -> list[tuple[int, int]]:
    return [(p, n) for p in range(2) for n in range(start, end) if (n % 10 == 7) == undecodable]


def check(spark: SparkSession, folder: Path, report: ExportReport, start: int, end: int) -> None:
    assert report.rows == report.records + report.undecodable == 2 * (end - start)
    records = spark.read.parquet(f"{folder}/records")
    assert places(records) == expected(start, end, undecodable=False)
    assert places(spark.read.parquet(f"{folder}/undecodable")) == expected(start, end, undecodable=True)


def test_an_inferred_schema_and_a_rerun(spark: SparkSession, bucket: str, tmp_path: Path) -> None:
    target = ParquetFolder(spark, f"file://{tmp_path}/out")
    check(spark, tmp_path / "out", export(spark, bucket, "orders", target, JSON, **upto(60)), 0, 60)
    check(spark, tmp_path / "out", export(spark, bucket, "orders", target, JSON, **upto(60)), 0, 60)
    records = spark.read.parquet(f"{tmp_path}/out/records")
    assert records.schema["value"].dataType.simpleString() == (
        "struct<id:bigint,lines:array<struct<n:bigint,sku:string>>,total:double>"
    )
    [row] = records.where("partition = 1 and offset = 42").collect()
    assert row["value"] == Row(id=42, lines=[Row(n=1, sku="s42")], total=10.5)
    assert (bytes(row["key"]), row["topic"]) == (b"k2", "orders")
    assert round(row["timestamp"].timestamp() * 1000) == START_MS + 42 * STEP_MS
    assert records.where("value is null").count() == 2 * 6, "tombstones are records"
    [bad] = spark.read.parquet(f"{tmp_path}/out/undecodable").where("partition = 0 and offset = 7").collect()
    assert bytes(bad["value"]) == b"order 7" and bad["reason"].startswith("not JSON")
    assert not (tmp_path / "out" / "_staging").exists()
    # The end was left open before, and there is more now: what was there is covered, and replaced.
    check(spark, tmp_path / "out", export(spark, bucket, "orders", target, JSON), 0, COUNT)
    with pytest.raises(ExportRefused, match="twice"):
        export(spark, bucket, "orders", target, JSON, **upto(80, start=50))
    assert places(spark.read.parquet(f"{tmp_path}/out/records")) == expected(0, COUNT, undecodable=False)


def test_a_better_schema_takes_records_out_of_the_side_table(
    spark: SparkSession, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(schema: str) -> dict[str, int]:
        last = START_MS + 20 * STEP_MS
        flags = ["--to", f"file://{tmp_path}/out", "--from", str(START_MS), "--until", str(last), "--json"]
        assert main(["orders", "--bucket", bucket, "--schema", schema, *flags]) == 0
        return json.loads(capsys.readouterr().out)

    wrong = run("id string, total int")
    assert wrong["rows"] == 40 and wrong["undecodable"] > 4
    right = run("id bigint, total double")
    assert (right["records"], right["undecodable"]) == (36, 4)
    check(spark, tmp_path / "out", ExportReport("", "", 40, 36, 4, {}), 0, 20)


def test_an_iceberg_table(spark: SparkSession, bucket: str, tmp_path: Path) -> None:
    catalog = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    target = IcebergTarget(spark, catalog, "lake.orders")

    def held(name: str) -> list[tuple[int, int]]:
        found = catalog.load_table(name).scan(selected_fields=("partition", "offset")).to_arrow()
        return sorted(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))

    for start, end, reaches in ((0, 40, 40), (0, 40, 40), (30, 80, 80)):
        report = export(spark, bucket, "orders", target, JSON, **upto(end, start))
        assert report.rows == report.records + report.undecodable == 2 * (end - start)
        assert held("lake.orders") == expected(0, reaches, undecodable=False)
        assert held("lake.orders_undecodable") == expected(0, reaches, undecodable=True)
    times = {"startingTimestamp": START_MS, "endingTimestamp": START_MS + 50 * STEP_MS}
    export(spark, bucket, "orders", target, JSON, **times)
    assert held("lake.orders") == expected(0, 80, undecodable=False)
    rows = catalog.load_table("lake.orders").scan(row_filter="offset = 42 and partition = 1").to_arrow().to_pylist()
    assert [row["value"]["total"] for row in rows] == [10.5]
    # A field that was not there before.
    wider = Values(schema=b"id bigint, total double, note string")
    export(spark, bucket, "orders", target, wider, **upto(10))
    assert held("lake.orders") == expected(0, 80, undecodable=False)
    assert "note" in str(catalog.load_table("lake.orders").schema())


def test_what_cannot_be_done_is_said(
    spark: SparkSession, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = ["--bucket", bucket, "--to", f"file://{tmp_path}/out"]
    assert main(["orders", *to, "--value", "avro"]) == 2
    assert main(["orders", *to, "--schema", "id bigin"]) == 2
    assert "not a schema" in capsys.readouterr().err
    assert main(["orders", *to, "--from", str(START_MS)]) == 2
    assert main(["nothing", *to]) == 3
    assert not (tmp_path / "out").exists()
    target = ParquetFolder(spark, f"file://{tmp_path}/out")
    with pytest.raises(SettingsError, match="offsets or by times"):
        export(spark, bucket, "orders", target, JSON, startingTimestamp=1, endingTimestamp=2, **upto(3))
    with pytest.raises(SettingsError, match="cannot be used"):
        ParquetFolder(spark, "nosuchfs://x/y")


def test_what_a_range_replaces() -> None:
    def offsets(start: int, end: int) -> Chunk:
        return Chunk("offsets", start, end)

    assert replaced([offsets(0, 10), offsets(10, 20)], offsets(0, 20), "") == [offsets(0, 10), offsets(10, 20)]
    assert replaced([offsets(0, 10)], offsets(10, 20), "") == []
    for there in (offsets(0, 11), offsets(15, 30), offsets(0, 100), Chunk("times", 1, 2)):
        with pytest.raises(ExportRefused):
            replaced([there], offsets(10, 20), "")

"""An audit finds each fault that can be planted, names the object, and finds nothing in a bucket that is right."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from hot_tier.errors import UnknownTopic
from spark.jobs.audit import AuditReport, audit, main
from tests.spark.conftest import PARTITIONS, TOPIC, Archive
from tests.spark.jobs.buckets import newest, publish, rewrite

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]


def faults(report: AuditReport) -> list[tuple[str, str]]:
    return [(finding.kind, finding.where) for finding in report.findings]


def test_a_bucket_that_is_right(spark: SparkSession, archive: Archive, copy: Path) -> None:
    report = audit(spark, f"file://{copy}")
    assert report.findings == []
    assert sum(each.rows for each in report.partitions) == len(archive.rows)
    assert {each.partition: each.end_offset for each in report.partitions} == archive.ends
    stamps = [row[3] for row in archive.rows if row[1] == 1]
    [one] = [each for each in report.partitions if each.partition == 1]
    assert (one.min_timestamp_ms, one.max_timestamp_ms) == (min(stamps), max(stamps))
    assert one.offsets_without_row == 0
    on_disk = sum(path.stat().st_size for path in copy.glob("topic=*/*/*.parquet"))
    assert sum(each.segment.rows_bytes for each in report.checked) == on_disk


@pytest.mark.parametrize("place", [0.0, 0.5, 0.999])
def test_a_flipped_bit(spark: SparkSession, copy: Path, place: float) -> None:
    snapshot = newest(copy, TOPIC, 0)
    path = copy / snapshot.layout.rows(snapshot.tail[1].name)
    data = bytearray(path.read_bytes())
    data[int(len(data) * place)] ^= 1
    path.write_bytes(data)
    assert faults(audit(spark, f"file://{copy}")) == [("damaged", f"file://{path}")]


def test_a_flipped_bit_in_an_index_and_a_short_file(spark: SparkSession, copy: Path) -> None:
    snapshot = newest(copy, TOPIC, 0)
    index = copy / snapshot.layout.index(snapshot.tail[1].name)
    data = bytearray(index.read_bytes())
    data[60] ^= 1
    index.write_bytes(data)
    rows = copy / snapshot.layout.rows(snapshot.tail[0].name)
    rows.write_bytes(rows.read_bytes()[:-1])
    found = faults(audit(spark, f"file://{copy}"))
    assert sorted(found) == sorted([("damaged", f"file://{index}"), ("damaged", f"file://{rows}")])


def test_missing_objects_and_orphans(spark: SparkSession, copy: Path) -> None:
    snapshot = newest(copy, TOPIC, 1)
    rows = copy / snapshot.layout.rows(snapshot.tail[0].name)
    index = copy / snapshot.layout.index(snapshot.tail[1].name)
    orphan = copy / snapshot.layout.rows(replace(snapshot.tail[0].name, uuid="0" * 32))
    rows.rename(orphan)
    index.unlink()
    report = audit(spark, f"file://{copy}")
    missing = [("missing", f"file://{rows}"), ("missing", f"file://{index}")]
    assert sorted(faults(report)) == sorted([*missing, ("orphan", f"file://{orphan}")])
    assert len(report.problems) == 2
    assert [each.problems for each in report.partitions] == [0, 2, 0]


def test_rows_that_are_there_twice(spark: SparkSession, copy: Path) -> None:
    snapshot = newest(copy, TOPIC, 0)
    first, *rest = snapshot.tail
    doubled = rewrite(copy, snapshot, first, lambda rows: pa.concat_tables([rows, rows.slice(rows.num_rows - 3)]))
    publish(copy, snapshot, [doubled, *rest])
    [finding] = audit(spark, f"file://{copy}").findings
    assert (finding.kind, finding.where) == ("damaged", f"file://{copy}/{snapshot.layout.rows(first.name)}")
    assert "does not hold the" in finding.what


def test_rows_outside_their_segment(spark: SparkSession, copy: Path) -> None:
    snapshot = newest(copy, TOPIC, 0)
    first, second, *rest = snapshot.tail
    moved = replace(first, end_offset=second.base_offset - 2)
    publish(copy, snapshot, [moved, second, *rest])
    kinds = {kind for kind, _ in faults(audit(spark, f"file://{copy}"))}
    assert kinds == {"gap", "range"}


def test_a_gap_between_segments(spark: SparkSession, copy: Path) -> None:
    snapshot = newest(copy, TOPIC, 2)
    first, second, *rest = snapshot.tail
    publish(copy, snapshot, [first, *rest])
    report = audit(spark, f"file://{copy}")
    [gap] = [finding for finding in report.findings if finding.kind == "gap"]
    assert f"offsets {second.base_offset} to {second.end_offset - 1} are in no segment" in gap.what
    assert {finding.kind for finding in report.findings} == {"gap", "orphan"}


def test_an_overlap(spark: SparkSession, copy: Path) -> None:
    snapshot = newest(copy, TOPIC, 2)
    first, second, *rest = snapshot.tail
    publish(copy, snapshot, [first, second, second, *rest])
    assert "overlap" in {kind for kind, _ in faults(audit(spark, f"file://{copy}"))}


def test_offsets_left_out_are_counted_and_are_no_fault(spark: SparkSession, copy: Path) -> None:
    snapshot = newest(copy, TOPIC, 0)
    first, *rest = snapshot.tail
    thinned = rewrite(copy, snapshot, first, lambda rows: rows.take(list(range(0, rows.num_rows, 2))))
    publish(copy, snapshot, [thinned, *rest])
    report = audit(spark, f"file://{copy}")
    assert report.findings == []
    assert report.partitions[0].offsets_without_row == first.rows - thinned.rows


@pytest.mark.parametrize(
    ("field", "kind"), [("rows", "rows"), ("max_timestamp_ms", "timestamps"), ("rows_crc32c", "damaged")]
)
def test_a_manifest_that_says_otherwise(spark: SparkSession, copy: Path, field: str, kind: str) -> None:
    snapshot = newest(copy, TOPIC, 0)
    first, *rest = snapshot.tail
    publish(copy, snapshot, [replace(first, **{field: getattr(first, field) + 1}), *rest])
    assert faults(audit(spark, f"file://{copy}")) == [(kind, f"file://{copy}/{snapshot.layout.rows(first.name)}")]


def test_a_damaged_manifest_hides_no_other_partition(spark: SparkSession, copy: Path) -> None:
    snapshot = newest(copy, TOPIC, 0)
    path = copy / snapshot.layout.manifest(snapshot.version)
    path.write_bytes(path.read_bytes()[:-1])
    report = audit(spark, f"file://{copy}")
    assert faults(report) == [("manifest", f"file://{path}")], "its rows are not taken for orphans"
    assert [each.partition for each in report.partitions] == [1, 2]


def test_the_command(
    spark: SparkSession, archive: Archive, copy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "audit.png"
    assert main(["--bucket", f"file://{copy}", "--plot", str(plot), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], document["rows"], len(document["partitions"])) == (True, len(archive.rows), PARTITIONS)
    assert plot.read_bytes().startswith(b"\x89PNG")
    damaged = sorted(copy.glob("topic=*/partition=0/*.parquet"))[0]
    damaged.write_bytes(os.urandom(damaged.stat().st_size))
    assert main(["--bucket", f"file://{copy}", TOPIC]) == 1
    out = capsys.readouterr().out
    assert f"damaged: file://{damaged}: row group 0" in out
    assert main(["--bucket", f"file://{tmp_path}/nothing"]) == 3
    assert main(["--bucket", archive.bucket, "order"]) == 3
    assert "no topic 'order'" in capsys.readouterr().err


def test_no_such_topic(spark: SparkSession, archive: Archive) -> None:
    with pytest.raises(UnknownTopic, match="order'"):
        audit(spark, archive.bucket, ["order"])

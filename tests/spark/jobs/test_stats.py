"""What stats counts is what a consumer counts."""

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.jobs.plots import plot_stats
from spark.jobs.stats import HourVolume, StatsReport, TopicStats, main, stats
from tests.spark.conftest import TOPIC, Archive
from tests.spark.jobs.buckets import newest
from tests.spark.topics import START_MS, STEP_MS

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def topic(spark: SparkSession, archive: Archive) -> TopicStats:
    [found] = stats(spark, archive.bucket, [TOPIC], top=3).topics
    return found


def size(row: tuple) -> int:
    return len(row[5] or b"") + len(row[6] or b"")


def test_volume_keys_and_skew(topic: TopicStats, archive: Archive) -> None:
    rows = archive.rows
    assert topic.topic == TOPIC
    assert {each.partition: each.rows for each in topic.partitions} == Counter(row[1] for row in rows)
    assert topic.bytes == sum(map(size, rows))
    assert {each.hour_ms: each.rows for each in topic.hours} == Counter(row[3] // HOUR_MS * HOUR_MS for row in rows)
    assert sum(each.bytes for each in topic.hours) == topic.bytes
    keys = Counter(row[5] for row in rows)
    assert topic.rows_without_key == keys.pop(None)
    assert topic.distinct_keys == len(keys)
    assert [each.rows for each in topic.top_keys] == [count for _, count in keys.most_common(3)]
    assert all(keys[each.key.encode()] == each.rows for each in topic.top_keys)
    assert topic.top_keys[0].bytes == sum(size(row) for row in rows if row[5] == topic.top_keys[0].key.encode())
    most = max(each.rows for each in topic.partitions)
    assert topic.partition_skew == pytest.approx(most / (len(rows) / len(topic.partitions)))
    stored = sum(path.stat().st_size for path in Path(archive.path).glob(f"topic={TOPIC}/*/*.parquet"))
    assert sum(each.archived_bytes for each in topic.partitions) == stored


def test_latency_is_from_timestamp_to_archive(topic: TopicStats, archive: Archive) -> None:
    segments = {(p, s.base_offset): s for p in archive.ends for s in newest(Path(archive.path), TOPIC, p).tail}
    waits = sorted(
        next(s.archived_ms for (p, _), s in segments.items() if p == row[1] and s.base_offset <= row[2] < s.end_offset)
        - row[3]
        for row in archive.rows
    )
    latency = topic.latency
    assert latency is not None
    assert latency.max_ms == waits[-1]
    assert waits[int(len(waits) * 0.48)] <= latency.p50_ms <= waits[int(len(waits) * 0.52)]
    assert latency.p50_ms <= latency.p90_ms <= latency.p99_ms <= latency.max_ms


def test_hours_that_no_date_can_name_are_left_out_of_the_plot(tmp_path: Path) -> None:
    plot = tmp_path / "stats.png"
    year_9999, beyond = 253_402_300_799_999 // HOUR_MS * HOUR_MS, 1_772_323_200_000_000
    for late in (year_9999, beyond):
        hours = [HourVolume(START_MS, 5, 50), HourVolume(late, 1, 10)]
        plot_stats(StatsReport("file:///b", [TopicStats("orders", hours=hours)]), str(plot))
        assert plot.read_bytes().startswith(b"\x89PNG")
        plot.unlink()


def test_the_command(spark: SparkSession, archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    middle = START_MS + 1000 * STEP_MS
    plot = tmp_path / "stats.png"
    assert main(["--bucket", archive.bucket, TOPIC, "--until", str(middle), "--json", "--plot", str(plot)]) == 0
    [topic] = json.loads(capsys.readouterr().out)["topics"]
    assert topic["rows"] == sum(row[3] < middle for row in archive.rows) > 0
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert main(["--bucket", archive.bucket, TOPIC]) == 0
    assert "2023-11-14 22:00:00" in capsys.readouterr().out
    assert main(["--bucket", archive.bucket, "order"]) == 3
    with pytest.raises(SystemExit, match="2"):
        main(["--bucket", archive.bucket, "--from", "yesterday"])

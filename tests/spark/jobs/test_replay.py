"""A replay puts each record that it chooses into its target once, also when it is killed and run again."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from hot_tier.errors import SettingsError
from hot_tier.record.columns import NewRecord
from spark.jobs.command import configured
from spark.jobs.replay import check_catalog, main, replay_to_topic
from spark.jobs.replay_target import HEADER, Progress, TargetTopic, TargetUnavailable, TopicWriter
from tests.spark.conftest import Archive
from tests.spark.jobs.buckets import archive_of
from tests.spark.topics import START_MS, STEP_MS, consume, create
from tests.support.waiting import wait_until
from tierlog.process import ServeProcess

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]

COUNT = 200
MANY = 120_000


def records(count: int) -> list[NewRecord]:
    return [
        NewRecord(
            START_MS + n * STEP_MS,
            None if n % 7 == 2 else b"k%d" % (n % 5),
            None if n % 10 == 3 else b"value %08d" % n,
            (("h", b"x"), ("h", None)) if n % 3 == 0 else (),
        )
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> str:
    return archive_of(tmp_path_factory.mktemp("replay") / "bucket", "orders", [records(COUNT)] * 3)


@pytest.fixture
def target(archive: Archive, request: pytest.FixtureRequest) -> TargetTopic:
    name = f"again-{request.node.name}"
    create(archive.service, name, 3, segment_bytes="100000000")
    return TargetTopic({"bootstrap.servers": archive.service.kafka}, name, "job")


def arrived(service: ServeProcess, target: TargetTopic, partitions: int = 3) -> dict[int, list[int]]:
    """Of each source partition, the offsets of its records in the order in which they lie in the target."""
    found: dict[int, list[int]] = {}
    for row in consume(service, target.topic, partitions):
        place = target.parse(row[7])
        if place is not None:
            found.setdefault(place[0], []).append(place[1])
    return found


def rows(partition: int, count: int) -> Iterator[tuple[Any, ...]]:
    """As Spark hands them to a writer."""
    for number, each in enumerate(records(count)):
        headers = [{"key": key, "value": value} for key, value in each.headers]
        yield partition, number, each.timestamp, each.key, each.value, headers


def test_what_is_chosen_arrives_as_it_was(
    spark: SparkSession, archive: Archive, bucket: str, target: TargetTopic
) -> None:
    where = "cast(key as string) = 'k1' and exists(headers, h -> h.key = 'h' and h.value = X'78')"
    options = {"startingTimestamp": START_MS + 20 * STEP_MS, "endingTimestamp": START_MS + 120 * STEP_MS}
    report = replay_to_topic(spark, bucket, "orders", target, where=where, **options)
    chosen = [n for n, each in enumerate(records(COUNT)) if 20 <= n < 120 and each.key == b"k1" and each.headers]
    assert report.records == 3 * len(chosen) > 0
    assert arrived(archive.service, target) == dict.fromkeys(range(3), chosen)
    for row in consume(archive.service, target.topic, 3):
        place = target.parse(row[7])
        assert place is not None and place[0] == row[1], "the partition stays"
        source = records(COUNT)[place[1]]
        assert (row[3], row[5], row[6]) == (source.timestamp, source.key, source.value)
        assert row[7] == (*source.headers, (HEADER, b"job/%d/%d" % place))
    again = replay_to_topic(spark, bucket, "orders", target, where=where, **options)
    assert again.records == 0
    assert again.resumed_after == dict.fromkeys(range(3), chosen[-1])


def test_it_goes_on_where_a_writer_died(
    spark: SparkSession, archive: Archive, bucket: str, target: TargetTopic
) -> None:
    class Died(Exception):
        pass

    def dying(partition: int, after: int) -> Iterator[tuple[Any, ...]]:
        yield from rows(partition, after)
        wait_until(lambda: partition in arrived(archive.service, target), "something has arrived")
        raise Died

    begun = target.progress()
    for partition, after in ((0, 50), (2, 120)):
        with pytest.raises(Died):
            TopicWriter(target, begun).send(dying(partition, after))
    # Others write there too, and another job does.
    other = Producer({"bootstrap.servers": archive.service.kafka})
    other.produce(target.topic, b"mine", partition=0, headers={HEADER: b"other/0/199"})
    other.produce(target.topic, b"mine", partition=0, headers={HEADER: b"nonsense"})
    assert other.flush(30) == 0
    before = arrived(archive.service, target)
    assert 1 not in before and 0 < len(before.get(2, [])) <= 120
    report = replay_to_topic(spark, bucket, "orders", target)
    assert arrived(archive.service, target) == {partition: list(range(COUNT)) for partition in range(3)}
    assert report.resumed_after == {partition: sent[-1] for partition, sent in before.items()}
    assert report.records == 3 * COUNT - sum(map(len, before.values()))


def test_an_attempt_that_follows_another_looks_first(archive: Archive, target: TargetTopic) -> None:
    begun = target.progress()
    assert TopicWriter(target, begun).send(rows(1, 80)) == 80
    seen = target.look_again(begun, 1, after_another=True)
    assert seen.sent == {1: 79}
    assert target.look_again(begun, 4, after_another=False).sent == {}, "of another partition that shares its place"
    assert TopicWriter(target, seen).send(rows(1, 100)) == 20
    assert arrived(archive.service, target) == {1: list(range(100))}
    assert TargetTopic(target.kafka, target.topic, "another").progress() == Progress(3, {}, {0: 0, 1: 100, 2: 0})


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_killed_in_the_middle(archive: Archive, tmp_path: Path) -> None:
    source = archive_of(tmp_path / "bucket", "orders", [records(MANY)] * 2, per_segment=MANY // 4)
    create(archive.service, "again", 1, segment_bytes="100000000")
    command = [sys.executable, "-m", "spark.jobs.replay", "orders", "--bucket", source, "--json"]
    command += ["--to-topic", "again", "--kafka", archive.service.kafka, "--job", "job"]
    consumer = Consumer({"bootstrap.servers": archive.service.kafka, "group.id": "watch"})

    def end() -> int:
        return consumer.get_watermark_offsets(TopicPartition("again", 0), timeout=30)[1]

    with (tmp_path / "out").open("wb") as output:
        killed = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            deadline = time.monotonic() + 240
            while end() == 0:
                assert time.monotonic() < deadline and killed.poll() is None, (tmp_path / "out").read_text()
        finally:
            os.killpg(killed.pid, signal.SIGKILL)
            killed.wait()
    assert 0 < end() < 2 * MANY, "it was killed in the middle"
    done = subprocess.run(command, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    assert report["resumed_after"] and report["records"] < 2 * MANY
    target = TargetTopic({"bootstrap.servers": archive.service.kafka}, "again", "job")
    assert arrived(archive.service, target, 1) == {partition: list(range(MANY)) for partition in range(2)}
    consumer.close()


def test_out_to_files_and_a_table(
    spark: SparkSession, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["orders", "--bucket", bucket, "--where", "partition = 1 and value is null", "--json"]
    wanted = [n for n, each in enumerate(records(COUNT)) if each.value is None]
    for _ in range(2):
        assert main([*flags, "--to", f"file://{tmp_path}/out"]) == 0
        assert json.loads(capsys.readouterr().out)["records"] == len(wanted)
    found = spark.read.parquet(f"{tmp_path}/out")
    assert sorted(row["offset"] for row in found.collect()) == wanted
    for job in ("one", "two", "one"):
        assert main([*flags, "--table", "replayed", "--job", job]) == 0
        assert json.loads(capsys.readouterr().out)["records"] == len(wanted)
    assert spark.table("replayed").count() == 2 * len(wanted)
    spark.sql("drop table replayed")


def test_the_filter_of_the_docs_runs(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "SPARK_JOBS.md").read_text()
    where = re.search(r'--where "(cast\(key.*)" \\', page)
    assert where is not None
    values = [b'{"total": 12.50}', b'{"total": 120.5}', b'{"total": "none"}', b"no JSON", None, b'{"total": 500}']
    orders = [NewRecord(START_MS + n, b"ada", value, ()) for n, value in enumerate(values)]
    source = archive_of(tmp_path / "bucket", "orders", [orders])
    flags = ["orders", "--bucket", source, "--to", f"file://{tmp_path}/out"]
    assert main([*flags, "--where", where[1], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 2
    assert main([*flags, "--where", "cast(cast(value as string) as int) > 1"]) == 2
    assert "try_cast" in capsys.readouterr().err


def test_a_table_that_would_be_gone_is_refused(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SettingsError, match="no catalog here that keeps tables"):
        check_catalog(spark, "replayed")
    with configured(spark, "spark.sql.defaultCatalog", "lake"), pytest.raises(SettingsError):
        check_catalog(spark, "db.replayed")
    spark.conf.set("spark.sql.catalog.lake", "org.example.Catalog")
    check_catalog(spark, "lake.db.replayed")
    spark.conf.unset("spark.sql.catalog.lake")


def test_what_is_wrong_is_said(
    spark: SparkSession, archive: Archive, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["orders", "--bucket", bucket, "--to-topic", "nowhere"]
    assert main([*flags, "--kafka", archive.service.kafka]) == 3
    assert "no topic 'nowhere'" in capsys.readouterr().err
    assert main([*flags, "--where", "colour = 'red'", "--kafka", archive.service.kafka]) == 2
    assert "colour" in capsys.readouterr().err
    assert main([*flags, "--where", "((", "--json"]) == 2
    assert json.loads(capsys.readouterr().err)["exit_code"] == 2
    assert main(["nothing", "--bucket", bucket, "--to", f"file://{tmp_path}/out"]) == 3


def test_a_target_that_would_delete_them_is_refused(
    spark: SparkSession, archive: Archive, bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    create(archive.service, "short", 3, retention_ms="60000")
    flags = ["orders", "--bucket", bucket, "--to-topic", "short", "--kafka", archive.service.kafka]
    assert main(flags) == 4
    said = capsys.readouterr().err
    assert "its retention.ms 60000 would delete records as old as 2023-11-14T22:13:20" in said and "--keep" in said
    target = TargetTopic({"bootstrap.servers": archive.service.kafka}, "short", "job")
    assert arrived(archive.service, target) == {}
    assert main([*flags, "--keep", "--job", "job"]) == 0
    assert {number: len(offsets) for number, offsets in arrived(archive.service, target).items()} == dict.fromkeys(
        range(3), COUNT
    )
    assert target.retention_ms() == -1


def test_brokers_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark.jobs.replay_target._TIMEOUT_S", 1.0)
    with pytest.raises(TargetUnavailable, match=r"again at 127\.0\.0\.1:9: cannot be used"):
        TargetTopic({"bootstrap.servers": "127.0.0.1:9"}, "again", "job").progress()

"""Compaction: the same rows from fewer files, for Spark, for Kafka consumers, and for those who read meanwhile."""

import asyncio
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cold_tier.inventory import find_topics
from cold_tier.manifest.model import Snapshot
from cold_tier.manifest.reader import load_newest
from cold_tier.objects.open import StoreSettings, open_store
from cold_tier.pins import held
from cold_tier.sealed_json import read_sealed, write_sealed
from spark.jobs.audit import audit
from spark.jobs.compact import compact, main
from spark.source import tierlog_read
from tests.integration.tiers import SOON
from tests.spark.conftest import PARTITIONS, TOPIC, Archive
from tests.spark.topics import Row, consume, create, rows_of, send, settle
from tests.support.s3 import credentials, weed
from tests.support.service import MakeService, services
from tests.support.waiting import wait_until
from tierlog.client import Client, path
from tierlog.process import ServeProcess

pytestmark = [pytest.mark.java, pytest.mark.timeout(300)]
DAY_MS = 24 * 3_600_000


def rows(spark: SparkSession, bucket: str, topic: str = TOPIC) -> list[Row]:
    return rows_of(tierlog_read(spark, bucket, topic))


def newest(bucket: str | Path, topic: str, partition: int) -> Snapshot:
    async def load() -> Snapshot:
        store = open_store(StoreSettings(bucket=f"file://{str(bucket).removeprefix('file://')}"))
        [found] = await find_topics(store, topic)
        snapshot = await load_newest(store, found.layouts[partition])
        assert snapshot is not None
        return snapshot

    return asyncio.run(load())


def segments(bucket: str | Path, topic: str, partition: int) -> int:
    return newest(bucket, topic, partition).segments


def make_compacted(bucket: Path, **config: str) -> None:
    """The topic's description says that it is compacted by key."""
    [described] = sorted((bucket / "_tierlog").glob(f"{TOPIC}.*/topic/*.json"))[:1]
    document = read_sealed(described.read_bytes())
    del document["crc32c"]
    named = {name.replace("_", "."): value for name, value in config.items()}
    document["config"] |= {"cleanup.policy": "compact", **named}
    described.write_bytes(write_sealed(document))


def test_through_the_leader_while_others_read(spark: SparkSession, tmp_path: Path) -> None:
    bucket = f"file://{tmp_path}/bucket"
    with services(tmp_path) as make:
        service = make(*SOON, "--bucket", bucket)
        create(service, "events", 2)
        send(service, "events", range(4000), 2)
        ends = settle(service, "events")
        truth = consume(service, "events", 2)
        archived = [row for row in truth if row[2] < ends[row[1]]]
        before = [segments(bucket, "events", partition) for partition in range(2)]
        planned = tierlog_read(spark, bucket, "events")

        report = compact(spark, bucket, ["events"], gateway=service.url)

        assert [(each.outcome, each.reason) for each in report.partitions] == [("published", "")] * 2
        assert [segments(bucket, "events", partition) for partition in range(2)] == [1, 1] < before
        assert sum(each.rows_after for each in report.partitions) == len(archived)
        assert rows_of(planned) == archived, "who planned before goes on with the old files"
        assert rows(spark, bucket, "events") == archived
        assert consume(service, "events", 2) == truth
        assert not audit(spark, bucket).problems
        assert asyncio.run(pins_of(bucket)) == []
        send(service, "events", range(4000, 5000), 2)
        settle(service, "events")
        assert consume(service, "events", 2)[: len(truth) // 2] == truth[: len(truth) // 2]
        again = compact(spark, bucket, gateway=service.url)
        assert again.ok and not audit(spark, bucket).problems


async def pins_of(bucket: str) -> list[object]:
    store = open_store(StoreSettings(bucket=bucket))
    [found] = await find_topics(store, "events")
    return list(await held(store, found.name, found.id, 0))


@pytest.mark.parametrize("place", ["replace.before_publish", "replace.published"])
def test_a_leader_killed_over_it_finds_it_again(
    place: str, spark: SparkSession, tmp_path: Path, make_service: MakeService
) -> None:
    bucket = f"file://{tmp_path}/bucket"
    service: ServeProcess = make_service(*SOON, "--bucket", bucket)
    create(service, "events")
    send(service, "events", range(2000))
    settle(service, "events")
    service.stop()
    service.environment["TIERLOG_FAILPOINTS"] = f"{place}=kill"
    service.start()
    truth = consume(service, "events")
    before = segments(bucket, "events", 0)
    report = compact(spark, bucket, gateway=service.url)
    assert [each.outcome for each in report.partitions] == ["waiting"]
    service.kill()
    del service.environment["TIERLOG_FAILPOINTS"]
    service.start()
    folder = tmp_path / "bucket" / "_tierlog"
    wait_until(lambda: not list(folder.glob("*/0/proposals/*")), "the proposal is answered")
    assert segments(bucket, "events", 0) < before
    assert consume(service, "events") == truth
    assert not audit(spark, bucket).problems


def test_in_s3(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in credentials().items():
        monkeypatch.setenv(name, value)
    with weed(tmp_path / "weed") as server, services(tmp_path) as make:
        bucket = f"s3://{server.new_bucket()}/some/prefix"
        service = make(*SOON, "--bucket", bucket, "--s3-endpoint", server.endpoint, **credentials())
        create(service, "events")
        send(service, "events", range(2000))
        settle(service, "events")
        truth = consume(service, "events")
        report = compact(spark, bucket, gateway=service.url, s3_endpoint=server.endpoint)
        assert [(each.outcome, each.segments_after) for each in report.partitions] == [("published", 1)]
        assert consume(service, "events") == truth
        assert not audit(spark, bucket, s3_endpoint=server.endpoint).problems


def test_offline(spark: SparkSession, archive: Archive, copy: Path) -> None:
    report = compact(spark, f"file://{copy}", offline=True)
    assert [each.outcome for each in report.partitions] == ["published"] * PARTITIONS
    assert [segments(copy, TOPIC, partition) for partition in range(PARTITIONS)] == [1] * PARTITIONS
    assert rows(spark, f"file://{copy}") == archive.rows
    assert not audit(spark, f"file://{copy}").problems
    again = compact(spark, f"file://{copy}", offline=True)
    assert [each.outcome for each in again.partitions] == ["nothing"] * PARTITIONS
    assert again.log_bytes == 0


def latest(rows: list[Row], *, markers: bool) -> list[Row]:
    kept = {(row[1], row[5]): row for row in rows if row[5] is not None}
    return sorted((row for row in kept.values() if markers or row[6] is not None), key=lambda row: row[1:3])


def test_the_latest_of_each_key(spark: SparkSession, archive: Archive, copy: Path) -> None:
    bucket = f"file://{copy}"
    make_compacted(copy, delete_retention_ms=str(DAY_MS))
    now_ms = newest(copy, TOPIC, 0).published_ms
    report = compact(spark, bucket, offline=True, now_ms=now_ms)
    assert [each.outcome for each in report.partitions] == ["published"] * PARTITIONS, report
    with_markers = latest(archive.rows, markers=True)
    assert rows(spark, bucket) == with_markers
    assert any(row[6] is None for row in with_markers)
    audited = audit(spark, bucket)
    assert not audited.problems
    assert sum(each.offsets_without_row for each in audited.partitions) == len(archive.rows) - len(with_markers)

    soon = compact(spark, bucket, offline=True, now_ms=now_ms + DAY_MS - 1)
    assert [each.outcome for each in soon.partitions] == ["nothing"] * PARTITIONS
    later = compact(spark, bucket, offline=True, now_ms=now_ms + DAY_MS)
    assert [each.outcome for each in later.partitions] == ["published"] * PARTITIONS
    assert rows(spark, bucket) == latest(archive.rows, markers=False)
    assert not audit(spark, bucket).problems


def test_the_latest_of_each_key_through_the_leader(spark: SparkSession, tmp_path: Path) -> None:
    bucket = f"file://{tmp_path}/bucket"
    with services(tmp_path) as make:
        service = make(*SOON, "--bucket", bucket)
        create(service, "events", 2)
        send(service, "events", range(4000), 2)
        ends = settle(service, "events")
        archived = [row for row in consume(service, "events", 2) if row[2] < ends[row[1]]]
        with Client(service.url) as client:
            client.patch(path("topics", "events"), {"config": {"cleanup.policy": "compact"}})
        folder = tmp_path / "bucket" / "_tierlog"
        wait_until(lambda: len(list(folder.glob("*/topic/*.json"))) > 1, "the bucket knows of the policy")

        report = compact(spark, bucket, gateway=service.url)

        assert [(each.outcome, each.reason) for each in report.partitions] == [("published", "")] * 2
        assert rows(spark, bucket, "events") == latest(archived, markers=True)
        assert not audit(spark, bucket).problems


def test_keys_over_many_segments(spark: SparkSession, archive: Archive, copy: Path) -> None:
    """Segments that are too large to be merged lose what is superseded all the same, some of them every row."""
    bucket = f"file://{copy}"
    make_compacted(copy)
    before = segments(copy, TOPIC, 0)
    report = compact(spark, bucket, offline=True, target_bytes=1)
    assert [each.outcome for each in report.partitions] == ["published"] * PARTITIONS, report
    assert 1 < segments(copy, TOPIC, 0) <= before
    assert any(segment.rows == 0 for segment in newest(copy, TOPIC, 0).tail)
    assert rows(spark, bucket) == latest(archive.rows, markers=True)
    assert not audit(spark, bucket).problems


def test_a_damaged_file_is_named_and_the_others_are_merged(spark: SparkSession, archive: Archive, copy: Path) -> None:
    snapshot = newest(copy, TOPIC, 1)
    victim = copy / snapshot.layout.rows(snapshot.tail[1].name)
    data = bytearray(victim.read_bytes())
    data[len(data) // 3] ^= 1
    victim.write_bytes(data)
    report = compact(spark, f"file://{copy}", offline=True)
    assert [each.outcome for each in report.partitions] == ["published", "failed", "published"]
    assert victim.name in report.partitions[1].reason
    assert newest(copy, TOPIC, 1) == snapshot


def test_the_command(spark: SparkSession, archive: Archive, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bucket = f"file://{copy}"
    assert main(["--bucket", bucket, "nowhere"]) == 3
    assert main(["--bucket", bucket, "--offline", "--gateway", "http://127.0.0.1:1"]) == 2
    assert main(["--bucket", bucket, "--gateway", "http://127.0.0.1:1"]) == 5
    capsys.readouterr()
    assert main(["--bucket", bucket, "--json", TOPIC]) == 0
    [first, *_] = json.loads(capsys.readouterr().out)["partitions"]
    assert first["outcome"] == "waiting" and "leader" in first["reason"]
    assert len(list((copy / "_tierlog").glob("*/*/proposals/*.proposal"))) == PARTITIONS
    assert rows(spark, bucket) == archive.rows
    assert main(["--bucket", bucket, "--offline", TOPIC]) == 0
    assert "per core" in capsys.readouterr().out

"""Whoever counts the rows of a topic with aborted transactions counts those of a read_committed consumer."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cold_tier.cache import ColdReadSettings
from cold_tier.descriptions import TopicDescription, write_description
from cold_tier.layout import topic_description
from cold_tier.manifest.reader import Manifest, PageCache, load_newest
from cold_tier.objects.open import StoreSettings, open_store
from cold_tier.reader import ColdReader
from hot_tier.record.batch import iter_headers
from hot_tier.record.columns import decode_records
from spark.jobs.audit import audit
from spark.jobs.compact import compact
from spark.jobs.replay import replay_to_files
from spark.jobs.stats import stats
from spark.source import register, tierlog_read
from tests.offloader.transactional_log import LAYOUT, START_MS, End, Log, Write, bucketed

STEPS = [
    step
    for number in range(12)
    for step in (
        Write(-1, 4),
        Write(number % 3, 5),
        Write((number + 1) % 3, 3),
        End(number % 3, number % 2 == 0),
        Write(-1, 1),
    )
]
"""Transactions that overlap, and reach over the borders of segments. Half of them are aborted."""


@dataclass
class Made:
    url: str
    log: Log

    @property
    def offsets(self) -> list[int]:
        return [record.offset for record in self.log.committed]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    log = Log.of(STEPS)
    assert len(log.aborted) > 5
    url = f"file://{tmp_path}/bucket"

    async def write() -> None:
        store = open_store(StoreSettings(bucket=url), create=True)
        # One segment has nothing but an aborted batch.
        await bucketed(tmp_path, log, [1, 2, 9, 20, 33, 47], store=store)
        described = TopicDescription(LAYOUT.topic, LAYOUT.topic_id, 1, 1, {}, START_MS)
        await store.put(topic_description(LAYOUT.topic, LAYOUT.topic_id, 1), write_description(described))
        await store.close()

    asyncio.run(write())
    return Made(url, log)


def uncommitted(url: str) -> list[int]:
    async def read() -> list[int]:
        store = open_store(StoreSettings(bucket=url))
        snapshot = await load_newest(store, LAYOUT)
        reader = ColdReader(store, ColdReadSettings())
        offset, found = 0, []
        while (
            got := await reader.read(Manifest(snapshot, PageCache(store)), offset, 1 << 20, committed=False)
        ) is not None:
            assert all(header.record_count for _, header in iter_headers(got.data))
            found += [record.offset for record in decode_records(got.data, skip_control=False)]
            offset = got.end_offset
        await reader.close()
        return found

    return asyncio.run(read())


def test_everyone_counts_the_same(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    register(spark)
    plain = spark.read.parquet(made.url)
    assert sorted(row["offset"] for row in plain.select("offset").collect()) == made.offsets
    source = spark.read.format("tierlog").options(bucket=made.url, subscribe=LAYOUT.topic).load()
    assert sorted(row["offset"] for row in source.select("offset").collect()) == made.offsets
    assert source.count() == plain.count() == len(made.offsets)
    middle = source.where("offset >= 20 and offset < 60").count()
    assert middle == sum(20 <= offset < 60 for offset in made.offsets)
    stream = (
        spark.readStream.format("tierlog")
        .options(bucket=made.url, subscribe=LAYOUT.topic, startingOffsets="earliest", maxOffsetsPerTrigger="17")
        .load()
        .writeStream.format("parquet")
        .options(path=str(tmp_path / "out"), checkpointLocation=str(tmp_path / "state"))
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()
    assert sorted(r["offset"] for r in spark.read.parquet(str(tmp_path / "out")).collect()) == made.offsets
    replayed = replay_to_files(spark, made.url, LAYOUT.topic, f"file://{tmp_path}/replayed", "one")
    assert replayed.records == len(made.offsets)
    [counted] = stats(spark, made.url).topics
    assert sum(each.rows for each in counted.partitions) == len(made.offsets)


def test_an_audit_finds_nothing_wrong_and_everything_that_is(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    report = audit(spark, made.url)
    assert not report.findings and sum(each.rows for each in report.partitions) == len(made.offsets)
    assert report.partitions[0].offsets_without_row == made.log.end - len(made.offsets)
    [first, second, *_] = sorted((tmp_path / "bucket" / LAYOUT.aside_folder).iterdir())
    first.unlink()
    second.write_bytes(second.read_bytes()[:-3] + b"???")
    found = audit(spark, made.url).findings
    assert sorted((each.kind, Path(each.where).name) for each in found) == sorted(
        [("missing", first.name), ("damaged", second.name)]
    )


def test_a_compaction_keeps_rows_and_what_is_aside(spark: SparkSession, made: Made) -> None:
    before = uncommitted(made.url)
    assert before == [record.offset for record in made.log.everything]
    report = compact(spark, made.url, offline=True)
    [done] = report.partitions
    assert (done.outcome, done.segments_before, done.segments_after) == ("published", 7, 1), done
    assert uncommitted(made.url) == before
    assert not [each for each in audit(spark, made.url).findings if each.is_problem]
    assert tierlog_read(spark, made.url, LAYOUT.topic).count() == len(made.offsets)

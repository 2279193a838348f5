"""What a plan sees while the archive changes: one snapshot, whatever is archived, expired, deleted or made anew."""

import threading
import time
from pathlib import Path
from uuid import UUID

import pytest
from pyspark.sql import SparkSession

from cold_tier.layout import PartitionLayout
from cold_tier.manifest.writer import ManifestWriter
from cold_tier.objects.open import StoreSettings, open_store
from cold_tier.pins import place
from hot_tier.errors import OffsetOutOfRange
from hot_tier.ids import LeaderEpoch, Offset, PartitionId
from offloader.settings import OffloadSettings
from spark.options import read_options
from spark.plan import Plan, plan_read
from spark.source import tierlog_read
from tests.cold_tier.manifest.test_manifest import run
from tests.offloader.harness import SMALL, TOPIC, Archived, archived_node
from tests.spark.conftest import Archive
from tests.spark.topics import create, send

HOUR = 3_600_000


def plan(node: Archived, **options: str) -> Plan:
    return plan_read(read_options({"bucket": node.store.url, "subscribe": TOPIC, **options}, streaming=False))


async def expired(node: Archived) -> None:
    """Archived records of two times, the older of which have expired."""
    await node.produce(100)
    await node.settle()
    node.clock.now_ms += 2 * HOUR
    await node.produce(100)
    await node.settle()
    [archive] = node.offloader
    await archive.apply_retention(node.clock())
    assert node.catalog.get(node.layout).snapshot.log_start_offset > 0


async def test_a_range_outside_retention(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config={"retention.ms": str(HOUR)}) as node:
        await expired(node)
        start = node.catalog.get(node.layout).snapshot.log_start_offset
        with pytest.raises(OffsetOutOfRange, match=f"orders-0: offset 0 is no longer there.*{start}"):
            plan(node, startingOffsets='{"orders":{"0":0}}')
        left = plan(node, startingOffsets='{"orders":{"0":0}}', failOnDataLoss="false")
        assert left.ranges[0].start == start
        assert left.files == plan(node).files
        with pytest.raises(OffsetOutOfRange, match="orders-0"):
            plan(node, startingOffsets='{"orders":{"0":0}}', endingOffsets='{"orders":{"0":1}}')
        asked = {"startingOffsets": '{"orders":{"0":0}}', "endingOffsets": '{"orders":{"0":1}}'}
        assert plan(node, **asked, failOnDataLoss="false").files == []


async def test_records_deleted_inside_a_segment_are_not_read(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config={"retention.ms": "-1"}) as node:
        await node.produce(100)
        await node.settle()
        node.partition.log.delete_records_before(3)
        [archive] = node.offloader
        await archive.apply_retention(node.clock())
        [found] = plan(node).ranges
        assert (found.start, found.cut_start, found.segments[0].base_offset) == (3, True, 0)


async def test_as_of(tmp_path: Path) -> None:
    settings = OffloadSettings(delete_grace_ms=HOUR)
    async with archived_node(str(tmp_path), settings, {"retention.ms": str(HOUR)}) as node:
        await node.produce(100)
        await node.settle()
        before, then = plan(node), node.clock.now_ms
        node.clock.now_ms += 2 * HOUR
        await node.produce(100)
        await node.settle()
        [archive] = node.offloader
        await archive.apply_retention(node.clock())
        assert await archive.collect_removed(node.clock()) == 0, "its grace period begins"
        assert not set(plan(node).files) & set(before.files)
        assert plan(node, asOf=str(then)).files == before.files
        with pytest.raises(OffsetOutOfRange, match=r"no manifest is left of asOf=1000"):
            plan(node, asOf="1000")

        node.clock.now_ms += 2 * HOUR
        assert await archive.collect_removed(node.clock()) > 0
        with pytest.raises(OffsetOutOfRange, match="segments of that time are deleted"):
            plan(node, asOf=str(then))
        assert plan(node, asOf=str(then), failOnDataLoss="false").files == []


async def test_as_of_with_clocks_that_go_back(tmp_path: Path) -> None:
    """Leader 1 has the right time, leader 2 is ahead, leader 3 right again; then the clock of 3 is set back."""
    layout = PartitionLayout(TOPIC, UUID(int=1), PartitionId(0))
    store = open_store(StoreSettings(bucket=f"file://{tmp_path}"))
    published = [(1, 10), (1, 20), (2, 1030), (2, 1040), (2, 1050), (3, 60), (3, 70), (3, 15)]
    writer = None
    for number, (epoch, now_ms) in enumerate(published):
        if writer is None or writer.current.version.leader_epoch != epoch:
            writer = await ManifestWriter.open(store, layout, LeaderEpoch(epoch), Offset(0), now_ms)
        await writer.append(run(10 * number, 10 * number + 10, 10), now_ms)

    def end(as_of: int) -> int:
        asked = {"bucket": f"file://{tmp_path}", "subscribe": TOPIC, "asOf": str(as_of)}
        return plan_read(read_options(asked, streaming=False)).ranges[0].end

    assert [end(as_of) for as_of in (10, 20, 59, 60, 69, 70, 2000)] == [10, 20, 20, 60, 60, 80, 80]


async def test_a_pinned_past_stays_readable(tmp_path: Path) -> None:
    settings = OffloadSettings(delete_grace_ms=1, manifest_history_ms=1)
    async with archived_node(str(tmp_path), settings, {"retention.ms": str(HOUR)}) as node:
        await node.produce(100)
        await node.settle()
        before, then = plan(node), node.clock.now_ms
        await place(node.store, TOPIC, node.layout.topic_id, "job", then, 100_000 * HOUR)
        node.clock.now_ms += 5 * HOUR
        await node.produce(100)
        await node.settle()
        [archive] = node.offloader
        await archive.apply_retention(node.clock())
        await archive.collect_removed(node.clock())
        # Superseded manifests are as old as their files, whatever the clock of this node says.
        await archive.collect_orphans(int(time.time() * 1000) + HOUR)
        assert plan(node, asOf=str(then)).files == before.files
        assert set(before.files) <= set(plan(node).files)


async def test_a_topic_made_anew_is_the_one_that_is_read(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config={"retention.ms": "-1"}) as node:
        await node.produce(100)
        await node.settle()
        first = plan(node)
        admin = node.running.node.admin
        await admin.delete_topic(TOPIC)
        node.clock.now_ms += 1000
        await admin.create_topic(TOPIC, 1, 1, {**SMALL, "retention.ms": "-1"})
        await node.produce(200)
        await node.settle()
        second = plan(node)
        assert second.ranges[0].layout == node.layout
        assert not set(first.files) & set(second.files)


@pytest.mark.java
@pytest.mark.timeout(300)
def test_rows_once_while_archiving_goes_on(spark: SparkSession, archive: Archive) -> None:
    """Offsets follow one another from 0, over the moving seam, in every read."""
    create(archive.service, "moving")
    send(archive.service, "moving", range(200))
    done = threading.Event()

    def keep_sending() -> None:
        number = 200
        while not done.is_set() and number < 20_000:
            send(archive.service, "moving", range(number, number + 100))
            number += 100

    sender = threading.Thread(target=keep_sending)
    sender.start()
    try:
        for _ in range(3):
            frame = tierlog_read(spark, archive.bucket, "moving", includeHot=True, gateway=archive.service.url)
            offsets = sorted(row["offset"] for row in frame.select("offset").collect())
            again = frame.count()
            assert offsets == list(range(len(offsets)))
            assert len(offsets) >= 200
            assert again == len(offsets), "one DataFrame, one snapshot"
    finally:
        done.set()
        sender.join()

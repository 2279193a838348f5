"""Topics from the bucket alone: every archived record, offsets, settings, epochs and producers, on an empty node."""

from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cold_tier.cache import ColdReadSettings
from cold_tier.errors import CorruptObject
from cold_tier.manifest.reader import load_newest
from cold_tier.objects.open import StoreSettings
from cold_tier.reader import ColdReader
from gateway.fetch.reader import Archive, Isolation, Reader
from hot_tier.errors import StorageFailure, TopicExists, UnknownTopic
from hot_tier.log.settings import LogSettings
from hot_tier.record.batch import iter_headers, read_header
from hot_tier.record.columns import NewRecord, decode_records, encode_records
from offloader.control import Control
from tests.offloader.harness import SMALL, TOPIC, Archived, archived_node
from tierlog.restore import restore_offline
from tierlog.settings import Settings

FOR_EVER = {"retention.ms": "-1"}


@asynccontextmanager
async def archived(folder: Path, count: int = 100, config: dict[str, str] | None = None):
    async with archived_node(str(folder), config={**FOR_EVER, **(config or {})}) as node:
        await node.produce(count)
        await node.settle()
        yield node


def second_node(folder: Path) -> Settings:
    bucket = StoreSettings(bucket=f"file://{folder}/bucket")
    return Settings(log=LogSettings(data_dir=str(folder / "second" / "node"), min_free_bytes=0), store=bucket)


async def restore(folder: Path, *names: str, **config: str):
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return [topic async for topic in restore_offline(second_node(folder), names, settings)]


@asynccontextmanager
async def serving_second(folder: Path):
    """A node on the restored directory, with an offloader and a stitched reader on the same bucket."""
    second = folder / "second"
    if not (second / "bucket").exists():
        (second / "bucket").symlink_to(folder / "bucket")
    async with archived_node(str(second)) as node:
        await node.offloader.round()
        node.running.node.reader = Reader(Archive(node.catalog, ColdReader(node.store, ColdReadSettings())))
        yield node


async def read_all(node: Archived) -> list:
    partition = node.partition
    offset, found = partition.log.log_start_offset, []
    while offset < partition.high_watermark:
        fetched = await node.running.node.reader.read(partition, offset, 1 << 16, Isolation.READ_COMMITTED)
        found += [record for record in decode_records(fetched.records) if record.offset >= offset]
        offset = max(header.end_offset for _, header in iter_headers(fetched.records))
    return found


async def test_every_archived_record_is_back_and_appends_go_on(tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        before = node.catalog.get(node.layout).snapshot
        sent, topic = node.sent, node.partition.topic
        epoch = node.partition.leader_epoch
    [restored] = await restore(tmp_path)
    assert (restored.name, restored.id, restored.restored) == (TOPIC, topic.id, True)
    async with serving_second(tmp_path) as node:
        partition = node.partition
        log = partition.log
        assert (log.log_start_offset, log.local_log_start_offset) == (0, before.end_offset)
        assert partition.high_watermark == log.log_end_offset == before.end_offset
        assert partition.leader_epoch > max(epoch, before.version.leader_epoch)
        assert dict(partition.topic.config) == dict(topic.config)
        assert partition.topic.created_ms == topic.created_ms
        found = await read_all(node)
        assert [record[1:] for record in found] == [record[1:] for record in sent[: before.end_offset]]
        await node.produce(60)
        assert log.log_end_offset == before.end_offset + 60
        assert len(await read_all(node)) == before.end_offset + 60
        await node.settle()
        after = node.catalog.get(node.layout).snapshot
        assert after.end_offset > before.end_offset and after.version > before.version
        epochs = log.epochs.entries()
        assert epochs[0] == (before.tail[0].epochs[0].leader_epoch, 0)
        assert epochs[-1] == (partition.leader_epoch, before.end_offset)


async def test_a_restored_log_outlives_an_unclean_stop(tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        end = node.catalog.get(node.layout).snapshot.end_offset
    await restore(tmp_path)
    (tmp_path / "second" / "node" / "clean-shutdown").unlink()
    async with serving_second(tmp_path) as node:
        log = node.partition.log
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, end, end)
        assert len(await read_all(node)) == end
        node.clock.now_ms += 3_600_000
        await node.offloader.round()
        assert node.catalog.get(node.layout).snapshot.log_start_offset == 0


async def test_a_log_start_above_zero_and_several_epochs_come_back(tmp_path: Path) -> None:
    async with archived(tmp_path):
        pass
    async with archived(tmp_path) as node:
        node.partition.delete_records_before(37)
        await node.offloader.round()
        snapshot = node.catalog.get(node.layout).snapshot
        epochs = [entry for entry in node.partition.log.epochs.entries() if entry[1] < snapshot.end_offset]
        assert len(epochs) == 2
    await restore(tmp_path)
    async with serving_second(tmp_path) as node:
        log = node.partition.log
        assert log.log_start_offset == 37
        assert log.epochs.entries()[:2] == [(epochs[0][0], 37), epochs[1]]
        assert [record.offset for record in await read_all(node)] == list(range(37, snapshot.end_offset))


async def test_a_producer_goes_on_where_it_was_and_new_ones_get_other_ids(tmp_path: Path) -> None:
    def batch(sequence: int) -> bytearray:
        records = [NewRecord(1_700_000_000_000, b"k", b"v" * 300) for _ in range(5)]
        return encode_records(records, producer_id=4321, producer_epoch=0, base_sequence=sequence)

    async with archived_node(str(tmp_path), config=FOR_EVER) as node:
        for number in range(20):
            data = batch(number * 5)
            node.partition.append(data, read_header(data), node.clock())
        await node.running.node.partitions.get(TOPIC, 0).when_committed(100)
        await node.settle()
        end = node.catalog.get(node.layout).snapshot.end_offset
    await restore(tmp_path)
    async with serving_second(tmp_path) as node:
        repeated = batch(end - 5)
        again = node.partition.append(repeated, read_header(repeated), node.clock())
        assert again.duplicate and again.end_offset == end
        following = batch(end)
        assert not node.partition.append(following, read_header(following), node.clock()).duplicate
        assert await node.running.node.producer_ids.next_id() > 4321


async def test_restored_settings_archive_and_can_be_changed(tmp_path: Path) -> None:
    async with archived(tmp_path, config={"max.message.bytes": "12345"}):
        pass
    [topic] = await restore(tmp_path, TOPIC, retention_ms="777777")
    assert topic.config["max.message.bytes"] == "12345"
    assert topic.config["retention.ms"] == "777777"
    assert topic.config["remote.storage.enable"] == "true"
    assert "older than retention.ms" in topic.warnings[0]


async def test_partitions_without_a_manifest_come_back_empty(tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        await node.running.node.admin.add_partitions(TOPIC, 3)
        await node.offloader.round()
        end = node.catalog.get(node.layout).snapshot.end_offset
    [topic] = await restore(tmp_path)
    assert [each.end_offset for each in topic.partitions] == [end, 0, 0]


async def test_the_life_made_last_is_restored(tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        await node.running.node.admin.delete_topic(TOPIC)
        node.clock.now_ms += 1000
        await node.running.node.admin.create_topic(TOPIC, 1, 1, SMALL)
        second = node.partition.topic.id
        await node.produce(50)
        await node.settle()
        end = node.catalog.get(node.layout).snapshot.end_offset
    [topic] = await restore(tmp_path)
    assert (topic.id, topic.partitions[0].end_offset) == (second, end)


async def test_what_exists_is_left_alone_or_refused(tmp_path: Path) -> None:
    async with archived(tmp_path):
        pass
    assert [topic.restored for topic in await restore(tmp_path)] == [True]
    assert [topic.restored for topic in await restore(tmp_path)] == [False]
    with pytest.raises(TopicExists):
        await restore(tmp_path, TOPIC)
    with pytest.raises(UnknownTopic, match="nothing of topic 'absent'"):
        await restore(tmp_path, "absent")


async def test_a_topic_without_its_description_is_restored_without_retention(tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        end = node.catalog.get(node.layout).snapshot.end_offset
    for path in (tmp_path / "bucket" / "_tierlog").glob("*/topic/*.json"):
        path.write_bytes(b"{")
    [topic] = await restore(tmp_path)
    assert topic.config["retention.ms"] == "-1" and topic.partitions[0].end_offset == end
    assert "cannot be read" in topic.warnings[0]


async def test_one_damaged_topic_does_not_keep_the_others_away(tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        await node.running.node.admin.create_topic("other", 1, 1, SMALL)
        partition = node.running.node.partitions.get("other", 0)
        for _ in range(20):
            data = encode_records([NewRecord(1, b"k", b"v" * 300)])
            appended = partition.append(data, read_header(data), node.clock())
        await partition.when_committed(appended.end_offset)
        await node.settle()
    manifest = min((tmp_path / "bucket" / "_tierlog").glob("other.*/0/manifest/*"))
    manifest.write_bytes(manifest.read_bytes()[:-1] + b"\0")
    found = {topic.name: topic for topic in await restore(tmp_path)}
    assert found[TOPIC].restored
    assert not found["other"].restored and "damaged" in found["other"].failure
    with pytest.raises(CorruptObject):
        await restore(tmp_path, "other")


async def test_an_interrupted_restore_begins_anew_and_records_on_disk_are_kept(tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        end = node.catalog.get(node.layout).snapshot.end_offset
    await restore(tmp_path)
    database = tmp_path / "second" / "node" / "metadata.db"
    for path in database.parent.glob("metadata.db*"):
        path.unlink()
    [topic] = await restore(tmp_path)
    assert topic.restored and topic.partitions[0].end_offset == end
    async with serving_second(tmp_path) as node:
        await node.produce(10)
    for path in database.parent.glob("metadata.db*"):
        path.unlink()
    with pytest.raises(StorageFailure, match="holds records of this topic"):
        await restore(tmp_path, TOPIC)


async def test_a_running_node_restores_what_was_deleted_by_mistake(tmp_path: Path) -> None:
    async with archived(tmp_path) as node:
        running = node.running.node
        end, topic_id, epoch = (
            node.catalog.get(node.layout).snapshot.end_offset,
            node.layout.topic_id,
            node.partition.leader_epoch,
        )
        control = Control(
            running.node_id, running.image, running.store, running.admin, running.partitions, running.logs,
            running.producer_ids, node.catalog, ColdReader(node.store, ColdReadSettings()), node.offloader, node.clock,
        )  # fmt: skip
        with pytest.raises(TopicExists):
            await control.restore([TOPIC], {})
        await running.admin.delete_topic(TOPIC)
        [topic] = await control.restore([], {})
        assert topic.restored and topic.id == topic_id
        assert list(running.image.deleted_topics()) == []
        await node.offloader.round()
        assert node.partition.leader_epoch > epoch
        assert len(await node.read_cold(0, end)) == end
        await node.produce(5)
        assert node.partition.high_watermark == end + 5
        node.clock.now_ms += 10 * 24 * 3_600_000
        await node.offloader.round()
        assert await load_newest(node.store, node.layout) is not None, "it is not a deleted topic any more"

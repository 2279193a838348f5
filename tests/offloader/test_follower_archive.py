"""Archived partitions at a follower: what it lets go of, whom it believes, how it reads what is only in the bucket."""

import dataclasses
import os
from contextlib import asynccontextmanager

import orjson
import pytest

from cold_tier.cache import ColdReadSettings
from cold_tier.errors import ArchiveNotLoaded, ManifestWentBack
from cold_tier.reader import ColdReader
from gateway.fetch.reader import Archive, Reader
from hot_tier.cluster.model import archived_key, encode, partition_key
from hot_tier.cluster.store import Put
from hot_tier.errors import OffsetArchived
from hot_tier.ids import NodeId, PartitionId
from hot_tier.record.columns import decode_records
from hot_tier.replication.followed_partition import FollowedPartition
from hot_tier.replication.roles import Role
from offloader.follower_archive import AGAIN_MS, ArchivedStart
from tests.offloader.harness import TOPIC, Archived, archived_node

OTHER = NodeId(5)
HOUR_MS = 3_600_000


class NoFetchers:
    """Whoever leads is never asked."""

    def follow(self, replica: FollowedPartition) -> None:
        pass

    unfollow = follow


async def put(node: Archived, key: str, value: bytes) -> None:
    revision = await node.running.node.store.transact([], [Put(key, value)])
    await node.running.node.image.reached(revision)


async def say_archived(node: Archived, end_offset: int, epoch: int) -> None:
    """As the leader of this epoch records it."""
    key = archived_key(node.layout.topic_id, 0)
    known = await node.running.node.store.get(key)
    said = {"end_offset": end_offset, "log_start": 0, "leader_epoch": epoch, "uploading": None}
    await put(node, key, orjson.dumps(orjson.loads(known.value) | said))


async def attend(node: Archived) -> None:
    await node.offloader.followed.attend(node.clock())


@asynccontextmanager
async def following(tmp_path, **config: str):
    """A node that has archived its partition, and then follows broker 5 in the next epoch."""
    settings = {"local.retention.ms": str(HOUR_MS), "file.delete.delay.ms": "0", **config}
    async with archived_node(str(tmp_path), config=settings) as node:
        await node.produce(200)
        node.partition.log.flush()
        await node.settle()
        parts = node.running.node
        parts.partitions._fetchers = NoFetchers()
        topic = parts.image.topic(TOPIC)
        state = parts.image.partition_states(topic)[0]
        moved = dataclasses.replace(
            state,
            leader=OTHER,
            leader_epoch=state.leader_epoch + 1,
            isr=(OTHER, NodeId(0)),
            replicas=(OTHER, NodeId(0)),
        )
        archived_end = node.catalog.get(node.layout).snapshot.end_offset
        await put(node, partition_key(topic.id, PartitionId(0)), encode(moved))
        [replica] = parts.partitions.replicas
        yield node, replica, archived_end, moved.leader_epoch


async def test_only_what_the_present_leader_has_archived_goes(tmp_path):
    async with following(tmp_path) as (node, replica, archived_end, epoch):
        node.clock.now_ms += 2 * HOUR_MS
        assert replica.log.local_log_start_offset == 0
        await attend(node)
        assert replica.log.local_log_start_offset == 0, "nobody has said it in this epoch"
        await say_archived(node, archived_end, epoch - 1)
        await attend(node)
        assert replica.log.local_log_start_offset == 0, "a deposed leader said it"
        middle = replica.log.segments()[2].end_offset
        await say_archived(node, middle, epoch)
        await attend(node)
        assert (replica.log.local_log_start_offset, replica.log.log_start_offset) == (middle, 0)
        await say_archived(node, archived_end, epoch)
        await attend(node)
        assert replica.log.local_log_start_offset == archived_end


async def test_what_is_not_known_to_be_committed_stays(tmp_path):
    async with following(tmp_path) as (node, replica, archived_end, epoch):
        node.clock.now_ms += 2 * HOUR_MS
        replica.high_watermark = replica.log.segments()[1].end_offset
        await say_archived(node, archived_end, epoch)
        await attend(node)
        assert replica.log.local_log_start_offset == replica.high_watermark


async def test_nothing_goes_while_the_bucket_is_wrong(tmp_path):
    """Not even what is deleted for readers: who leads here later goes on archiving from there."""
    async with following(tmp_path) as (node, replica, _archived_end, epoch):
        node.clock.now_ms += 2 * HOUR_MS
        first, second, third = replica.log.segments()[:3]
        await say_archived(node, first.end_offset, epoch)
        replica.log.delete_records_before(third.end_offset)
        manifests = sorted((tmp_path / "bucket" / node.layout.manifest_folder).iterdir())
        away = [path.rename(tmp_path / path.name) for path in manifests]
        await attend(node)
        assert replica.log.segments()[:2] == [first, second]
        for path, manifest in zip(away, manifests, strict=True):
            path.rename(manifest)
        node.clock.now_ms += 2 * HOUR_MS
        await attend(node)
        assert replica.log.segments()[0] == second


async def test_what_local_retention_keeps_stays(tmp_path):
    async with following(tmp_path) as (node, replica, archived_end, epoch):
        await say_archived(node, archived_end, epoch)
        await attend(node)
        assert replica.log.local_log_start_offset == 0


async def test_nothing_is_published_by_a_follower(tmp_path):
    async with following(tmp_path) as (node, _replica, archived_end, epoch):
        before = await node.keys()
        node.clock.now_ms += 48 * HOUR_MS
        await say_archived(node, archived_end, epoch)
        await attend(node)
        await node.offloader.round()
        await node.offloader.collect_garbage()
        assert await node.keys() == before


async def test_a_reader_here_gets_what_is_in_the_bucket(tmp_path):
    async with following(tmp_path) as (node, replica, archived_end, epoch):
        node.clock.now_ms += 2 * HOUR_MS
        await say_archived(node, archived_end, epoch)
        await attend(node)
        cold = ColdReader(node.store, ColdReadSettings())
        reader = Reader(Archive(node.catalog, cold))
        with pytest.raises(ArchiveNotLoaded):
            await reader.read(replica, 0, 1000, 1)
        await attend(node)
        fetched = await reader.read(replica, 0, 1000, 1)
        assert decode_records(fetched.records)[0] == node.sent[0]
        # Before objects that this manifest names can be gone, it is thrown away and asked for again.
        node.clock.now_ms += HOUR_MS
        await attend(node)
        with pytest.raises(ArchiveNotLoaded):
            await reader.read(replica, 0, 1000, 1)
        await attend(node)
        assert (await reader.read(replica, 0, 1000, 1)).records
        await cold.close()


async def test_a_replica_begins_where_the_archive_ends(tmp_path):
    async with following(tmp_path) as (node, replica, archived_end, _epoch):
        epochs = replica.log.epochs.entries()
        replica.log.truncate_to(7, node.clock())
        replica.high_watermark = 0
        await ArchivedStart(node.store, node.running.node.image)(replica)
        log = replica.log
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, archived_end, archived_end)
        assert (replica.high_watermark, log.flushed_offset) == (archived_end, archived_end)
        assert [entry for entry in epochs if entry[1] < archived_end] == log.epochs.entries()
        names = [name for name in os.listdir(log.directory) if name.endswith(".log")]
        assert names == [f"{archived_end:020d}.log"]


async def test_a_log_whose_role_has_changed_is_left_alone(tmp_path):
    async with following(tmp_path) as (node, replica, _archived_end, _epoch):
        replica.log.truncate_to(7, node.clock())
        end = replica.log.log_end_offset
        replica.close(ArchiveNotLoaded("it leads now"))
        await ArchivedStart(node.store, node.running.node.image)(replica)
        assert replica.log.log_end_offset == end


@pytest.mark.parametrize("in_doubt", [False, True])
async def test_a_replica_keeps_what_it_has_while_the_bucket_does_not_hold_it(tmp_path, in_doubt: bool) -> None:
    async with following(tmp_path) as (node, replica, archived_end, _epoch):
        if in_doubt:
            replica.role = Role.IN_DOUBT
        else:
            replica.log.truncate_to(40, node.clock())
        end = replica.log.log_end_offset
        second = node.catalog.get(node.layout).snapshot.tail[1]
        assert second.base_offset < end and (in_doubt or end < archived_end)
        path = tmp_path / "bucket" / node.layout.rows(second.name)
        data = path.read_bytes()
        path.unlink()
        with pytest.raises(OffsetArchived, match="gone from the bucket"):
            await ArchivedStart(node.store, node.running.node.image)(replica)
        assert (replica.log.local_log_start_offset, replica.log.log_end_offset) == (0, end)
        path.write_bytes(data)
        await ArchivedStart(node.store, node.running.node.image)(replica)
        assert replica.log.log_end_offset == archived_end


@pytest.mark.parametrize("what", ["rows", "index", "manifests"])
async def test_nothing_goes_that_the_bucket_does_not_hold_any_more(tmp_path, what: str) -> None:
    """The leader has recorded it, and has not looked since."""
    async with following(tmp_path) as (node, replica, archived_end, epoch):
        await say_archived(node, archived_end, epoch)
        second = node.catalog.get(node.layout).snapshot.tail[1]
        harmed = {
            "rows": [node.layout.rows(second.name)],
            "index": [node.layout.index(second.name)],
            "manifests": await node.keys(node.layout.manifest_folder),
        }[what]
        kept = {key: (tmp_path / "bucket" / key).read_bytes() for key in harmed}
        for key in harmed:
            (tmp_path / "bucket" / key).unlink()
        node.clock.now_ms += 2 * HOUR_MS
        await attend(node)
        await attend(node)
        expected = 0 if what == "manifests" else second.base_offset
        assert replica.log.local_log_start_offset == expected
        for key, data in kept.items():
            (tmp_path / "bucket" / key).write_bytes(data)
        node.clock.now_ms += AGAIN_MS
        await attend(node)
        assert replica.log.local_log_start_offset == archived_end


async def test_a_replica_does_not_begin_with_a_manifest_that_went_back(tmp_path):
    async with following(tmp_path) as (node, replica, _archived_end, _epoch):
        replica.log.truncate_to(7, node.clock())
        end = replica.log.log_end_offset
        min((tmp_path / "bucket" / node.layout.manifest_folder).iterdir()).unlink()
        with pytest.raises(ManifestWentBack):
            await ArchivedStart(node.store, node.running.node.image)(replica)
        assert (replica.log.local_log_start_offset, replica.log.log_end_offset) == (0, end)

"""The archive path over real logs and a real bucket directory: nothing lost, nothing twice, nothing too early."""

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from cold_tier.errors import CorruptObject, StoreUnavailable
from cold_tier.format.index import read_index
from cold_tier.manifest.reader import load_newest
from offloader.settings import OffloadSettings
from tests.offloader.harness import TOPIC, archived_node

HOUR = 3_600_000


async def test_sealed_segments_are_archived_and_read_back_byte_for_byte(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path)) as node:
        await node.produce(100)
        await node.settle()
        sealed_end = node.partition.log.sealed_segments()[-1].end_offset
        snapshot = await load_newest(node.store, node.layout)
        assert snapshot is not None and snapshot.end_offset == sealed_end > 50
        assert len(snapshot.tail) == len(node.partition.log.sealed_segments())
        records = await node.read_cold(0, sealed_end)
        assert [r[1:] for r in records] == [r[1:] for r in node.sent[:sealed_end]]
        assert [r.offset for r in records] == list(range(sealed_end))


async def test_a_plain_parquet_reader_sees_every_archived_row_once(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path)) as node:
        await node.produce(100)
        await node.settle()
        end = node.partition.log.sealed_segments()[-1].end_offset
        table = pq.read_table(tmp_path / "bucket" / f"topic={TOPIC}")
        assert sorted(table["offset"].to_pylist()) == list(range(end))
        assert set(table["partition"].to_pylist()) == {0}


async def test_a_local_segment_goes_only_after_the_bucket_has_it(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config={"local.retention.ms": "1000", "retention.ms": "-1"}) as node:
        await node.produce(100)
        node.clock.now_ms += HOUR
        blocked = tmp_path / "bucket" / f"topic={TOPIC}"
        blocked.write_text("in the way: no rows can be put here")
        await node.offloader.round()
        assert node.partition.log.local_log_start_offset == 0
        [archive] = node.offloader
        assert archive.failures == 1 and archive.backlog_bytes > 0
        blocked.unlink()
        node.clock.now_ms += HOUR
        await node.settle()
        await node.offloader.round()
        log = node.partition.log
        assert log.log_start_offset == 0 < log.local_log_start_offset
        assert len(await node.read_cold(0, log.local_log_start_offset)) == log.local_log_start_offset


async def test_the_archive_goes_on_after_a_restart_in_a_new_epoch(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path)) as node:
        await node.produce(60)
        await node.settle()
        first = node.catalog.get(node.layout).snapshot
    async with archived_node(str(tmp_path)) as node:
        await node.produce(60)
        await node.settle()
        second = node.catalog.get(node.layout).snapshot
        assert second.version.leader_epoch > first.version.leader_epoch
        assert second.tail[: len(first.tail)] == first.tail
        assert [r.offset for r in await node.read_cold(0, second.end_offset)] == list(range(second.end_offset))
        assert len(second.tail[-1].epochs) == 1
        spanning = [s for s in second.tail if len(s.epochs) == 2]
        assert all(s.base_offset < s.epochs[1].start_offset < s.end_offset for s in spanning)


async def test_total_retention_expires_then_deletes_after_the_grace(tmp_path: Path) -> None:
    settings = OffloadSettings(delete_grace_ms=600_000)
    async with archived_node(str(tmp_path), settings, {"retention.ms": str(2 * HOUR)}) as node:
        await node.produce(50)
        await node.settle()
        old = set(await node.keys("topic=orders/"))
        node.clock.now_ms += HOUR + HOUR // 2
        await node.produce(50)
        node.clock.now_ms += HOUR
        log = node.partition.log
        told: list[int] = []
        node.partition.add_append_listener(lambda: told.append(log.log_start_offset))
        await node.settle()
        await node.offloader.round()
        snapshot = node.catalog.get(node.layout).snapshot
        assert 0 < snapshot.log_start_offset == log.log_start_offset <= 50
        assert told[-1:] == [log.log_start_offset], "followers hear of it at once"
        assert old & set(await node.keys("topic=orders/")) == old, "readers in flight still find their objects"
        node.clock.now_ms += 600_001
        await node.offloader.round()
        left = set(await node.keys("topic=orders/"))
        named = {node.layout.rows(s.name) for s in node.catalog.get(node.layout).snapshot.tail}
        assert left == named
        assert [r.offset for r in await node.read_cold(log.log_start_offset, snapshot.end_offset)] == list(
            range(log.log_start_offset, snapshot.end_offset)
        )


async def test_delete_records_reaches_the_archive(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config={"retention.ms": "-1"}) as node:
        await node.produce(100)
        await node.settle()
        node.partition.delete_records_before(37)
        await node.offloader.round()
        snapshot = node.catalog.get(node.layout).snapshot
        assert snapshot.log_start_offset == 37
        assert snapshot.start_offset <= 37 < snapshot.tail[0].end_offset
        assert len(snapshot.removed) > 0


async def test_orphans_go_past_their_age_and_nothing_else(tmp_path: Path) -> None:
    settings = OffloadSettings(orphan_age_ms=HOUR, garbage_check_ms=0, manifest_history_ms=10 * 365 * 24 * HOUR)
    async with archived_node(str(tmp_path), settings, {"retention.ms": "-1"}) as node:
        await node.produce(60)
        await node.settle()
        before = set(await node.keys())
        stem = "00000000000000000005-0-" + "ab" * 16
        young = [f"{node.layout.rows_folder}{stem}.parquet", f"{node.layout.index_folder}{stem}.index"]
        foreign = f"{node.layout.rows_folder}someone-elses.parquet"
        for key in (*young, foreign):
            await node.store.put(key, b"left over")
        await node.offloader.round()
        assert set(await node.keys()) == before | {*young, foreign}
        written = max(os.stat(tmp_path / "bucket" / key).st_mtime_ns // 1_000_000 for key in young)
        node.clock.now_ms = written + HOUR + 1
        await node.offloader.round()
        left = set(await node.keys())
        assert left & {*young, foreign} == {foreign}, "a name that is not ours is not ours to delete"
        assert before <= left


async def test_a_deposed_leader_deletes_nothing(tmp_path: Path) -> None:
    from cold_tier.manifest.writer import ManifestWriter

    settings = OffloadSettings(delete_grace_ms=0)
    async with archived_node(str(tmp_path), settings, {"local.retention.ms": "1000", "retention.ms": "-1"}) as node:
        await node.produce(60)
        await node.settle()
        epoch = node.partition.leader_epoch
        await ManifestWriter.open(node.store, node.layout, epoch + 1, 0, node.clock())
        node.clock.now_ms += HOUR
        await node.offloader.round()
        assert node.partition.log.local_log_start_offset == 0
        newest = await load_newest(node.store, node.layout)
        assert newest is not None and newest.version.leader_epoch == epoch + 1


async def test_a_damaged_upload_is_noticed_and_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The read-back is what notices; the worker process is stood in for by the same code in this process."""
    from cold_tier.objects.bucket import Bucket
    from cold_tier.objects.directory import DirectoryStore
    from offloader.archive import archive_segment

    class Flipping(DirectoryStore):
        left = 1

        async def put_file(self, key: str, path: str) -> None:
            await super().put_file(key, path)
            if self.left:
                self.left -= 1
                stored = Path(self.root) / key
                data = bytearray(stored.read_bytes())
                data[len(data) // 2] ^= 1
                stored.write_bytes(data)

    async with archived_node(str(tmp_path)) as node:
        await node.produce(60)
        store = Bucket(Flipping(str(tmp_path / "bucket")))
        [worker] = node.offloader._workers
        (tmp_path / "scratch" / "0").mkdir(parents=True)
        monkeypatch.setattr(worker, "archive", lambda job: archive_segment(store, job, str(tmp_path / "scratch/0")))
        await node.offloader.round()
        [archive] = node.offloader
        assert "checksum" in archive.last_failure
        node.clock.now_ms += HOUR
        await node.settle()
        end = node.catalog.get(node.layout).snapshot.end_offset
        assert len(await node.read_cold(0, end)) == end


async def test_the_producer_state_travels_with_the_segment(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path)) as node:
        await node.produce(100)
        await node.settle()
        segment = node.catalog.get(node.layout).snapshot.tail[0]
        index = read_index(await node.store.get(node.layout.index(segment.name)), "here")
        assert index.producers, "a restored broker knows its producers"


async def test_reads_of_a_missing_or_damaged_object_are_errors(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path)) as node:
        await node.produce(60)
        await node.settle()
        first, second, *_ = node.catalog.get(node.layout).snapshot.tail
        await node.store.delete([node.layout.rows(first.name)])
        with pytest.raises(CorruptObject, match="not there"):
            await node.read_cold(0, 1)
        path = tmp_path / "bucket" / node.layout.rows(second.name)
        data = bytearray(path.read_bytes())
        data[10] ^= 1
        path.write_bytes(data)
        with pytest.raises(CorruptObject, match=second.name.stem):
            await node.read_cold(second.base_offset, second.end_offset)


async def test_a_bucket_that_is_away_is_not_an_empty_bucket(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config={"local.retention.ms": "1000", "retention.ms": "-1"}) as node:
        await node.produce(60)
        node.clock.now_ms += HOUR
        await node.settle()
        await node.offloader.round()
        assert node.partition.log.local_log_start_offset > 0

        async def unavailable(*_: object) -> None:
            raise StoreUnavailable("away")
            yield

        node.store._store.stream = unavailable
        with pytest.raises(StoreUnavailable):
            await node.read_cold(0, 10)


async def test_a_lost_log_start_does_not_cut_the_archive(tmp_path: Path) -> None:
    """A power loss may take the file that says where the log begins; the bucket's history stays readable."""
    config = {"local.retention.ms": "1000", "retention.ms": "-1"}
    async with archived_node(str(tmp_path), config=config) as node:
        await node.produce(100)
        node.clock.now_ms += HOUR
        await node.settle()
        await node.offloader.round()
        local_start = node.partition.log.local_log_start_offset
        assert local_start > 0
    [log_start] = (tmp_path / "node" / "logs").glob(f"{TOPIC}.*/0/log-start")
    log_start.write_bytes(b"torn")
    (tmp_path / "node" / "clean-shutdown").unlink()
    async with archived_node(str(tmp_path), config=config) as node:
        await node.offloader.round()
        log = node.partition.log
        assert (log.log_start_offset, log.local_log_start_offset) == (0, local_start)
        assert node.catalog.get(node.layout).snapshot.log_start_offset == 0
        assert [r.offset for r in await node.read_cold(0, local_start)] == list(range(local_start))

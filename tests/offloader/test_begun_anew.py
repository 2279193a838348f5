"""A leader whose log began anew above the archive's end, because all in between was deleted."""

from pathlib import Path

from cold_tier.manifest.reader import load_newest
from tests.offloader.harness import archived_node
from tests.offloader.test_bucket_went_back import rounds
from tests.offloader.test_offloader import without_worker


async def test_archiving_goes_on_behind_deleted_records(tmp_path: Path) -> None:
    async with archived_node(str(tmp_path)) as node:
        without_worker(node, tmp_path)
        await node.produce(60)
        await node.settle()
        [archive] = node.offloader
        assert 0 < archive.writer.current.end_offset < node.partition.log_end_offset
        # As a follower does that asks for what its leader has deleted; later it leads.
        start = node.partition.delete_records_before(-1)
        node.partition.log.reset_to(start, node.clock())
        await node.produce(60)
        for _ in range(3):
            node.clock.now_ms += 120_000
            await node.settle()
        assert archive.last_failure == ""
        current = archive.writer.current
        assert (current.start_offset, current.log_start_offset) == (start, start)
        assert current.end_offset > start
        assert [record.offset for record in await node.read_cold(start, current.end_offset)] == list(
            range(start, current.end_offset)
        )


async def test_manifests_that_come_back_are_older_than_the_new_ones(tmp_path: Path) -> None:
    """All that was archived is deleted, and the bucket loses its manifests: nothing is missing, archiving goes on. The
    lost manifests may come back after that."""
    async with archived_node(str(tmp_path)) as node:
        without_worker(node, tmp_path)
        await node.produce(60)
        await node.settle()
        [archive] = node.offloader
        node.partition.delete_records_before(archive.writer.current.end_offset)
        node.clock.now_ms += 120_000
        await node.settle()
        manifests, before = tmp_path / "bucket" / node.layout.manifest_folder, archive.writer.current
        assert before.log_start_offset == before.end_offset and before.version.sequence > 0
        lost = tmp_path / "lost"
        manifests.rename(lost)
        await node.produce(60)
        await rounds(node, 4)
        current = archive.writer.current
        assert archive.stopped is None and current.version > before.version and current.end_offset > before.end_offset
        for manifest in lost.iterdir():
            manifest.rename(manifests / manifest.name)
        newest = await load_newest(node.store, node.layout)
        assert newest is not None and newest.version == current.version

"""A leader whose log began anew above the archive's end, because all in between was deleted."""

from pathlib import Path

from tests.offloader.harness import archived_node
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

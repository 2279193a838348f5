"""Local copies go only while the bucket has what was archived: deleted there since, the local one is the only one."""

from pathlib import Path

import pytest

from offloader.held import AGAIN_MS
from tests.offloader.harness import Archived, archived_node

HOUR = 3_600_000
KEEPING = {"local.retention.ms": str(HOUR), "retention.ms": "-1"}


async def local_start_after_a_day(node: Archived) -> int:
    node.clock.now_ms += 24 * HOUR
    await node.offloader.round()
    return node.partition.log.local_log_start_offset


@pytest.mark.parametrize("kind", ["rows", "index"])
@pytest.mark.parametrize("how", ["gone", "short"])
async def test_a_local_segment_stays_while_its_archived_copy_is_gone(tmp_path: Path, kind: str, how: str) -> None:
    async with archived_node(str(tmp_path), config=KEEPING) as node:
        await node.produce(60)
        await node.settle()
        [archive] = node.offloader
        harmed = archive.writer.current.tail[1]
        key = node.layout.rows(harmed.name) if kind == "rows" else node.layout.index(harmed.name)
        path = tmp_path / "bucket" / key
        data = path.read_bytes()
        path.unlink()
        if how == "short":
            path.write_bytes(data[:-1])
        assert await local_start_after_a_day(node) == harmed.base_offset, "all that is safely stored has gone"
        assert archive.kept is not None and key in archive.kept.why and archive.kept.info.path in archive.kept.why
        heads = node.store.counters.heads
        await node.offloader.round()
        assert node.store.counters.heads == heads, "not asked for again and again"
        path.write_bytes(data)
        node.clock.now_ms += AGAIN_MS
        assert await local_start_after_a_day(node) == archive.writer.current.end_offset
        assert archive.kept is None
        found = await node.read_cold(0, archive.writer.current.end_offset)
        assert [record.value for record in found] == [record.value for record in node.sent[: len(found)]]

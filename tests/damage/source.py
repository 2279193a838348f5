"""A node that archives, with a harmed segment: what is archived is what was produced, or the segment is held.

Held means: its file stays, nothing behind it is archived, the status says so, and the archive goes on by itself once a
whole copy is in its place.
"""

import shutil
from pathlib import Path

from cold_tier.cache import ColdReadSettings
from cold_tier.checking.verify import verify
from cold_tier.inventory import find_topics
from cold_tier.reader import ColdReader
from cold_tier.reports import Finding
from hot_tier.log.segment_info import SegmentInfo
from offloader.archive import archive_segment
from tests.damage.harms import do
from tests.damage.model import Model, Wrong
from tests.damage.one_log import target
from tests.damage.table import KILL, LIVE, Case
from tests.offloader.harness import Archived, archived_node

DROPPING = {"local.retention.ms": "1000", "retention.ms": "-1"}
HOUR = 3_600_000


def in_process(node: Archived, folder: Path) -> None:
    for worker in node.offloader._workers:
        worker.archive = lambda job: archive_segment(node.store, job, str(folder))


def sealed(node: Archived) -> list[SegmentInfo]:
    return node.partition.log.sealed_segments()


async def rounds(node: Archived, count: int = 3) -> None:
    for _ in range(count):
        node.clock.now_ms += HOUR
        await node.offloader.round()


async def check(node: Archived, model: Model, paths: list[Path]) -> bool:
    """The invariant. Returns whether everything sealed is archived."""
    [archive] = node.offloader
    end = archive.writer.current.end_offset
    cold = ColdReader(node.store, ColdReadSettings())

    async def fetch(at: int) -> bytes:
        read = await cold.read(archive.manifest, at, 1 << 16)
        return b"" if read is None else read.data

    try:
        await model.check(fetch, end, starts=[0], whole=True)
    finally:
        await cold.close()
    events = [event async for event in verify(node.store, await find_topics(node.store))]
    assert [event for event in events if isinstance(event, Finding)] == []
    kept = {Path(info.path) for info in sealed(node) if info.end_offset > end}
    if kept != {path for path in paths if int(path.stem) >= end}:
        raise Wrong("something was dropped that is not archived")
    if kept:
        assert archive.held is not None and archive.backlog_bytes > 0
        assert archive.held.info.path in archive.held.why
        assert int(Path(archive.held.info.path).stem) <= min(int(path.stem) for path in kept)
    return not kept


def as_sent(node: Archived) -> Model:
    return Model({offset: record._replace(offset=offset) for offset, record in enumerate(node.sent)})


async def run(case: Case, folder: Path) -> str:
    """What came of it: always "errors", which are that the segment is held until it is whole again."""
    folder.mkdir()
    async with archived_node(str(folder), config=DROPPING) as node:
        in_process(node, folder)
        await node.produce(60)
        shutil.copytree(folder / "node", folder / "older")
        await node.produce(40)
        paths = [Path(info.path) for info in sealed(node)]
        good = {path: path.read_bytes() for path in paths}
        if case.moment == LIVE:
            return await _held_until_whole(node, case, folder, paths, good)
    if case.moment == KILL:
        (folder / "node" / "clean-shutdown").unlink()
    if not do(case.harm, target(case, folder / "node", folder / "older")):
        return "nothing changed"
    async with archived_node(str(folder), config=DROPPING, clock=node.clock) as again:
        in_process(again, folder)
        await rounds(again)
        if await check(again, as_sent(node), [Path(info.path) for info in sealed(again)]):
            raise Wrong("a harmed segment was archived")
    if case.moment == KILL:
        (folder / "node" / "clean-shutdown").unlink()
    _put_right(good)
    async with archived_node(str(folder), config=DROPPING, clock=node.clock) as again:
        in_process(again, folder)
        paths = [Path(info.path) for info in sealed(again)]
        await rounds(again, 30)
        if not await check(again, as_sent(node), paths):
            raise Wrong("a whole segment is not archived")
    return "errors"


async def _held_until_whole(
    node: Archived, case: Case, folder: Path, paths: list[Path], good: dict[Path, bytes]
) -> str:
    if not do(case.harm, target(case, folder / "node", folder / "older")):
        return "nothing changed"
    await rounds(node)
    if await check(node, as_sent(node), paths):
        raise Wrong("a harmed segment was archived")
    _put_right(good)
    await rounds(node, 30)
    if not await check(node, as_sent(node), paths):
        raise Wrong("a whole segment is not archived")
    return "errors"


def _put_right(good: dict[Path, bytes]) -> None:
    for path, content in good.items():
        path.write_bytes(content)

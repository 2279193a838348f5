"""Whatever becomes of a sealed segment's file: what is archived is what was produced, or the segment is held.

Held means: its file stays, nothing behind it is archived, the status says so, and the archive goes on by itself once a
whole copy is in its place.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cold_tier.inventory import find_topics
from cold_tier.reports import Finding
from hot_tier.log.segment import SegmentInfo
from offloader.archive import archive_segment
from offloader.held import AGAIN_MS
from offloader.verify import verify
from tests.offloader.harness import Archived, archived_node
from tests.support.harms import HARMS

DROPPING = {"local.retention.ms": "1000", "retention.ms": "-1"}
HOUR = 3_600_000
HARMED = 2
"""Which of the sealed segments; the ones before it are whole, and so are those behind it."""


QUICK = ("base offset bit 2", "length bit 5", "leader epoch bit 0", "cut between batches", "emptied", "removed")
ALL = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in HARMS]


def in_process(node: Archived, folder: Path) -> None:
    for worker in node.offloader._workers:
        worker.archive = lambda job: archive_segment(node.store, job, str(folder))


def sealed(node: Archived) -> list[SegmentInfo]:
    return node.partition.log.sealed_segments()


def restart(folder: Path, how: str) -> None:
    if how == "kill":
        (folder / "node" / "clean-shutdown").unlink()


async def rounds(node: Archived, count: int = 3) -> None:
    for _ in range(count):
        node.clock.now_ms += HOUR
        await node.offloader.round()


async def check(node: Archived, paths: list[Path]) -> bool:
    """The invariant; whether everything sealed is archived."""
    [archive] = node.offloader
    end = archive.writer.current.end_offset
    found = await node.read_cold(0, end)
    assert [record.offset for record in found] == list(range(end))
    assert [record.value for record in found] == [record.value for record in node.sent[:end]]
    events = [event async for event in verify(node.store, await find_topics(node.store))]
    assert [event for event in events if isinstance(event, Finding)] == []
    kept = {Path(info.path) for info in sealed(node) if info.end_offset > end}
    assert kept == {path for path in paths if int(path.stem) >= end}, "nothing unarchived is dropped"
    if kept:
        assert archive.held is not None and archive.backlog_bytes > 0
        assert archive.held.info.path in archive.held.why
        assert int(Path(archive.held.info.path).stem) <= min(int(path.stem) for path in kept)
    return not kept


@pytest.fixture
async def live(tmp_path: Path) -> Iterator[Archived]:
    async with archived_node(str(tmp_path), config=DROPPING) as node:
        in_process(node, tmp_path)
        await node.produce(100)
        yield node


async def test_no_harm_to_a_live_segment_makes_a_hole_in_the_archive(live: Archived, tmp_path: Path) -> None:
    node = live
    paths = [Path(info.path) for info in sealed(node)]
    path, other = paths[HARMED], paths[HARMED + 1]
    good, others_good = path.read_bytes(), other.read_bytes()
    for name, harm in HARMS.items():
        harm(path, other)
        await rounds(node, 1)
        assert not await check(node, paths), name
        assert node.offloader.archive_of(node.partition.tp).held.info.path == str(path), name
        assert path.exists() or name == "removed"
        path.write_bytes(good)
        other.write_bytes(others_good)
    await rounds(node)
    assert await check(node, paths)
    assert not path.exists() or node.partition.log.local_log_start_offset > int(path.stem), "dropped once archived"


@pytest.mark.parametrize("how", ["clean", "kill"])
@pytest.mark.parametrize("harm", ALL)
async def test_no_harm_before_a_start_makes_a_hole_in_the_archive(harm: str, how: str, tmp_path: Path) -> None:
    async with archived_node(str(tmp_path), config=DROPPING) as node:
        await node.produce(100)
        paths = [Path(info.path) for info in sealed(node)]
    path, other = paths[HARMED], paths[HARMED + 1]
    good, others_good = path.read_bytes(), other.read_bytes()
    restart(tmp_path, how)
    HARMS[harm](path, other)
    async with archived_node(str(tmp_path), config=DROPPING, clock=node.clock) as again:
        in_process(again, tmp_path)
        again.sent = node.sent
        await rounds(again)
        paths = [Path(info.path) for info in sealed(again)]
        assert not await check(again, paths)
    restart(tmp_path, how)
    path.write_bytes(good)
    other.write_bytes(others_good)
    async with archived_node(str(tmp_path), config=DROPPING, clock=node.clock) as again:
        in_process(again, tmp_path)
        again.sent = node.sent
        paths = [Path(info.path) for info in sealed(again)]
        await rounds(again, 30)
        assert await check(again, paths)


async def test_a_held_segment_is_not_read_again_and_again(live: Archived, tmp_path: Path) -> None:
    node, jobs = live, []
    [worker] = node.offloader._workers

    async def counted(job):
        jobs.append(job)
        return await archive_segment(node.store, job, str(tmp_path))

    worker.archive = counted
    path = Path(sealed(node)[0].path)
    os.truncate(path, 100)
    for _ in range(20):
        await node.offloader.round()
        node.clock.now_ms += 1000
    archive = node.offloader.archive_of(node.partition.tp)
    assert (len(jobs), archive.failures) == (1, 1)
    node.clock.now_ms += AGAIN_MS
    await node.offloader.round()
    assert (len(jobs), archive.failures) == (1, 2)


async def test_retention_of_what_is_archived_goes_on_while_a_segment_is_held(tmp_path: Path) -> None:
    config = {"local.retention.ms": "1000", "retention.ms": str(10 * HOUR)}
    async with archived_node(str(tmp_path), config=config) as node:
        in_process(node, tmp_path)
        await node.produce(100)
        infos = sealed(node)
        os.truncate(infos[HARMED].path, 100)
        node.clock.now_ms += 11 * HOUR
        await rounds(node)
        [archive] = node.offloader
        assert archive.writer.current.end_offset == infos[HARMED].base_offset
        assert node.partition.log.log_start_offset == infos[HARMED].base_offset, "what was archived has expired"
        assert [info.path for info in sealed(node)] == [info.path for info in infos[HARMED:]], "nothing else has"


async def test_a_segment_that_was_compacted_under_the_worker_is_not_damaged(live: Archived, tmp_path: Path) -> None:
    node = live
    [worker] = node.offloader._workers
    replaced = []

    async def replaced_meanwhile(job):
        if not replaced:
            replaced.append(job)
            segment = node.partition.log._segments[0]
            shutil.copy(job.log_path, tmp_path / "whole")
            os.truncate(job.log_path, 100)
            segment.cleaned_ms = 1
            try:
                return await archive_segment(node.store, job, str(tmp_path))
            finally:
                shutil.copy(tmp_path / "whole", job.log_path)
        return await archive_segment(node.store, job, str(tmp_path))

    worker.archive = replaced_meanwhile
    await node.offloader.round()
    assert node.offloader.archive_of(node.partition.tp).held is None
    await node.settle()

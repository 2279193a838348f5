"""A damaged segment is held, and nothing else. Every harm to it is tried in `tests/damage`."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from offloader.archive import archive_segment
from offloader.held import AGAIN_MS
from tests.damage.source import DROPPING, HOUR, in_process, rounds, sealed
from tests.offloader.harness import Archived, archived_node

HARMED = 2
"""Which of the sealed segments; the ones before it are whole, and so are those behind it."""


@pytest.fixture
async def live(tmp_path: Path) -> Iterator[Archived]:
    async with archived_node(str(tmp_path), config=DROPPING) as node:
        in_process(node, tmp_path)
        await node.produce(100)
        yield node


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

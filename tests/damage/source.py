"""A node that archives, with a harmed file: what is archived is what was produced, or the segment is held.

Held means: its file stays, nothing behind it is archived, the status says so, and the archive goes on by itself once a
whole copy is in its place. A harmed snapshot of producers is made anew: what is archived of them is right too.
"""

import shutil
from pathlib import Path

from cold_tier.cache import ColdReadSettings
from cold_tier.checking.verify import verify
from cold_tier.format.index import read_index
from cold_tier.inventory import find_topics
from cold_tier.reader import ColdReader
from cold_tier.reports import Finding
from hot_tier.log.names import PRODUCERS
from hot_tier.log.producers import read_producers
from hot_tier.log.segment_info import SegmentInfo
from offloader.archive import archive_segment
from tests.damage.harms import do
from tests.damage.model import Model, Wrong
from tests.damage.one_log import everything, target
from tests.damage.table import COMPACTED, KILL, LIVE, Case
from tests.offloader.harness import Archived, archived_node
from tests.offloader.test_compacted_archive import write

DROPPING = {"local.retention.ms": "1000", "retention.ms": "-1"}
COMPACTING = {"local.retention.ms": "1000", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
HOUR = 3_600_000
PRODUCER = 7
KEPT = 120
"""Keys of the compacted topic that come once."""


def in_process(node: Archived, folder: Path) -> None:
    for worker in node.offloader._workers:
        worker.archive = lambda job: archive_segment(node.store, job, str(folder))


def sealed(node: Archived) -> list[SegmentInfo]:
    return node.partition.log.sealed_segments()


async def rounds(node: Archived, count: int = 3) -> None:
    for _ in range(count):
        node.clock.now_ms += HOUR
        await node.offloader.round()


class Source:
    """What was produced, and the files that are to be archived."""

    def __init__(self, case: Case, folder: Path) -> None:
        self.case = case
        self.folder = folder
        self.compacted = case.shape == COMPACTED
        self.config = COMPACTING if self.compacted else DROPPING
        self.model = Model()
        self.good: dict[Path, bytes] = {}

    async def produce(self, node: Archived) -> None:
        log = node.partition.log
        if self.compacted:
            for number in range(KEPT):
                await write(node, (b"key %d" % (number % 3), b"%d" % number * 20), (b"once %d" % number, b"x" * 60))
                if number == KEPT // 2:
                    shutil.copytree(self.folder / "node", self.folder / "older")
        else:
            await node.produce(60, producer_id=PRODUCER)
            shutil.copytree(self.folder / "node", self.folder / "older")
            await node.produce(40, producer_id=PRODUCER)
        for _, records in await everything(log):
            self.model.records.update({record.offset: record for record in records})
        if self.compacted:
            await node.running.node.logs.compactor.compact(log)
        directory = Path(log.directory)
        self.good = {path: path.read_bytes() for path in directory.iterdir() if path.suffix in (".log", PRODUCERS)}

    def paths(self, node: Archived) -> list[Path]:
        return [Path(info.path) for info in sealed(node)]

    def harm(self) -> bool:
        return do(self.case.harm, target(self.case, self.folder / "node", self.folder / "older"))

    def put_right(self) -> None:
        for path, content in self.good.items():
            if path.suffix == ".log":
                path.write_bytes(content)

    async def check(self, node: Archived, paths: list[Path]) -> bool:
        """The invariant. Returns whether everything sealed is archived."""
        [archive] = node.offloader
        end = archive.writer.current.end_offset
        cold = ColdReader(node.store, ColdReadSettings())

        async def fetch(at: int) -> bytes:
            read = await cold.read(archive.manifest, at, 1 << 16)
            return b"" if read is None else read.data

        try:
            must = self.model.latest() if self.compacted else None
            await self.model.check(fetch, end, must=must, starts=[0], whole=True)
        finally:
            await cold.close()
        if not self.compacted:
            await self._check_producers(node)
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

    async def _check_producers(self, node: Archived) -> None:
        """Each archived segment knows its producer up to its end, so that a restored topic takes no batch twice."""
        [archive] = node.offloader
        current = archive.writer.current
        async for segment in archive.manifest.segments(current.start_offset, current.end_offset):
            index = read_index(await node.store.get(node.layout.index(segment.name)), segment.name.stem)
            found = read_producers(index.producers)
            known = [] if found is None else [(each.producer_id, each.last_sequence) for each in found[1].describe()]
            if found is None or found[0] != segment.end_offset or known != [(PRODUCER, segment.end_offset - 1)]:
                raise Wrong(f"producers archived at {segment.end_offset}: {known}")


def as_sent(node: Archived) -> Model:
    return Model({record.offset: record for record in node.sent})


async def run(case: Case, folder: Path) -> str:
    """What came of it: "errors", which are that the segment is held until it is whole again, or "right" where the
    harmed file was made anew."""
    folder.mkdir()
    source = Source(case, folder)
    made_anew = case.file.endswith(PRODUCERS)
    async with archived_node(str(folder), config=source.config) as node:
        in_process(node, folder)
        await source.produce(node)
        if case.moment == LIVE:
            paths = source.paths(node)
            if not source.harm():
                return "nothing changed"
            await rounds(node, 30 if made_anew else 3)
            if await source.check(node, paths) != made_anew:
                raise Wrong("a harmed segment was archived, or a whole one was not")
            source.put_right()
            await rounds(node, 30)
            if not await source.check(node, paths):
                raise Wrong("a whole segment is not archived")
            return "right" if made_anew else "errors"
    if case.moment == KILL:
        (folder / "node" / "clean-shutdown").unlink()
    if not source.harm():
        return "nothing changed"
    async with archived_node(str(folder), config=source.config, clock=node.clock) as again:
        in_process(again, folder)
        paths = source.paths(again)
        await rounds(again, 30 if made_anew else 3)
        if await source.check(again, paths) != made_anew:
            raise Wrong("a harmed segment was archived, or a whole one was not")
    if made_anew:
        return "right"
    if case.moment == KILL:
        (folder / "node" / "clean-shutdown").unlink()
    source.put_right()
    async with archived_node(str(folder), config=source.config, clock=node.clock) as again:
        in_process(again, folder)
        paths = source.paths(again)
        await rounds(again, 30)
        if not await source.check(again, paths):
            raise Wrong("a whole segment is not archived")
    return "errors"

"""A log alone, read and compacted. Before a kill its last batches are written and not synced."""

import os
import random
import shutil
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Final

from hot_tier.errors import TierlogError
from hot_tier.log.config import TopicConfig
from hot_tier.log.manager import LogManager
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.visibility import aborted_among, without_aborted
from hot_tier.record.batch import read_header
from hot_tier.record.control import Marker, MarkerKind
from tests.damage.harms import Target, do
from tests.damage.model import Fetch, Model, Read, Wrong, read_batches
from tests.damage.table import CLEAN, COMPACTED, COMPACTION, KILL, LIVE, TRANSACTIONAL, Case
from tests.hot_tier.log.support import NOW, SETTINGS, TOPIC_ID, append, batch

CONFIG: Final = TopicConfig(segment_bytes=700, index_interval_bytes=150, min_cleanable_dirty_ratio=0.0)
BATCHES: Final = 22
UNSYNCED: Final = 2
PRODUCERS: Final = (1, 2, 3)
"""Of transactions."""


class Written:
    """A log, what it holds, and an older copy of its data directory."""

    def __init__(self, data_dir: Path, shape: str) -> None:
        self.data_dir = data_dir
        self.older = data_dir.with_name(data_dir.name + "-older")
        policy = frozenset({"compact" if shape == COMPACTED else "delete"})
        self.config = replace(CONFIG, cleanup_policy=policy)
        self.model = Model()
        self.transactional = shape == TRANSACTIONAL
        self.aborted: set[int] = set()
        """Offsets of records that readers of committed ones must not see."""
        self._open: defaultdict[int, list[int]] = defaultdict(list)

    async def write(self) -> LogManager:
        manager = LogManager(str(self.data_dir), SETTINGS, lambda: NOW)
        await manager.open(background=False)
        log = self.log(manager)
        for number in range(BATCHES):
            self._append(log, number)
            if number == BATCHES // 2:
                log.flush()
                shutil.copytree(self.data_dir, self.older)
        log.flush()
        if self.config.compacted:
            await manager.compactor.compact(log)
            log.flush()
        self.model.acked_end = log.log_end_offset
        for number in range(BATCHES, BATCHES + UNSYNCED):
            self._append(log, number)
        self.model.note(await everything(log))
        manager.disk.recovery_points.sync()
        return manager

    def _append(self, log: PartitionLog, number: int) -> None:
        epoch = 3 if number < 9 else 4
        if self.transactional:
            self._transact(log, number, epoch)
        records = [(b"key %d" % (number % 3), b"value %02d" % number), (b"key %d" % (number + 7), b"second")]
        append(log, batch(*records, timestamp=NOW + number), epoch=epoch)

    def _transact(self, log: PartitionLog, number: int, epoch: int) -> None:
        """Producers go on with their transactions, and one of them ends its own. None is open at the last sync."""
        if number < BATCHES - len(PRODUCERS):
            for producer in PRODUCERS:
                self._open[producer] += self._write(log, producer, epoch)
        ending = PRODUCERS[number % len(PRODUCERS)]
        if self._open[ending]:
            kind = MarkerKind(number % 2)
            self._end(log, ending, kind, epoch)
            offsets = self._open.pop(ending)
            self.aborted.update(offsets if kind is MarkerKind.ABORT else ())

    def _write(self, log: PartitionLog, producer: int, epoch: int) -> range:
        sequence = log.producers.next_sequence(producer, 0)
        data = batch(b"in a transaction", producer=producer, epoch=0, sequence=sequence, transactional=True)
        header = read_header(data)
        verification = log.producers.begin_verification(header, f"id-{producer}")
        appended = log.append(data, header, epoch, NOW, verification)
        return range(appended.base_offset, appended.end_offset)

    def _end(self, log: PartitionLog, producer: int, kind: MarkerKind, epoch: int) -> None:
        log.append_marker(producer, 0, Marker(kind, 0), epoch, NOW, version=1)

    def log(self, manager: LogManager) -> PartitionLog:
        return manager.log("orders", TOPIC_ID, 0, self.config)

    async def check(self, log: PartitionLog, *, compacted: bool = False) -> int:
        """Reads from every offset on, a seventh of them to the end. Returns how many reads ended in an error."""
        end = min(log.log_end_offset, max(self.model.records) + 1)
        must = self.model.latest() if compacted else None
        fetch = self._committed(log, end) if self.transactional else fetching(log, end)
        return await self.model.check(fetch, end, must=must, on=lambda start: start % 7 == 0)

    def go_on(self, log: PartitionLog) -> bool:
        """Each producer commits one more transaction, which says nothing about those before it. Returns whether the log
        took them."""
        try:
            for producer in PRODUCERS:
                self._write(log, producer, log.leader_epoch)
                self._end(log, producer, MarkerKind.COMMIT, log.leader_epoch)
        except TierlogError:
            return False
        return True

    def _committed(self, log: PartitionLog, end_offset: int) -> Fetch:
        """Reads up to `end_offset`, and looks at what a reader of committed records sees of that."""
        fetch = fetching(log, end_offset)
        log.commit(log.log_end_offset)
        stable = end_offset if log.first_unstable_offset is None else min(end_offset, log.first_unstable_offset)
        if stable < self.model.acked_end and not log.known_damage():
            raise Wrong(f"undecided from {stable} on, and all below {self.model.acked_end} was decided")

        async def look(offset: int) -> bytes | memoryview:
            data = await fetch(offset)
            visible, _ = read_batches(without_aborted(data, aborted_among(log.aborted, data)), offset)
            end = min(stable, read_batches(data, offset)[1])
            seen = {record.offset for _, records in visible for record in records if record.offset < end}
            wrong = seen ^ ({at for at in self.model.records if offset <= at < end} - self.aborted)
            if wrong:
                raise Wrong(f"from {offset} to {end}: aborted and seen, or committed and not: {sorted(wrong)}")
            return data

        return look


def fetching(log: PartitionLog, end_offset: int) -> Fetch:
    """Reads a log up to `end_offset`, as a fetch does."""

    async def fetch(offset: int) -> bytes | memoryview:
        slice_ = log.locate(offset, 300, end_offset)
        if slice_ is None:
            return b""
        now = log.read_now(slice_)
        return await log.read(slice_) if now is None else now

    return fetch


async def everything(log: PartitionLog, offset: int = 0) -> list[Read]:
    found: list[Read] = []
    fetch = fetching(log, log.log_end_offset)
    while offset < log.log_end_offset:
        part, offset = read_batches(await fetch(offset), offset)
        found += part
    return found


def target(case: Case, data_dir: Path, older: Path | None = None) -> Target:
    """The file of a case, in a data directory with one partition."""
    path = data_dir / case.file
    if not path.exists():
        directory = next((data_dir / "logs").glob("*/0"))
        path = directory / case.file
        if " " in case.file:
            number, suffix = case.file.split()
            path = sorted(directory.glob(f"*{suffix}"))[int(number)]
    others = sorted(each for each in path.parent.iterdir() if each.suffix == path.suffix and each != path)
    return Target(path, random.Random(case.seed), others, None if older is None else older / path.relative_to(data_dir))


async def run(case: Case, data_dir: Path) -> str:
    """What came of it: "right", "errors" or "refused" (it did not start). Wrong if a reader was deceived."""
    written = Written(data_dir, case.shape)
    manager = live = await written.write()
    try:
        if case.moment == CLEAN:
            await manager.close()
        elif case.moment == KILL:
            written.data_dir = data_dir.with_name(data_dir.name + "-killed")
            shutil.copytree(data_dir, written.data_dir)
        if not do(case.harm, target(case, written.data_dir, written.older)):
            return "nothing changed"
        if case.moment != LIVE:
            manager = LogManager(str(written.data_dir), SETTINGS, lambda: NOW)
            try:
                await manager.open(background=False)
            except TierlogError:
                return "refused"
        log = written.log(manager)
        errors = await written.check(log)
        if written.transactional:
            written.model.forget_behind(log.log_end_offset)
            errors += not written.go_on(log)
            errors += await written.check(log)
        if case.path == COMPACTION:
            errors += await _compacted_again(written, manager, log)
        return "errors" if errors else "right"
    finally:
        if manager is not live:
            await _end(manager)
        if case.moment != CLEAN:
            await _end(live)


async def _compacted_again(written: Written, manager: LogManager, log: PartitionLog) -> int:
    written.model.forget_behind(log.log_end_offset)
    try:
        for number in range(8):
            append(log, batch((b"other %d" % number, b"x" * 100), (b"other", b"y"), timestamp=NOW))
        log.flush()
    except TierlogError:
        return 1
    await manager.compactor.compact(log)
    return await written.check(log, compacted=True)


async def _end(manager: LogManager) -> None:
    """Lets go of its files and threads, whatever state it is in."""
    for log in manager:
        log.close()
    await manager.flusher.close()
    manager.disk.readers.shutdown()
    manager.disk.files.close_all()
    manager._workers.shutdown()
    if manager._lock_fd >= 0:
        os.close(manager._lock_fd)

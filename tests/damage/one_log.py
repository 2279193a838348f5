"""A log alone, read and compacted. Before a kill its last batches are written and not synced."""

import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Final

from hot_tier.errors import TierlogError
from hot_tier.log.config import TopicConfig
from hot_tier.log.manager import LogManager
from hot_tier.log.partition_log import PartitionLog
from tests.damage.harms import Target, do
from tests.damage.model import Fetch, Model, Read, read_batches
from tests.damage.table import CLEAN, COMPACTED, COMPACTION, KILL, LIVE, Case
from tests.hot_tier.log.support import NOW, SETTINGS, TOPIC_ID, append, batch

CONFIG: Final = TopicConfig(segment_bytes=700, index_interval_bytes=150, min_cleanable_dirty_ratio=0.0)
BATCHES: Final = 22
UNSYNCED: Final = 2


class Written:
    """A log, what it holds, and an older copy of its data directory."""

    def __init__(self, data_dir: Path, shape: str) -> None:
        self.data_dir = data_dir
        self.older = data_dir.with_name(data_dir.name + "-older")
        policy = frozenset({"compact" if shape == COMPACTED else "delete"})
        self.config = replace(CONFIG, cleanup_policy=policy)
        self.model = Model()

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
        records = [(b"key %d" % (number % 3), b"value %02d" % number), (b"key %d" % (number + 7), b"second")]
        append(log, batch(*records, timestamp=NOW + number), epoch=3 if number < 9 else 4)

    def log(self, manager: LogManager) -> PartitionLog:
        return manager.log("orders", TOPIC_ID, 0, self.config)

    async def check(self, log: PartitionLog, *, compacted: bool = False) -> int:
        """Reads from every offset on, a seventh of them to the end. Returns how many reads ended in an error."""
        end = min(log.log_end_offset, max(self.model.records) + 1)
        must = self.model.latest() if compacted else None
        return await self.model.check(fetching(log, end), end, must=must, on=lambda start: start % 7 == 0)


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

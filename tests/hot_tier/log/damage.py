"""What can become of the files of a data directory, and a reader who knows what they held.

A case is: a log is written and synced; its broker runs on, stops cleanly, or is killed; one file is harmed; then
someone reads, and compaction runs. Whatever the harm was, a reader gets the records that were written, at the offsets
where they were written and in the right leader epoch, or an error. Nothing is left out without one.
"""

import os
import random
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hot_tier.errors import TierlogError
from hot_tier.log.config import TopicConfig
from hot_tier.log.manager import LogManager
from hot_tier.log.partition_log import PartitionLog
from hot_tier.record.batch import CRC_COVERED_FROM, iter_headers
from hot_tier.record.records import Record, decode_records
from tests.hot_tier.log.support import NOW, SETTINGS, TOPIC_ID, append, batch

CONFIG: Final = TopicConfig(segment_bytes=700, index_interval_bytes=150, min_cleanable_dirty_ratio=0.0)
BATCHES: Final = 22
MOMENTS: Final = ("live", "clean restart", "kill")
SHAPES: Final = ("dense", "compacted")
FIELDS: Final = {"base offset": range(64), "length": range(64, 96), "leader epoch": range(96, 128)}
"""Bits of a head that no CRC covers."""
HEAD_BITS: Final = 8 * CRC_COVERED_FROM


@dataclass(frozen=True)
class Case:
    shape: str
    moment: str
    file: str
    """Relative to the data directory, or the number of a segment's log file."""
    harm: str
    seed: int

    def __str__(self) -> str:
        return f"{self.shape}, {self.moment}, {self.file}: {self.harm}, seed {self.seed}"


class Wrong(AssertionError):
    """A reader was given something else than what was written, or not told that something is missing."""


class Written:
    """A log, what it holds, and an older copy of its data directory."""

    def __init__(self, data_dir: Path, shape: str) -> None:
        self.data_dir = data_dir
        self.older = data_dir.with_name(data_dir.name + "-older")
        policy = frozenset({"compact" if shape == "compacted" else "delete"})
        self.config = replace(CONFIG, cleanup_policy=policy)
        self.shape = shape
        self.records: dict[int, Record] = {}
        self.epochs: dict[int, int] = {}
        self.end_offset = 0

    async def write(self) -> LogManager:
        manager = LogManager(str(self.data_dir), SETTINGS, lambda: NOW)
        await manager.open(background=False)
        log = self.log(manager)
        for number in range(BATCHES):
            records = [(b"key %d" % (number % 3), b"value %02d" % number), (b"key %d" % (number + 7), b"second")]
            data = batch(*records, timestamp=NOW + number)
            append(log, data, epoch=3 if number < 9 else 4)
            if number == BATCHES // 2:
                log.flush()
                shutil.copytree(self.data_dir, self.older)
        log.flush()
        if self.shape == "compacted":
            await manager.compact_once(log)
            log.flush()
        self.end_offset = log.log_end_offset
        for header, records in await everything(log, 0):
            self.records.update({record.offset: record for record in records})
            self.epochs.update({record.offset: header for record in records})
        manager.disk.recovery_points.sync()
        return manager

    def log(self, manager: LogManager) -> PartitionLog:
        return manager.log("orders", TOPIC_ID, 0, self.config)

    def expect(self, offset: int, batches: "list[Read]", end_offset: int, must: dict[int, Record]) -> None:
        """`batches` are what a reader got from `offset` on, before `end_offset`, without an error."""
        found = {record.offset: record for _, records in batches for record in records}
        for at, record in found.items():
            if self.records.get(at) != record:
                raise Wrong(f"offset {at}: {record} instead of {self.records.get(at)}")
        for epoch, records in batches:
            for record in records:
                if self.epochs[record.offset] != epoch:
                    raise Wrong(f"offset {record.offset}: epoch {epoch}, not {self.epochs[record.offset]}")
        left_out = [at for at in must if offset <= at < end_offset and at not in found]
        if left_out:
            raise Wrong(f"read from {offset} to {end_offset} without an error, and {left_out[:5]} are left out")

    async def check(self, log: PartitionLog, must: dict[int, Record]) -> int:
        """Reads from every offset on. How many reads ended in an error."""
        errors = 0
        for offset in range(self.end_offset):
            batches: list[Read] = []
            at = offset
            try:
                while at < self.end_offset:
                    part, at = await fetch(log, at, self.end_offset)
                    batches += part
                    if offset % 7:
                        break
            except TierlogError as error:
                if type(error).__name__ == "OffsetOutOfRange":
                    raise Wrong(f"offset {offset}: {error}") from error
                errors += 1
            self.expect(offset, batches, at, must)
        return errors

    def latest(self) -> dict[int, Record]:
        """What compaction must keep: the latest record of each key."""
        newest = {record.key: record for record in sorted(self.records.values())}
        return {record.offset: record for record in newest.values()}


Read = tuple[int, list[Record]]


async def fetch(log: PartitionLog, offset: int, end_offset: int) -> tuple[list[Read], int]:
    """The records of one fetch by leader epoch, and where the next one goes on."""
    slice_ = log.locate(offset, 300, end_offset)
    if slice_ is None:
        raise Wrong(f"offset {offset}: the log ends at {log.log_end_offset}")
    now = log.read_now(slice_)
    data = bytes(await log.read(slice_) if now is None else now)
    found: list[Read] = []
    for position, header in iter_headers(data):
        records = decode_records(data[position : position + header.size], from_offset=offset)
        found.append((header.leader_epoch, records))
        end = header.end_offset
    if not found:
        raise Wrong(f"offset {offset}: nothing, and the log ends at {log.log_end_offset}")
    return found, end


async def everything(log: PartitionLog, offset: int) -> list[Read]:
    found: list[Read] = []
    while offset < log.log_end_offset:
        part, offset = await fetch(log, offset, log.log_end_offset)
        found += part
    return found


# Harm


def in_place(path: Path, content: bytes) -> None:
    """As a disk does it: whoever has the file open sees it."""
    with open(path, "r+b") as file:
        file.truncate(len(content))
        file.write(content)


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << (7 - bit % 8)
    in_place(path, bytes(content))


def flip_head(path: Path, number: int, bit: int) -> None:
    positions = [position for position, _ in iter_headers(path.read_bytes())]
    flip(path, 8 * positions[number % len(positions)] + bit)


def truncate(path: Path, length: int) -> None:
    os.truncate(path, length)


def swap(path: Path, other: Path) -> None:
    mine, its = path.read_bytes(), other.read_bytes()
    in_place(path, its)
    in_place(other, mine)


def roll_back(path: Path, older: Path) -> None:
    """To what the file was some time ago; it is gone if it was not there."""
    if older.exists():
        in_place(path, older.read_bytes())
    else:
        path.unlink()


def harm(case: Case, written: Written) -> bool:
    """Does it; False where that changes nothing."""
    random_ = random.Random(case.seed)
    path = resolve(case, written)
    before = path.read_bytes()
    siblings = sorted(each for each in path.parent.iterdir() if each.suffix == path.suffix and each != path)
    if case.harm.startswith("head bit "):
        flip_head(path, random_.randrange(100), int(case.harm.removeprefix("head bit ")))
    elif case.harm == "body bit":
        flip(path, random_.randrange(8 * len(before)))
    elif case.harm == "cut":
        truncate(path, random_.randrange(len(before)))
    elif case.harm == "cut at a batch":
        positions = [position for position, _ in iter_headers(before)]
        truncate(path, random_.choice(positions))
    elif case.harm == "longer":
        in_place(path, before + before[-70:])
    elif case.harm == "removed":
        path.unlink()
    elif case.harm == "directory removed":
        shutil.rmtree(path.parent)
    elif case.harm == "swapped":
        swap(path, random_.choice(siblings))
    else:
        assert case.harm == "rolled back"
        roll_back(path, written.older / path.relative_to(written.data_dir))
    return not path.exists() or path.read_bytes() != before


def resolve(case: Case, written: Written) -> Path:
    if "/" not in case.file and (written.data_dir / case.file).exists():
        return written.data_dir / case.file
    directory = next((written.data_dir / "logs").glob("*/0"))
    if case.file in ("leader-epochs", "log-start"):
        return directory / case.file
    number, suffix = case.file.split()
    files = sorted(directory.glob(f"*{suffix}"))
    return files[int(number)]


LOG_HARMS: Final = (
    *(f"head bit {bit}" for bit in range(HEAD_BITS)),
    *("body bit",) * 20,
    *("cut",) * 5,
    "cut at a batch",
    "longer",
    "removed",
    "directory removed",
    "swapped",
    "rolled back",
)
SIDE_HARMS: Final = (*("body bit",) * 8, *("cut",) * 2, "removed", "swapped", "rolled back")
LONE_HARMS: Final = (*("body bit",) * 8, *("cut",) * 2, "removed", "rolled back")


def cases(seed: int) -> list[Case]:
    """Every file × everything that can become of it × every moment."""
    random_ = random.Random(seed)
    found: list[Case] = []

    def add(file: str, harms: tuple[str, ...], moments: tuple[str, ...] = MOMENTS) -> None:
        found.extend(
            Case(shape, moment, file, each, random_.randrange(1 << 30))
            for shape in SHAPES
            for moment in moments
            for each in harms
        )

    for number in (0, 1, -2, -1):
        add(f"{number} .log", LOG_HARMS)
    for number in (0, 1):
        for suffix in (".index", ".timeindex", ".producers"):
            add(f"{number} {suffix}", SIDE_HARMS)
    add("leader-epochs", LONE_HARMS)
    add("recovery-points", LONE_HARMS, ("kill",))
    add("clean-shutdown", (*("body bit",) * 8, "cut", "removed"), ("clean restart",))
    return found


async def run(case: Case, data_dir: Path) -> str:
    """What came of it: "right", "errors" or "refused" (it did not start). Wrong if a reader was deceived."""
    written = Written(data_dir, case.shape)
    manager = await written.write()
    live = manager
    try:
        if case.moment == "clean restart":
            await manager.close()
        elif case.moment == "kill":
            copy = data_dir.with_name(data_dir.name + "-killed")
            shutil.copytree(data_dir, copy)
            written.data_dir = copy
        if not harm(case, written):
            return "nothing changed"
        if case.moment != "live":
            manager = LogManager(str(written.data_dir), SETTINGS, lambda: NOW)
            try:
                await manager.open(background=False)
            except TierlogError:
                return "refused"
        log = written.log(manager)
        errors = await written.check(log, written.records)
        if case.shape == "compacted":
            try:
                for number in range(8):
                    append(log, batch((b"other %d" % number, b"x" * 100), (b"other", b"y"), timestamp=NOW))
                log.flush()
            except TierlogError:
                return "errors"
            await manager.compact_once(log)
            errors += await written.check(log, written.latest())
        return "errors" if errors else "right"
    finally:
        if manager is not live:
            await _end(manager)
        if case.moment != "clean restart":
            await _end(live)


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

"""Writes the golden data directories beside this file: `python -m tests.golden.log.make`.

Each is a data directory as a broker leaves it, named by what is wrong with it. They are written once per version of
the format (of the seal) and then only read: a change that makes `whole` come out differently is a change of the format.
"""

import os
import shutil
from pathlib import Path

from hot_tier.log.config import TopicConfig
from hot_tier.log.files import replace_synced
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.state import write_clean_shutdown
from tests.hot_tier.log.support import NOW, TOPIC_ID, append, batch, open_log, release

HERE = Path(__file__).parent
CONFIG = TopicConfig(segment_bytes=1024, index_interval_bytes=150)
SEGMENT = "00000000000000000000"
VERSIONS = ("v1", "v2")
"""Of the seal; the last one is what is written today."""


def whole(data_dir: Path) -> PartitionLog:
    """Two sealed segments and an active one, of two leader epochs and one idempotent producer; all synced."""
    log = open_log(data_dir, CONFIG)
    for number in range(24):
        data = batch(
            b"value %02d" % number,
            b"second of %02d" % number,
            timestamps=[NOW + 10 * number, NOW + 10 * number - 25],
            producer=4000,
            epoch=1,
            sequence=2 * number,
        )
        append(log, data, epoch=3 if number < 15 else 4, now_ms=NOW + number)
    log.flush()
    log.delete_records_before(3)
    log.flush()
    return log


def stopped_cleanly(data_dir: Path) -> PartitionLog:
    log = whole(data_dir)
    state = log.state()
    state.segments[-1].save_index()
    content = write_clean_shutdown({(TOPIC_ID, 0): state}, str(data_dir / "logs"))
    replace_synced(str(data_dir / "clean-shutdown"), content)
    return log


def torn_tail(data_dir: Path) -> PartitionLog:
    """The last batch of the active segment was written in part, and it was never synced."""
    log = whole(data_dir)
    append(log, batch(b"never synced", b"torn"), epoch=4)
    os.truncate(log.segments()[-1].path, log.segments()[-1].size - 7)
    return log


def damaged_index(data_dir: Path) -> PartitionLog:
    """One byte of the first segment's offset entries is wrong."""
    log = whole(data_dir)
    _flip(Path(log.directory) / f"{SEGMENT}.index", -2)
    return log


def damaged_time_index(data_dir: Path) -> PartitionLog:
    log = whole(data_dir)
    _flip(Path(log.directory) / f"{SEGMENT}.timeindex", -9)
    return log


def damaged_sealed_segment(data_dir: Path) -> PartitionLog:
    """One bit of a value in the sealed first segment is wrong: offset 6, in the batch of offsets 6 and 7."""
    log = whole(data_dir)
    path = Path(log.directory) / f"{SEGMENT}.log"
    _flip(path, path.read_bytes().index(b"value 03") + 3)
    return log


def damaged_offset(data_dir: Path) -> PartitionLog:
    """One bit of a base offset in the sealed first segment is wrong; no CRC covers it. It was offset 6."""
    log = whole(data_dir)
    path = Path(log.directory) / f"{SEGMENT}.log"
    _flip(path, path.read_bytes().index((6).to_bytes(8, "big")) + 6)
    return log


def damaged_synced_tail(data_dir: Path) -> PartitionLog:
    """One bit in the active segment is wrong, below the recovery point: not a torn tail. It was a length."""
    log = whole(data_dir)
    active = log.segments()[-1]
    _flip(Path(active.path), 10)
    return log


def missing_segment(data_dir: Path) -> PartitionLog:
    """The second of the three segments is gone."""
    log = whole(data_dir)
    os.unlink(log.segments()[1].path)
    return log


CASES = {
    function.__name__.replace("_", "-"): function
    for function in (
        whole,
        stopped_cleanly,
        torn_tail,
        damaged_index,
        damaged_time_index,
        damaged_sealed_segment,
        damaged_offset,
        damaged_synced_tail,
        missing_segment,
    )
}


def _flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def main() -> None:
    for name, make in CASES.items():
        target = HERE / VERSIONS[-1] / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        release(make(target))


if __name__ == "__main__":
    main()

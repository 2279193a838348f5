"""What recovery finds missing is known to the next start too, wherever in between the process is killed."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hot_tier.errors import CorruptLog
from hot_tier.log.config import TopicConfig
from hot_tier.log.damaged_logs import Doubts
from hot_tier.log.manager import LogManager
from hot_tier.log.settings import LogSettings
from tests.hot_tier.log.support import NOW, TOPIC_ID, Kill, Killed, append, batch

SETTINGS = LogSettings(min_free_bytes=0)
CONFIG = TopicConfig(segment_bytes=1024, index_interval_bytes=200)
KEY = (TOPIC_ID, 0)


async def opened(path: Path) -> LogManager:
    manager = LogManager(str(path), SETTINGS)
    await manager.open(background=False)
    return manager


def logs(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def lose_end(directory: Path) -> None:
    last = logs(directory)[-1]
    os.truncate(last, last.stat().st_size - 1)


def lose_synced_end(directory: Path) -> None:
    os.truncate(logs(directory)[-1], 10)


def lose_active(directory: Path) -> None:
    logs(directory)[-1].unlink()


def lose_one_between(directory: Path) -> None:
    logs(directory)[1].unlink()


def spoil_unsealed(directory: Path) -> None:
    """The file's seal is gone with a batch in it."""
    log = logs(directory)[1]
    log.with_suffix(".index").unlink()
    os.truncate(log, 100)


def lose_files(directory: Path) -> None:
    for log in logs(directory):
        log.unlink()


def lose_directory(directory: Path) -> None:
    shutil.rmtree(directory)


@pytest.mark.parametrize(
    ("lose", "expected"),
    [
        (lose_end, "cut"),
        (lose_synced_end, "damaged"),
        (lose_active, "damaged"),
        (lose_one_between, "damaged"),
        (spoil_unsealed, "damaged"),
        (lose_files, "emptied"),
        (lose_directory, "emptied"),
    ],
)
async def test_a_kill_anywhere_in_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lose: Callable[[Path], None], expected: str
) -> None:
    manager = await opened(tmp_path / "before")
    log = manager.log("orders", TOPIC_ID, 0, CONFIG)
    for number in range(20):
        append(log, batch(b"%d" % number * 100))
    manager.flusher.request(log.sync)
    await manager.flusher.drain()
    append(log, batch(b"not synced"))
    os.close(manager._lock_fd)
    lose(Path(log.directory))
    step = 0
    while True:
        data_dir = tmp_path / str(step)
        shutil.copytree(tmp_path / "before", data_dir)
        with monkeypatch.context() as patch:
            kill = Kill(step, patch)
            first = LogManager(str(data_dir), SETTINGS)
            try:
                await first.open(background=False)
            except Killed:
                pass
            survived = kill.steps_left > 0
        if first._lock_fd >= 0:
            os.close(first._lock_fd)
        again = await opened(data_dir)
        assert KEY in getattr(again.disk.doubts, expected), f"killed before change {step}"
        os.close(again._lock_fd)
        if survived:
            break
        step += 1
    assert step > 3


def test_doubts_are_kept_until_they_are_settled(tmp_path: Path) -> None:
    one, two, three = ((TOPIC_ID, partition) for partition in range(3))
    Doubts(str(tmp_path)).note(cut={one}, damaged={two}, emptied={two})
    Doubts(str(tmp_path)).note(cut=(), damaged={three}, emptied=())
    doubts = Doubts(str(tmp_path))
    assert (doubts.cut, doubts.damaged, doubts.emptied) == ({one}, {two, three}, {two})
    doubts.settle({one, two})
    doubts = Doubts(str(tmp_path))
    assert (doubts.cut, doubts.damaged, doubts.emptied) == (set(), {three}, set())
    doubts.settle({one, three})
    assert list(tmp_path.iterdir()) == []


def test_damaged_doubts_are_not_taken_for_none(tmp_path: Path) -> None:
    Doubts(str(tmp_path)).note(cut={KEY}, damaged=(), emptied=())
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes().replace(b"cut", b"cup"))
    with pytest.raises(CorruptLog, match="in doubt"):
        Doubts(str(tmp_path))


async def test_a_log_that_is_gone_is_not_in_doubt(tmp_path: Path) -> None:
    manager = await opened(tmp_path)
    doubts = manager.disk.doubts
    keys = {(TOPIC_ID, partition) for partition in range(4)}
    doubts.note(cut=(), damaged=keys, emptied=())
    manager.delete_partition("orders", TOPIC_ID, 0)
    manager.log("orders", TOPIC_ID, 1, CONFIG).reset_to(0, NOW)
    manager.log("orders", TOPIC_ID, 2, CONFIG).trust()
    assert doubts.damaged == {(TOPIC_ID, 3)}
    manager.delete("orders", TOPIC_ID)
    assert doubts.damaged == set()
    await manager.close()

"""A process that appends is killed at any moment; everything that it said was synced is there."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from hot_tier.log.config import TopicConfig
from hot_tier.log.manager import LogManager
from hot_tier.log.settings import LogSettings
from tests.hot_tier.log.support import TOPIC_ID, append, batch, read_all

SETTINGS = LogSettings(min_free_bytes=0, flush_threads=2)
CONFIG = TopicConfig(segment_bytes=20_000)


async def write(data_dir: str) -> None:
    """Appends numbers from where the log ends, and prints the end offset after every sync."""
    manager = LogManager(data_dir, SETTINGS)
    await manager.open()
    log = manager.log("orders", TOPIC_ID, 0, CONFIG)
    log.sync.listener = lambda: print(log.flushed_offset, flush=True)
    while True:
        number = int(log.log_end_offset)
        append(log, batch(b"%d" % number, os.urandom(500), producer=1, epoch=0, sequence=number))
        manager.flusher.request(log.sync)
        await asyncio.sleep(0)


def run_and_kill(data_dir: Path, after_seconds: float) -> list[int]:
    """What a writer said before it was killed."""
    command = [sys.executable, "-m", "tests.hot_tier.log.test_kill", str(data_dir)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline(), "the writer wrote nothing"
    time.sleep(after_seconds)
    child.send_signal(signal.SIGKILL)
    rest, _ = child.communicate()
    # The last line may have been cut off by the kill.
    return [int(line) for line in rest.split("\n")[:-1] if line]


async def test_what_was_synced_is_there_after_a_kill(tmp_path: Path) -> None:
    synced = 0
    for _ in range(3):
        said = await asyncio.to_thread(run_and_kill, tmp_path, random.random() / 3)
        synced = max([synced, *said])
        manager = LogManager(str(tmp_path), SETTINGS)
        await manager.open(background=False)
        log = manager.log("orders", TOPIC_ID, 0, CONFIG)
        assert [each.damaged for each in manager.recovered] == [[]]
        assert log.log_end_offset >= synced
        values = [record.value for record in await asyncio.to_thread(read_all, log)]
        assert values[::2] == [b"%d" % number for number in range(0, log.log_end_offset, 2)]
        number = int(log.log_end_offset) - 2
        assert append(log, batch(b"%d" % number, b"again", producer=1, epoch=0, sequence=number)).duplicate
        await manager.close()


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1]))

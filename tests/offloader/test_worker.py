"""The worker process: at the end of its broker, and between two jobs."""

import pickle
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from cold_tier.layout import PartitionLayout, SegmentName
from cold_tier.objects.open import StoreSettings
from hot_tier.ids import LeaderEpoch, Offset, PartitionId
from hot_tier.log.index import UNKNOWN, Contents
from hot_tier.record.batch import assign
from hot_tier.record.columns import NewRecord, encode_records
from hot_tier.record.compression import Codec
from offloader.archive import ArchiveJob
from offloader.worker import _LENGTH, WorkerProcess, _Start
from tests.support.waiting import wait_until

MB = 1 << 20


def job(log_path: Path, contents: Contents) -> ArchiveJob:
    return ArchiveJob(
        layout=PartitionLayout("orders", uuid.uuid4(), PartitionId(0)),
        name=SegmentName(Offset(0), LeaderEpoch(0), uuid.uuid4().hex),
        log_path=str(log_path),
        contents=contents,
        base_offset=Offset(0),
        epochs=(),
        producers=b"",
        now_ms=0,
        bytes_per_second=0,
        zstd_level=3,
    )


def memory_bytes(pid: int, what: str) -> int:
    """`VmRSS` is what the process has now, `VmHWM` the most that it ever had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) << 10
    raise AssertionError(f"no {what}")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
async def test_a_worker_that_waits_keeps_no_memory_of_its_last_segment(tmp_path: Path) -> None:
    log, end = bytearray(), 0
    while end < 24_000:
        batch = encode_records([NewRecord(1, None, b"%d " % each * 150) for each in range(1000)], codec=Codec.LZ4)
        assign(batch, end, 0)
        log += batch
        end += 1000
    path = tmp_path / "segment.log"
    path.write_bytes(log)
    worker = WorkerProcess(StoreSettings(bucket=f"file://{tmp_path}/bucket"), str(tmp_path / "scratch"))
    try:
        assert (
            await worker.archive(job(path, Contents(Offset(0), Offset(end), len(log), True, UNKNOWN, 0)))
        ).rows == end
        assert worker._process is not None
        pid = worker._process.pid
        most = memory_bytes(pid, "VmHWM")
        wait_until(lambda: memory_bytes(pid, "VmRSS") < most - 24 * MB, "memory goes back to the system")
    finally:
        await worker.close()


def test_a_worker_whose_broker_is_gone_ends_quietly(tmp_path: Path) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-m", "offloader.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert worker.stdin is not None and worker.stdout is not None and worker.stderr is not None

    def send(message: Any) -> None:
        data = pickle.dumps(message)
        worker.stdin.write(_LENGTH.pack(len(data)) + data)
        worker.stdin.flush()

    send(_Start(StoreSettings(bucket=f"file://{tmp_path}/bucket"), str(tmp_path / "scratch")))
    worker.stdout.close()
    send(job(tmp_path / "missing.log", Contents(Offset(0), Offset(1), 100, True, 1, 0)))
    assert (worker.wait(60), worker.stderr.read()) == (0, b"")
    worker.stdin.close()
    worker.stderr.close()

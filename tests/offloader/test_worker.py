"""The worker process: at the end of its broker, and between two jobs."""

import ctypes
import os
import pickle
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cold_tier.layout import PartitionLayout, SegmentName
from cold_tier.objects.open import StoreSettings
from hot_tier.ids import LeaderEpoch, Offset, PartitionId
from hot_tier.log.index import UNKNOWN, Contents
from hot_tier.record.batch import assign
from hot_tier.record.columns import NewRecord, encode_records
from hot_tier.record.compression import Codec
from offloader.archive import ArchiveJob
from offloader.worker import _LENGTH, ENVIRONMENT, WorkerProcess, _Start, give_memory_back
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


def segment(path: Path, batches: int, records: int) -> Contents:
    """Writes it."""
    batch = encode_records([NewRecord(1, None, b"%d " % each * 150) for each in range(records)], codec=Codec.LZ4)
    with path.open("wb") as log:
        for number in range(batches):
            assign(batch, number * records, 0)
            log.write(batch)
    return Contents(Offset(0), Offset(batches * records), path.stat().st_size, True, UNKNOWN, 0)


def settled(worker: WorkerProcess) -> int:
    """The memory of a worker that waits: it gives back some after it has sent its result."""
    assert worker._process is not None
    pid = worker._process.pid
    seen = [memory_bytes(pid, "VmRSS")]

    def stays() -> bool:
        time.sleep(0.2)
        seen.append(memory_bytes(pid, "VmRSS"))
        return seen[-1] == seen[-2]

    wait_until(stays, "its memory stays as it is")
    return seen[-1]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
async def test_a_worker_that_waits_keeps_no_memory_of_its_last_segment(tmp_path: Path) -> None:
    path = tmp_path / "segment.log"
    contents = segment(path, 24, 1000)
    worker = WorkerProcess(StoreSettings(bucket=f"file://{tmp_path}/bucket"), str(tmp_path / "scratch"))
    try:
        assert (await worker.archive(job(path, contents))).rows == contents.end_offset
        assert worker._process is not None
        pid = worker._process.pid
        most = memory_bytes(pid, "VmHWM")
        wait_until(lambda: memory_bytes(pid, "VmRSS") < most - 24 * MB, "memory goes back to the system")
    finally:
        await worker.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
async def test_a_worker_takes_memory_from_the_c_library(tmp_path: Path) -> None:
    """So that all of it can be given back."""
    worker = WorkerProcess(StoreSettings(bucket=f"file://{tmp_path}/bucket"), str(tmp_path / "scratch"))
    try:
        await worker.archive(job(tmp_path / "small", segment(tmp_path / "small", 1, 1)))
        assert worker._process is not None
        environment = Path(f"/proc/{worker._process.pid}/environ").read_bytes().split(b"\0")
        assert b"ARROW_DEFAULT_MEMORY_POOL=system" in environment
    finally:
        await worker.close()


def test_arrow_understands_where_to_take_memory_from() -> None:
    program = "import pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    named = subprocess.run([sys.executable, "-c", program], env={**os.environ, **ENVIRONMENT}, stdout=subprocess.PIPE)
    assert named.stdout.split() == [b"system"] != [pa.default_memory_pool().backend_name.encode()]


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is another")
def test_what_is_free_below_something_that_stays_is_given_back() -> None:
    many = [bytes(1000) for _ in range(64_000)]
    stays = many[-1]
    del many
    before = memory_bytes(os.getpid(), "VmRSS")
    give_memory_back()
    assert memory_bytes(os.getpid(), "VmRSS") < before - 32 * MB, len(stays)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
async def test_memory_does_not_grow_with_the_number_of_segments(tmp_path: Path) -> None:
    """What is kept of each segment, if it is more than some 40 KB, is seen."""
    path = tmp_path / "segment.log"
    contents = segment(path, 100, 2)
    worker = WorkerProcess(StoreSettings(bucket=f"file://{tmp_path}/bucket"), str(tmp_path / "scratch"))
    try:
        after = []
        for _ in range(2):
            for _ in range(100):
                await worker.archive(job(path, contents))
            after.append(settled(worker))
        assert after[1] < after[0] + 4 * MB
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

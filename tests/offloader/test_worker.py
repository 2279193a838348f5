"""The worker process at the end of its broker."""

import pickle
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from cold_tier.layout import PartitionLayout, SegmentName
from cold_tier.objects.open import StoreSettings
from hot_tier.ids import LeaderEpoch, Offset, PartitionId
from hot_tier.log.index import Contents
from offloader.archive import ArchiveJob
from offloader.worker import _LENGTH, _Start


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
    send(
        ArchiveJob(
            layout=PartitionLayout("orders", uuid.uuid4(), PartitionId(0)),
            name=SegmentName(Offset(0), LeaderEpoch(0), uuid.uuid4().hex),
            log_path=str(tmp_path / "missing.log"),
            contents=Contents(0, 1, 100, True, 1, 0),
            base_offset=Offset(0),
            epochs=(),
            producers=b"",
            now_ms=0,
            bytes_per_second=0,
            zstd_level=3,
        )
    )
    assert (worker.wait(60), worker.stderr.read()) == (0, b"")
    worker.stdin.close()
    worker.stderr.close()

"""After a power loss everything that was synced is there, and nothing that was never written."""

import random
from pathlib import Path

import pytest

from hot_tier.log.config import TopicConfig
from tests.hot_tier.log.power_loss import PowerLoss
from tests.hot_tier.log.support import NOW, append, batch, open_log, read_all, recover, release
from tests.hot_tier.log.test_compaction import COMPACT, compact


@pytest.mark.parametrize("seed", range(25))
def test_everything_synced_survives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    choose = random.Random(seed)
    data_dir = tmp_path / "run"
    data_dir.mkdir()
    disk = PowerLoss(str(data_dir), monkeypatch)
    config = TopicConfig(segment_bytes=2048, index_interval_bytes=200)
    log = open_log(data_dir, config)
    written: list[bytes] = []
    sequence = 0
    for step in range(choose.randrange(1, 60)):
        values = [choose.randbytes(choose.randrange(200)) for _ in range(choose.randrange(1, 4))]
        append(log, batch(*values, producer=3, epoch=0, sequence=sequence), epoch=step // 20)
        sequence += len(values)
        written += values
        if choose.random() < 0.3:
            log.flush()
        if choose.random() < 0.1:
            log._disk.recovery_points.sync()
    disk.crash(str(tmp_path / "crashed"), choose)
    flushed, end = log.flushed_offset, log.log_end_offset
    release(log)
    disk.close()
    monkeypatch.undo()

    found, recovered = recover(
        str(tmp_path / "crashed"), log.directory.replace(str(data_dir), str(tmp_path / "crashed")), config
    )
    assert recovered.damaged == []
    assert flushed <= found.log_end_offset <= end
    assert found.flushed_offset == found.log_end_offset
    values_found = [record.value for record in read_all(found)]
    assert values_found == written[: len(values_found)]
    assert len(values_found) == found.log_end_offset
    if flushed:
        again = batch(b"next", producer=3, epoch=0, sequence=int(found.log_end_offset))
        assert append(found, again).base_offset == found.log_end_offset - 1
        assert found.epochs.entries() == [
            (epoch, start) for epoch, start in log.epochs.entries() if start < found.log_end_offset - 1
        ]
    release(found)


@pytest.mark.parametrize("seed", range(25))
def test_compaction_survives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    choose = random.Random(seed)
    data_dir = tmp_path / "run"
    data_dir.mkdir()
    disk = PowerLoss(str(data_dir), monkeypatch)
    log = open_log(data_dir, COMPACT)
    crash_at = choose.randrange(1, 40)
    latest: dict[bytes | None, bytes | None] = {}

    def perhaps_crash() -> None:
        if disk.syncs >= before + crash_at and not (tmp_path / "crashed").exists():
            disk.crash(str(tmp_path / "crashed"), choose)

    for number in range(60):
        key, value = b"k%d" % choose.randrange(9), b"v%d" % number
        append(log, batch((key, value)))
        latest[key] = value
    log.roll(NOW)
    log.flush()
    before = disk.syncs
    import os

    for name in ("fdatasync", "fsync", "rename", "unlink"):
        function = getattr(os, name)

        def step(*arguments: object, function: object = function) -> None:
            function(*arguments)  # type: ignore[operator]
            perhaps_crash()

        monkeypatch.setattr(os, name, step)
    compact(log)
    if not (tmp_path / "crashed").exists():
        disk.crash(str(tmp_path / "crashed"), choose)
    release(log)
    disk.close()
    monkeypatch.undo()

    found, recovered = recover(
        str(tmp_path / "crashed"), log.directory.replace(str(data_dir), str(tmp_path / "crashed")), COMPACT
    )
    assert recovered.damaged == []
    assert found.log_end_offset == 60
    assert {record.key: record.value for record in read_all(found)} == latest
    release(found)

"""What the log's tests share: batches, a log with its disk, reading everything back."""

import asyncio
import os
from collections.abc import Callable, Sequence
from struct import pack, unpack
from typing import Any
from uuid import UUID

import pytest

from hot_tier.ids import PartitionId, TopicPartition
from hot_tier.log.config import TopicConfig
from hot_tier.log.disk import Disk
from hot_tier.log.partition_log import Appended, PartitionLog
from hot_tier.log.recovery import Recovered, Recovery
from hot_tier.log.settings import LogSettings
from hot_tier.log.state import LogState
from hot_tier.record.batch import read_header
from hot_tier.record.records import NewRecord, Record, decode_records, encode_records

TOPIC_ID = UUID(int=7)
TP = TopicPartition("orders", PartitionId(0))
SETTINGS = LogSettings(min_free_bytes=0, max_open_files=8)
NOW = 1_700_000_000_000


def batch(
    *values: bytes | tuple[bytes | None, bytes | None],
    timestamp: int = NOW,
    timestamps: Sequence[int] | None = None,
    codec: int = 0,
    producer: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> bytearray:
    """A batch of values, or of (key, value)s."""
    records = [
        NewRecord(timestamps[at] if timestamps else timestamp, *(value if isinstance(value, tuple) else (None, value)))
        for at, value in enumerate(values)
    ]
    return encode_records(
        records,
        codec=codec,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def open_log(data_dir: object, config: TopicConfig | None = None, state: LogState | None = None) -> PartitionLog:
    return PartitionLog(Disk(str(data_dir), SETTINGS), TP, TOPIC_ID, config or TopicConfig(), state)


def append(log: PartitionLog, data: bytearray, *, epoch: int | None = None, now_ms: int = NOW) -> Appended:
    """In the epoch that the log is in, unless another is given."""
    return log.append(data, read_header(data), max(0, log.leader_epoch) if epoch is None else epoch, now_ms)


def read_bytes(log: PartitionLog, offset: int, *, max_bytes: int = 1 << 20, end_offset: int | None = None) -> bytes:
    """One fetch, by `read_now` if it can, else by `read`; empty if there is nothing."""
    slice_ = log.locate(offset, max_bytes, log.log_end_offset if end_offset is None else end_offset)
    if slice_ is None:
        return b""
    data = log.read_now(slice_)
    return bytes(asyncio.run(log.read(slice_)) if data is None else data)


def read_all(log: PartitionLog, offset: int | None = None, *, max_bytes: int = 1 << 20) -> list[Record]:
    """As a consumer does: fetch, go on after the last offset received."""
    offset = log.local_log_start_offset if offset is None else offset
    found: list[Record] = []
    while data := read_bytes(log, offset, max_bytes=max_bytes):
        found += decode_records(data, from_offset=offset)
        headers = []
        at = 0
        while at < len(data):
            headers.append(read_header(data, at))
            at += headers[-1].size
        assert headers[-1].end_offset > offset
        offset = headers[-1].end_offset
    return found


def release(log: PartitionLog) -> None:
    """As the end of the process would: files and threads go, nothing is synced or written."""
    log.close()
    log._disk.close()


def reopen_after_kill(log: PartitionLog) -> tuple[PartitionLog, Recovered]:
    release(log)
    return recover(log._disk.data_dir, log.directory, log.config)


def recover(data_dir: str, directory: str, config: TopicConfig) -> tuple[PartitionLog, Recovered]:
    disk = Disk(data_dir, SETTINGS)
    point = disk.recovery_points.loaded.get((TOPIC_ID, 0))
    if not os.path.exists(directory):
        return PartitionLog(disk, TP, TOPIC_ID, config), Recovered(LogState())
    recovery = Recovery(disk, directory, point, NOW)
    recovered = recovery.look()
    recovery.repair()
    return PartitionLog(disk, TP, TOPIC_ID, config, recovered.state), recovered


def sync_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests in which the machine runs on: syncing would be most of their time."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)


def sync_each_with(sync: Callable[[int], None]) -> Callable[[int, int], None]:
    """Returns what can take the place of `sync_threads.sync_each`: `sync` may be slow, or raise OSError."""

    def sync_each(requests: int, answers: int) -> None:
        while request := os.read(requests, 16):
            number, fd = unpack("=qq", request)
            if number < 0:
                return
            wrong = 0
            try:
                sync(fd)
            except OSError as error:
                wrong = error.errno or 0
            os.write(answers, pack("=qqq", number, wrong, 1))

    return sync_each


class Killed(BaseException):
    """Nothing of this process happens any more."""


class Kill:
    """The process is killed before it changes anything on the disk for the `step`th time. With another `error` that
    change fails, and those after it do not."""

    def __init__(self, step: int, patch: pytest.MonkeyPatch, error: BaseException | None = None) -> None:
        self.steps_left = step
        self._error = error
        for name in ("ftruncate", "unlink", "rename", "replace", "pwrite", "mkdir"):
            patch.setattr(os, name, self._counted(getattr(os, name)))
        opened = os.open
        patch.setattr(
            os,
            "open",
            lambda path, flags, *mode: (self._counted(opened) if flags & os.O_CREAT else opened)(path, flags, *mode),
        )

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def change(*arguments: Any) -> Any:
            if self.steps_left == 0 and self._error is None:
                raise Killed
            self.steps_left -= 1
            if self.steps_left == -1 and self._error is not None:
                raise self._error
            return function(*arguments)

        return change

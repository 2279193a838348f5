import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hot_tier.errors import OffsetOutOfRange, OutOfOrderSequence, ProducerFenced, StorageFailure
from hot_tier.log.config import TopicConfig
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.producers import ProducerState
from hot_tier.record.batch import iter_headers, read_header
from tests.hot_tier.log.support import (
    NOW,
    Kill,
    Killed,
    append,
    batch,
    open_log,
    read_all,
    read_bytes,
    release,
    reopen_after_kill,
    sync_nothing,
)

SMALL = TopicConfig(segment_bytes=1024, index_interval_bytes=200)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    log = open_log(tmp_path)
    yield log
    release(log)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[PartitionLog]:
    log = open_log(tmp_path, SMALL)
    yield log
    release(log)


def test_nothing_is_on_disk_before_the_first_append(log: PartitionLog) -> None:
    assert not os.path.exists(log.directory)
    assert log.log_end_offset == log.log_start_offset == 0
    assert log.locate(0, 100, 0) is None
    append(log, batch(b"a"))
    assert sorted(os.listdir(log.directory)) == ["00000000000000000000.log", "leader-epochs", "log-start"]


def test_offsets_and_epoch_are_assigned_and_the_bytes_are_kept(log: PartitionLog) -> None:
    first = append(log, batch(b"a", b"b"), epoch=3)
    second = append(log, batch(b"c"), epoch=4)
    assert (first.base_offset, first.end_offset) == (0, 2)
    assert (second.base_offset, second.end_offset, second.duplicate) == (2, 3, False)
    data = read_bytes(log, 0)
    assert [(h.base_offset, h.leader_epoch) for _, h in iter_headers(data)] == [(0, 3), (2, 4)]
    assert [(r.offset, r.value) for r in read_all(log)] == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert log.epochs.latest == 4
    assert log.end_of_epoch(3) == (3, 2)
    assert log.end_of_epoch(4) == (4, 3)
    assert log.end_of_epoch(5) == (-1, -1)


def test_a_fetch_returns_the_whole_batch_that_holds_the_offset(log: PartitionLog) -> None:
    append(log, batch(b"a", b"b", b"c"))
    append(log, batch(b"d"))
    assert read_header(read_bytes(log, 2)).base_offset == 0
    assert read_header(read_bytes(log, 3)).base_offset == 3


def test_max_bytes_gives_whole_batches_and_at_least_one(log: PartitionLog) -> None:
    sizes = []
    for value in (b"x" * 10, b"y" * 20, b"z" * 30):
        data = batch(value)
        sizes.append(len(data))
        append(log, data)
    assert len(read_bytes(log, 0, max_bytes=1)) == sizes[0]
    assert len(read_bytes(log, 0, max_bytes=sum(sizes[:2]))) == sum(sizes[:2])
    assert len(read_bytes(log, 0, max_bytes=sum(sizes[:2]) + 1)) == sum(sizes[:2])
    assert log.locate(0, sizes[0] - 1, 3, min_one=False) is None
    slice_ = log.locate(0, sizes[0], 3, min_one=False)
    assert slice_ is not None and slice_.length == sizes[0]


def test_nothing_at_or_beyond_the_end_offset_is_returned(small: PartitionLog) -> None:
    for number in range(40):
        append(small, batch(b"%d" % number, b"%d" % number))
    for end in range(81):
        visible = [h.base_offset for _, h in iter_headers(read_bytes(small, 0, end_offset=end))]
        assert all(base + 2 <= end for base in visible)
        last = end // 2 * 2
        if last:
            assert read_header(read_bytes(small, last - 1, end_offset=end)).base_offset == last - 2
        assert read_bytes(small, last, end_offset=end) == b""


@pytest.mark.parametrize("offset", [-1, 4, 100])
def test_offsets_outside_the_log_are_refused(log: PartitionLog, offset: int) -> None:
    append(log, batch(b"a", b"b", b"c"))
    with pytest.raises(OffsetOutOfRange):
        log.locate(offset, 100, 3)
    assert log.locate(3, 100, 3) is None


def test_it_rolls_by_size_and_reads_across_segments(small: PartitionLog) -> None:
    for number in range(100):
        append(small, batch(b"%d" % number))
    assert small.segment_count > 5
    assert all(segment.size <= 1024 for segment in small.segments())
    assert [r.value for r in read_all(small)] == [b"%d" % number for number in range(100)]
    for offset in range(100):
        assert read_header(read_bytes(small, offset)).base_offset == offset


def test_a_batch_larger_than_a_segment_gets_its_own(small: PartitionLog) -> None:
    append(small, batch(b"a"))
    append(small, batch(b"b" * 5000))
    append(small, batch(b"c"))
    assert [segment.base_offset for segment in small.segments()] == [0, 1, 2]
    assert len(read_all(small)) == 3


def test_it_rolls_by_time_when_no_write_arrives(tmp_path: Path) -> None:
    log = open_log(tmp_path, TopicConfig(segment_ms=1000))
    assert not log.maybe_roll(NOW + 10_000)
    append(log, batch(b"a"), now_ms=NOW)
    assert not log.maybe_roll(NOW + 999)
    assert log.maybe_roll(NOW + 1000)
    assert not log.maybe_roll(NOW + 5000)
    log.flush()
    assert [segment.base_offset for segment in log.segments()] == [0, 1]
    assert [segment.base_offset for segment in log.sealed_segments()] == [0]
    append(log, batch(b"b"), now_ms=NOW + 6000)
    append(log, batch(b"c"), now_ms=NOW + 7000)
    assert [segment.base_offset for segment in log.segments()] == [0, 1, 2]
    release(log)


def test_jitter_rolls_earlier_but_never_later(tmp_path: Path) -> None:
    log = open_log(tmp_path, TopicConfig(segment_ms=1000, segment_jitter_ms=900))
    for number in range(50):
        append(log, batch(b"a"), now_ms=NOW + 10_000 * number)
        assert not log.maybe_roll(NOW + 10_000 * number + 100)
        assert log.maybe_roll(NOW + 10_000 * number + 1000)
    release(log)


def test_log_append_time_is_stamped(tmp_path: Path) -> None:
    log = open_log(tmp_path, TopicConfig(message_timestamp_type="LogAppendTime"))
    appended = append(log, batch(b"a", timestamp=5), now_ms=NOW)
    assert appended.log_append_time_ms == NOW
    assert [(r.timestamp, r.timestamp_type) for r in read_all(log)] == [(NOW, 1)]
    release(log)


@pytest.mark.parametrize(("name", "codec"), [("uncompressed", 0), ("gzip", 1), ("lz4", 3), ("zstd", 4)])
def test_a_topic_codec_compresses_batches_anew(tmp_path: Path, name: str, codec: int) -> None:
    log = open_log(tmp_path, TopicConfig(compression_type=name))  # type: ignore[arg-type]
    append(log, batch(b"a" * 100, b"b" * 100, codec=2, producer=1, epoch=0, sequence=0))
    header = read_header(read_bytes(log, 0))
    assert (header.codec, header.producer_id, header.record_count) == (codec, 1, 2)
    assert [r.value for r in read_all(log)] == [b"a" * 100, b"b" * 100]
    release(log)


def test_an_idempotent_retry_is_answered_with_the_first_offsets(log: PartitionLog) -> None:
    for sequence in range(6):
        append(log, batch(b"%d" % sequence, producer=9, epoch=0, sequence=sequence))
    again = append(log, batch(b"3", producer=9, epoch=0, sequence=3))
    assert (again.base_offset, again.end_offset, again.duplicate) == (3, 4, True)
    assert log.log_end_offset == 6
    with pytest.raises(OutOfOrderSequence):
        append(log, batch(b"0", producer=9, epoch=0, sequence=0))
    with pytest.raises(OutOfOrderSequence):
        append(log, batch(b"8", producer=9, epoch=0, sequence=8))
    append(log, batch(b"n", producer=9, epoch=1, sequence=0))
    with pytest.raises(ProducerFenced):
        append(log, batch(b"6", producer=9, epoch=0, sequence=6))
    assert log.log_end_offset == 7


def test_files_are_synced_before_the_flushed_offset_moves(log: PartitionLog) -> None:
    append(log, batch(b"a"))
    assert (log.flushed_offset, log.sync.needed) == (0, True)
    job = log.sync.prepare()
    assert job is not None
    append(log, batch(b"b"))
    job.run()
    log.sync.settle(job)
    assert (log.flushed_offset, log.log_end_offset) == (1, 2)
    log.flush()
    assert (log.flushed_offset, log.sync.needed) == (2, False)
    assert "leader-epochs" in os.listdir(log.directory)


def test_a_kill_anywhere_in_a_new_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves epochs and producers of records that are there, and of no others."""
    sync_nothing(monkeypatch)
    for step, log in enumerate(killed_everywhere(tmp_path, monkeypatch, lambda log: log.reset_to(40, NOW))):
        last = int(log.log_end_offset) - 1
        expected = (1 if last < 5 else 2, [last]) if log.size_bytes else (-1, [])
        assert known(log) == expected, f"killed before change {step}"
    assert (log.log_end_offset, log.size_bytes) == (40, 0)


def test_a_kill_anywhere_in_a_beginning_at_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it ends at the archive's end it knows what the archive knows; else its leader sends it there again."""
    sync_nothing(monkeypatch)
    archived = ProducerState()
    archived.wrote(1, 0, 39, 39, 39, 0, NOW)

    def begin(log: PartitionLog) -> None:
        log.start_from_archive(3, 40, [(1, 3), (7, 20)], archived)

    for step, log in enumerate(killed_everywhere(tmp_path, monkeypatch, begin)):
        if log.log_end_offset == 40:
            assert known(log) == (7, [39]), f"killed before change {step}"
        else:
            assert log.log_end_offset <= 10
    assert log.log_end_offset == 40


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.truncate_to(7, NOW),
        lambda log: log.truncate_to(4, NOW),
        lambda log: log.truncate_to(1, NOW),
        lambda log: log.reset_to(40, NOW),
        lambda log: log.start_from_archive(2, 40, [(1, 2), (7, 20)], ProducerState()),
    ],
)
def test_a_cut_that_the_disk_ends_half_way_leaves_a_whole_log_or_a_failed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[PartitionLog], None]
) -> None:
    """A follower tells its leader where its log ends: then all before must be there."""
    sync_nothing(monkeypatch)
    states = []
    step, refused = 0, True
    while refused:
        log = open_log(tmp_path / str(step), SMALL)
        for number in range(10):
            append(log, batch(b"x" * 500, producer=1, epoch=0, sequence=number), epoch=1 + number // 5)
        log.flush()
        log.drop_local_before(2, NOW)
        if not states:
            states.append(whole(log))
        with monkeypatch.context() as patch:
            disk = Kill(step, patch, OSError(errno.EIO, os.strerror(errno.EIO)))
            try:
                change(log)
                states.append(whole(log))
            except (OSError, StorageFailure):
                assert log.failure is not None or whole(log) == states[0], f"refused change {step}"
            refused = disk.steps_left < 0
        log, recovered = reopen_after_kill(log)
        assert recovered.damaged == []
        assert whole(log)
        release(log)
        step += 1
    assert all(state == states[1] for state in states[1:])


def whole(log: PartitionLog) -> tuple[object, ...]:
    """What the log says of itself; it must be able to show it."""
    offsets = [record.offset for record in read_all(log)]
    assert offsets == list(range(log.local_log_start_offset, log.log_end_offset)), offsets
    return log.log_end_offset, offsets, *known(log)


def killed_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[PartitionLog], None]
) -> Iterator[PartitionLog]:
    """A log of ten records in two epochs, changed, killed before each step of that in turn, and recovered."""
    step, survived = 0, False
    while not survived:
        log = open_log(tmp_path / str(step), SMALL)
        for number in range(10):
            append(log, batch(b"x" * 500, producer=1, epoch=0, sequence=number), epoch=1 + number // 5)
        log.flush()
        with monkeypatch.context() as patch:
            kill = Kill(step, patch)
            try:
                change(log)
            except Killed:
                pass
            survived = kill.steps_left > 0
        log, recovered = reopen_after_kill(log)
        assert recovered.damaged == []
        yield log
        release(log)
        step += 1


def known(log: PartitionLog) -> tuple[int, list[int]]:
    return log.epochs.latest, [producer.last_sequence for producer in log.producers.describe()]

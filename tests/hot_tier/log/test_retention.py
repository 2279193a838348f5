import os
from pathlib import Path

import pytest

from hot_tier.errors import CorruptBatch, OffsetOutOfRange
from hot_tier.ids import Offset
from hot_tier.log.config import DAY_MS, TopicConfig
from hot_tier.log.retention import expired, roll_at_ms, roll_for_write
from hot_tier.log.segment_info import SegmentInfo
from hot_tier.record.batch import read_header
from tests.hot_tier.log.support import (
    NOW,
    append,
    batch,
    open_log,
    read_all,
    read_bytes,
    release,
    reopen_after_kill,
)


def segment(base: int, *, size: int = 100, age_ms: int = 0, sealed: bool = True) -> SegmentInfo:
    return SegmentInfo(Offset(base), Offset(base + 10), size, NOW - age_ms, "", sealed, -1, True)


def count(config: TopicConfig, segments: list[SegmentInfo], *, log_start: int = 0, deletable_end: int = 1000) -> int:
    return expired(config, segments, log_start_offset=log_start, deletable_end=deletable_end, now_ms=NOW)


def test_by_time() -> None:
    config = TopicConfig(retention_ms=1000)
    log = [segment(0, age_ms=1001), segment(10, age_ms=1001), segment(20, age_ms=1000), segment(30, age_ms=5000)]
    assert count(config, log) == 2
    assert count(TopicConfig(retention_ms=-1), log) == 0
    assert count(config, log, deletable_end=19) == 1
    assert count(TopicConfig(retention_ms=1000, cleanup_policy=frozenset({"compact"})), log) == 0
    assert count(TopicConfig(retention_ms=1000, cleanup_policy=frozenset({"compact", "delete"})), log) == 2


def test_an_active_segment_past_its_time_counts() -> None:
    config = TopicConfig(retention_ms=1000)
    assert count(config, [segment(0, age_ms=2000), segment(10, age_ms=2000, sealed=False)]) == 2
    empty = segment(20, sealed=False)._replace(end_offset=Offset(20))
    assert count(config, [segment(0, age_ms=2000), empty]) == 1


def test_by_size() -> None:
    log = [segment(0), segment(10), segment(20, sealed=False)]
    assert count(TopicConfig(retention_bytes=300), log) == 0
    assert count(TopicConfig(retention_bytes=250), log) == 0
    assert count(TopicConfig(retention_bytes=200), log) == 1
    assert count(TopicConfig(retention_bytes=0), log) == 2


def test_a_damaged_segment_is_as_old_as_the_first_whole_one_after_it() -> None:
    config = TopicConfig(retention_ms=1000)
    harmed = segment(0, age_ms=5000)._replace(damage="byte 0: wrong")
    missing = segment(0)._replace(damage="byte 0: missing", max_timestamp=-1)
    for first in (harmed, missing):
        assert count(config, [first, segment(10, age_ms=900), segment(20)]) == 0
        assert count(config, [first, segment(10, age_ms=1001), segment(20)]) == 2
        assert count(config, [first, first, segment(10, age_ms=900)]) == 0
        assert count(config, [first]) == 0


def test_a_segment_without_times_is_as_old_as_the_next_that_has_some() -> None:
    config = TopicConfig(retention_ms=1000)
    timeless = segment(0)._replace(max_timestamp=-1)
    assert count(config, [timeless, segment(10, age_ms=900), segment(20)]) == 0
    assert count(config, [timeless, timeless, segment(10, age_ms=1001), segment(20)]) == 3
    assert count(config, [timeless, timeless]) == 0
    assert count(TopicConfig(retention_ms=1000, retention_bytes=100), [timeless, segment(10)]) == 1


def test_an_empty_policy_keeps_all() -> None:
    config = TopicConfig(cleanup_policy=frozenset(), retention_ms=1, retention_bytes=1)
    segments = [segment(0, age_ms=DAY_MS), segment(10, age_ms=DAY_MS), segment(20, sealed=False)]
    assert count(config, segments) == 0
    assert count(config, segments, log_start=10) == 1
    assert not config.compacted


def test_below_the_log_start() -> None:
    log = [segment(0), segment(10), segment(20, sealed=False)]
    assert count(TopicConfig(), log, log_start=9) == 0
    assert count(TopicConfig(), log, log_start=10) == 1
    assert count(TopicConfig(cleanup_policy=frozenset({"compact"})), log, log_start=25) == 2


def test_a_batch_rolls_for_room_only_where_something_is() -> None:
    config = TopicConfig(segment_bytes=1024, segment_index_bytes=64)
    fits = {"size": 1000, "batch_bytes": 24, "offset_span": 5, "index_entries": 7}
    assert not roll_for_write(config, **fits)
    assert roll_for_write(config, **{**fits, "batch_bytes": 25})
    assert roll_for_write(config, **{**fits, "index_entries": 8})
    assert roll_for_write(config, **{**fits, "offset_span": 2**31})
    assert not roll_for_write(config, **{**fits, "size": 0, "batch_bytes": 10**9})


def test_a_compacted_log_rolls_in_time_for_its_compaction_lag() -> None:
    compacted = TopicConfig(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=5000)
    assert roll_at_ms(compacted, base_offset=0, created_ms=100) == 5100
    assert roll_at_ms(TopicConfig(max_compaction_lag_ms=5000), base_offset=0, created_ms=100) == 100 + 7 * DAY_MS


def test_expired_segments_are_deleted_and_the_log_goes_on(tmp_path: Path) -> None:
    log = open_log(tmp_path, TopicConfig(segment_bytes=1024, retention_ms=1000, file_delete_delay_ms=500))
    for number in range(40):
        append(log, batch(b"%02d" % number, timestamp=NOW + number))
    assert log.apply_retention(NOW + 5000) == 0, "not before it is sealed"
    log.flush()
    assert log.apply_retention(NOW + 5000) > 0
    log.flush()
    log.apply_retention(NOW + 5000)
    assert (log.log_start_offset, log.log_end_offset, log.segment_count, log.size_bytes) == (40, 40, 1, 0)
    with pytest.raises(OffsetOutOfRange):
        log.locate(39, 100, 40)
    left = [name for name in os.listdir(log.directory) if not name.endswith(".deleted")]
    assert sorted(left) == [
        "00000000000000000040.log",
        "00000000000000000040.producers",
        "leader-epochs",
        "log-start",
    ]
    assert log._disk.take_doomed(NOW + 5499) == []
    assert len(log._disk.take_doomed(NOW + 5500)) > 2
    log, _ = reopen_after_kill(log)
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)
    assert append(log, batch(b"goes on")).base_offset == 40
    release(log)


def test_nothing_uncommitted_is_deleted(tmp_path: Path) -> None:
    log = open_log(tmp_path, TopicConfig(segment_bytes=1024, retention_bytes=0))
    for number in range(40):
        append(log, batch(b"%02d" % number))
    log.flush()
    log.committed_offset = Offset(0)
    assert log.apply_retention(NOW) == 0
    log.committed_offset = Offset(20)
    log.apply_retention(NOW)
    assert 0 < log.log_start_offset <= 20
    release(log)


def test_deleted_records_are_gone_and_stay_gone(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"a", b"b", b"c"))
    log.delete_records_before(2)
    log.delete_records_before(1)
    assert log.log_start_offset == 2
    with pytest.raises(OffsetOutOfRange):
        log.locate(1, 100, 3)
    with pytest.raises(OffsetOutOfRange):
        log.delete_records_before(4)
    assert [record.value for record in read_all(log)] == [b"c"]
    log, _ = reopen_after_kill(log)
    assert log.log_start_offset == 2
    release(log)


def test_local_segments_go_and_the_log_start_stays(tmp_path: Path) -> None:
    config = TopicConfig(segment_bytes=1024, remote_storage_enable=True)
    log = open_log(tmp_path, config)
    for number in range(40):
        append(log, batch(b"%02d" % number))
    log.flush()
    second = log.segments()[1].base_offset
    assert log.drop_local_before(second + 1, NOW) == 1
    assert (log.log_start_offset, log.local_log_start_offset) == (0, second)
    log, _ = reopen_after_kill(log)
    assert (log.log_start_offset, log.local_log_start_offset) == (0, second)
    release(log)


def test_a_replica_takes_batches_as_they_are(tmp_path: Path) -> None:
    leader = open_log(tmp_path / "leader")
    for number in range(5):
        data = batch(b"%d" % number, b"x", producer=1, epoch=0, sequence=2 * number)
        append(leader, data, epoch=number // 2)
    data = read_bytes(leader, 0)
    replica = open_log(tmp_path / "replica")
    replica.append_replica(memoryview(data), 2, NOW)
    assert read_bytes(replica, 0) == data
    assert replica.epochs.entries() == leader.epochs.entries()
    assert append(replica, batch(b"4", b"x", producer=1, epoch=0, sequence=8)).duplicate
    with pytest.raises(CorruptBatch):
        replica.append_replica(memoryview(data), 2, NOW)
    later = bytearray(batch(b"after a gap"))
    later[:8] = (100).to_bytes(8, "big")
    with pytest.raises(CorruptBatch):
        replica.append_replica(memoryview(later), 2, NOW)
    later[12:16] = (2).to_bytes(4, "big")
    flipped = later.copy()
    flipped[-1] ^= 1
    with pytest.raises(CorruptBatch):
        replica.append_replica(memoryview(flipped), 2, NOW)
    for gaps_below in (0, 11, 99):
        with pytest.raises(CorruptBatch):
            replica.append_replica(memoryview(later), 2, NOW, gaps_below)
    assert replica.log_end_offset == 10
    replica.append_replica(memoryview(later), 2, NOW, 100)
    assert replica.log_end_offset == 101
    assert read_header(read_bytes(replica, 50)).base_offset == 100
    replica, recovered = reopen_after_kill(replica)
    assert recovered.damaged == []
    assert len(read_all(replica)) == 11
    release(leader)
    release(replica)

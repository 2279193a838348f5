"""What is archived, dropped and expired: each rule of `offloader.plan`, tried at its edges."""

import dataclasses
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cold_tier.manifest.model import Removed, SegmentEntry, Snapshot
from hot_tier.errors import CorruptLog
from hot_tier.log.config import TopicConfig
from hot_tier.log.segment_info import SegmentInfo
from offloader.plan import Expiry, GracePeriod, archive_start, backlog_bytes, local_drop_offset, next_to_archive
from tests.cold_tier.manifest.test_manifest import segment, snapshot

HOUR = 3_600_000
NOW = 1_000 * HOUR


def local(base: int, end: int, *, sealed: bool = True, size: int = 100, age_ms: int = 0) -> SegmentInfo:
    return SegmentInfo(base, end, size, NOW - age_ms, f"/data/{base:020}.log", sealed, cleaned_ms=-1, dense=True)


def config(**values: object) -> TopicConfig:
    return dataclasses.replace(TopicConfig(), **values)


def expire(settings: TopicConfig, archived: Snapshot, segments: Sequence[SegmentInfo] = ()) -> int:
    expiry = Expiry(settings, archived, segments, NOW)
    for one in archived.tail:
        if not expiry.expires(one):
            break
    return expiry.log_start_offset


def archived(*ages_ms: int) -> Snapshot:
    """Segments of ten offsets each, with their ages."""
    return snapshot(
        *(segment(n * 10, n * 10 + 10, min_ms=NOW - age, max_ms=NOW - age) for n, age in enumerate(ages_ms))
    )


def test_the_oldest_sealed_segment_that_is_missing_comes_next() -> None:
    segments = [local(0, 10), local(10, 20), local(20, 30), local(30, 35, sealed=False)]
    following = next_to_archive(segments, snapshot(segment(0, 10)), 35, 0)
    assert following is not None and (following.info, following.base_offset) == (segments[1], 10)
    assert next_to_archive(segments, snapshot(segment(0, 30)), 35, 0) is None


def test_nothing_above_the_last_stable_offset_is_archived() -> None:
    segments = [local(0, 10), local(10, 20)]
    assert next_to_archive(segments, snapshot(), 9, 0) is None
    following = next_to_archive(segments, snapshot(), 10, 0)
    assert following is not None and following.info == segments[0]


def test_the_first_archived_segment_begins_where_the_local_one_does() -> None:
    """DeleteRecords moved the log start into a segment; the archive takes the segment whole."""
    following = next_to_archive([local(0, 10)], snapshot(log_start=5), 10, 5)
    assert following is not None and following.base_offset == 0


def test_a_merged_segment_is_archived_from_where_the_archive_ends() -> None:
    following = next_to_archive([local(0, 30)], snapshot(segment(0, 10)), 30, 0)
    assert following is not None and following.base_offset == 10


def test_a_hole_between_the_tiers_is_an_error_never_a_jump() -> None:
    with pytest.raises(CorruptLog, match="10 to 20"):
        next_to_archive([local(20, 30)], snapshot(segment(0, 10)), 30, 0)


def test_the_backlog_counts_what_is_sealed_and_not_archived() -> None:
    assert backlog_bytes([local(0, 10), local(10, 20), local(20, 25, sealed=False)], 10) == 100


def test_only_what_the_manifest_holds_is_dropped_locally() -> None:
    segments = [local(n * 10, n * 10 + 10, age_ms=5 * HOUR) for n in range(4)]
    settings = config(local_retention_ms=HOUR)
    assert local_drop_offset(settings, segments, snapshot(segment(0, 20)), NOW) == 20
    assert local_drop_offset(settings, segments, snapshot(segment(0, 19)), NOW) == 10
    assert local_drop_offset(settings, segments, snapshot(), NOW) is None


def test_local_retention_by_bytes_keeps_the_newest() -> None:
    segments = [local(n * 10, n * 10 + 10) for n in range(5)]
    assert local_drop_offset(config(local_retention_bytes=250), segments, snapshot(segment(0, 50)), NOW) == 20
    assert local_drop_offset(config(local_retention_bytes=500), segments, snapshot(segment(0, 50)), NOW) is None


def test_a_local_segment_without_times_stays_until_the_next_one_is_past_its_time() -> None:
    timeless = local(0, 10)._replace(max_timestamp=-1)
    settings, whole = config(local_retention_ms=HOUR), snapshot(segment(0, 30))
    assert local_drop_offset(settings, [timeless, local(10, 20), local(20, 30)], whole, NOW) is None
    assert local_drop_offset(settings, [timeless, local(10, 20, age_ms=2 * HOUR), local(20, 30)], whole, NOW) == 20
    assert local_drop_offset(settings, [timeless], whole, NOW) is None


def test_an_archived_segment_without_times_is_as_old_as_its_archive() -> None:
    timeless = dataclasses.replace(segment(0, 10), max_timestamp_ms=-1, archived_ms=NOW - HOUR)
    assert expire(config(retention_ms=HOUR), snapshot(timeless)) == 0
    assert expire(config(retention_ms=HOUR - 1), snapshot(timeless)) == 10


def test_local_retention_follows_the_total_by_default() -> None:
    segments = [local(0, 10, age_ms=5 * HOUR)]
    assert local_drop_offset(config(retention_ms=HOUR), segments, snapshot(segment(0, 10)), NOW) == 10
    assert (
        local_drop_offset(config(retention_ms=-1, retention_bytes=-1), segments, snapshot(segment(0, 10)), NOW) is None
    )


def test_expiry_by_time_stops_at_the_first_that_is_young() -> None:
    assert expire(config(retention_ms=2 * HOUR), archived(5 * HOUR, 3 * HOUR, HOUR, 5 * HOUR)) == 20
    assert expire(config(retention_ms=-1), archived(5 * HOUR)) == 0


def test_expiry_by_size_counts_the_archive_and_what_is_only_local() -> None:
    history = archived(0, 0, 0)  # 4,000 bytes of log each
    overlap = [local(20, 30, size=4000)]
    assert expire(config(retention_bytes=8000), history, overlap) == 10
    only_local = [*overlap, local(30, 40, size=4000)]
    assert expire(config(retention_bytes=8000), history, only_local) == 20
    assert expire(config(retention_bytes=12_000), history, overlap) == 0


def test_a_compacted_topic_expires_nothing_but_what_was_deleted() -> None:
    settings = config(cleanup_policy=frozenset({"compact"}), retention_ms=HOUR, retention_bytes=0)
    history = archived(5 * HOUR, 5 * HOUR)
    assert expire(settings, history) == 0
    assert expire(settings, dataclasses.replace(history, log_start_offset=10)) == 10


@given(st.integers(0, 2**32))
def test_retention_never_touches_what_is_within_it(seed: int) -> None:
    rng = random.Random(seed)
    ages = [rng.randrange(10 * HOUR) for _ in range(rng.randrange(1, 8))]
    history = archived(*ages)
    keep_ms, keep_bytes = rng.choice([-1, rng.randrange(10 * HOUR)]), rng.choice([-1, rng.randrange(40_000)])
    start = expire(config(retention_ms=keep_ms, retention_bytes=keep_bytes), history)
    gone: list[SegmentEntry] = [one for one in history.tail if one.end_offset <= start]
    for number, one in enumerate(gone):
        too_old = keep_ms >= 0 and NOW - one.max_timestamp_ms > keep_ms
        left_without_it = 4000 * (len(ages) - number - 1)
        assert too_old or (keep_bytes >= 0 and left_without_it >= keep_bytes)
    if len(gone) < len(ages):
        oldest_kept = history.tail[len(gone)]
        assert keep_ms < 0 or NOW - oldest_kept.max_timestamp_ms <= keep_ms
        assert keep_bytes < 0 or 4000 * (len(ages) - len(gone) - 1) < keep_bytes


def test_records_without_a_timestamp_are_as_old_as_their_archive() -> None:
    bare = dataclasses.replace(segment(0, 10), min_timestamp_ms=-1, max_timestamp_ms=-1, archived_ms=NOW - HOUR)
    assert expire(config(retention_ms=2 * HOUR), snapshot(bare)) == 0
    assert expire(config(retention_ms=HOUR // 2), snapshot(bare)) == 10


def test_what_is_deleted_for_all_readers_leaves_the_disk_once_the_archive_is_past_it() -> None:
    segments = [local(0, 10), local(10, 20), local(20, 30)]
    forever = config(local_retention_ms=-1, retention_ms=-1)
    deleted = dataclasses.replace(snapshot(segment(10, 20)), log_start_offset=15)
    assert local_drop_offset(forever, segments, deleted, NOW) == 10


def test_a_grace_period_begins_when_the_manifest_is_seen_to_be_published() -> None:
    grace, removed = GracePeriod(100), [Removed("a", 1_000)]
    assert grace.over(removed, 1_200) == [], "its publish began at 1000 and took until now"
    assert grace.over([*removed, Removed("b", 1_250)], 1_299) == []
    assert grace.over([*removed, Removed("b", 1_250)], 1_300) == ["a"]
    assert grace.over([Removed("b", 1_250)], 1_398) == []
    assert grace.over([Removed("b", 1_250)], 1_399) == ["b"]
    assert grace.over(removed, 1_500) == [], "it was gone and is listed again"


def test_no_grace_period_is_over_at_once() -> None:
    assert GracePeriod(0).over([Removed("a", 1_000)], 1_000) == ["a"]
    assert GracePeriod(0).over([Removed("a", 1_000)], 900) == [], "a clock that is behind waits"


def test_a_hole_of_deleted_records_holds_archiving_up_until_the_archive_has_expired() -> None:
    archived, segments = snapshot(segment(0, 10)), [local(20, 30)]
    assert next_to_archive(segments, archived, 30, 20) is None
    assert archive_start(20, archived, segments) == 20
    assert next_to_archive(segments, snapshot(log_start=10), 30, 20) is None, "an empty one too"
    assert archive_start(20, snapshot(log_start=10), segments) == 20
    following = next_to_archive(segments, snapshot(log_start=20), 30, 20)
    assert following is not None and following.base_offset == 20
    with pytest.raises(CorruptLog, match="neither archived nor on the local disk"):
        next_to_archive(segments, archived, 30, 19)


def test_the_archive_follows_the_log_start_as_far_as_it_reaches() -> None:
    archived = snapshot(segment(0, 10))
    assert archive_start(7, archived, [local(5, 30)]) == 7
    assert archive_start(25, archived, [local(5, 30)]) == 10
    assert archive_start(25, archived, []) == 10

"""Which segments are merged: pure decisions."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hot_tier.log.config import TopicConfig
from spark.jobs.compaction_plan import Candidate, cleaned_time, compactable, groups, markers_may_go
from tests.cold_tier.manifest.test_manifest import segment

TARGET = 1000


def candidates(*sizes: int, kept: dict[int, int] | None = None) -> list[Candidate]:
    made = []
    for at, size in enumerate(sizes):
        each = dataclasses.replace(segment(at * 100, at * 100 + 100), rows_bytes=size)
        made.append(Candidate(each, (kept or {}).get(at, 100)))
    return made


def sizes(found: list[list[Candidate]]) -> list[list[int]]:
    return [[each.segment.rows_bytes for each in run] for run in found]


def test_small_neighbours_become_one() -> None:
    assert sizes(groups(candidates(*[100] * 25), TARGET)) == [[100] * 10, [100] * 10, [100] * 5]


def test_large_ones_are_left_alone() -> None:
    assert sizes(groups(candidates(100, 100, 900, 100, 500, 100, 100), TARGET)) == [[100, 100], [100, 100]]


def test_a_merge_doubles_its_largest_member() -> None:
    assert groups(candidates(400, 100, 100), TARGET) == []
    assert sizes(groups(candidates(400, 100, 100, 100, 100), TARGET)) == [[400, 100, 100, 100, 100]]


def test_what_shrinks_is_rewritten_also_alone() -> None:
    found = groups(candidates(900, 900, 900, kept={1: 99}), TARGET)
    assert [[each.segment.base_offset for each in run] for run in found] == [[100]]


def test_sizes_are_those_after_keys_are_compacted() -> None:
    found = groups(candidates(900, 900, 900, 900, kept=dict.fromkeys(range(4), 25)), TARGET)
    assert sizes(found) == [[900] * 4]


def test_a_segment_spans_no_more_offsets_than_a_batch() -> None:
    long = [
        Candidate(dataclasses.replace(segment(base * 10**9, (base + 1) * 10**9), rows=100), kept)
        for base, kept in enumerate([1, 1, 1, 1, 1])
    ]
    assert [len(run) for run in groups(long, TARGET)] == [2, 2, 1]


def test_very_many_small_ones_are_each_looked_at_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def counted(candidate: Candidate) -> int:
        nonlocal asked
        asked += 1
        return candidate.segment.rows_bytes

    monkeypatch.setattr(Candidate, "bytes_after", property(counted))
    assert [len(run) for run in groups(candidates(*[1] * 2500), TARGET)] == [1000, 1000, 500]
    assert asked < 10 * 2500


@given(st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 100)), max_size=60))
def test_groups_are_runs_within_the_target(drawn: list[tuple[int, int]]) -> None:
    given_ = candidates(*(size for size, _ in drawn), kept={at: kept for at, (_, kept) in enumerate(drawn)})
    found = groups(given_, TARGET)
    places = [[given_.index(each) for each in run] for run in found]
    assert all(run == list(range(run[0], run[-1] + 1)) for run in places)
    flat = [at for run in places for at in run]
    assert flat == sorted(set(flat))
    assert all(len(run) == 1 or sum(each.bytes_after for each in run) <= TARGET for run in found)
    assert {at for at, each in enumerate(given_) if each.shrinks} <= set(flat), "what shrinks is in one of them"


def test_running_again_without_news_does_nothing() -> None:
    before = candidates(*[70] * 200)
    after = [sum(each.segment.rows_bytes for each in run) for run in groups(before, TARGET)]
    assert groups(candidates(*after), TARGET) == []


def test_young_segments_wait_for_the_lag() -> None:
    config = TopicConfig(min_compaction_lag_ms=1000)
    segments = [segment(0, 10, max_ms=100), segment(10, 20, max_ms=5000), segment(20, 30, max_ms=100)]
    assert compactable(config, segments, 5500) == (segments[0],)
    assert compactable(config, segments, 6000) == tuple(segments)


def test_markers_wait_from_the_first_compaction_that_kept_them() -> None:
    config = TopicConfig(delete_retention_ms=100)
    assert not markers_may_go(config, None, 10**12)
    assert not markers_may_go(config, 1000, 1099)
    assert markers_may_go(config, 1000, 1100)

    def of(*times: int | None) -> list[Candidate]:
        return [dataclasses.replace(each, cleaned_ms=at) for each, at in zip(candidates(1, 1, 1), times, strict=False)]

    assert cleaned_time(config, of(None), 1100) == 1100
    assert cleaned_time(config, of(1050, 1020, 1000), 1100) == 1050
    assert cleaned_time(config, of(1050, None), 1100) == 1100

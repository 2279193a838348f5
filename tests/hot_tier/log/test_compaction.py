"""Compaction against a plain model, and a crash at every step of the exchange."""

import asyncio
import errno
import os
import random
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hot_tier.errors import CorruptLog
from hot_tier.log import files, names
from hot_tier.log.compaction import swap
from hot_tier.log.compaction.compactor import Compactor
from hot_tier.log.compaction.plan import cleanable, dirty_ratio, first_dirty, is_due, merges
from hot_tier.log.config import TopicConfig
from hot_tier.log.mending import proved_again
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.segment_info import SegmentInfo
from hot_tier.record.batch import iter_headers, read_header
from hot_tier.record.records import Record
from tests.hot_tier.log.support import (
    NOW,
    Kill,
    Killed,
    append,
    batch,
    open_log,
    read_all,
    read_bytes,
    recover,
    release,
    reopen_after_kill,
    sync_nothing,
)

COMPACT = TopicConfig(
    cleanup_policy=frozenset({"compact"}), segment_bytes=1024, index_interval_bytes=100, delete_retention_ms=1000
)


def compact(log: PartitionLog, *, now_ms: int = NOW, buffer_bytes: int = 1 << 20) -> bool:
    with ThreadPoolExecutor(1) as threads:
        return asyncio.run(Compactor(threads, buffer_bytes, lambda: now_ms).compact(log))


def write(log: PartitionLog, *pairs: tuple[bytes, bytes | None], codec: int = 0, **producer: int) -> None:
    append(log, batch(*pairs, codec=codec, **producer))


def test_damage_that_compaction_finds_is_known_and_ends_with_it(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    for number in range(3):
        write(log, (b"key", b"%d" % number * 100))
        close_active(log)
    info = log.sealed_segments()[1]
    whole = Path(info.path).read_bytes()
    for damaged in (whole[:-1] + bytes([whole[-1] ^ 1]), None):
        Path(info.path).unlink()
        if damaged is not None:
            Path(info.path).write_bytes(damaged)
        assert not compact(log)
        assert [each.path for each in log.damaged_segments()] == [info.path], "so that it is mended"
        Path(info.path).write_bytes(whole)
        assert asyncio.run(proved_again(log, info))
    assert compact(log)
    assert [record.value for record in read_all(log)] == [b"2" * 100]
    release(log)


def close_active(log: PartitionLog) -> None:
    log.roll(NOW)
    log.flush()


def expected(records: Sequence[Record], cleanable_end: int, *, markers: bool) -> list[tuple[int, bytes | None, object]]:
    latest = {record.key: record.offset for record in records if record.offset < cleanable_end}
    return [
        (record.offset, record.key, record.value)
        for record in records
        if record.offset >= cleanable_end
        or (latest[record.key] == record.offset and (markers or record.value is not None))
    ]


def seen(records: Sequence[Record]) -> list[tuple[int, bytes | None, object]]:
    return [(record.offset, record.key, record.value) for record in records]


def test_the_latest_record_of_each_key_stays_at_its_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    for number in range(60):
        write(log, (b"k%d" % (number % 7), b"v%d" % number), (b"only-%d" % number, b"x"), codec=number % 5)
    close_active(log)
    write(log, (b"k0", b"active"))
    before = read_all(log)
    size = log.size_bytes
    assert compact(log)
    assert seen(read_all(log)) == expected(before, 120, markers=True)
    assert log.size_bytes < size
    assert log.log_end_offset == 121
    assert not compact(log)
    for offset in range(121):
        assert read_header(read_bytes(log, offset)).last_offset >= offset
    release(log)


def test_batches_keep_their_ends_and_their_other_fields(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    append(log, batch((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), timestamps=[5, 9, 6, 7]), epoch=4)
    append(log, batch((b"c", b"2"), timestamp=3), epoch=4)
    close_active(log)
    compact(log)
    first, second = [header for _, header in iter_headers(read_bytes(log, 0))]
    assert (first.base_offset, first.last_offset, first.record_count, first.leader_epoch) == (0, 3, 2, 4)
    assert (first.base_timestamp, first.max_timestamp) == (5, 9)
    assert (second.base_offset, second.last_offset) == (4, 4)
    assert [(r.offset, r.timestamp) for r in read_all(log)] == [(1, 9), (2, 6), (4, 3)]
    release(log)


def test_delete_markers_stay_for_their_time_and_then_go(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    write(log, (b"a", b"1"), (b"b", b"1"))
    write(log, (b"a", None))
    close_active(log)
    compact(log, now_ms=NOW)
    assert seen(read_all(log)) == [(1, b"b", b"1"), (2, b"a", None)]
    write(log, (b"z", b"1"))
    close_active(log)
    compact(log, now_ms=NOW + 999)
    assert (2, b"a", None) in seen(read_all(log))
    write(log, (b"z", b"2"))
    close_active(log)
    compact(log, now_ms=NOW + 1000)
    assert seen(read_all(log)) == [(1, b"b", b"1"), (4, b"z", b"2")]
    release(log)


def test_a_producers_last_batch_leaves_its_header(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    write(log, (b"a", b"1"), producer=5, epoch=2, sequence=0)
    write(log, (b"a", b"2"), producer=5, epoch=2, sequence=1)
    write(log, (b"a", b"3"))
    close_active(log)
    compact(log)
    trace, rest = [header for _, header in iter_headers(read_bytes(log, 0))]
    assert (trace.base_offset, trace.record_count, trace.producer_id, trace.base_sequence) == (1, 0, 5, 1)
    assert rest.base_offset == 2
    for path in Path(log.directory).glob("*.producers"):
        path.unlink()
    log, _ = reopen_after_kill(log)
    assert append(log, batch((b"a", b"2"), producer=5, epoch=2, sequence=1)).duplicate
    release(log)


def test_records_without_a_key_go(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    append(log, batch(b"no key"))
    write(log, (b"a", b"1"))
    close_active(log)
    compact(log)
    assert seen(read_all(log)) == [(1, b"a", b"1")]
    release(log)


def test_small_neighbours_are_merged(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    for number in range(200):
        write(log, (b"k", b"v%d" % number))
    close_active(log)
    segments = log.segment_count
    compact(log)
    for _ in range(2):
        write(log, (b"k", b"w"))
        close_active(log)
        compact(log, now_ms=NOW + 10_000)
    assert log.segment_count < segments / 2
    assert [value for _, _, value in seen(read_all(log))] == [b"w"]
    release(log)


@pytest.mark.parametrize("seed", range(3))
def test_more_keys_than_fit_take_several_passes(tmp_path: Path, seed: int) -> None:
    choose = random.Random(seed)
    log = open_log(tmp_path, COMPACT)
    for number in range(100):
        pairs = [(b"k%d" % choose.randrange(60), b"v%d" % number) for _ in range(choose.randrange(1, 9))]
        write(log, *pairs)
    close_active(log)
    before = read_all(log)
    assert compact(log, buffer_bytes=16 * 24)
    assert seen(read_all(log)) == expected(before, log.log_end_offset, markers=True)
    assert all(segment.cleaned_ms == NOW for segment in log.sealed_segments())
    release(log)


@settings(max_examples=40, deadline=None)
@given(
    writes=st.lists(
        st.lists(
            st.tuples(st.sampled_from([b"a", b"b", b"c", b""]), st.one_of(st.none(), st.binary(max_size=40))),
            min_size=1,
            max_size=6,
        ),
        max_size=40,
    ),
    codec=st.integers(0, 4),
    passes=st.lists(st.integers(0, 39), max_size=4),
)
def test_any_history_compacts_to_the_model(
    tmp_path_factory: pytest.TempPathFactory,
    writes: list[list[tuple[bytes, bytes | None]]],
    codec: int,
    passes: list[int],
) -> None:
    log = open_log(tmp_path_factory.mktemp("log"), COMPACT)
    everything: list[Record] = []
    for at, pairs in enumerate(writes):
        write(log, *pairs, codec=codec)
        everything = everything + [r for r in read_all(log) if r.offset >= log.log_end_offset - len(pairs)]
        if at in passes:
            close_active(log)
            compact(log)
            assert seen(read_all(log)) == expected(everything, log.log_end_offset, markers=True)
    log, recovered = reopen_after_kill(log)
    assert recovered.damaged == []
    assert log.log_end_offset == sum(map(len, writes))
    release(log)


@pytest.mark.parametrize("position", [0, 11, 30, 63])
def test_damage_is_not_carried_over(tmp_path: Path, position: int) -> None:
    log = open_log(tmp_path, COMPACT)
    write(log, (b"a", b"1"))
    write(log, (b"b", b"1"))
    close_active(log)
    path = log.segments()[0].path
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(b"\xff")
    assert not compact(log)
    assert log.segment_count == 2
    log, _ = reopen_after_kill(log)
    with pytest.raises(CorruptLog):
        read_bytes(log, 0)
    release(log)


class Crash(Exception):
    pass


STEPS = 24


@pytest.mark.parametrize("step", range(STEPS))
def test_a_crash_at_any_step_leaves_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    log = open_log(tmp_path / "run", COMPACT)
    for number in range(60):
        write(log, (b"k%d" % (number % 7), b"v%d" % number))
    close_active(log)
    write(log, (b"active", b"1"))
    log.flush()
    before = read_all(log)
    compacted = expected(before, 60, markers=True)
    taken: list[str] = []

    def crash_after(function: object, name: str) -> object:
        def step_then_perhaps_crash(*arguments: object) -> object:
            result = function(*arguments)  # type: ignore[operator]
            taken.append(name)
            if len(taken) == step + 1:
                shutil.copytree(tmp_path / "run", tmp_path / "crashed")
            return result

        return step_then_perhaps_crash

    for module in (swap.os, files.os):
        for name in ("rename", "unlink"):
            monkeypatch.setattr(module, name, crash_after(getattr(os, name), name))
        break
    monkeypatch.setattr(files.os, "fdatasync", crash_after(os.fdatasync, "fdatasync"))
    compact(log)
    monkeypatch.undo()
    assert seen(read_all(log)) == compacted
    assert len(taken) > 10
    release(log)
    if len(taken) <= step:
        return
    directory = log.directory.replace("/run/", "/crashed/")
    after, recovered = recover(str(tmp_path / "crashed"), directory, COMPACT)
    assert recovered.damaged == []
    found = seen(read_all(after))
    assert len(found) >= len(compacted)
    assert {key: value for _, key, value in found} == {key: value for _, key, value in compacted}
    assert set(compacted) <= set(found) <= set(seen(before))
    assert not list(Path(directory).glob("*.cleaned")) + list(Path(directory).glob("*.swap"))
    compact(after)
    assert seen(read_all(after)) == compacted
    release(after)


def segment(
    base: int, *, size: int = 100, timestamp: int = 0, cleaned_ms: int = -1, sealed: bool = True
) -> SegmentInfo:
    return SegmentInfo(base, base + 10, size, timestamp, "", sealed, cleaned_ms, True)  # type: ignore[arg-type]


def test_what_may_be_cleaned() -> None:
    config = TopicConfig(min_compaction_lag_ms=100)
    log = [segment(0), segment(10, timestamp=50), segment(20, timestamp=10), segment(30, sealed=False)]
    assert cleanable(config, log, committed_offset=100, now_ms=1000) == log[:3]
    assert cleanable(config, log, committed_offset=29, now_ms=1000) == log[:2]
    assert cleanable(config, log, committed_offset=100, now_ms=149) == log[:1]


def test_when_it_is_due() -> None:
    config = TopicConfig(min_cleanable_dirty_ratio=0.5, max_compaction_lag_ms=1000)
    half = [segment(0, cleaned_ms=1), segment(10)]
    less = [segment(0, cleaned_ms=1, size=101), segment(10)]
    assert first_dirty(half) == 1
    assert dirty_ratio(half) == 0.5
    assert is_due(config, half, now_ms=5)
    assert not is_due(config, less, now_ms=5)
    assert is_due(config, less, now_ms=1001)
    assert not is_due(config, [segment(0, cleaned_ms=1)], now_ms=10**9)
    assert not is_due(config, [], now_ms=0)


def test_what_is_merged() -> None:
    config = TopicConfig(segment_bytes=1024, delete_retention_ms=100)
    old, waiting, dirty = segment(0, cleaned_ms=5), segment(10, cleaned_ms=950), segment(20)
    found = merges(config, [old, old, waiting, waiting, dirty, dirty], now_ms=1000)
    assert [len(merge.members) for merge in found] == [2, 1, 1, 2]
    assert [merge.drop_markers for merge in found] == [True, False, False, False]
    large = [segment(0, size=600), segment(10, size=600)]
    assert [len(merge.members) for merge in merges(config, large, now_ms=0)] == [1, 1]


def test_an_empty_segment_joins_others_and_does_not_change_when_their_markers_go() -> None:
    config = TopicConfig(segment_bytes=1024, delete_retention_ms=100)
    waiting, dirty = segment(10, cleaned_ms=950), segment(20)
    long_empty, empty = segment(0, size=0, cleaned_ms=5), segment(0, size=0, cleaned_ms=990)
    found = merges(config, [long_empty, waiting, empty, empty, waiting, empty, dirty], now_ms=1000)
    assert [len(merge.members) for merge in found] == [4, 2, 1]
    assert [merge.cleaned_ms for merge in found] == [950, 950, -1]
    assert not any(merge.drop_markers for merge in found)
    assert [merge.drop_markers for merge in merges(config, [empty, waiting], now_ms=1050)] == [True]


def test_segments_that_lose_all_records_leave_one(tmp_path: Path) -> None:
    log = open_log(tmp_path, COMPACT)
    write(log, (b"gone", b"1"), (b"stays", b"1"))
    write(log, (b"gone", None))
    for number in range(8):
        write(log, (b"key", b"%d" % number * 500))
        close_active(log)
        compact(log, now_ms=NOW + number)
        assert len(log.sealed_segments()) <= 3, "that of the last round is empty until the next"
        kept = [(record.key, record.value) for record in read_all(log)]
        assert kept == [(b"stays", b"1"), (b"gone", None), (b"key", b"%d" % number * 500)]
    write(log, (b"key", b"last"))
    close_active(log)
    compact(log, now_ms=NOW + 1000)
    assert [record.key for record in read_all(log)] == [b"stays", b"key"]
    release(log)


def test_delete_markers_of_an_archived_log_stay(tmp_path: Path) -> None:
    """The bucket may hold older values of their keys."""
    log = open_log(tmp_path, replace(COMPACT, remote_storage_enable=True))
    write(log, (b"a", None), (b"b", None))
    for number in range(3):
        write(log, (b"b", b"%d" % number))
        close_active(log)
        compact(log, now_ms=NOW + number * 10**9)
    assert seen(read_all(log)) == [(0, b"a", None), (4, b"b", b"2")]
    release(log)


def test_a_swap_whose_log_start_cannot_be_written_leaves_the_old_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, COMPACT)
    for number in range(6):
        write(log, (b"key", b"%d" % number * 100))
    close_active(log)
    before = read_all(log)
    replace_file = os.replace

    def refuse(old: str, new: str) -> None:
        if new.endswith(names.LOG_START):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace_file(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        assert not compact(log)
    assert read_all(log) == before
    assert not [name for name in os.listdir(log.directory) if name.endswith((names.SWAP, names.CLEANED))]
    assert compact(log)
    log, recovered = reopen_after_kill(log)
    assert (recovered.damaged, recovered.cut_bytes) == ([], 0)
    assert read_all(log) == before[-1:]
    release(log)


def test_a_swap_that_the_disk_refuses_half_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change is refused once. A later compaction is killed. No record is lost, and readers get what they ask for,
    or the log is marked as failed."""
    sync_nothing(monkeypatch)
    step, refused = 0, True
    while refused:
        log = open_log(tmp_path / str(step), COMPACT)
        for number in range(6):
            write(log, (b"k%d" % (number % 3), b"%d" % number * 100))
        close_active(log)
        before = read_all(log)
        with monkeypatch.context() as patch:
            disk = Kill(step, patch, OSError(errno.EIO, os.strerror(errno.EIO)))
            compact(log)
            refused = disk.steps_left < 0
        if log.failure is None:
            assert set(expected(before, 6, markers=True)) <= set(seen(read_all(log))), f"refused change {step}"
            for number in range(6):
                write(log, (b"k%d" % (number % 3), b"%d" % number * 90))
            close_active(log)
            before = read_all(log)
            with monkeypatch.context() as patch:
                Kill(6, patch)
                try:
                    compact(log)
                except Killed:
                    pass
        log, recovered = reopen_after_kill(log)
        assert recovered.damaged == []
        assert set(expected(before, 12, markers=True)) <= set(seen(read_all(log))), f"refused change {step}"
        release(log)
        step += 1
    assert step > 10


@pytest.mark.parametrize("harm", ["cut", "flipped", "removed"])
def test_a_damaged_output_takes_the_place_of_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    """Killed when the swap is decided and nothing is exchanged yet, the old segments are all there."""
    sync_nothing(monkeypatch)
    harmed, step, killed = 0, 0, True
    while killed:
        log = open_log(tmp_path / str(step), COMPACT)
        for number in range(6):
            write(log, (b"k%d" % (number % 3), b"%d" % number * 100))
        close_active(log)
        before = read_all(log)
        with monkeypatch.context() as patch:
            Kill(step, patch)
            try:
                killed = not compact(log)
            except Killed:
                killed = True
        for output in Path(log.directory).glob("*.log.cleaned"):
            stem = str(output).removesuffix(".log.cleaned")
            if os.path.exists(stem + names.SWAP) and os.path.exists(stem + names.INDEX):
                harmed += 1
                content = bytearray(output.read_bytes())
                content[-1] ^= harm == "flipped"
                output.write_bytes(content[: len(content) // 2] if harm == "cut" else content)
                if harm == "removed":
                    output.unlink()
        log, recovered = reopen_after_kill(log)
        assert recovered.damaged == [], f"killed before change {step}"
        assert set(expected(before, 6, markers=True)) <= set(seen(read_all(log))), f"killed before change {step}"
        compact(log)
        assert log.known_damage() == []
        release(log)
        step += 1
    assert harmed

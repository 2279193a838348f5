"""Names, indexes, leader epochs, recovery points: round trips, and any damage is noticed."""

import os
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hot_tier.ids import Offset
from hot_tier.log import names
from hot_tier.log.epochs import LeaderEpochs, read_epochs
from hot_tier.log.index import (
    UNKNOWN,
    Seal,
    SparseIndex,
    read_index,
    read_seal,
    read_time_index,
    write_index,
    write_time_index,
)
from hot_tier.log.log_start import LogStart, read_log_start, write_log_start
from hot_tier.log.recovery_points import RecoveryPoint, RecoveryPoints
from hot_tier.log.scan import ANYWHERE
from hot_tier.log.sealed_text import read_sealed_text, write_sealed_text

TOPIC_NAMES = st.text("abcXYZ019._-", min_size=1, max_size=249).filter(lambda name: name not in (".", ".."))


@given(TOPIC_NAMES, st.uuids())
def test_topic_directories(topic: str, topic_id: UUID) -> None:
    name = names.topic_directory(topic, topic_id)
    assert len(name + names.DELETED) <= 255
    found = names.parse_topic_directory(name)
    assert found is not None
    assert found.topic_id == topic_id
    assert topic.startswith(found.topic)
    assert found.topic == topic or len(topic) > 200


@given(st.integers(0, 2**63 - 1), st.sampled_from([names.LOG, names.INDEX, names.TIME_INDEX, names.PRODUCERS]))
def test_offset_files(offset: int, suffix: str) -> None:
    assert names.parse_offset_file(names.offset_file(offset, suffix)) == (offset, suffix)


@given(st.integers(0, 10**6))
def test_partition_directories(partition: int) -> None:
    assert names.parse_partition_directory(names.partition_directory(partition)) == partition


@pytest.mark.parametrize("name", ["", "x", "orders", "orders.1", "lost+found", ".", "..", "a.deleted", "٣"])
def test_foreign_names_are_nothing_of_ours(name: str) -> None:
    assert names.parse_topic_directory(name) is None
    assert names.parse_offset_file(name) is None
    assert names.parse_partition_directory(name) is None


BATCHES = st.lists(st.tuples(st.integers(1, 5), st.integers(61, 300), st.integers(-1, 1000)), max_size=60)


def indexed(batches: list[tuple[int, int, int]], interval: int) -> tuple[SparseIndex, Seal, list[tuple[int, int, int]]]:
    """The index of some batches of (offsets, bytes, greatest timestamp), and each batch's offset, position, time."""
    index = SparseIndex()
    offset = position = 0
    latest = -1
    rows = []
    for offsets, size, timestamp in batches:
        index.note(offset, position, size, latest, interval)
        rows.append((offset, position, timestamp))
        latest = max(latest, timestamp)
        offset += offsets
        position += size
    return index, Seal(1000, 1000 + offset, position, latest, 1000, -1, sealed=True, dense=True), rows


@given(BATCHES, st.integers(0, 500), st.integers(0, 400), st.integers(-1, 1001))
def test_an_index_never_leads_too_far(
    batches: list[tuple[int, int, int]], interval: int, offset: int, timestamp: int
) -> None:
    index, _, rows = indexed(batches, interval)
    boundaries = {position: first for first, position, _ in rows} | {0: 0}
    found, position = index.floor(offset)
    assert found <= offset
    assert boundaries[position] == found
    assert index.boundary(position + 10) in boundaries
    start = index.before_time(timestamp)
    assert all(time < timestamp for first, _, time in rows if first < start)


@given(BATCHES, st.integers(0, 500), st.integers(0, 60))
def test_a_cut_index_is_the_index_of_what_is_left(
    batches: list[tuple[int, int, int]], interval: int, kept: int
) -> None:
    index, _, rows = indexed(batches, interval)
    kept = min(kept, len(rows))
    shorter, seal, _ = indexed(batches[:kept], interval)
    index.truncate(seal.log_bytes)
    for name in SparseIndex.__slots__:
        if name != "unindexed_bytes":
            assert getattr(index, name) == getattr(shorter, name)


@given(BATCHES, st.integers(0, 500))
def test_index_files_are_read_back(batches: list[tuple[int, int, int]], interval: int) -> None:
    index, seal, _ = indexed(batches, interval)
    content = write_index(index, seal)
    assert read_seal(content[:80]) == seal
    found = read_index(content)
    assert found is not None
    assert found[0] == seal
    assert read_time_index(write_time_index(index, seal), seal, found[1])
    for name in SparseIndex.__slots__:
        if name != "unindexed_bytes":
            assert getattr(found[1], name) == getattr(index, name)
    assert not read_time_index(write_time_index(index, seal), seal._replace(log_bytes=1 << 40), SparseIndex())


@given(st.binary(max_size=200), st.integers(0, 10**6), st.integers(1, 255))
def test_any_damage_to_an_index_is_noticed(garbage: bytes, at: int, flip: int) -> None:
    index, seal, _ = indexed([(1, 100, 5)] * 20, 150)
    assert read_index(garbage) is None
    assert not read_time_index(garbage, seal, SparseIndex())
    content = bytearray(write_index(index, seal))
    content[at % len(content)] ^= flip
    assert read_index(bytes(content)) is None
    content = bytearray(write_time_index(index, seal))
    content[at % len(content)] ^= flip
    assert not read_time_index(bytes(content), seal, SparseIndex())


def test_where_epochs_end() -> None:
    epochs = LeaderEpochs()
    assert epochs.end_of(0, Offset(0)) == (-1, -1)
    assert epochs.assign(2, 10)
    assert not epochs.assign(2, 15)
    assert epochs.assign(5, 20)
    assert not epochs.assign(4, 25)
    assert epochs.end_of(1, Offset(50)) == (1, 10)
    assert epochs.end_of(2, Offset(50)) == (2, 20)
    assert epochs.end_of(4, Offset(50)) == (2, 20)
    assert epochs.end_of(5, Offset(50)) == (5, 50)
    assert epochs.end_of(6, Offset(50)) == (-1, -1)
    assert [epochs.epoch_at(offset) for offset in (9, 10, 19, 20, 99)] == [-1, 2, 2, 5, 5]


def test_epochs_that_wrote_nothing_are_replaced() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 10)])
    epochs.assign(3, 10)
    assert epochs.entries() == [(1, 0), (3, 10)]


def test_epochs_are_cut_at_both_ends() -> None:
    epochs = LeaderEpochs([(1, 0), (2, 10), (3, 20)])
    assert epochs.truncate_end(20)
    assert not epochs.truncate_end(20)
    assert epochs.entries() == [(1, 0), (2, 10)]
    assert epochs.truncate_start(12)
    assert epochs.entries() == [(2, 12)]
    assert not epochs.truncate_start(12)
    assert not epochs.truncate_start(5)
    assert epochs.truncate_end(0)
    assert epochs.latest == -1


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 2**62)), max_size=20))
def test_epochs_are_read_back(entries: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs()
    for epoch, start in sorted(entries):
        epochs.assign(epoch, start)
    found = read_epochs(epochs.write())
    assert found is not None
    assert found.entries() == epochs.entries()


@given(st.binary(max_size=60), st.integers(0, 1000), st.integers(1, 255))
def test_sealed_text_notices_damage(garbage: bytes, at: int, flip: int) -> None:
    assert read_sealed_text("kind", garbage) is None
    content = bytearray(write_sealed_text("kind", ["a line", "another"]))
    assert read_sealed_text("kind", bytes(content)) == ["a line", "another"]
    assert read_sealed_text("other", bytes(content)) is None
    content[at % len(content)] ^= flip
    assert read_sealed_text("kind", bytes(content)) is None


def test_recovery_points_come_back(tmp_path: Path) -> None:
    path = str(tmp_path / "points")
    topics = [uuid4() for _ in range(3)]
    points = RecoveryPoints(path)
    for number, topic in enumerate(topics):
        points.put((topic, 0), RecoveryPoint(number, 0, number))
        points.put((topic, 1), RecoveryPoint(number + 100, 50, 7, 3, 0xFEED_F00D))
    points.put((topics[0], 0), RecoveryPoint(5, 5, 5))
    points.remove_topic(topics[1])
    points.close()
    size = os.path.getsize(path)
    again = RecoveryPoints(path)
    assert again.loaded == {
        (topics[0], 0): (5, 5, 5, UNKNOWN, 0),
        (topics[0], 1): (100, 50, 7, 3, 0xFEED_F00D),
        (topics[2], 0): (2, 0, 2, UNKNOWN, 0),
        (topics[2], 1): (102, 50, 7, 3, 0xFEED_F00D),
    }
    again.put((uuid4(), 9), RecoveryPoint(1, 1, 1))
    again.close()
    assert os.path.getsize(path) == size


def test_a_damaged_recovery_point_counts_as_missing(tmp_path: Path) -> None:
    path = tmp_path / "points"
    topic = uuid4()
    points = RecoveryPoints(str(path))
    points.put((topic, 0), RecoveryPoint(1, 0, 1))
    points.put((topic, 1), RecoveryPoint(2, 0, 2))
    points.close()
    content = bytearray(path.read_bytes())
    content[64 + 20] ^= 1
    path.write_bytes(content)
    again = RecoveryPoints(str(path))
    assert again.loaded == {(topic, 1): (2, 0, 2, UNKNOWN, 0)}
    again.close()
    path.write_bytes(b"something else")
    empty = RecoveryPoints(str(path))
    assert empty.loaded == {}
    empty.close()


@pytest.mark.parametrize("gaps_below", [0, 17, ANYWHERE])
def test_a_log_start_is_read_back(gaps_below: int) -> None:
    assert read_log_start(write_log_start(5, 3, gaps_below)) == LogStart(5, 3, gaps_below)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["5"], LogStart(5, None, ANYWHERE)),
        (["5", "3"], LogStart(5, 3, ANYWHERE)),
        (["5", "3", "gaps"], LogStart(5, 3, ANYWHERE)),
        (["5", "3", "gaps below"], LogStart(5, 3, ANYWHERE)),
        (["5", "3", "gaps below x"], LogStart(5, 3, ANYWHERE)),
        (["5", "3", "17"], LogStart(5, 3, ANYWHERE)),
        (["5", "x", "dense"], LogStart(5, None, 0)),
        (["x", "3", "dense"], LogStart(0, None, ANYWHERE)),
        (["9" * 5000], LogStart(0, None, ANYWHERE)),
        ([], LogStart(0, None, ANYWHERE)),
    ],
    ids=lambda each: "-".join(each)[:20] if isinstance(each, list) else "",
)
def test_what_a_log_start_does_not_say_is_not_known(lines: list[str], expected: LogStart) -> None:
    assert read_log_start(write_sealed_text(names.LOG_START, lines)) == expected


@given(st.lists(st.text(max_size=30), max_size=5))
def test_a_log_start_of_any_words_is_read_without_an_error(lines: list[str]) -> None:
    assert read_log_start(write_sealed_text(names.LOG_START, lines)).gaps_below >= 0

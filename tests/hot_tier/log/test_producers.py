import pytest
from hypothesis import given
from hypothesis import strategies as st

from hot_tier.errors import OutOfOrderSequence, ProducerFenced
from hot_tier.log.producers import MAX_SEQUENCE, ProducerState, Written, read_producers
from hot_tier.record.batch import CONTROL, TRANSACTIONAL, BatchHeader
from hot_tier.record.control import Marker, MarkerKind


def header(sequence: int, count: int = 1, *, epoch: int = 0, producer: int = 1, attributes: int = 0) -> BatchHeader:
    return BatchHeader(0, 49, 0, 2, 0, attributes, count - 1, 0, 0, producer, epoch, sequence, count)


def write(state: ProducerState, batch: BatchHeader, base_offset: int, now_ms: int = 0) -> None:
    assert state.check(batch) is None
    state.wrote(
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        base_offset,
        base_offset + batch.last_offset_delta,
        batch.attributes,
        now_ms,
    )


def test_an_unknown_producer_may_start_anywhere() -> None:
    state = ProducerState()
    write(state, header(1234), 0)
    write(state, header(1235), 1)


def test_the_sequence_wraps_to_zero() -> None:
    state = ProducerState()
    write(state, header(MAX_SEQUENCE - 1, 4), 10)
    with pytest.raises(OutOfOrderSequence):
        state.check(header(MAX_SEQUENCE))
    assert state.check(header(MAX_SEQUENCE - 1, 4)) == Written(MAX_SEQUENCE - 1, 1, 10, 14)
    write(state, header(2), 14)
    exactly = ProducerState()
    write(exactly, header(MAX_SEQUENCE), 0)
    write(exactly, header(0), 1)


def test_only_the_same_first_and_last_sequence_is_a_duplicate() -> None:
    state = ProducerState()
    write(state, header(0, 3), 0)
    write(state, header(3, 3), 3)
    assert state.check(header(0, 3)) == Written(0, 2, 0, 3)
    for other in (header(0, 2), header(1, 2), header(0, 6), header(2, 1), header(7)):
        with pytest.raises(OutOfOrderSequence):
            state.check(other)


def test_the_window_holds_five_batches() -> None:
    state = ProducerState()
    for sequence in range(7):
        write(state, header(sequence), 100 + sequence)
    for sequence in range(2, 7):
        assert state.check(header(sequence)) == Written(sequence, sequence, 100 + sequence, 101 + sequence)
    for sequence in (0, 1):
        with pytest.raises(OutOfOrderSequence):
            state.check(header(sequence))


def test_epochs_fence_and_start_at_zero() -> None:
    state = ProducerState()
    write(state, header(0, epoch=3), 0)
    with pytest.raises(ProducerFenced):
        state.check(header(1, epoch=2))
    with pytest.raises(OutOfOrderSequence):
        state.check(header(1, epoch=4))
    write(state, header(0, epoch=4), 1)
    with pytest.raises(ProducerFenced):
        state.check(header(0, epoch=3))
    assert state.check(header(0, epoch=4)) == Written(0, 0, 1, 2)


def test_a_marker_has_no_sequence_but_an_epoch() -> None:
    state = ProducerState()
    write(state, header(0, epoch=1), 0)
    state.wrote(1, 1, -1, 1, 1, TRANSACTIONAL | CONTROL, 0, Marker(MarkerKind.COMMIT, 0))
    write(state, header(1, epoch=1), 2)
    with pytest.raises(ProducerFenced):
        state.check_marker(1, 0, Marker(MarkerKind.COMMIT, 0), 1)


def test_idle_producers_are_forgotten() -> None:
    state = ProducerState()
    write(state, header(0, producer=1), 0, now_ms=1000)
    write(state, header(0, producer=2), 1, now_ms=1500)
    assert state.expire(1999, 1000, 1000) == 0
    assert state.expire(2000, 1000, 1000) == 1
    assert [view.producer_id for view in state.describe()] == [2]
    write(state, header(77, producer=1), 2)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, MAX_SEQUENCE), st.integers(1, 9)), max_size=40
    )
)
def test_a_snapshot_is_read_back_as_it_was_written(batches: list[tuple[int, int, int, int]]) -> None:
    state = ProducerState()
    offset = 0
    for producer, epoch, sequence, count in batches:
        state.wrote(producer, epoch, sequence, offset, offset + count - 1, 0, offset)
        offset += count
    found = read_producers(state.write(offset))
    assert found is not None
    assert found[0] == offset
    assert list(found[1].describe()) == list(state.describe())
    assert found[1].write(offset) == state.write(offset)
    assert found[1].last_offsets() == state.last_offsets()


@given(st.binary(max_size=200), st.integers(0, 10_000), st.integers(1, 255))
def test_any_damage_to_a_snapshot_is_noticed(garbage: bytes, at: int, flip: int) -> None:
    assert read_producers(garbage) is None
    state = ProducerState()
    state.wrote(1, 0, 0, 0, 9, 0, 5)
    content = bytearray(state.write(10))
    assert read_producers(bytes(content[:-1])) is None
    content[at % len(content)] ^= flip
    assert read_producers(bytes(content)) is None

"""What a journal says when it is read back, with transactions in it: against a model that knows only the rule."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.coordinators.journal.replay import Latest
from hot_tier.errors import CorruptBatch, CorruptLog
from hot_tier.record.batch import assign, iter_headers
from hot_tier.record.control import Marker, MarkerKind, encode_marker
from hot_tier.record.records import NewRecord, encode_records

PRODUCERS = (7, 8, 9)
KEYS = (b"a", b"b", b"c")


class Write(NamedTuple):
    records: Sequence[tuple[bytes, bytes | None]]
    producer: int | None = None


class End(NamedTuple):
    producer: int
    committed: bool


RECORD = st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.binary(max_size=3)))
RECORDS = st.lists(RECORD, min_size=1, max_size=3)
STEP = st.one_of(
    st.builds(Write, RECORDS, st.none()),
    st.builds(Write, RECORDS, st.sampled_from(PRODUCERS)),
    st.builds(End, st.sampled_from(PRODUCERS), st.booleans()),
)


def log_of(steps: Sequence[Write | End]) -> bytes:
    log = bytearray()
    offset = 0
    for step in steps:
        if isinstance(step, End):
            kind = MarkerKind.COMMIT if step.committed else MarkerKind.ABORT
            batch, count = encode_marker(step.producer, 0, Marker(kind, 0), 0), 1
        else:
            records = [NewRecord(0, key, value) for key, value in step.records]
            of = {} if step.producer is None else {"producer_id": step.producer, "producer_epoch": 0}
            batch, count = encode_records(records, transactional=step.producer is not None, **of), len(records)
        assign(batch, offset, 0)
        log += batch
        offset += count
    return bytes(log)


def decided(steps: Sequence[Write | End]) -> dict[bytes, tuple[int, bytes | None]]:
    """Of the records that are in no transaction or in one that was committed, the last one of each key."""
    ends: dict[int, list[bool | None]] = {producer: [] for producer in PRODUCERS}
    for step in steps:
        if isinstance(step, End):
            ends[step.producer].append(step.committed)
    found: dict[bytes, tuple[int, bytes | None]] = {}
    offset, past = 0, dict.fromkeys(PRODUCERS, 0)
    for step in steps:
        if isinstance(step, End):
            past[step.producer] += 1
            offset += 1
            continue
        outcomes = [True] if step.producer is None else ends[step.producer][past[step.producer] :]
        for key, value in step.records:
            if outcomes and outcomes[0]:
                found[key] = offset, value
            offset += 1
    return found


@given(st.lists(STEP, max_size=12))
def test_the_newest_decided_record_of_each_key_counts(steps):
    latest = Latest()
    data = log_of(steps)
    if data:
        latest.read(data, 0)
    expected = decided(steps)
    assert dict(latest) == {key: value for key, (_, value) in expected.items() if value is not None}
    for producer, written in latest.open.items():
        last_end = max(
            (at for at, step in enumerate(steps) if isinstance(step, End) and step.producer == producer), default=-1
        )
        own = {
            key
            for step in steps[last_end + 1 :]
            if isinstance(step, Write) and step.producer == producer
            for key, _ in step.records
        }
        assert written.keys() <= own
        assert all(offset > expected.get(key, (-1, None))[0] for key, (offset, _) in written.items())


@given(st.lists(STEP, max_size=12), st.booleans())
def test_what_is_open_becomes_what_its_marker_says(steps, committed):
    """A broker that reads the log and then hears of the markers knows what one knows that reads the markers too."""
    latest, whole = Latest(), Latest()
    data = log_of(steps)
    if data:
        latest.read(data, 0)
    ends = [End(producer, committed) for producer in sorted(latest.open)]
    now = dict(latest)
    for end in ends:
        for key, (_, value) in sorted(latest.open[end.producer].items()):
            newer = any(
                latest.open[other.producer].get(key, (-1, None))[0] > latest.open[end.producer][key].offset
                for other in ends
            )
            if committed and not newer:
                now[key] = value
    if data:
        whole.read(log_of([*steps, *ends]), 0)
    assert dict(whole) == {key: value for key, value in now.items() if value is not None}
    assert not any(whole.open.values())


@given(st.lists(STEP, min_size=1, max_size=12), st.data())
def test_reading_in_pieces_is_reading_at_once(steps, data):
    log = log_of(steps)
    cuts = [position for position, _ in iter_headers(log)]
    cut = data.draw(st.sampled_from(cuts))
    at_once, in_pieces = Latest(), Latest()
    end = at_once.read(log, 0)
    middle = in_pieces.read(log[:cut], 0) if cut else 0
    assert in_pieces.read(log[cut:], middle) == end
    assert (dict(in_pieces), in_pieces.open) == (dict(at_once), at_once.open)


def test_a_damaged_marker_is_an_error_and_no_outcome():
    data = bytearray(log_of([Write([(b"a", b"1")], 7), End(7, True)]))
    data[-1] ^= 1
    with pytest.raises(CorruptBatch):
        Latest().read(data, 0)


def test_half_a_batch_is_an_error():
    with pytest.raises(CorruptLog):
        Latest().read(log_of([Write([(b"a", b"1")])])[:-1], 0)

"""Runs: every offset finds its batch, limits hold, gaps are covered."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cold_tier.decoded_row_group import Run, make_run
from hot_tier.record.batch import assign, iter_headers
from hot_tier.record.columns import NewRecord, decode_batches, decode_records, encode_records


def run_of(offsets: list[int], end: int) -> Run:
    log = bytearray()
    for offset in offsets:
        batch = encode_records([NewRecord(offset, b"%d" % offset, b"x" * 50, ())])
        assign(batch, offset, 4)
        log += batch
    return make_run(decode_batches(log) if offsets else None, 0, end, 4)


@given(st.sets(st.integers(0, 60), min_size=0, max_size=30), st.integers(1, 2000))
def test_a_reader_that_follows_the_batches_sees_every_record_once(offsets: set[int], max_bytes: int) -> None:
    end = 61
    run = run_of(sorted(offsets), end)
    seen: list[int] = []
    offset = 0
    while offset < end:
        data = run.slice(offset, max_bytes).data
        headers = [header for _, header in iter_headers(data)]
        assert len(data) <= max_bytes or len(headers) == 1
        assert headers[0].last_offset >= offset
        seen += [record.offset for record in decode_records(data) if record.offset >= offset]
        offset = headers[-1].last_offset + 1
    assert seen == sorted(offsets)
    assert offset == end


@pytest.mark.parametrize("end", [2**31 + 10, 2**33])
def test_a_gap_wider_than_one_batch_can_say(end: int) -> None:
    run = run_of([], end)
    headers = [header for _, header in iter_headers(run.data)]
    assert headers[0].base_offset == 0 and headers[-1].last_offset == end - 1
    assert all(left.last_offset + 1 == right.base_offset for left, right in pairwise(headers))


@pytest.mark.parametrize("value_bytes", [0, 10, 1000])
def test_a_run_holds_no_more_memory_than_it_counts(value_bytes: int) -> None:
    records = [NewRecord(n, b"k", b"x" * value_bytes, ()) for n in range(2000)]
    run = make_run(decode_batches(encode_records(records)), 0, 2000, 0)
    assert memoryview(run.data.obj).nbytes <= len(run) * 9 // 8


def test_without_min_one_nothing_is_given_that_does_not_fit() -> None:
    run = run_of([0, 1, 2], 3)
    first = len(run.slice(0, 1).data)
    assert run.slice(0, first - 1, min_one=False) == (b"", 0)
    assert len(run.slice(0, first, min_one=False).data) == first

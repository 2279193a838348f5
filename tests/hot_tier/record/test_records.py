"""A few records as Python values: round trips, ranges, limits, and what damage gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hot_tier.errors import BatchTooLarge, CorruptBatch
from hot_tier.record.batch import assign, write_batch
from hot_tier.record.compression import Codec
from hot_tier.record.records import NewRecord, decode_records, encode_records
from tests.hot_tier.record.samples import NOW_MS, ODD_RECORDS, codecs, contents, new_records, sample_batch


@given(new_records(st.none() | st.text(max_size=8)), codecs)
def test_round_trip(records: list[NewRecord], codec: Codec) -> None:
    decoded = decode_records(encode_records(records, codec=codec, base_offset=1000, leader_epoch=3))
    assert [contents(record) for record in decoded] == [contents(record) for record in records]
    assert [record.offset for record in decoded] == list(range(1000, 1000 + len(records)))
    assert {record.timestamp_type for record in decoded} == {0}


def test_nulls_empties_and_duplicate_headers_stay_apart() -> None:
    assert [contents(r) for r in decode_records(encode_records(ODD_RECORDS))] == [contents(r) for r in ODD_RECORDS]


def run_of_batches(*, control: bool = False) -> bytes:
    """Offsets 0 … 11 in four batches of three; the third is a control batch if asked for."""
    batches = [sample_batch(codec) for codec in (0, 3, 0, 4)]
    if control:
        batches[2] = encode_records([NewRecord(NOW_MS, b"c", b"c")] * 3, control=True)
    for index, batch in enumerate(batches):
        assign(batch, index * 3, 1)
    return b"".join(batches)


@given(st.integers(0, 13), st.none() | st.integers(0, 13), st.none() | st.integers(0, 13))
def test_ranges_are_half_open(from_offset: int, end_offset: int | None, max_records: int | None) -> None:
    found = decode_records(run_of_batches(), from_offset=from_offset, end_offset=end_offset, max_records=max_records)
    wanted = range(from_offset, min(12, 12 if end_offset is None else end_offset))
    assert [record.offset for record in found] == list(wanted)[:max_records]


def test_control_records_only_if_asked_for() -> None:
    run = run_of_batches(control=True)
    assert [record.offset for record in decode_records(run)] == [0, 1, 2, 3, 4, 5, 9, 10, 11]
    assert len(decode_records(run, skip_control=False)) == 12


def test_a_partial_last_batch_is_ignored() -> None:
    assert [record.offset for record in decode_records(run_of_batches()[:-1])] == list(range(9))


def test_no_batch_beyond_the_records_asked_for_is_decompressed() -> None:
    big = encode_records([NewRecord(NOW_MS, None, bytes(1 << 20))], codec=Codec.ZSTD, base_offset=3)
    run = bytes(sample_batch()) + big
    assert len(decode_records(run, max_records=3, max_decompressed_bytes=1000)) == 3
    with pytest.raises(BatchTooLarge):
        decode_records(run, max_decompressed_bytes=1000)


def test_a_batch_emptied_by_compaction_has_no_records() -> None:
    empty = write_batch(b"", codec=Codec.LZ4, record_count=0, last_offset_delta=4, base_offset=3)
    last = sample_batch()
    assign(last, 8, 0)
    run = bytes(sample_batch()) + empty + last
    assert [record.offset for record in decode_records(run)] == [0, 1, 2, 8, 9, 10]


def test_offsets_that_go_back_between_batches_are_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="is next"):
        decode_records(bytes(sample_batch()) * 2)


def test_a_flipped_control_bit_is_damage_and_not_an_empty_answer() -> None:
    batch = sample_batch()
    batch[22] |= 0b10_0000
    with pytest.raises(CorruptBatch, match="CRC"):
        decode_records(batch)


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode_records([])

"""The header view, in-place assignment, and walking runs of batches."""

import subprocess
import sys

import pytest

from hot_tier.errors import CorruptBatch
from hot_tier.record.batch import (
    HEADER_BYTES,
    assign,
    check_crc,
    iter_headers,
    read_header,
    stamp_append_time,
    whole_batches_bytes,
    write_batch,
)
from hot_tier.record.records import decode_records
from tests.hot_tier.record.samples import NOW_MS, sample_batch


def test_all_fields_read_as_written() -> None:
    batch = write_batch(
        b"records",
        codec=3,
        record_count=5,
        last_offset_delta=9,
        base_timestamp=11,
        max_timestamp=22,
        base_offset=1 << 40,
        leader_epoch=7,
        producer_id=1 << 50,
        producer_epoch=3,
        base_sequence=2**31 - 2,
        transactional=True,
        control=True,
    )
    header = read_header(b"??" + batch, 2)
    assert header[:4] == (1 << 40, len(batch) - 12, 7, 2)
    assert header[6:] == (9, 11, 22, 1 << 50, 3, 2**31 - 2, 5)
    assert (header.size, header.codec) == (len(batch), 3)
    assert (header.last_offset, header.end_offset) == ((1 << 40) + 9, (1 << 40) + 10)
    assert header.is_transactional and header.is_control and not header.log_append_time
    assert header.last_sequence == 7, "sequence numbers wrap to 0 after 2^31 - 1"
    check_crc(batch, header)


def test_last_sequence_of_a_producer_without_idempotence_is_minus_one() -> None:
    assert read_header(sample_batch()).last_sequence == -1


def test_assign_keeps_the_crc_true() -> None:
    buffer = bytearray(b"-" * 10) + sample_batch()
    before = read_header(buffer, 10)
    assign(buffer, 123_456_789_012, 42, 10)
    after = read_header(buffer, 10)
    assert after == before._replace(base_offset=123_456_789_012, leader_epoch=42)
    check_crc(buffer, after, 10)
    assert buffer[:10] == b"-" * 10


def test_append_time_stamps_every_record() -> None:
    buffer = bytearray(b"-" * 10) + sample_batch(codec=4)
    stamp_append_time(memoryview(buffer), NOW_MS + 99, 10)
    header = read_header(buffer, 10)
    check_crc(buffer, header, 10)
    assert header.log_append_time and header.max_timestamp == NOW_MS + 99
    assert {(r.timestamp, r.timestamp_type) for r in decode_records(buffer[10:])} == {(NOW_MS + 99, 1)}


@pytest.mark.parametrize("length", range(HEADER_BYTES))
def test_a_short_header_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptBatch, match="61"):
        read_header(bytes(sample_batch()[:length]))


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_length_below_the_header_is_corrupt_everywhere(length: int) -> None:
    batch = sample_batch()
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    for read in (read_header, whole_batches_bytes, lambda b: list(iter_headers(b)), decode_records):
        with pytest.raises(CorruptBatch, match="batch length"):
            read(batch)


def test_positions_outside_the_buffer_are_corrupt() -> None:
    for position in (-1, 1, 10**9):
        with pytest.raises(CorruptBatch):
            read_header(sample_batch()[:HEADER_BYTES], position)


def test_crc_of_a_torn_batch_is_an_error() -> None:
    batch = sample_batch()
    with pytest.raises(CorruptBatch, match="claims"):
        check_crc(batch[:-1], read_header(batch))


def test_a_run_of_batches_stops_before_a_partial_one() -> None:
    batches = [sample_batch(codec, count) for codec, count in ((0, 1), (1, 2), (4, 3))]
    run = b"".join(batches)
    starts = [0, len(batches[0]), len(batches[0]) + len(batches[1])]
    assert [position for position, _ in iter_headers(run)] == starts
    for cut in range(len(run)):
        whole = [start for start, batch in zip(starts, batches, strict=True) if start + len(batch) <= cut]
        assert [position for position, _ in iter_headers(run[:cut])] == whole
        assert whole_batches_bytes(run[:cut]) == (whole[-1] + len(batches[len(whole) - 1]) if whole else 0)
    assert whole_batches_bytes(run) == len(run)


def test_headers_and_records_load_neither_numba_nor_arrow() -> None:
    code = (
        "import sys, hot_tier.record.validate, hot_tier.record.records\n"
        "print([name for name in ('numba', 'numpy', 'pyarrow') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"

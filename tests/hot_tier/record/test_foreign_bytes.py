"""Any bytes give a value or one of our errors, never another exception, and never more memory than they earn."""

import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st

from hot_tier.errors import TierlogError
from hot_tier.record.batch import HEADER_BYTES, iter_headers, read_header, whole_batches_bytes, write_header
from hot_tier.record.columns import decode_batches, encode_batches, iter_columns
from hot_tier.record.compression import Codec, compress
from hot_tier.record.records import decode_records, encode_records
from hot_tier.record.validate import BatchLimits, validate_produced
from tests.hot_tier.record.samples import NOW_MS, ODD_RECORDS, plain_body, rows

CAP = 1 << 20
LIMITS = BatchLimits(max_bytes=CAP, max_decompressed_bytes=CAP)
BODY = plain_body(encode_records(ODD_RECORDS[:4]), 0)

int32 = st.integers(-(2**31), 2**31 - 1)
small = st.integers(-2, 6)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A header that may say anything, with a true CRC, around records that are almost records."""
    body = bytearray(BODY)
    for _ in range(draw(st.integers(0, 3))):
        position = draw(st.integers(0, len(body) - 1))
        body[position : position + draw(st.integers(0, 2))] = draw(st.binary(max_size=5))
    codec = draw(st.sampled_from([0, 0, 0, *Codec, 5]))
    records = compress(codec, body) if codec < 5 else body
    batch = bytearray(HEADER_BYTES) + records
    write_header(
        batch,
        len(batch),
        codec=codec,
        record_count=draw(st.just(4) | small | int32),
        last_offset_delta=draw(st.just(3) | small | int32),
        base_timestamp=draw(st.just(NOW_MS) | st.integers(-(2**63), 2**63 - 1)),
        max_timestamp=draw(st.just(NOW_MS + 7) | st.integers(-(2**63), 2**63 - 1)),
        base_offset=draw(st.just(0) | st.integers(-(2**63), 2**63 - 1)),
        producer_id=draw(st.just(-1) | small),
        log_append_time=draw(st.booleans()),
    )
    return bytes(batch)


def outcome(function: object, *arguments: object, **named: object) -> object:
    try:
        return function(*arguments, **named)
    except TierlogError as error:
        return error


def check(data: bytes) -> None:
    outcome(read_header, data)
    outcome(whole_batches_bytes, data)
    outcome(lambda: list(iter_headers(data)))
    taken = outcome(validate_produced, memoryview(bytearray(data)), LIMITS, NOW_MS)
    records = outcome(decode_records, data, max_decompressed_bytes=CAP)
    columns = outcome(decode_batches, data, max_decompressed_bytes=CAP)
    chunks = outcome(lambda: list(iter_columns(data, max_decompressed_bytes=CAP, chunk_bytes=100)))
    if isinstance(records, TierlogError):
        assert type(columns) is type(chunks) is type(records)
        assert isinstance(taken, TierlogError), "what was taken must be readable"
    else:
        whole = rows(columns)
        assert [r[:1] + r[2:] for r in whole] == [r[:1] + r[2:] for r in records]
        # Java and the kernel add timestamps in 64 bits.
        assert [(r.timestamp - s.timestamp) % 2**64 for r, s in zip(whole, records, strict=True)] == [0] * len(whole)
        assert sum(map(len, chunks)) == len(records)
        assert rows(decode_batches(encode_batches(columns))) == whole


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    check(data)


@settings(max_examples=400)
@given(batches())
def test_batches_that_are_almost_right(data: bytes) -> None:
    check(data)


@settings(max_examples=50)
@given(batches(), st.integers(1, 2**31 - 1))
def test_a_huge_count_allocates_nothing(data: bytes, count: int) -> None:
    batch = bytearray(data)
    header = read_header(data)
    write_header(batch, len(batch), codec=header.codec, record_count=count, last_offset_delta=count - 1)
    tracemalloc.start()
    try:
        outcome(validate_produced, memoryview(batch), LIMITS, NOW_MS)
        outcome(decode_records, batch)
        outcome(decode_batches, batch)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * CAP

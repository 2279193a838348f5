"""What a produced batch must satisfy: topic settings, flipped bits, the mended time, and depth."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hot_tier.errors import BatchTooLarge, CorruptBatch, InvalidRecord, InvalidTimestamp, TierlogError
from hot_tier.record.batch import HEADER_BYTES, check_crc, read_header
from hot_tier.record.compression import Codec
from hot_tier.record.kernels import FAULTS
from hot_tier.record.records import NewRecord, encode_records
from hot_tier.record.validate import BatchLimits, validate_produced
from tests.hot_tier.record.samples import (
    LIMITS,
    NOW_MS,
    batch_of_body,
    codecs,
    new_records,
    plain_body,
    sample_batch,
)

MINUTE_MS = 60_000


@given(new_records(), codecs)
def test_what_encode_records_writes_is_valid(records: list[NewRecord], codec: Codec) -> None:
    batch = encode_records(records, codec=codec)
    before = bytes(batch)
    header = validate_produced(memoryview(batch), LIMITS, NOW_MS)
    assert header == read_header(before)
    assert batch == before


@pytest.mark.parametrize("codec", Codec)
def test_every_flipped_bit_that_the_crc_covers_is_found(codec: Codec) -> None:
    batch = sample_batch(codec)
    for bit in range(8 * 17, 8 * len(batch)):  # the CRC itself, and all it covers
        batch[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(CorruptBatch):
            validate_produced(memoryview(batch), LIMITS, NOW_MS)
        batch[bit >> 3] ^= 1 << (bit & 7)


def test_every_flipped_bit_of_length_and_magic_is_found() -> None:
    batch = sample_batch()
    for bit in [*range(8 * 8, 8 * 12), *range(8 * 16, 8 * 17)]:
        batch[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(TierlogError):
            validate_produced(memoryview(batch), LIMITS, NOW_MS)
        batch[bit >> 3] ^= 1 << (bit & 7)


def test_the_size_limit_is_on_the_whole_batch() -> None:
    batch = sample_batch()
    validate_produced(memoryview(batch), replace(LIMITS, max_bytes=len(batch)), NOW_MS)
    with pytest.raises(BatchTooLarge, match=r"max\.message\.bytes"):
        validate_produced(memoryview(batch), replace(LIMITS, max_bytes=len(batch) - 1), NOW_MS)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_the_decompressed_size_is_limited_too(codec: Codec) -> None:
    batch = encode_records([NewRecord(NOW_MS, None, bytes(100_000))], codec=codec)
    body_bytes = len(plain_body(batch, codec))
    validate_produced(memoryview(batch), replace(LIMITS, max_decompressed_bytes=body_bytes), NOW_MS)
    with pytest.raises(BatchTooLarge, match="decompressed"):
        validate_produced(memoryview(batch), replace(LIMITS, max_decompressed_bytes=body_bytes - 1), NOW_MS)


@pytest.mark.parametrize("codec", Codec)
def test_a_compacted_topic_needs_keys(codec: Codec) -> None:
    compacted = replace(LIMITS, compacted=True)
    records = [NewRecord(NOW_MS, b"", None), NewRecord(NOW_MS, None, b"v")]
    validate_produced(memoryview(encode_records(records[:1], codec=codec)), compacted, NOW_MS)
    validate_produced(memoryview(encode_records(records, codec=codec)), LIMITS, NOW_MS)
    with pytest.raises(InvalidRecord, match="record 1: no key"):
        validate_produced(memoryview(encode_records(records, codec=codec)), compacted, NOW_MS)


@pytest.mark.parametrize("codec", Codec)
def test_each_timestamp_must_be_within_the_topics_bounds(codec: Codec) -> None:
    bounded = replace(LIMITS, timestamp_before_max_ms=MINUTE_MS, timestamp_after_max_ms=2 * MINUTE_MS)

    def validate(limits: BatchLimits, *timestamps: int) -> None:
        batch = encode_records([NewRecord(timestamp, b"k", b"v") for timestamp in timestamps], codec=codec)
        validate_produced(memoryview(batch), limits, NOW_MS)

    validate(bounded, NOW_MS, NOW_MS - MINUTE_MS, NOW_MS + 2 * MINUTE_MS, -1)
    for wrong in (NOW_MS - MINUTE_MS - 1, NOW_MS + 2 * MINUTE_MS + 1, 0):
        with pytest.raises(InvalidTimestamp, match=f"timestamp {wrong}"):
            validate(bounded, NOW_MS, wrong)
        validate(LIMITS, NOW_MS, wrong)
        validate(replace(bounded, log_append_time=True), NOW_MS, wrong)


@pytest.mark.parametrize("said", [NOW_MS - 1000, NOW_MS + 1000, -1])
@pytest.mark.parametrize("codec", Codec)
def test_a_max_timestamp_that_is_not_the_greatest_is_mended(codec: Codec, said: int) -> None:
    right = encode_records([NewRecord(NOW_MS + i, b"k", b"v") for i in (5, 9, 2)], codec=codec)
    body = plain_body(right, codec)
    batch = batch_of_body(body, codec, record_count=3, base_timestamp=NOW_MS + 5, max_timestamp=said)
    header = validate_produced(memoryview(batch), LIMITS, NOW_MS)
    assert header == read_header(batch) and header.max_timestamp == NOW_MS + 9
    check_crc(batch, header)
    assert batch == right


def test_a_read_only_batch_that_needs_mending_is_refused() -> None:
    batch = batch_of_body(plain_body(sample_batch(count=1), 0), max_timestamp=NOW_MS + 5)
    with pytest.raises(CorruptBatch, match="greatest timestamp"):
        validate_produced(memoryview(bytes(batch)), LIMITS, NOW_MS)


def test_header_depth_looks_at_everything_but_the_records() -> None:
    shallow = replace(LIMITS, depth="header")
    garbage = batch_of_body(b"no records at all")
    assert validate_produced(memoryview(garbage), shallow, NOW_MS).record_count == 1
    with pytest.raises(CorruptBatch):
        validate_produced(memoryview(garbage), LIMITS, NOW_MS)
    batch = sample_batch()
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch, match="CRC"):
        validate_produced(memoryview(batch), shallow, NOW_MS)
    with pytest.raises(InvalidRecord, match="control"):
        validate_produced(memoryview(batch_of_body(b"", control=1)), shallow, NOW_MS)


@given(
    st.integers(0, 3),
    st.sampled_from([b"", b"\x80", b"\xc0\xaf", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"])
    | st.binary(max_size=9)
    | st.text(max_size=5).map(str.encode),
)
def test_header_keys_must_be_utf8(before: int, key: bytes) -> None:
    headers = [("ok", b"")] * before + [("#" * len(key), b"v")]
    body = plain_body(encode_records([NewRecord(NOW_MS, b"k", b"v", tuple(headers))]), 0)
    marker = bytes([2 * len(key)]) + b"#" * len(key) + b"\x02v"
    batch = batch_of_body(body.replace(marker, bytes([2 * len(key)]) + key + b"\x02v"))
    try:
        key.decode()
    except UnicodeDecodeError:
        with pytest.raises(InvalidRecord, match="header key"):
            validate_produced(memoryview(batch), LIMITS, NOW_MS)
    else:
        validate_produced(memoryview(batch), LIMITS, NOW_MS)


def test_every_fault_has_its_sentence() -> None:
    assert sorted(FAULTS) == list(range(-len(FAULTS), 0))
    assert HEADER_BYTES == 61

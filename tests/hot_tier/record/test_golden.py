"""The golden batches: committed bytes, each named by what is wrong with it, and the exact error it gives."""

from pathlib import Path

import pytest

from hot_tier.errors import (
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    MalformedBatch,
    TierlogError,
    UnsupportedBatch,
)
from hot_tier.record.columns import decode_batches
from hot_tier.record.compression import Codec
from hot_tier.record.records import decode_records, encode_records
from hot_tier.record.validate import validate_produced
from tests.hot_tier.record.samples import LIMITS, NOW_MS, ODD_RECORDS, contents, rows

GOLDEN = Path(__file__).parents[2] / "golden" / "record"

# What `validate_produced` says of it, and whether a reader of stored bytes must find it too.
BAD: dict[str, tuple[type[TierlogError], str, bool]] = {
    "crc-mismatch": (CorruptBatch, "CRC-32C is", True),
    "torn-tail": (MalformedBatch, "claims", False),
    "torn-header": (MalformedBatch, "60 bytes", False),
    "length-negative": (CorruptBatch, "batch length -1", True),
    "length-too-small": (CorruptBatch, "batch length 48", True),
    "two-batches": (InvalidRecord, "follow the batch", True),
    "format-0": (UnsupportedBatch, "format 0", True),
    "format-1": (UnsupportedBatch, "format 1", True),
    "format-3": (CorruptBatch, "format 3", True),
    "codec-5": (UnsupportedBatch, "codec 5", True),
    "count-too-big": (MalformedBatch, "record 2: a varint", True),
    "count-two-billion": (MalformedBatch, "record 2: a varint", True),
    "count-too-small": (MalformedBatch, "bytes follow the last record", True),
    "count-zero": (MalformedBatch, "0 records", True),
    "count-negative": (MalformedBatch, "-1 records", True),
    "last-offset-delta-too-big": (MalformedBatch, "last offset delta of 7", False),
    "offset-delta-repeated": (MalformedBatch, "record 1: an offset delta", True),
    "offset-delta-gap": (MalformedBatch, "record 1: an offset delta", True),
    "offset-delta-negative": (MalformedBatch, "record 1: an offset delta", True),
    "base-offset-not-zero": (InvalidRecord, "base offset 5", False),
    "varint-overlong": (MalformedBatch, "record 0: a varint", True),
    "varint-beyond-32-bits": (MalformedBatch, "record 0: a varint", True),
    "varint-unfinished": (MalformedBatch, "record 0: a varint", True),
    "record-length-negative": (MalformedBatch, "record 0: the record's length", True),
    "record-length-too-long": (MalformedBatch, "record 0: the record's length", True),
    "record-length-too-short": (MalformedBatch, "record 0: ", True),
    "record-length-two-gib": (MalformedBatch, "record 0: the record's length", True),
    "key-past-record": (MalformedBatch, "record 0: a key, value or header", True),
    "key-length-minus-two": (MalformedBatch, "record 0: a key, value or header", True),
    "value-past-record": (MalformedBatch, "record 0: a key, value or header", True),
    "headers-past-record": (MalformedBatch, "record 0: more headers", True),
    "header-count-negative": (MalformedBatch, "record 0: more headers", True),
    "header-key-null": (InvalidRecord, "record 0: a header key", False),
    "header-key-not-utf8": (InvalidRecord, "record 0: a header key", False),
    "header-value-past-record": (MalformedBatch, "record 0: a key, value or header", True),
    "bytes-after-last-record": (MalformedBatch, "bytes follow the last record", True),
    "timestamp-minus-two": (InvalidTimestamp, "timestamp -2", False),
    "timestamp-beyond-microseconds": (InvalidTimestamp, "timestamp 4611686018427387904", False),
    "timestamp-type-append": (InvalidTimestamp, "LogAppendTime", False),
    "control-batch": (InvalidRecord, "control", False),
    "delete-horizon": (InvalidRecord, "delete horizon", False),
    "transactional-without-producer": (InvalidRecord, "without a producer id", False),
    "producer-without-sequence": (InvalidRecord, "sequence -1", False),
    "producer-without-epoch": (InvalidRecord, "epoch -1", False),
    "gzip-torn": (MalformedBatch, "gzip", True),
    "snappy-claims-4-gib": (MalformedBatch, "claims to hold", True),
    "snappy-block-past-end": (MalformedBatch, "snappy block", True),
    "lz4-not-a-frame": (MalformedBatch, "lz4", True),
    "lz4-torn": (MalformedBatch, "lz4", True),
    "zstd-torn": (MalformedBatch, "zstd", True),
    "zstd-bomb": (BatchTooLarge, "once decompressed", True),
    "bytes-after-last-record-in-lz4": (MalformedBatch, "bytes follow the last record", True),
}


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.batch").read_bytes()


def test_every_file_is_told_of() -> None:
    names = {path.stem for path in GOLDEN.glob("*.batch")}
    assert names == {*BAD, *(f"good-{codec.name.lower()}" for codec in Codec)}


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name.lower())
def test_a_good_batch_is_taken_and_reads_as_it_was_meant(codec: Codec) -> None:
    batch = golden(f"good-{codec.name.lower()}")
    validate_produced(memoryview(batch), LIMITS, NOW_MS)
    assert [contents(record) for record in decode_records(batch)] == [contents(record) for record in ODD_RECORDS]
    assert rows(decode_batches(batch)) == decode_records(batch)


def test_an_uncompressed_batch_is_written_byte_for_byte_as_others_do() -> None:
    assert encode_records(ODD_RECORDS) == golden("good-none")


@pytest.mark.parametrize("name", BAD)
def test_a_bad_batch_gives_its_error(name: str) -> None:
    error, says, _ = BAD[name]
    batch = bytearray(golden(name))
    with pytest.raises(error, match=says) as caught:
        validate_produced(memoryview(batch), LIMITS, NOW_MS)
    assert type(caught.value) is error
    assert batch == golden(name), "a batch that is refused is left as it came"


@pytest.mark.parametrize("name", [name for name, (_, _, stored) in BAD.items() if stored])
def test_what_no_reader_could_make_sense_of_is_an_error_when_stored_too(name: str) -> None:
    batch = golden(name)
    for decode in (decode_records, decode_batches):
        with pytest.raises((CorruptBatch, BatchTooLarge, UnsupportedBatch)):
            decode(batch, max_decompressed_bytes=8 << 20)

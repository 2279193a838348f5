"""Our codec against those of aiokafka and kafka-python: what one writes, the others read, and the reverse."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import assume, given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaBuilder

from hot_tier.record.batch import read_header
from hot_tier.record.columns import decode_batches, encode_batch
from hot_tier.record.compression import Codec
from hot_tier.record.records import NewRecord, decode_records, encode_records
from hot_tier.record.validate import validate_produced
from tests.hot_tier.record.samples import LIMITS, NOW_MS, ODD_RECORDS, codecs, contents, new_records, rows

# kafka-python needs python-snappy for snappy, which we do not install for it.
kafka_codecs = st.sampled_from([codec for codec in Codec if codec is not Codec.SNAPPY])


def written_by_aiokafka(records: list[NewRecord], codec: int) -> bytearray:
    builder = AioBuilder(2, codec, 0, -1, -1, -1, 1 << 24)
    for offset, record in enumerate(records):
        builder.append(offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytearray(builder.build())


def written_by_kafka_python(records: list[NewRecord], codec: int) -> bytearray:
    builder = KafkaBuilder(2, codec, False, -1, -1, -1, 1 << 24)
    for offset, record in enumerate(records):
        builder.append(offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytearray(builder.build())


def read_by(reader: type, batch: bytes) -> list[tuple]:
    found = reader(bytes(batch))
    assert found.validate_crc()
    return [
        (r.offset, r.timestamp, r.key, r.value, tuple((k, None if v is None else bytes(v)) for k, v in r.headers))
        for r in found
    ]


def with_offsets(records: list[NewRecord]) -> list[tuple]:
    return [(offset, *contents(record)) for offset, record in enumerate(records)]


@given(new_records(), codecs)
def test_aiokafka_reads_what_we_write(records: list[NewRecord], codec: Codec) -> None:
    for batch in (
        encode_records(records, codec=codec),
        encode_batch(decode_batches(encode_records(records)), codec=codec),
    ):
        assert read_by(AioBatch, batch) == with_offsets(records)


@given(new_records(), kafka_codecs)
def test_kafka_python_reads_what_we_write(records: list[NewRecord], codec: Codec) -> None:
    assert read_by(KafkaBatch, encode_records(records, codec=codec)) == with_offsets(records)


@given(new_records(), codecs)
def test_we_take_and_read_what_aiokafka_writes(records: list[NewRecord], codec: Codec) -> None:
    assume(records[0].timestamp != -1)  # which aiokafka takes for "no timestamp seen so far"
    batch = written_by_aiokafka(records, codec)
    validate_produced(memoryview(batch), LIMITS, NOW_MS)
    assert [contents(record) for record in decode_records(batch)] == [contents(record) for record in records]
    assert rows(decode_batches(batch)) == decode_records(batch)


@given(new_records(), kafka_codecs)
def test_we_take_and_read_what_kafka_python_writes(records: list[NewRecord], codec: Codec) -> None:
    batch = written_by_kafka_python(records, codec)
    validate_produced(memoryview(batch), LIMITS, NOW_MS)
    assert [contents(record) for record in decode_records(batch)] == [contents(record) for record in records]


@pytest.mark.parametrize("write", [written_by_aiokafka, written_by_kafka_python])
def test_uncompressed_batches_are_the_same_to_the_byte(write: object) -> None:
    theirs = write(ODD_RECORDS, 0)
    assert encode_records(ODD_RECORDS, leader_epoch=read_header(theirs).leader_epoch) == theirs

"""Arrow columns: the same records as `decode_records` gives, back to the same batches, within 2 GiB."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hot_tier.errors import BatchTooLarge, CorruptBatch
from hot_tier.record import columns as columns_module
from hot_tier.record.batch import iter_headers, read_header, stamp_append_time
from hot_tier.record.columns import (
    RecordColumns,
    decode_batches,
    encode_batch,
    encode_batches,
    headers_type,
    iter_columns,
)
from hot_tier.record.compression import Codec
from hot_tier.record.records import NewRecord, decode_records, encode_records
from tests.hot_tier.record.samples import (
    NOW_MS,
    ODD_RECORDS,
    batch_of_body,
    codecs,
    new_records,
    plain_body,
    rows,
    sample_batch,
)


@st.composite
def runs(draw: st.DrawFn) -> bytes:
    """Batches of any codec and either kind of time, with gaps between their offsets."""
    out = bytearray()
    offset = draw(st.integers(0, 1 << 40))
    for records in draw(st.lists(new_records(st.none() | st.text(max_size=8)), max_size=4)):
        epoch = draw(st.integers(0, 3))
        batch = encode_records(records, codec=draw(codecs), base_offset=offset, leader_epoch=epoch)
        if draw(st.booleans()):
            stamp_append_time(batch, draw(st.integers(0, NOW_MS)))
        out += batch
        offset += len(records) + draw(st.integers(0, 3))
    return bytes(out)


@given(runs())
def test_columns_hold_what_decode_records_gives(run: bytes) -> None:
    columns = decode_batches(run)
    assert rows(columns) == decode_records(run)
    assert columns.keys.type == columns.values.type == pa.binary()
    assert columns.headers.type == headers_type()
    epochs = [h.leader_epoch for _, h in iter_headers(run) for _ in range(h.record_count)]
    assert columns.leader_epochs.tolist() == epochs


@given(runs(), st.data())
def test_encoding_columns_brings_the_records_back(run: bytes, data: st.DataObject) -> None:
    columns = decode_batches(run)
    first = data.draw(st.integers(0, len(columns)))
    end = data.draw(st.integers(first, len(columns)))
    part = columns.slice(first, end)
    again = encode_batches(part, codec=data.draw(codecs), batch_bytes=data.draw(st.integers(1, 2000)))
    decoded = decode_batches(again)
    assert rows(decoded) == rows(columns)[first:end]
    assert decoded.leader_epochs.tolist() == columns.leader_epochs.tolist()[first:end]


@given(new_records(), codecs)
def test_both_encoders_write_the_same_bytes(records: list[NewRecord], codec: Codec) -> None:
    batch = encode_records(
        records, codec=codec, base_offset=70, leader_epoch=9, producer_id=5, producer_epoch=1, base_sequence=8
    )
    again = encode_batch(decode_batches(batch), codec=codec, producer_id=5, producer_epoch=1, base_sequence=8)
    assert again == batch


@given(runs(), st.integers(1, 5000))
def test_chunks_together_are_the_whole(run: bytes, chunk_bytes: int) -> None:
    chunks = list(iter_columns(run, chunk_bytes=chunk_bytes))
    assert [row for chunk in chunks for row in rows(chunk)] == decode_records(run)
    assert all(len(chunk) for chunk in chunks)


@given(st.integers(0, 60), st.none() | st.integers(0, 60))
def test_ranges_cut_inside_batches(from_offset: int, end_offset: int | None) -> None:
    records = ODD_RECORDS * 2
    run = b"".join(bytes(encode_records(records, codec=i % 5, base_offset=10 * i)) for i in range(5))
    whole = rows(decode_batches(run))
    found = decode_batches(run, from_offset=from_offset, end_offset=end_offset)
    assert rows(found) == whole[from_offset : 50 if end_offset is None else end_offset]


def test_no_headers_is_null_and_not_an_empty_list() -> None:
    columns = decode_batches(encode_records(ODD_RECORDS))
    assert [entries is None for entries in columns.headers.to_pylist()] == [False, True, False, False, True]
    assert decode_batches(sample_batch()).headers.null_count == 3


def test_columns_without_nulls_carry_no_bitmap() -> None:
    columns = decode_batches(sample_batch())
    assert columns.keys.buffers()[0] is None and columns.values.buffers()[0] is None


def test_nothing_decodes_to_no_rows() -> None:
    for run in (b"", sample_batch()[:-1]):
        assert len(decode_batches(run)) == 0
    assert len(encode_batches(decode_batches(b""))) == 0
    assert list(iter_columns(b"")) == []


def test_gaps_between_offsets_stay_gaps() -> None:
    columns = decode_batches(sample_batch())
    sparse = RecordColumns(np.array([5, 900, 2**33]), *(getattr(columns, name) for name in RecordColumns.__slots__[1:]))
    assert decode_batches(encode_batches(sparse)).offsets.tolist() == [5, 900, 2**33]
    assert len(list(iter_headers(encode_batches(sparse)))) == 2, "an offset delta has 31 bits"


def test_one_batch_cannot_hold_two_epochs_or_two_append_times() -> None:
    first, second = sample_batch(), encode_records(ODD_RECORDS, base_offset=3, leader_epoch=5)
    with pytest.raises(ValueError, match="encode_batches"):
        encode_batch(decode_batches(bytes(first) + second))
    stamped = encode_records(ODD_RECORDS, base_offset=3)
    stamp_append_time(first, NOW_MS)
    stamp_append_time(stamped, NOW_MS + 1)
    columns = decode_batches(bytes(first) + stamped)
    with pytest.raises(ValueError, match="encode_batches"):
        encode_batch(columns)
    headers = [header for _, header in iter_headers(encode_batches(columns))]
    assert [(h.log_append_time, h.max_timestamp) for h in headers] == [(True, NOW_MS), (True, NOW_MS + 1)]


def test_a_batch_says_what_it_is_told_to() -> None:
    batch = encode_batch(
        decode_batches(sample_batch()),
        codec=Codec.ZSTD,
        base_offset=77,
        leader_epoch=6,
        producer_id=1,
        producer_epoch=2,
        base_sequence=3,
        transactional=True,
    )
    header = read_header(batch)
    assert (header.base_offset, header.leader_epoch, header.codec, header.is_transactional) == (77, 6, 4, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 2, 3)


def test_batches_stay_near_the_size_asked_for() -> None:
    run = encode_records([NewRecord(NOW_MS, b"k", b"v" * 500, (("h", b"w" * 500),))] * 200)
    sizes = [header.size for _, header in iter_headers(encode_batches(decode_batches(run), batch_bytes=10_000))]
    assert max(sizes) <= 10_200 and sum(sizes) / len(sizes) > 8_000


def test_the_cap_is_on_all_batches_together() -> None:
    run = b"".join(bytes(encode_records([NewRecord(0, None, bytes(1000))], codec=4, base_offset=i)) for i in range(10))
    assert len(decode_batches(run, max_decompressed_bytes=11_000)) == 10
    with pytest.raises(BatchTooLarge):
        decode_batches(run, max_decompressed_bytes=9_000)
    assert sum(map(len, iter_columns(run, max_decompressed_bytes=1_100, chunk_bytes=100))) == 10
    with pytest.raises(BatchTooLarge):
        list(iter_columns(run, max_decompressed_bytes=900))


def test_what_32_bit_offsets_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns_module, "MAX_COLUMNS_BYTES", 9_000)
    run = b"".join(bytes(encode_records([NewRecord(0, None, bytes(1000))], base_offset=i)) for i in range(10))
    with pytest.raises(BatchTooLarge):
        decode_batches(run)
    assert sum(map(len, iter_columns(run, chunk_bytes=4_000))) == 10


def test_header_keys_that_are_no_text_read_with_a_replacement() -> None:
    body = plain_body(encode_records([NewRecord(NOW_MS, b"k", b"v", (("??", b"1"), ("ok", None), (None, b"3")))]), 0)
    batch = batch_of_body(body.replace(b"??", b"\xff\xfe"))
    expected = (("\ufffd\ufffd", b"1"), ("ok", None), (None, b"3"))
    assert rows(decode_batches(batch))[0].headers == expected
    assert decode_records(batch)[0].headers == expected


def test_other_column_types_are_refused() -> None:
    columns = decode_batches(sample_batch())
    fields = {name: getattr(columns, name) for name in RecordColumns.__slots__}
    with pytest.raises(TypeError, match="large_binary"):
        encode_batches(RecordColumns(**fields | {"values": columns.values.cast(pa.large_binary())}))


def test_damage_names_the_batch_and_the_record() -> None:
    body = bytearray(plain_body(sample_batch(), 0))
    body[-1] = 9  # the last record claims nine headers
    second = batch_of_body(bytes(body), record_count=3, base_offset=3)
    with pytest.raises(CorruptBatch, match="batch at offset 3, record 2: more headers"):
        decode_batches(bytes(sample_batch()) + second)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hot_tier.errors import CorruptBatch
from hot_tier.record.batch import read_header
from hot_tier.record.control import Marker, MarkerKind, encode_marker, read_marker
from hot_tier.record.records import NewRecord, encode_records

ABORT = bytes.fromhex(
    "0000000000000000"  # base offset
    "00000042ffffffff02"  # length 66, leader epoch -1, format 2
    "c2425526"  # CRC-32C
    "003000000000"  # transactional and control; one record
    "0000018bcfe568000000018bcfe56800"  # both timestamps
    "0000000000000fa00007"  # producer 4000, epoch 7
    "ffffffff00000001"  # no sequence, one record
    "20000000"  # 16 bytes, attributes, both deltas
    "0800000000"  # key: version 0, abort
    "0c00000000000300"  # value: version 0, coordinator epoch 3; no headers
)
COMMIT_RECORD = bytes.fromhex("2000000008000000010c00000000000300")


def test_a_marker_has_the_bytes_of_kafka() -> None:
    assert encode_marker(4000, 7, Marker(MarkerKind.ABORT, 3), 1_700_000_000_000).hex() == ABORT.hex()
    assert encode_marker(4000, 7, Marker(MarkerKind.COMMIT, 3), 1_700_000_000_000)[61:] == COMMIT_RECORD


@given(
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.sampled_from(MarkerKind),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**50),
)
def test_a_marker_is_read_as_it_was_written(
    producer: int, epoch: int, kind: MarkerKind, coordinator: int, now_ms: int
) -> None:
    batch = encode_marker(producer, epoch, Marker(kind, coordinator), now_ms)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.max_timestamp) == (producer, epoch, now_ms)
    assert header.is_control and header.is_transactional and header.base_sequence == -1
    assert read_marker(b"before" + batch, header, 6) == (kind, coordinator)


@given(st.integers(0, 8 * len(ABORT) - 1))
def test_a_flipped_bit_never_makes_another_marker(bit: int) -> None:
    """Offset and leader epoch are outside of the CRC, and not a marker's concern."""
    damaged = bytearray(ABORT)
    damaged[bit // 8] ^= 1 << bit % 8
    try:
        assert read_marker(damaged, read_header(damaged)) == (MarkerKind.ABORT, 3)
        assert bit // 8 in (*range(8), *range(12, 16))
    except CorruptBatch:
        pass


@pytest.mark.parametrize(
    "key, value, reads",
    [
        (b"\0\1\0\1", b"\0\1\0\0\0\3more", True),  # a later version: what is known comes first
        (b"\0\0\0\2", b"\0\0\0\0\0\3", False),  # another kind
        (b"\0\0\0", b"\0\0\0\0\0\3", False),
        (b"\0\0\0\1", b"\0\0\0\0\0", False),
        (b"\xff\xff\0\1", b"\0\0\0\0\0\3", False),
        (None, b"\0\0\0\0\0\3", False),
        (b"\0\0\0\1", None, False),
    ],
)
def test_other_control_records(key: bytes | None, value: bytes | None, reads: bool) -> None:
    batch = encode_records(
        [NewRecord(0, key, value)], producer_id=1, producer_epoch=0, transactional=True, control=True
    )
    if reads:
        assert read_marker(batch, read_header(batch)) == (MarkerKind.COMMIT, 3)
    else:
        with pytest.raises(CorruptBatch):
            read_marker(batch, read_header(batch))


def test_a_batch_of_data_is_no_marker() -> None:
    batch = encode_records([NewRecord(0, b"\0\0\0\1", b"\0\0\0\0\0\3")], producer_id=1, producer_epoch=0)
    with pytest.raises(CorruptBatch):
        read_marker(batch, read_header(batch))

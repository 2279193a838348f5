"""Any bytes sent as records are stored whole and readable, or refused; never half, never unreadable."""

import random
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hot_tier.record.batch import CRC_COVERED_FROM, HEADER_BYTES
from hot_tier.record.crc import crc32c
from hot_tier.record.records import Record, decode_records, encode_records
from tests.fuzz.target import TOPICS

RELAXED = {"deadline": None, "suppress_health_check": list(HealthCheck)}
TOPIC = TOPICS[0]


def real_batch(rng):
    records = [
        Record(
            0,
            1_700_000_000_000 + rng.randrange(1000),
            0,
            rng.choice([None, rng.randbytes(rng.randrange(10))]),
            rng.choice([None, rng.randbytes(rng.randrange(200))]),
            tuple((f"h{n}", rng.choice([None, b"v"])) for n in range(rng.randrange(3))),
        )
        for _ in range(rng.randint(1, 10))
    ]
    return encode_records(records, codec=rng.randrange(5))


def wound(data, rng):
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data)) if rng.random() < 0.7 else rng.randrange(HEADER_BYTES)
        match rng.randrange(4):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at : at + 4] = struct.pack(">i", rng.choice([-1, 0, 2**31 - 1, rng.randrange(100)]))[
                    : len(data) - at
                ]
            case 2:
                del data[at : at + rng.randint(1, 5)]
            case _:
                data[at:at] = rng.randbytes(rng.randint(1, 5))
    if len(data) > HEADER_BYTES and rng.random() < 0.8:
        # Length and CRC fit again, so that the wound is found by looking at the records or not at all.
        struct.pack_into(">i", data, 8, len(data) - 12)
        struct.pack_into(">I", data, 17, crc32c(memoryview(data)[CRC_COVERED_FROM:]))
    return bytes(data)


@settings(max_examples=400, **RELAXED)
@given(seed=st.integers(0, 2**32))
def test_wounded_batches(target, seed):
    rng = random.Random(seed)
    end = target.fetch(TOPIC, 0).high_watermark
    code = target.produce(TOPIC, wound(real_batch(rng), rng))
    after = target.fetch(TOPIC, 0, end)
    if code:
        assert after.high_watermark == end
        assert bytes(after.records) == b""
    else:
        stored = decode_records(bytes(after.records))
        assert [record.offset for record in stored] == list(range(end, after.high_watermark))


@settings(max_examples=100, **RELAXED)
@given(data=st.binary(max_size=300))
def test_random_bytes_as_records(target, data):
    end = target.fetch(TOPIC, 0).high_watermark
    assert target.produce(TOPIC, data) != 0
    assert target.fetch(TOPIC, 0).high_watermark == end


@pytest.mark.parametrize("codec", range(5))
def test_whole_batches_still_pass(target, codec):
    records = [Record(0, 1_700_000_000_000, 0, b"k", b"v" * 1000, ())]
    assert target.produce(TOPIC, bytes(encode_records(records, codec=codec))) == 0
    target.check()


def test_a_bomb_is_refused(target):
    """A small batch that expands to gigabytes is refused at the cap, and costs no more than the cap."""
    import cramjam

    bomb = bytes(cramjam.zstd.compress(bytes(300 * 1024 * 1024), 1))
    data = encode_records([Record(0, 1_700_000_000_000, 0, None, b"x", ())], codec=4)
    data[HEADER_BYTES:] = bomb
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[CRC_COVERED_FROM:]))
    assert len(data) < 1_000_000
    assert target.produce(TOPIC, bytes(data)) == 10
    target.check()

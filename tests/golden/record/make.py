"""Writes the golden batches beside this file: `python -m tests.golden.record.make`.

The good ones come from aiokafka's encoder, so that ours is not its own judge. Each of the others is a good
batch with one thing wrong, which is its name; all but `crc-mismatch` and the torn ones carry a true CRC,
because a wrong one would be all that is noticed. What each must give is in
`tests/hot_tier/record/test_golden.py`. The bytes are committed: run this only to add a file.
"""

import struct
from pathlib import Path

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from hot_tier.record.batch import read_header, write_batch
from hot_tier.record.compression import compress
from tests.hot_tier.record.samples import NOW_MS, ODD_RECORDS

HERE = Path(__file__).parent
GOOD_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

# length, attributes, timestamp delta, offset delta, key length, key, value length, value, header count
ONE = bytes([2 * 13, 0, 0, 0, 2 * 3, *b"key", 2 * 4, *b"last", 0])
TWO = bytes([2 * 13, 0, 2, 2, 2 * 3, *b"key", 2 * 4, *b"last", 0])
HEADER = bytes([2 * 17, 0, 0, 0, 2 * 3, *b"key", 2 * 4, *b"last", 2, 2 * 2, *b"hk", 1])


def batch(body: bytes, **fields: int) -> bytes:
    """`body` as the records of a batch that says of them what is true for ONE and TWO."""
    said = {"record_count": 2, "last_offset_delta": 1, "base_timestamp": NOW_MS, "max_timestamp": NOW_MS + 1}
    return bytes(write_batch(body, **said | fields))


def one(body: bytes, **fields: int) -> bytes:
    return batch(body, **{"record_count": 1, "last_offset_delta": 0, "max_timestamp": NOW_MS} | fields)


def patched(good: bytes, position: int, replacement: bytes) -> bytes:
    """With other bytes at `position`, and the CRC of what is then there."""
    from hot_tier.record.crc import crc32c

    out = bytearray(good)
    out[position : position + len(replacement)] = replacement
    out[17:21] = struct.pack(">I", crc32c(out[21:]))
    return bytes(out)


def zstd_bomb(blocks: int) -> bytes:
    """A frame of run-length blocks: each makes 128 KiB of four bytes."""
    run = struct.pack("<I", (128 << 10) << 3 | 1 << 1)[:3] + b"\x00"
    last = struct.pack("<I", (128 << 10) << 3 | 1 << 1 | 1)[:3] + b"\x00"
    return bytes.fromhex("28b52ffd 00 58") + run * (blocks - 1) + last


def good(codec: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for offset, record in enumerate(ODD_RECORDS):
        builder.append(offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def files() -> dict[str, bytes]:
    sound = batch(ONE + TWO)
    lz4 = compress(3, (ONE + TWO) * 100)
    out = {f"good-{name}": good(codec) for name, codec in GOOD_CODECS.items()}
    out |= {
        "crc-mismatch": sound[:-1] + b"\xff",
        "torn-tail": sound[:-1],
        "torn-header": sound[:60],
        "length-negative": patched(sound, 8, b"\xff\xff\xff\xff"),
        "length-too-small": patched(sound, 8, struct.pack(">i", 48)),
        "two-batches": sound + sound,
        "format-0": patched(sound, 16, b"\x00"),
        "format-1": patched(sound, 16, b"\x01"),
        "format-3": patched(sound, 16, b"\x03"),
        "codec-5": batch(ONE + TWO, codec=5),
        "count-too-big": batch(ONE + TWO, record_count=3, last_offset_delta=2),
        "count-two-billion": batch(ONE + TWO, record_count=2**31 - 1, last_offset_delta=2**31 - 2),
        "count-too-small": batch(ONE + TWO, record_count=1, last_offset_delta=0),
        "count-zero": batch(b"", record_count=0, last_offset_delta=-1),
        "count-negative": batch(ONE + TWO, record_count=-1, last_offset_delta=-2),
        "last-offset-delta-too-big": batch(ONE + TWO, last_offset_delta=7),
        "offset-delta-repeated": batch(ONE + ONE, max_timestamp=NOW_MS),
        "offset-delta-gap": batch(ONE + TWO[:3] + b"\x04" + TWO[4:]),
        "offset-delta-negative": batch(ONE + TWO[:3] + b"\x01" + TWO[4:]),
        "base-offset-not-zero": batch(ONE + TWO, base_offset=5),
        "varint-overlong": one(bytes([0x9A, 0x80, 0x80, 0x80, 0x80, 0x00]) + ONE[1:]),
        "varint-beyond-32-bits": one(bytes([0x9A, 0x80, 0x80, 0x80, 0x10]) + ONE[1:]),
        "varint-unfinished": one(b"\xff\xff\xff"),
        "record-length-negative": one(b"\x01" + ONE[1:]),
        "record-length-too-long": one(bytes([2 * 14]) + ONE[1:]),
        "record-length-too-short": one(bytes([2 * 12]) + ONE[1:]),
        "record-length-two-gib": one(bytes([0xFE, 0xFF, 0xFF, 0xFF, 0x0F]) + ONE[1:]),
        "key-past-record": one(ONE[:4] + bytes([2 * 100]) + ONE[5:]),
        "key-length-minus-two": one(ONE[:4] + b"\x03" + ONE[5:]),
        "value-past-record": one(ONE[:8] + bytes([2 * 6]) + ONE[9:]),
        "headers-past-record": one(ONE[:-1] + bytes([2 * 60])),
        "header-count-negative": one(ONE[:-1] + b"\x01"),
        "header-key-null": one(bytes([2 * 15]) + HEADER[1:13] + b"\x02\x01\x01"),
        "header-key-not-utf8": one(HEADER.replace(b"hk", b"\xc3\x28")),
        "header-value-past-record": one(HEADER[:-1] + b"\x7e"),
        "bytes-after-last-record": batch(ONE + TWO + b"\x00"),
        "timestamp-minus-two": one(ONE, base_timestamp=-2, max_timestamp=-2),
        "timestamp-beyond-microseconds": one(ONE, base_timestamp=2**62, max_timestamp=2**62),
        "timestamp-type-append": one(ONE, log_append_time=1),
        "control-batch": one(ONE, control=1),
        "delete-horizon": patched(one(ONE), 22, b"\x40"),
        "transactional-without-producer": one(ONE, transactional=1),
        "producer-without-sequence": one(ONE, producer_id=7, producer_epoch=0),
        "producer-without-epoch": one(ONE, producer_id=7, base_sequence=0),
        "gzip-torn": batch(compress(1, (ONE + TWO) * 100)[:-4], codec=1),
        "snappy-claims-4-gib": batch(b"\xff\xff\xff\xff\x0f" + ONE, codec=2),
        "snappy-block-past-end": batch(compress(2, ONE + TWO)[:-1], codec=2),
        "lz4-not-a-frame": batch(ONE + TWO, codec=3),
        "lz4-torn": batch(lz4[:-8], codec=3),
        "zstd-torn": batch(compress(4, ONE + TWO)[:-1], codec=4),
        "zstd-bomb": batch(zstd_bomb(16 << 10), codec=4),
        "bytes-after-last-record-in-lz4": batch(compress(3, ONE + TWO + b"\x00"), codec=3),
    }
    for name in ("format-0", "format-1", "format-3"):
        assert len(out[name]) == read_header(sound).size
    return out


def main() -> None:
    for name, content in files().items():
        (HERE / f"{name}.batch").write_bytes(content)


if __name__ == "__main__":
    main()

"""Produced batches, right ones and wrong ones."""

import struct

from hot_tier.record.batch import CRC_COVERED_FROM
from hot_tier.record.crc import crc32c
from hot_tier.record.records import Record, encode_records

TIME_MS = 1_700_000_000_000


def batch(*values: bytes, key: bytes | None = b"k", timestamp: int = TIME_MS, **fields) -> bytearray:
    records = [Record(0, timestamp + index, 0, key, value, ()) for index, value in enumerate(values)]
    return encode_records(records, **fields)


def patched(data: bytearray, at: int, code: str, value: int, *, mend_crc: bool = True) -> bytearray:
    struct.pack_into(">" + code, data, at, value)
    if mend_crc:
        struct.pack_into(">I", data, 17, crc32c(memoryview(data)[CRC_COVERED_FROM:]))
    return data

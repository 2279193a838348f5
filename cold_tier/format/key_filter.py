"""Filters of keys: which row groups of an archived file may hold a key.

They are the Bloom filters of Parquet (split blocks, XXH64) on the column `key`, one for each row group. Other readers
use them too. Parquet has no checksum for them, and a flipped bit would hide a record. So the index has the CRC-32C of
each. A row group whose filter is missing, or is of another kind, may hold any key; a damaged filter is an error.

Files of 0.1.0 have none, and neither have encrypted files: a filter tells whoever can read it which keys there are.
"""

import re
import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from cold_tier.errors import CorruptObject
from cold_tier.format.read import SegmentReader
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import SegmentEntry
from cold_tier.objects.bucket import Bucket
from cold_tier.objects.store import Buffer
from hot_tier.record.crc import crc32c

_LARGEST: Final = 1 << 20
_BLOCK_BYTES: Final = 32
_HEADER: Final = re.compile(rb"\x15([\x80-\xff]*[\x00-\x7f])\x1c\x1c\x00\x00\x1c\x1c\x00\x00\x1c\x1c\x00\x00\x00", re.S)
"""numBytes as a varint, then the one algorithm, hash and compression that exist."""
_SALTS: Final = (
    0x47B6137B,
    0x44974D91,
    0x8824AD5B,
    0xA2B7289D,
    0x705495C7,
    0x2DF1424B,
    0x9EFC4947,
    0x5C6BFB31,
)
_WORDS: Final = struct.Struct("<8I")
_M64: Final = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def filter_span(reader: SegmentReader, number: int) -> tuple[int, int] | None:
    """Returns where the filter of a row group is in the object: start and length."""
    if reader.master_key or not reader.index.row_groups[number].key_filter_crc32c:
        return None
    column: Any = next(
        column
        for column in map(reader.metadata.row_group(number).column, range(reader.metadata.num_columns))
        if column.path_in_schema == "key"
    )
    start, length = column.bloom_filter_offset, column.bloom_filter_length
    return (start, length) if start is not None and length is not None and 0 < length <= _LARGEST else None


class Filters(NamedTuple):
    """The filters of a file, as they lie in the object."""

    first: int
    data: Buffer
    placed: Mapping[int, tuple[int, int]]
    """By row group, for those that have one: start in the object, and length."""


async def load_filters(
    store: Bucket, layout: PartitionLayout, segment: SegmentEntry, reader: SegmentReader
) -> Filters | None:
    """Returns the filters of a file; None if it has none. One request."""
    groups = range(len(reader.index.row_groups))
    placed = {number: span for number in groups if (span := filter_span(reader, number)) is not None}
    if not placed:
        return None
    first = min(start for start, _ in placed.values())
    end = max(start + length for start, length in placed.values())
    if end - first > len(placed) * _LARGEST:
        return None  # They do not lie together: not a file of ours.
    return Filters(first, await store.get(layout.rows(segment.name), first, end - first), placed)


def may_hold(reader: SegmentReader, filters: Filters, key: bytes) -> list[int]:
    """Returns the row groups that may hold the key. Raises CorruptObject if a filter is damaged."""
    hashed, data = xxh64(key), memoryview(filters.data)

    def passes(number: int) -> bool:
        if number not in filters.placed:
            return True
        start, length = filters.placed[number]
        return _passes(reader, number, data[start - filters.first : start - filters.first + length], hashed)

    return list(filter(passes, range(len(reader.index.row_groups))))


def _passes(reader: SegmentReader, number: int, data: Buffer, hashed: int) -> bool:
    if crc32c(data) != reader.index.row_groups[number].key_filter_crc32c:
        raise CorruptObject(
            f"the key filter of row group {number} is damaged: its checksum does not match",
            where=reader.where,
            hint="restore this object from a copy; `tierlog archive verify` lists everything that is damaged",
        )
    return holds(data, hashed)


def holds(data: Buffer, hashed: int) -> bool:
    """Returns whether a filter lets a hash pass. A filter of an unknown kind lets all pass."""
    header = _HEADER.match(bytes(data[:32]))
    if header is None:
        return True
    blocks = (len(data) - header.end()) // _BLOCK_BYTES
    if blocks < 1 or _number(header[1]) != len(data) - header.end() or (len(data) - header.end()) % _BLOCK_BYTES:
        return True
    block = ((hashed >> 32) * blocks) >> 32
    low = hashed & 0xFFFFFFFF
    words = _WORDS.unpack_from(data, header.end() + block * _BLOCK_BYTES)
    return all(word >> (((low * salt) & 0xFFFFFFFF) >> 27) & 1 for word, salt in zip(words, _SALTS, strict=True))


def _number(varint: bytes) -> int:
    value = sum((byte & 0x7F) << (7 * place) for place, byte in enumerate(varint))
    return (value >> 1) ^ -(value & 1)


def _turned(value: int, bits: int) -> int:
    value &= _M64
    return (value << bits | value >> (64 - bits)) & _M64


def _round(state: int, lane: int) -> int:
    return _turned(state + lane * _P2, 31) * _P1 & _M64


def xxh64(data: bytes) -> int:
    """Returns the XXH64 of `data` with the seed 0, as Parquet wants it."""
    size, at = len(data), 0
    if size >= 32:
        lanes = [(_P1 + _P2) & _M64, _P2, 0, -_P1 & _M64]
        while at + 32 <= size:
            for number, lane in enumerate(struct.unpack_from("<4Q", data, at)):
                lanes[number] = _round(lanes[number], lane)
            at += 32
        state = sum(_turned(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _M64
        for lane in lanes:
            state = ((state ^ _round(0, lane)) * _P1 + _P4) & _M64
    else:
        state = _P5
    state = (state + size) & _M64
    while at + 8 <= size:
        state = (_turned(state ^ _round(0, struct.unpack_from("<Q", data, at)[0]), 27) * _P1 + _P4) & _M64
        at += 8
    if at + 4 <= size:
        state = (_turned(state ^ struct.unpack_from("<I", data, at)[0] * _P1 & _M64, 23) * _P2 + _P3) & _M64
        at += 4
    for byte in data[at:]:
        state = _turned(state ^ byte * _P5 & _M64, 11) * _P1 & _M64
    state = (state ^ state >> 33) * _P2 & _M64
    state = (state ^ state >> 29) * _P3 & _M64
    return state ^ state >> 32

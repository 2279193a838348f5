"""The compiled loops of the log. They release the GIL, allocate nothing and never raise.

Each has one signature and is compiled, or loaded from numba's cache, when this module is imported.
"""

from typing import Final

import numpy as np
from numba import types

from hot_tier.record.batch import CRC_COVERED_FROM, HEADER_BYTES, LENGTH_OVERHEAD, MAGIC
from hot_tier.record.compiled import inlined, kernel

HEADER_COLUMNS: Final = 12
RECORD_COLUMNS: Final = 7
SLOT_COLUMNS: Final = 3

HAS_KEY: Final = 1
HAS_VALUE: Final = 2

_BUFFER: Final = types.Array(types.uint8, 1, "C", readonly=True)
_INT: Final = types.int64
_TWO: Final = types.UniTuple(_INT, 2)  # type: ignore[no-untyped-call]
_THREE: Final = types.UniTuple(_INT, 3)  # type: ignore[no-untyped-call]
_OUT: Final = types.int64[:, ::1]
_OUT_ROW: Final = types.int64[::1]
_NUMBERS: Final = types.Array(types.int64, 1, "C", readonly=True)
_CRC_TABLES: Final = types.uint32[:, :, ::1]


@inlined
def _big_endian(data, position, width):  # type: ignore[no-untyped-def]
    value = np.uint64(0)
    for at in range(position, position + width):
        value = (value << np.uint64(8)) | np.uint64(data[at])
    shift = np.uint64(64 - 8 * width)
    return np.int64(value << shift) >> np.int64(shift)


@inlined
def _wrong_epoch(epoch, known, starts, epochs, may_rise):  # type: ignore[no-untyped-def]
    """Returns whether a batch names another epoch than the `known`th of the history. Before the history any epoch is
    right; after it a later one, if epochs `may_rise`."""
    if known < 0 or epoch == epochs[known]:
        return False
    return not may_rise or known + 1 < len(starts) or epoch < epochs[known]


@kernel(_THREE(_BUFFER, _INT, _INT, _INT, _INT, _NUMBERS, _NUMBERS, types.boolean, _OUT))
def parse_headers(  # type: ignore[no-untyped-def]
    data, file_position, file_end, next_offset, gaps_below, starts, epochs, may_rise, rows
):
    """One row per batch header; returns (rows filled, position after them in data, 1 if a bad header is there).

    Only a batch that starts at `gaps_below` or before may leave a gap behind the one before it. `starts` and `epochs`
    are the history of leader epochs. Columns: position, size, base offset, last offset, leader
    epoch, attributes, max timestamp, producer id, producer epoch, base sequence, record count, CRC.
    """
    at = 0
    filled = 0
    known = -1
    while filled < rows.shape[0] and len(data) - at >= HEADER_BYTES:
        size = _big_endian(data, at + 8, 4) + LENGTH_OVERHEAD
        base_offset = _big_endian(data, at, 8)
        last_offset = base_offset + _big_endian(data, at + 23, 4)
        epoch = _big_endian(data, at + 12, 4)
        while known + 1 < len(starts) and starts[known + 1] <= last_offset:
            known += 1
        if (
            data[at + 16] != MAGIC
            or size < HEADER_BYTES
            or file_position + at + size > file_end
            or base_offset < next_offset
            or (base_offset != next_offset and base_offset > gaps_below)
            or last_offset < base_offset
            or _wrong_epoch(epoch, known, starts, epochs, may_rise)
        ):
            return filled, at, 1
        rows[filled, 0] = file_position + at
        rows[filled, 1] = size
        rows[filled, 2] = base_offset
        rows[filled, 3] = last_offset
        rows[filled, 4] = epoch
        rows[filled, 5] = _big_endian(data, at + 21, 2)
        rows[filled, 6] = _big_endian(data, at + 35, 8)
        rows[filled, 7] = _big_endian(data, at + 43, 8)
        rows[filled, 8] = _big_endian(data, at + 51, 2)
        rows[filled, 9] = _big_endian(data, at + 53, 4)
        rows[filled, 10] = _big_endian(data, at + 57, 4)
        rows[filled, 11] = _big_endian(data, at + 17, 4) & 0xFFFF_FFFF
        filled += 1
        at += size
        next_offset = last_offset + 1
    return filled, at, 0


@inlined
def _crc_behind_zeros(crc, length, tables):  # type: ignore[no-untyped-def]
    level = 0
    while length:
        if length & 1:
            crc = (
                np.int64(tables[level, 0, crc & 255])
                ^ np.int64(tables[level, 1, (crc >> 8) & 255])
                ^ np.int64(tables[level, 2, (crc >> 16) & 255])
                ^ np.int64(tables[level, 3, crc >> 24])
            )
        length >>= 1
        level += 1
    return crc


@inlined
def _crc_with_batch(data, at, size, crc, tables):  # type: ignore[no-untyped-def]
    """Returns the CRC of everything before the batch, extended by its head and by the CRC that the head names."""
    crc ^= 0xFFFF_FFFF
    for byte in range(at, at + CRC_COVERED_FROM):
        crc = np.int64(tables[0, 0, (crc ^ data[byte]) & 255]) ^ (crc >> 8)
    crc = _crc_behind_zeros(crc ^ 0xFFFF_FFFF, size - CRC_COVERED_FROM, tables)
    return crc ^ (_big_endian(data, at + 17, 4) & 0xFFFF_FFFF)


@kernel(_TWO(_BUFFER, _INT, _INT, types.boolean, _NUMBERS, _NUMBERS, _CRC_TABLES))
def follow_headers(data, next_offset, end_offset, gaps, starts, epochs, tables):  # type: ignore[no-untyped-def]
    """Returns how many bytes are batches that follow each other, from `next_offset` on and below `end_offset`, in the
    epochs of the history; and the CRC of these bytes if each batch has the CRC that it names. With `gaps` a batch need
    not begin where the one before it ends."""
    at = 0
    crc = np.int64(0)
    known = -1
    while len(data) - at >= HEADER_BYTES:
        size = _big_endian(data, at + 8, 4) + LENGTH_OVERHEAD
        base_offset = _big_endian(data, at, 8)
        last_offset = base_offset + _big_endian(data, at + 23, 4)
        while known + 1 < len(starts) and starts[known + 1] <= last_offset:
            known += 1
        if (
            data[at + 16] != MAGIC
            or size < HEADER_BYTES
            or at + size > len(data)
            or base_offset < next_offset
            or (base_offset != next_offset and not gaps)
            or last_offset < base_offset
            or last_offset >= end_offset
            or _wrong_epoch(_big_endian(data, at + 12, 4), known, starts, epochs, False)
        ):
            break
        crc = _crc_with_batch(data, at, size, crc, tables)
        at += size
        next_offset = last_offset + 1
    return at, crc


@inlined
def _varint(data, position, end):  # type: ignore[no-untyped-def]
    """Returns a zigzag varint and its end. The end is -1 if the varint does not end in time."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while position < end and shift < np.uint64(70):
        byte = np.uint64(data[position])
        position += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@inlined
def _rotate(value, bits):  # type: ignore[no-untyped-def]
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@inlined
def _sip_round(v0, v1, v2, v3):  # type: ignore[no-untyped-def]
    v0 += v1
    v1 = _rotate(v1, 13) ^ v0
    v0 = _rotate(v0, 32)
    v2 += v3
    v3 = _rotate(v3, 16) ^ v2
    v0 += v3
    v3 = _rotate(v3, 21) ^ v0
    v2 += v1
    v1 = _rotate(v1, 17) ^ v2
    v2 = _rotate(v2, 32)
    return v0, v1, v2, v3


@inlined
def _sip_hash(data, start, end, seed0, seed1):  # type: ignore[no-untyped-def]
    """SipHash-2-4 with 128 bits of output: with a secret seed nobody can make two keys collide."""
    v0 = seed0 ^ np.uint64(0x736F6D6570736575)
    v1 = seed1 ^ np.uint64(0x646F72616E646F6D) ^ np.uint64(0xEE)
    v2 = seed0 ^ np.uint64(0x6C7967656E657261)
    v3 = seed1 ^ np.uint64(0x7465646279746573)
    at = start
    while True:
        word = np.uint64(0)
        width = min(end - at, 8)
        for byte in range(width):
            word |= np.uint64(data[at + byte]) << np.uint64(8 * byte)
        if width < 8:
            word |= np.uint64((end - start) & 0xFF) << np.uint64(56)
        v3 ^= word
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0 ^= word
        at += 8
        if width < 8:
            break
    v2 ^= np.uint64(0xEE)
    for _ in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v1 ^= np.uint64(0xDD)
    for _ in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


@kernel(_INT(_BUFFER, _INT, _INT, types.uint64, types.uint64, _OUT))
def scan_records(data, base_offset, base_timestamp, seed0, seed1, rows):  # type: ignore[no-untyped-def]
    """Fills one row per record of a batch's decompressed records. Returns their number, or -1 if the bytes are not
    records.

    Columns: start, end, offset, timestamp, two halves of the key's hash, HAS_KEY | HAS_VALUE.
    """
    at = np.int64(0)
    for row in range(rows.shape[0]):
        start = at
        length, at = _varint(data, at, len(data))
        if at < 0 or length < 1 or length > len(data) - at:
            return -1
        end = at + length
        delta, at = _varint(data, at + 1, end)
        if at < 0:
            return -1
        offset_delta, at = _varint(data, at, end)
        if at < 0:
            return -1
        key_length, at = _varint(data, at, end)
        if at < 0 or key_length < -1 or key_length > end - at:
            return -1
        flags = 0
        low = high = np.uint64(0)
        if key_length >= 0:
            flags = HAS_KEY
            low, high = _sip_hash(data, at, at + key_length, seed0, seed1)
            at += key_length
        value_length, at = _varint(data, at, end)
        if at < 0 or value_length < -1 or value_length > end - at:
            return -1
        if value_length >= 0:
            flags |= HAS_VALUE
        rows[row, 0] = start
        rows[row, 1] = end
        rows[row, 2] = base_offset + offset_delta
        rows[row, 3] = base_timestamp + delta
        rows[row, 4] = np.int64(low)
        rows[row, 5] = np.int64(high)
        rows[row, 6] = flags
        at = end
    return rows.shape[0] if at == len(data) else -1


@inlined
def _slot(table, low, high):  # type: ignore[no-untyped-def]
    """Returns this key's slot, or the free one that it would take. The number of slots is a power of two."""
    mask = np.uint64(table.shape[0] - 1)
    at = np.uint64(low) & mask
    while table[at, 2] >= 0 and (table[at, 0] != low or table[at, 1] != high):
        at = (at + np.uint64(1)) & mask
    return at


@kernel(_INT(_OUT, _OUT, _INT))
def remember_keys(table, rows, room):  # type: ignore[no-untyped-def]
    """Puts each key's offset into the table, later ones over earlier ones. Returns how many slots it took.

    The caller makes sure that `room` free slots are enough for all rows.
    """
    taken = 0
    for row in range(rows.shape[0]):
        if rows[row, 6] & HAS_KEY == 0:
            continue
        at = _slot(table, rows[row, 4], rows[row, 5])
        if table[at, 2] < 0:
            if taken == room:
                return -1
            table[at, 0] = rows[row, 4]
            table[at, 1] = rows[row, 5]
            taken += 1
        table[at, 2] = rows[row, 2]
    return taken


@kernel(types.void(_OUT, _OUT, _OUT_ROW))
def latest_offsets(table, rows, latest):  # type: ignore[no-untyped-def]
    """Returns for each record the latest known offset of its key, or -1."""
    for row in range(rows.shape[0]):
        latest[row] = table[_slot(table, rows[row, 4], rows[row, 5]), 2]

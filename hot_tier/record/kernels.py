"""The compiled loops over records: one walk for validation.

Every kernel has exactly one signature, compiled (or loaded from numba's cache) when this module is imported;
so import it where it is needed, or call `warm_up` once at start. They release the GIL, allocate nothing and
never raise: foreign bytes give a status below zero, and `validate` and `columns` turn it into our errors.
"""

from collections.abc import Callable
from typing import Any, Final

import numba
import numpy as np
from numba import types

MIN_RECORD_BYTES: Final = 7  # seven fields of one byte each: length, attributes, two deltas, key, value, headers

# What a walk found wrong.
OK: Final = 0
VARINT: Final = -1
RECORD_LENGTH: Final = -2
FIELD_LENGTH: Final = -3
HEADER_COUNT: Final = -4
TRAILING_BYTES: Final = -5
OFFSET_DELTA: Final = -6
NULL_KEY: Final = -7
TIMESTAMP: Final = -8
HEADER_KEY: Final = -9

FAULTS: Final = {
    VARINT: "a varint is longer than its type or its record",
    RECORD_LENGTH: "the record's length is not that of its fields, or runs past the batch",
    FIELD_LENGTH: "a key, value or header runs past its record",
    HEADER_COUNT: "more headers than its bytes can hold",
    TRAILING_BYTES: "bytes follow the last record",
    OFFSET_DELTA: "offset deltas do not count up from 0 by 1",
    NULL_KEY: "no key, on a topic that is compacted by key",
    TIMESTAMP: "a timestamp is out of bounds",
    HEADER_KEY: "a header key is not UTF-8",
}

BUFFER: Final = types.Array(types.uint8, 1, "C", readonly=True)


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compiles at import, for one signature; cached on disk wherever numba finds a writable directory."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(signature, nogil=True, cache=True)(function)
        except RuntimeError:
            # Neither the package, nor NUMBA_CACHE_DIR, nor the user's cache can be written: compile each time.
            return numba.njit(signature, nogil=True)(function)

    return decorate


@numba.njit(inline="always")
def read_varint(data, position, end):  # type: ignore[no-untyped-def]
    """A zigzag varint of up to 32 bits, and where it ends; -1 there means that it does not."""
    shift = np.uint64(0)
    value = np.uint64(0)
    while position < end and shift < np.uint64(35):
        byte = np.uint64(data[position])
        position += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            if value > np.uint64(0xFFFF_FFFF):
                return np.int64(0), np.int64(-1)
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@numba.njit(inline="always")
def read_varlong(data, position, end):  # type: ignore[no-untyped-def]
    """A zigzag varint of up to 64 bits, and where it ends; -1 there means that it does not."""
    shift = np.uint64(0)
    value = np.uint64(0)
    while position < end and shift < np.uint64(70):
        byte = np.uint64(data[position])
        position += 1
        if shift == np.uint64(63) and byte > np.uint64(1):
            return np.int64(0), np.int64(-1)
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@numba.njit(inline="always")
def is_utf8(data, position, end):  # type: ignore[no-untyped-def]
    while position < end:
        byte = data[position]
        if byte < 0x80:
            position += 1
            continue
        if 0xC2 <= byte <= 0xDF:
            more, low, high = 1, 0x80, 0xBF
        elif 0xE0 <= byte <= 0xEF:
            more, low, high = 2, 0xA0 if byte == 0xE0 else 0x80, 0x9F if byte == 0xED else 0xBF
        elif 0xF0 <= byte <= 0xF4:
            more, low, high = 3, 0x90 if byte == 0xF0 else 0x80, 0x8F if byte == 0xF4 else 0xBF
        else:
            return False
        if position + more >= end or not low <= data[position + 1] <= high:
            return False
        for i in range(position + 2, position + more + 1):
            if not 0x80 <= data[i] <= 0xBF:
                return False
        position += more + 1
    return True


@kernel(types.UniTuple(types.int64, 3)(  # type: ignore[no-untyped-call]
    BUFFER, *[types.int64] * 5, types.boolean))
def walk_records(data, start, count, base_timestamp, least_timestamp, greatest_timestamp, compacted):  # type: ignore[no-untyped-def]
    """Checks `count` records of a produced batch that fill `data` from `start` on.

    Offset deltas must be 0, 1, 2 …; timestamps -1 or within the bounds given. Returns the status, the index of
    the record it is about, and the greatest timestamp seen.
    """
    position = np.int64(start)
    size = np.int64(data.shape[0])
    max_timestamp = np.int64(-1)
    for index in range(count):
        length, position = read_varint(data, position, size)
        if position < 0:
            return VARINT, index, max_timestamp
        if length < MIN_RECORD_BYTES - 1 or length > size - position:
            return RECORD_LENGTH, index, max_timestamp
        end = position + length
        delta, position = read_varlong(data, position + 1, end)
        if position < 0:
            return VARINT, index, max_timestamp
        timestamp = base_timestamp + delta
        if timestamp != -1 and (timestamp < least_timestamp or timestamp > greatest_timestamp):
            return TIMESTAMP, index, timestamp
        max_timestamp = max(max_timestamp, timestamp)
        delta, position = read_varint(data, position, end)
        if position < 0:
            return VARINT, index, max_timestamp
        if delta != index:
            return OFFSET_DELTA, index, max_timestamp
        for field in range(2):
            length, position = read_varint(data, position, end)
            if position < 0:
                return VARINT, index, max_timestamp
            if length < -1 or length > end - position:
                return FIELD_LENGTH, index, max_timestamp
            if length > 0:
                position += length
            elif length < 0 and field == 0 and compacted:
                return NULL_KEY, index, max_timestamp
        headers, position = read_varint(data, position, end)
        if position < 0:
            return VARINT, index, max_timestamp
        if headers < 0 or headers > (end - position) // 2:
            return HEADER_COUNT, index, max_timestamp
        for _ in range(headers):
            length, position = read_varint(data, position, end)
            if position < 0:
                return VARINT, index, max_timestamp
            if length < 0 or length > end - position:
                return FIELD_LENGTH, index, max_timestamp
            if not is_utf8(data, position, position + length):
                return HEADER_KEY, index, max_timestamp
            position += length
            length, position = read_varint(data, position, end)
            if position < 0:
                return VARINT, index, max_timestamp
            if length < -1 or length > end - position:
                return FIELD_LENGTH, index, max_timestamp
            if length > 0:
                position += length
        if position != end:
            return RECORD_LENGTH, index, max_timestamp
    if position != size:
        return TRAILING_BYTES, count, max_timestamp
    return OK, count, max_timestamp


def warm_up() -> None:
    """Nothing is left to compile once this module is imported; a first call makes sure that it runs."""
    walk_records(np.zeros(0, np.uint8), 0, 0, 0, 0, 0, False)

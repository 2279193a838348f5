"""The compiled loops of the log. They release the GIL, allocate nothing and never raise.

Each has one signature and is compiled, or loaded from numba's cache, when this module is imported.
"""

from collections.abc import Callable
from typing import Any, Final

import numba
import numpy as np
from numba import types

from hot_tier.record.batch import HEADER_BYTES, LENGTH_OVERHEAD, MAGIC

HEADER_COLUMNS: Final = 12

_BUFFER: Final = types.Array(types.uint8, 1, "C", readonly=True)
_INT: Final = types.int64
_THREE: Final = types.UniTuple(_INT, 3)  # type: ignore[no-untyped-call]


def _kernel(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(signature, nogil=True, cache=True)(function)
        except RuntimeError:
            # No directory for the cache can be written: compile at every start.
            return numba.njit(signature, nogil=True)(function)

    return decorate


@numba.njit(inline="always")
def _big_endian(data, position, width):  # type: ignore[no-untyped-def]
    value = np.uint64(0)
    for at in range(position, position + width):
        value = (value << np.uint64(8)) | np.uint64(data[at])
    shift = np.uint64(64 - 8 * width)
    return np.int64(value << shift) >> np.int64(shift)


@_kernel(_THREE(_BUFFER, _INT, _INT, _INT, types.int64[:, ::1]))
def parse_headers(data, file_position, file_end, next_offset, rows):  # type: ignore[no-untyped-def]
    """One row per batch header; returns (rows filled, position after them in data, 1 if a bad header is there).

    Columns: position, size, base offset, last offset, leader epoch, attributes, max timestamp, producer id,
    producer epoch, base sequence, record count, CRC.
    """
    at = 0
    filled = 0
    while filled < rows.shape[0] and len(data) - at >= HEADER_BYTES:
        size = _big_endian(data, at + 8, 4) + LENGTH_OVERHEAD
        base_offset = _big_endian(data, at, 8)
        last_offset = base_offset + _big_endian(data, at + 23, 4)
        if (
            data[at + 16] != MAGIC
            or size < HEADER_BYTES
            or file_position + at + size > file_end
            or base_offset < next_offset
            or last_offset < base_offset
        ):
            return filled, at, 1
        rows[filled, 0] = file_position + at
        rows[filled, 1] = size
        rows[filled, 2] = base_offset
        rows[filled, 3] = last_offset
        rows[filled, 4] = _big_endian(data, at + 12, 4)
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

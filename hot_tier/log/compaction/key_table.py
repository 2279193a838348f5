"""The latest offset of each key in a stretch of log, by a 128-bit keyed hash of the key; 24 bytes per slot.

Holds a bounded number of keys: `add` refuses a batch that might not fit, and the stretch ends before it.
"""

import secrets
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hot_tier.errors import CorruptBatch
from hot_tier.log.kernels import RECORD_COLUMNS, SLOT_COLUMNS, latest_offsets, remember_keys, scan_records
from hot_tier.record.batch import HEADER_BYTES, BatchHeader
from hot_tier.record.compression import decompress
from hot_tier.record.records import MAX_DECOMPRESSED_BYTES

RECORD_START, RECORD_END, RECORD_OFFSET, RECORD_TIMESTAMP, _, _, RECORD_FLAGS = range(RECORD_COLUMNS)

_SLOT_BYTES: Final = SLOT_COLUMNS * 8
_MAX_LOAD: Final = 0.75
_MIN_RECORD_BYTES: Final = 7

Rows = NDArray[np.int64]


class KeyTable:
    def __init__(self, max_bytes: int, log_bytes: int) -> None:
        """Takes at most `max_bytes` of memory, and no more than `log_bytes` of log can need."""
        needed = int(log_bytes / _MIN_RECORD_BYTES / _MAX_LOAD)
        self._seeds = np.uint64(secrets.randbits(64)), np.uint64(secrets.randbits(64))
        self._allocate(max(16, min(needed, max_bytes // _SLOT_BYTES)))

    def _allocate(self, slots: int) -> None:
        slots = 1 << (slots - 1).bit_length()
        self._table: Rows = np.full((slots, SLOT_COLUMNS), -1, np.int64)
        self._room = int(slots * _MAX_LOAD)
        self._is_empty = True

    def scan(self, data: memoryview, header: BatchHeader) -> tuple[NDArray[np.uint8], Rows]:
        """Returns a batch's decompressed records, and a row for each."""
        records = np.frombuffer(
            decompress(header.codec, data[HEADER_BYTES : header.size], MAX_DECOMPRESSED_BYTES), np.uint8
        )
        rows: Rows = np.empty((header.record_count, RECORD_COLUMNS), np.int64)
        if header.record_count * _MIN_RECORD_BYTES > len(records) or (
            scan_records(records, header.base_offset, header.base_timestamp, *self._seeds, rows) < 0
        ):
            raise CorruptBatch("the bytes are not records", where=f"batch at offset {header.base_offset}")
        return records, rows

    def add(self, rows: Rows) -> bool:
        """Remembers a batch's keys. Returns False if there may be no room for them. An empty table takes any batch."""
        if len(rows) > self._room:
            if not self._is_empty:
                return False
            self._allocate(int(len(rows) / _MAX_LOAD) + 1)
        self._is_empty = False
        self._room -= remember_keys(self._table, rows, self._room)
        return True

    def superseded(self, rows: Rows) -> NDArray[np.bool_]:
        """Returns for each record whether the table has a later record with its key."""
        latest = np.empty(len(rows), np.int64)
        latest_offsets(self._table, rows, latest)
        return latest > rows[:, RECORD_OFFSET]

"""Reads the newest decided value of each key from a partition of a journal, and what open transactions wrote.

Reading and decompressing run in threads, a few MiB at a time. So a broker that starts with millions of records answers
other requests meanwhile.

- A record is decided if it is in no transaction, or if the commit marker of its transaction follows. An aborted record
  never counts.
- Of the decided records of a key the one with the greatest offset counts, not the one whose marker came last. So
  compaction, which keeps the greatest offset, changes no state.
- A decided record also ends all older records of its key in transactions that are still open: they cannot count any
  more. So whatever is left open is newer than everything that is decided.
"""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from hot_tier.errors import CorruptLog
from hot_tier.ids import Offset
from hot_tier.record.batch import BatchHeader, ReadBuffer, iter_headers
from hot_tier.record.control import MarkerKind, read_marker
from hot_tier.record.records import decode_records, sound_batches
from hot_tier.replication.readable import ReadablePartition

CHUNK_BYTES: Final = 4 << 20


class Written(NamedTuple):
    """A record of an open transaction."""

    offset: int
    value: bytes | None
    """None for a tombstone."""


class Latest(dict[bytes, bytes]):
    """The newest decided value of each key. A key whose newest record is a tombstone is absent."""

    def __init__(self, values: Mapping[bytes, bytes] = MappingProxyType({})) -> None:
        super().__init__(values)
        self.open: dict[int, dict[bytes, Written]] = {}
        """What open transactions wrote, by producer id and key."""
        self._open_at: dict[bytes, set[int]] = {}
        """Which of them wrote a key, so that millions of other keys cost nothing."""

    def read(self, data: ReadBuffer, position: int) -> int:
        """Goes through the whole batches of `data` from offset `position` on. Returns the offset after them."""
        for at, header in sound_batches(data, position, None, skip_control=False):
            self._read_batch(memoryview(data)[at : at + header.size], header, position)
        next_position = position
        for _, header in iter_headers(data):
            next_position = header.end_offset
        if next_position <= position:
            raise CorruptLog(f"no whole batch at offset {position}")
        return next_position

    def _read_batch(self, batch: ReadBuffer, header: BatchHeader, position: int) -> None:
        if header.is_control:
            self._end(header.producer_id, read_marker(batch, header).kind is MarkerKind.COMMIT)
            return
        for record in decode_records(batch, from_offset=position):
            if record.key is None:
                continue
            if header.is_transactional:
                self._wrote(header.producer_id, record.key, Written(record.offset, record.value))
            else:
                self._decide(record.key, Written(record.offset, record.value))

    def _wrote(self, producer_id: int, key: bytes, written: Written) -> None:
        self.open.setdefault(producer_id, {})[key] = written
        self._open_at.setdefault(key, set()).add(producer_id)

    def _end(self, producer_id: int, committed: bool) -> None:
        for key, written in self.open.pop(producer_id, {}).items():
            self._open_at[key].discard(producer_id)
            if committed:
                self._decide(key, written)

    def _decide(self, key: bytes, decided: Written) -> None:
        if decided.value is None:
            self.pop(key, None)
        else:
            self[key] = decided.value
        for producer_id in list(self._open_at.get(key, ())):
            if self.open[producer_id][key].offset < decided.offset:
                del self.open[producer_id][key]
                self._open_at[key].discard(producer_id)


async def read_latest(partition: ReadablePartition, end_offset: Offset) -> Latest:
    """Returns what the records below `end_offset` say. The caller has checked that all are committed."""
    latest = Latest()
    position = int(partition.log_start_offset)
    while position < end_offset:
        place = partition.locate(position, CHUNK_BYTES, end_offset)
        if place is None:
            break
        data = await partition.read(place)
        position = await asyncio.to_thread(latest.read, data, position)
    return latest

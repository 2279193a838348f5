"""Reads a partition of a journal: the newest value of each key.

Reading and decompressing happen in threads, a few MiB at a time, so that a broker that starts with millions of records
answers other requests meanwhile.
"""

import asyncio
from typing import Final

from hot_tier.errors import CorruptLog
from hot_tier.ids import Offset
from hot_tier.record.batch import ReadBuffer, iter_headers
from hot_tier.record.records import decode_records
from hot_tier.replication.readable import ReadablePartition

CHUNK_BYTES: Final = 4 << 20

Latest = dict[bytes, bytes]
"""The newest value of each key. A key whose newest record is a tombstone is not in it."""


async def read_latest(partition: ReadablePartition, end_offset: Offset) -> Latest:
    """Returns what the records below `end_offset` leave. The caller has seen that all of them are committed."""
    latest: Latest = {}
    position = int(partition.log_start_offset)
    while position < end_offset:
        place = partition.locate(position, CHUNK_BYTES, end_offset)
        if place is None:
            break
        data = await partition.read(place)
        position = await asyncio.to_thread(_apply, latest, data, position)
    return latest


def _apply(latest: Latest, data: ReadBuffer, position: int) -> int:
    """Applies the records of `data` from `position` on. Returns the offset behind them."""
    for record in decode_records(data, from_offset=position):
        if record.key is None:
            continue
        if record.value is None:
            latest.pop(record.key, None)
        else:
            latest[record.key] = record.value
    next_position = position
    for _, header in iter_headers(data):
        next_position = header.end_offset
    if next_position <= position:
        raise CorruptLog(f"no whole batch at offset {position}")
    return next_position

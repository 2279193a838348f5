"""Reading a log: where an offset's bytes are, the bytes, and which offset a time leads to.

`locate` runs on the loop and never waits for the disk: where the page cache does not hold what the lookup needs, it
returns a slice that is not placed yet, `read_now` answers None for it, and `read` finishes it in a thread.

A slice is whole batches of one segment and ends at or before `max_bytes` (but holds at least one batch, if asked)
and before the batch of `end_offset`. Between `locate` and the read the segment may be deleted, compacted or cut;
then the slice is placed anew, so bytes always belong to the offset that was asked for.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from hot_tier.errors import CorruptBatch, OffsetOutOfRange, StorageFailure
from hot_tier.ids import LeaderEpoch, Offset
from hot_tier.log.disk import Disk
from hot_tier.log.files import read_cached_at
from hot_tier.log.segment import Segment, WouldBlock
from hot_tier.log.segments import SegmentList
from hot_tier.record.batch import BatchHeader
from hot_tier.record.records import Record, decode_records

_NOTHING = memoryview(b"")

T = TypeVar("T")


@dataclass(slots=True)
class FileSlice:
    """Bytes of a segment; `position` is -1 and `length` 0 while it is not placed."""

    segment: Segment
    position: int
    length: int
    offset: int
    max_bytes: int
    end_offset: int
    min_one: bool


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch


class LogReader:
    def __init__(self, where: str, disk: Disk, segments: SegmentList) -> None:
        self._where = where
        self._disk = disk
        self._segments = segments

    def locate(
        self, offset: int, max_bytes: int, end_offset: int, *, min_one: bool, start: int, end: int
    ) -> FileSlice | None:
        """`start` and `end` are the local log's. None: nothing below `end_offset`, or nothing that fits."""
        if not start <= offset <= end:
            raise self._out_of_range(offset, start, end)
        if offset >= end_offset or offset == end:
            return None
        segment: Segment | None = self._segments.holding(offset)
        while segment is not None:
            slice_ = FileSlice(segment, -1, 0, offset, max_bytes, end_offset, min_one)
            try:
                state = _place(slice_, None)
            except WouldBlock:
                return slice_
            if state:
                return slice_
            if state is None:
                return None
            segment = self._segments.after(segment)
        return None

    def read_now(self, slice_: FileSlice) -> memoryview | None:
        segment = slice_.segment
        if slice_.position < 0 or segment.retired or not segment.is_checked(slice_.position, slice_.length):
            return None
        try:
            return read_cached_at(segment.file().fd, slice_.position, slice_.length)
        except OSError as error:
            raise StorageFailure(f"cannot read: {error}", where=segment.path) from error

    async def read(self, slice_: FileSlice) -> memoryview:
        segment: Segment | None = slice_.segment
        while segment is not None:
            if segment.retired:
                segment = self._segments.from_offset(slice_.offset)
                if segment is None or segment.base_offset > slice_.offset:
                    raise self._out_of_range(slice_.offset, segment.base_offset if segment else 0, slice_.end_offset)
                slice_.segment, slice_.position = segment, -1
            data = await self._in_thread(segment, partial(_read, slice_))
            if data is not None:
                return data
            segment = self._segments.after(segment)
            if segment is not None:
                slice_.segment, slice_.position = segment, -1
        return _NOTHING

    async def offset_for_timestamp(self, timestamp: int, start: int, end_offset: int) -> TimestampOffset | None:
        """The earliest record from `start` on and before `end_offset` that is as late as `timestamp`."""
        segment = self._segments.from_offset(start)
        while segment is not None and segment.base_offset < end_offset:
            if segment.max_timestamp >= timestamp or segment.lost_tail:
                search = partial(_search_time, segment, timestamp, start, end_offset)
                found = await self._in_thread(segment, search)
                if found is not None:
                    return found
            segment = self._segments.from_offset(segment.end_offset)
        return None

    async def max_timestamp_offset(self, start: int, end_offset: int) -> TimestampOffset | None:
        """The first record that has the greatest timestamp of all before `end_offset`."""
        best: TimestampOffset | None = None
        segment = self._segments.from_offset(start)
        while segment is not None and segment.base_offset < end_offset:
            if best is None or segment.max_timestamp > best.timestamp:
                found = await self._in_thread(segment, partial(_latest, segment, start, end_offset))
                if found is not None and (best is None or found.timestamp > best.timestamp):
                    best = found
            segment = self._segments.from_offset(segment.end_offset)
        return best

    async def _in_thread(self, segment: Segment, function: Callable[[int], T]) -> T:
        """Calls `function` with the segment's descriptor. The file stays open until the thread is done with it, also
        when whoever waits for it is cancelled before."""
        loop = asyncio.get_running_loop()
        file = segment.file().pin()
        running = self._disk.readers.submit(function, file.fd)
        running.add_done_callback(lambda _: loop.call_soon_threadsafe(file.unpin))
        return await asyncio.wrap_future(running)

    def _out_of_range(self, offset: int, start: int, end: int) -> OffsetOutOfRange:
        return OffsetOutOfRange(
            f"offset {offset} is not in the log, which has {start} to {end}",
            where=self._where,
            hint="start at the beginning or the end",
        )


def _place(slice_: FileSlice, fd: int | None) -> bool | None:
    """Finds position and length. False: the offset is in no batch of this segment, look in the next one; None: there
    is nothing for this request. Without `fd` it runs on the loop and raises WouldBlock instead of waiting."""
    segment = slice_.segment
    position = segment.position_of(slice_.offset, fd)
    size = segment.size
    if position >= size:
        if segment.lost_tail:
            raise segment.corrupt(size)
        return False
    limit = size if slice_.end_offset >= segment.end_offset else segment.position_of(slice_.end_offset, fd)
    if position >= limit:
        return None
    if segment.damaged:
        limit = min(limit, segment.damage_from(position))
        if limit == position:
            raise segment.corrupt(position)
    end = position + slice_.max_bytes
    if end >= limit:
        end = limit
    else:
        end = segment.boundary(end)
        if end <= position:
            end = _end_of_first(segment, position, limit, slice_, fd)
            if end == position:
                return None
    slice_.position = position
    slice_.length = end - position
    return True


def _end_of_first(segment: Segment, position: int, limit: int, slice_: FileSlice, fd: int | None) -> int:
    """Where to end when no index entry lies between `position` and `max_bytes` after it."""
    end = position + segment.header_at(position, fd).size
    if end - position > slice_.max_bytes:
        return end if slice_.min_one else position
    while end < limit:
        after = end + segment.header_at(end, fd).size
        if after - position > slice_.max_bytes:
            break
        end = after
    return end


def _read(slice_: FileSlice, fd: int) -> memoryview | None:
    """None: look in the next segment."""
    if slice_.position < 0:
        state = _place(slice_, fd)
        if state is False:
            return None
        if state is None:
            return _NOTHING
    return slice_.segment.read_checked(fd, slice_.position, slice_.length, slice_.offset)


def _search_time(segment: Segment, timestamp: int, start: int, end_offset: int, fd: int) -> TimestampOffset | None:
    index = segment.load_index(fd)
    first = max(start, segment.base_offset + index.before_time(timestamp))
    position = segment.position_of(first, fd)
    while position < segment.size:
        header = segment.header_at(position, fd)
        if header.base_offset >= end_offset:
            return None
        if header.max_timestamp >= timestamp and not header.is_control:
            found = _first_as_late(segment, fd, position, header, timestamp, start)
            if found is not None:
                return found if found.offset < end_offset else None
        position += header.size
    if segment.lost_tail:
        raise segment.corrupt(segment.size)
    return None


def _latest(segment: Segment, start: int, end_offset: int, fd: int) -> TimestampOffset | None:
    whole = start <= segment.base_offset and end_offset >= segment.end_offset
    best: TimestampOffset | None = None
    position = segment.position_of(segment.max_timestamp_offset if whole else start, fd)
    while position < segment.size:
        header = segment.header_at(position, fd)
        if header.base_offset >= end_offset:
            break
        if not header.is_control and (best is None or header.max_timestamp > best.timestamp):
            records = [record for record in _records(segment, fd, position, header) if record.offset >= start]
            latest = max(records, key=lambda record: record.timestamp, default=None)
            if latest is not None and (best is None or latest.timestamp > best.timestamp):
                best = TimestampOffset(latest.timestamp, Offset(latest.offset), LeaderEpoch(header.leader_epoch))
        if whole and best is not None and best.timestamp == segment.max_timestamp:
            break
        position += header.size
    return best


def _first_as_late(
    segment: Segment, fd: int, position: int, header: BatchHeader, timestamp: int, start: int
) -> TimestampOffset | None:
    for record in _records(segment, fd, position, header):
        if record.timestamp >= timestamp and record.offset >= start:
            return TimestampOffset(record.timestamp, Offset(record.offset), LeaderEpoch(header.leader_epoch))
    return None


def _records(segment: Segment, fd: int, position: int, header: BatchHeader) -> list[Record]:
    try:
        return decode_records(segment.read_checked(fd, position, header.size, header.base_offset))
    except CorruptBatch as error:
        segment.mark_damaged(position, str(error))
        raise segment.corrupt(position) from error

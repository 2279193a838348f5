"""Reading a log: where an offset's bytes are, the bytes, and which offset a time leads to.

`locate` runs on the loop and never waits for the disk: where the page cache does not hold what the lookup needs, it
returns a slice that is not placed yet, `read_now` answers None for it, and `read` finishes it in a thread.

A slice is whole batches of one segment and ends at or before `max_bytes` (but holds at least one batch, if asked)
and before the batch of `end_offset`. Between `locate` and the read the segment may be deleted, compacted or cut;
then the slice is placed anew, so bytes always belong to the offset that was asked for.

Bytes leave only as batches that follow each other, in the leader epochs that the log knows; what lies behind a damaged
one is never handed out in its place (`segment`).
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from hot_tier.errors import CorruptBatch, CorruptLog, OffsetOutOfRange
from hot_tier.ids import LeaderEpoch, Offset
from hot_tier.log.disk import Disk
from hot_tier.log.epochs import History
from hot_tier.log.segment import Segment, WouldBlock
from hot_tier.log.segment_reading import prove, read_cached, read_checked
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
    base_offset: int = -1
    """Of its first batch."""

    @property
    def available(self) -> int:
        """As much of `max_bytes` as there is from here on, whole batches or not; 0 while it is not placed."""
        if self.length and (
            self.segment.end_offset < self.end_offset or self.segment.size - self.position > self.max_bytes
        ):
            return max(self.length, self.max_bytes)
        return self.length


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch


class LogReader:
    def __init__(self, where: str, disk: Disk, segments: SegmentList, history: Callable[[], History]) -> None:
        """`history`: the leader epochs, as they are now; called on the loop."""
        self._where = where
        self._disk = disk
        self._segments = segments
        self._history = history

    def locate(
        self, offset: int, max_bytes: int, end_offset: int, *, min_one: bool, start: int, end: int
    ) -> FileSlice | None:
        """Returns a slice from `offset` on. `start` and `end` are the local log's. None: nothing below `end_offset`, or
        nothing that fits."""
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
        if slice_.position < 0:
            return None
        return read_cached(slice_.segment, slice_.position, slice_.length, slice_.base_offset, self._history())

    async def read(self, slice_: FileSlice) -> memoryview:
        segment: Segment | None = slice_.segment
        while segment is not None:
            if segment.retired:
                segment = self._segments.from_offset(slice_.offset)
                if segment is None or segment.base_offset > slice_.offset:
                    raise self._out_of_range(slice_.offset, segment.base_offset if segment else 0, slice_.end_offset)
                slice_.segment, slice_.position = segment, -1
            data = await self._in_thread(segment, partial(_read, slice_, self._history()))
            if data is not None:
                return data
            segment = self._segments.after(segment)
            if segment is not None:
                slice_.segment, slice_.position = segment, -1
        return _NOTHING

    async def offset_for_timestamp(self, timestamp: int, start: int, end_offset: int) -> TimestampOffset | None:
        """Returns the earliest record from `start` on and before `end_offset` that is as late as `timestamp`."""
        segment = self._segments.from_offset(start)
        while segment is not None and segment.base_offset < end_offset:
            if segment.max_timestamp >= timestamp or segment.lost_tail:
                search = partial(_search_time, segment, timestamp, start, end_offset, self._history())
                found = await self._in_thread(segment, search)
                if found is not None:
                    return found
            segment = self._segments.from_offset(segment.end_offset)
        return None

    async def max_timestamp_offset(self, start: int, end_offset: int) -> TimestampOffset | None:
        """Returns the first record that has the greatest timestamp of all before `end_offset`."""
        best: TimestampOffset | None = None
        segment = self._segments.from_offset(start)
        while segment is not None and segment.base_offset < end_offset:
            if best is None or segment.max_timestamp > best.timestamp:
                found = await self._in_thread(segment, partial(_latest, segment, start, end_offset, self._history()))
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
    """Finds position and length. Returns False if the offset is in no batch of this segment (look in the next one),
    None if there is nothing for this request. Without `fd` it runs on the loop and raises WouldBlock instead of
    waiting."""
    segment = slice_.segment
    if segment.damage.positions and fd is None:
        segment.look_again()
    if segment.damage.unsound:
        raise segment.damage.error(0)
    position, base_offset = segment.place_of(slice_.offset, fd)
    size = segment.size
    if position >= size:
        if segment.lost_tail:
            raise segment.damage.error(size)
        return False
    limit = size if slice_.end_offset >= segment.end_offset else segment.place_of(slice_.end_offset, fd)[0]
    if position >= limit:
        return None
    if segment.damage.positions:
        limit = min(limit, segment.damage.next_from(position, size))
        if limit == position:
            raise segment.damage.error(position)
    end = position + slice_.max_bytes
    if end >= limit:
        end = limit
    else:
        end = segment.boundary(end)
        if end <= position:
            end = _end_of_first(segment, position, base_offset, limit, slice_, fd)
            if end == position:
                return None
    slice_.position = position
    slice_.length = end - position
    slice_.base_offset = base_offset
    return True


def _end_of_first(
    segment: Segment, position: int, base_offset: int, limit: int, slice_: FileSlice, fd: int | None
) -> int:
    """Returns where to end if no index entry lies within `max_bytes` after `position`. It also looks at the header of
    the batch after the last one, which shows that the length of the last one is right."""
    header = segment.header_at(position, fd, expected=base_offset)
    if header.size > slice_.max_bytes and not slice_.min_one:
        return position
    last, end = position, position + header.size
    while end < segment.size and end not in segment.damage.positions:
        header = segment.header_at(end, fd, expected=header.last_offset + 1, before=last)
        if end >= limit or end + header.size - position > slice_.max_bytes:
            break
        last, end = end, end + header.size
    return end


def _read(slice_: FileSlice, history: History, fd: int) -> memoryview | None:
    """Returns the bytes. None: look in the next segment."""
    if slice_.position < 0:
        state = _place(slice_, fd)
        if state is False:
            return None
        if state is None:
            return _NOTHING
    return read_checked(slice_.segment, fd, slice_.position, slice_.length, slice_.base_offset, history)


def _batches(
    segment: Segment, start: int, end_offset: int, history: History, fd: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yields the batches from the one that holds `start` on that begin before `end_offset`, each checked."""
    prove(segment, fd, history)
    position, base_offset = segment.place_of(start, fd)
    before = -1
    while position < segment.size and base_offset < end_offset:
        if segment.damage.unsound or position in segment.damage.positions:
            raise segment.damage.error(position)
        header = segment.header_at(position, fd, expected=base_offset, before=before)
        if header.base_offset >= end_offset:
            return
        yield header, read_checked(segment, fd, position, header.size, header.base_offset, history)
        before = position
        position += header.size
        base_offset = header.last_offset + 1
    if segment.lost_tail and base_offset < end_offset:
        raise segment.damage.error(segment.size)


def _search_time(
    segment: Segment, timestamp: int, start: int, end_offset: int, history: History, fd: int
) -> TimestampOffset | None:
    index = segment.load_index(fd)
    first = max(start, segment.base_offset + index.before_time(timestamp))
    for header, batch in _batches(segment, first, end_offset, history, fd):
        if header.max_timestamp >= timestamp and not header.is_control:
            found = _first_as_late(segment, header, batch, timestamp, start)
            if found is not None:
                return found if found.offset < end_offset else None
    return None


def _latest(segment: Segment, start: int, end_offset: int, history: History, fd: int) -> TimestampOffset | None:
    whole = start <= segment.base_offset and end_offset >= segment.end_offset
    best: TimestampOffset | None = None
    first = segment.max_timestamp_offset if whole else start
    for header, batch in _batches(segment, first, end_offset, history, fd):
        if not header.is_control and (best is None or header.max_timestamp > best.timestamp):
            records = [record for record in _records(segment, header, batch) if record.offset >= start]
            latest = max(records, key=lambda record: record.timestamp, default=None)
            if latest is not None and (best is None or latest.timestamp > best.timestamp):
                best = TimestampOffset(latest.timestamp, Offset(latest.offset), LeaderEpoch(header.leader_epoch))
        if whole and best is not None and best.timestamp == segment.max_timestamp:
            break
    return best


def _first_as_late(
    segment: Segment, header: BatchHeader, batch: memoryview, timestamp: int, start: int
) -> TimestampOffset | None:
    for record in _records(segment, header, batch):
        if record.timestamp >= timestamp and record.offset >= start:
            return TimestampOffset(record.timestamp, Offset(record.offset), LeaderEpoch(header.leader_epoch))
    return None


def _records(segment: Segment, header: BatchHeader, batch: memoryview) -> list[Record]:
    try:
        return decode_records(batch)
    except CorruptBatch as error:
        raise CorruptLog(f"the batch at offset {header.base_offset}: {error}", where=segment.path) from error

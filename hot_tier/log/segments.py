"""The segments of one log in offset order; the last one is active. Finding the segment of an offset is O(log n)."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from hot_tier.log.segment import Segment
from hot_tier.log.segment_info import SegmentInfo


class SegmentList:
    def __init__(self, segments: Sequence[Segment] = ()) -> None:
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in segments]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, index: int) -> Segment:
        return self._segments[index]

    @property
    def active(self) -> Segment | None:
        return self._segments[-1] if self._segments else None

    # What they are

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def infos(self) -> list[SegmentInfo]:
        return [segment.info() for segment in self._segments]

    def sealed(self) -> list[SegmentInfo]:
        """Returns the closed and synced segments, oldest first."""
        return [segment.info() for segment in self._segments if segment.seal_written]

    def damaged(self) -> list[SegmentInfo]:
        """Returns the closed and synced segments that are known to be damaged."""
        return [segment.info() for segment in self._segments if segment.damage.what and segment.seal_written]

    def known_damage(self) -> list[str]:
        """Returns what is wrong with the files, also with the active one, whether readers have met it or not."""
        return [f"{segment.path}, {segment.damage.what}" for segment in self._segments if segment.damage.what]

    def note_damage(self, info: SegmentInfo, what: str) -> None:
        """Notes damage, unless the file has been mended since it was found."""
        segment = self.as_it_was(info)
        if segment is not None and segment.renewals == info.renewals:
            segment.damage.what = segment.damage.what or what

    # Finding

    def holding(self, offset: int) -> Segment:
        """Returns the segment whose range holds `offset`, or the first one for an offset before it."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0)]

    def after(self, segment: Segment) -> Segment | None:
        at = bisect_right(self._bases, segment.base_offset)
        return self._segments[at] if at < len(self._segments) else None

    def from_offset(self, offset: int) -> Segment | None:
        """Returns the first segment that ends after `offset`."""
        if not self._segments:
            return None
        segment = self.holding(offset)
        return segment if segment.end_offset > offset else self.after(segment)

    def as_it_was(self, info: SegmentInfo) -> Segment | None:
        """Returns the closed segment that holds what `info` says."""
        for segment in self._segments:
            if segment.base_offset == info.base_offset:
                return segment if segment.seal_written and segment.info().contents == info.contents else None
        return None

    def sealed_below(self, offset: int) -> int:
        """Returns how many of the oldest segments are closed, synced and wholly below `offset`."""
        count = 0
        for segment in self._segments:
            if not segment.seal_written or segment.end_offset > offset:
                break
            count += 1
        return count

    def gaps_below(self, offset: int, last: Segment) -> int:
        """Returns the end of the last segment with gaps from the one of `offset` up to `last`; 0: there is none."""
        end = 0
        segment: Segment | None = self.holding(offset)
        while segment is not None and segment.base_offset <= last.base_offset:
            if not segment.dense:
                end = segment.end_offset
            segment = self.after(segment)
        return end

    # Changing

    def append(self, segment: Segment) -> None:
        assert not self._bases or segment.base_offset > self._bases[-1]
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def drop_oldest(self, count: int) -> list[Segment]:
        dropped = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        return dropped

    def drop_from(self, base_offset: int) -> list[Segment]:
        """Removes the segments whose base offset is at or above `base_offset`."""
        keep = bisect_right(self._bases, base_offset - 1)
        dropped = self._segments[keep:]
        del self._segments[keep:], self._bases[keep:]
        return dropped

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Puts `new` in the place of neighbours that start where it starts."""
        at = self._segments.index(old[0])
        assert self._segments[at : at + len(old)] == list(old)
        assert new.base_offset == old[0].base_offset
        self._segments[at : at + len(old)] = [new]
        self._bases[at : at + len(old)] = [new.base_offset]

"""What was acknowledged, and the one check of what readers get."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from hot_tier.errors import CorruptBatch, OffsetOutOfRange, TierlogError
from hot_tier.record.batch import iter_headers
from hot_tier.record.records import Record, decode_records

Read = tuple[int, list[Record]]
"""A leader epoch, and the records of a batch."""
Fetch = Callable[[int], Awaitable[bytes | memoryview]]
"""Whole batches from the one on that holds an offset."""


class Wrong(AssertionError):
    """A reader was given something else than what was written, or not told that something is missing."""


def read_batches(data: bytes | memoryview, offset: int) -> tuple[list[Read], int]:
    """The records from `offset` on, and where the next read goes on. Many clients check no CRC: what they are given is
    right."""
    found: list[Read] = []
    end = offset
    try:
        for position, header in iter_headers(data):
            records = decode_records(data[position : position + header.size], from_offset=offset)
            found.append((header.leader_epoch, records))
            end = header.end_offset
    except CorruptBatch as error:
        raise Wrong(f"offset {end}: the bytes are not what was written: {error}") from error
    return found, end


@dataclass
class Model:
    records: dict[int, Record] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    """By offset; empty where the way of the records keeps no leader epochs."""
    acked_end: int = 0
    """Below it everything was acknowledged. What lies behind it may be gone, and may not be wrong."""

    def note(self, reads: Iterable[Read]) -> None:
        for epoch, records in reads:
            self.records.update({record.offset: record for record in records})
            self.epochs.update({record.offset: epoch for record in records})

    def forget_behind(self, end_offset: int) -> None:
        """The log ends here, and new records take the place of those that it lost, which nobody was promised."""
        assert end_offset >= self.acked_end
        self.records = {at: record for at, record in self.records.items() if at < end_offset}

    def latest(self) -> dict[int, Record]:
        """What compaction must keep: the latest record of each key."""
        newest = {record.key: record for record in sorted(self.records.values())}
        return {record.offset: record for record in newest.values()}

    async def check(
        self,
        fetch: Fetch,
        end_offset: int,
        *,
        must: Mapping[int, Record] | None = None,
        starts: Iterable[int] | None = None,
        on: Callable[[int], bool] = lambda start: True,
        whole: bool = False,
    ) -> int:
        """Reads up to `end_offset` from each of `starts`, beyond the first answer where `on` says so. Returns how many
        of them ended in an error; where all is `whole`, none may."""
        if end_offset < self.acked_end:
            raise Wrong(f"the log ends at {end_offset}, and all below {self.acked_end} was acknowledged")
        errors = 0
        for start in range(end_offset) if starts is None else starts:
            reads: list[Read] = []
            at = start
            try:
                while at < end_offset:
                    part, end = read_batches(await fetch(at), at)
                    if end <= at:
                        raise Wrong(f"offset {at}: nothing, and the log ends at {end_offset}")
                    reads, at = reads + part, end
                    if not on(start):
                        break
            except TierlogError as error:
                if whole or isinstance(error, OffsetOutOfRange):
                    raise Wrong(f"offset {at} is lost: {error}") from error
                errors += 1
            self._expect(start, at, reads, self.records if must is None else must)
        return errors

    def _expect(self, start: int, end: int, reads: list[Read], must: Mapping[int, Record]) -> None:
        """A reader got `reads` from `start` to `end` without an error."""
        found = {record.offset: (epoch, record) for epoch, records in reads for record in records}
        for at, (epoch, record) in found.items():
            if self.records.get(at) != record:
                raise Wrong(f"offset {at}: {record} instead of {self.records.get(at)}")
            if self.epochs and self.epochs[at] != epoch:
                raise Wrong(f"offset {at}: epoch {epoch}, not {self.epochs[at]}")
        left_out = [at for at in must if start <= at < end and at not in found]
        if left_out:
            raise Wrong(f"read from {start} to {end} without an error, and {left_out[:5]} are left out")

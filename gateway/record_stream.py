"""The stored batches of one partition, chunk by chunk, as records or columns.

It wraps the reader of both tiers for callers that want records rather than bytes. If a batch cannot be decoded, the log
is damaged, and CorruptLog is raised; damage is never reported as the end of the log.
"""

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Final, NamedTuple, TypeVar

from gateway.fetch.reader import Isolation
from gateway.node import Node
from gateway.off_loop import ON_LOOP, ON_LOOP_BYTES, in_thread
from hot_tier.errors import BatchTooLarge, CorruptBatch, CorruptLog, UnsupportedBatch
from hot_tier.log.visibility import without_aborted
from hot_tier.record.batch import ReadBuffer, iter_headers
from hot_tier.record.columns import MAX_COLUMNS_BYTES, RecordColumns, decode_batches
from hot_tier.record.records import Headers, Record, decode_records
from hot_tier.replication.led_partition import LedPartition

CHUNK_BYTES: Final = 256 * 1024
FEW_RECORDS: Final = 20
"""Up to this number of records, plain Python is faster than columns."""

T = TypeVar("T")


class Chunk(NamedTuple):
    """Whole batches. The caller asked for their records from `from_offset` to `end_offset`."""

    buffer: ReadBuffer
    from_offset: int
    end_offset: int
    next_offset: int
    """Where the next chunk begins: after the last batch, even if compaction has emptied that batch."""
    record_count: int

    async def records(self, max_records: int | None = None) -> list[Record]:
        """Returns the first `max_records` records, or all of them."""
        wanted = self.record_count if max_records is None else min(self.record_count, max_records)

        def decode(most_bytes: int) -> list[Record]:
            if wanted <= FEW_RECORDS:
                return decode_records(
                    self.buffer,
                    from_offset=self.from_offset,
                    end_offset=self.end_offset,
                    max_records=max_records,
                    max_decompressed_bytes=most_bytes,
                )
            columns = self._columns(most_bytes)
            return records_of(columns if max_records is None else columns.slice(0, min(max_records, len(columns))))

        return await self._decode(decode, wanted)

    async def columns(self) -> RecordColumns:
        return await self._decode(self._columns, self.record_count)

    def decode(self) -> RecordColumns:
        """Returns the same, for a process that may take its time."""
        try:
            return self._columns(MAX_COLUMNS_BYTES)
        except (CorruptBatch, UnsupportedBatch, BatchTooLarge) as error:
            raise CorruptLog(error.what, where=error.where) from None

    def _columns(self, most_bytes: int) -> RecordColumns:
        return decode_batches(
            self.buffer,
            from_offset=self.from_offset,
            end_offset=self.end_offset,
            max_decompressed_bytes=most_bytes,
        )

    async def _decode(self, decode: Callable[[int], T], wanted: int) -> T:
        try:
            if wanted <= ON_LOOP:
                try:
                    return decode(ON_LOOP_BYTES)
                except BatchTooLarge:
                    pass
            return await in_thread(decode, MAX_COLUMNS_BYTES)
        except (CorruptBatch, UnsupportedBatch, BatchTooLarge) as error:
            raise CorruptLog(error.what, where=error.where) from None


def records_of(columns: RecordColumns) -> list[Record]:
    headers: Iterable[Headers]
    if columns.headers.null_count == len(columns):
        headers = repeat((), len(columns))
    else:
        headers = [
            () if each is None else tuple((header["key"], header["value"]) for header in each)
            for each in columns.headers.to_pylist()
        ]
    return list(
        map(
            Record,
            columns.offsets.tolist(),
            columns.timestamps.tolist(),
            columns.timestamp_types.tolist(),
            columns.keys.to_pylist(),
            columns.values.to_pylist(),
            headers,
        )
    )


class RecordStream:
    """Reads from `position` to `end_offset`, and not beyond what `isolation` lets a reader see. Records of aborted
    transactions are left out, unless it is READ_UNCOMMITTED."""

    def __init__(
        self,
        node: Node,
        partition: LedPartition,
        start: int,
        end_offset: int,
        *,
        max_bytes: int | None = None,
        isolation: Isolation = Isolation.READ_COMMITTED,
    ) -> None:
        """The stream stops before a batch that would exceed `max_bytes`, unless that batch is the first."""
        self._reader = node.reader
        self._partition = partition
        self._max_bytes = max_bytes
        self._isolation = isolation
        self.position = start
        self.end_offset = end_offset
        self.read_bytes = 0

    async def next(self, chunk_bytes: int = CHUNK_BYTES) -> Chunk | None:
        """Returns about `chunk_bytes` of batches, at least one batch; None at the end or when `max_bytes` is reached.

        A chunk ends before the first damaged batch. If the next batch is damaged, it raises CorruptLog.
        """
        if self.position >= self.end_offset:
            return None
        room = None if self._max_bytes is None else self._max_bytes - self.read_bytes
        located = self._reader.locate(
            self._partition,
            self.position,
            chunk_bytes if room is None else max(1, min(chunk_bytes, room)),
            self._isolation,
        )
        if located.found is None or (room is not None and self.read_bytes and located.size > room):
            return None
        fetched = self._reader.take_now(located) or await self._reader.take(located)
        chunk = self._whole_batches(memoryview(fetched.records))
        self.position = chunk.next_offset
        self.read_bytes += len(chunk.buffer)
        if fetched.aborted:
            return chunk._replace(buffer=without_aborted(chunk.buffer, fetched.aborted))
        return chunk

    def _whole_batches(self, buffer: memoryview) -> Chunk:
        next_offset = self.position
        size = count = 0
        for position, header in iter_headers(buffer):
            size = position + header.size
            if header.end_offset > self.position:
                next_offset = header.end_offset
                count += header.record_count
        if next_offset == self.position:
            raise CorruptLog(
                "no whole batch where one should be", where=f"{self._partition.tp}, offset {self.position}"
            )
        return Chunk(buffer[:size], self.position, self.end_offset, min(next_offset, self.end_offset), count)

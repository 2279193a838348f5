"""Finds the newest records with a key, partition by partition, from the newest offset to older ones."""

import heapq
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cold_tier.format.columns import decode_columns
from cold_tier.format.read import SegmentReader
from cold_tier.format.schema import row_schema
from cold_tier.manifest.model import SegmentEntry
from gateway.sql.extents import Extent, border
from gateway.sql.jobs import FindJob
from gateway.sql.table import Context, ahead

WINDOW: Final = 64
"""Files whose filters are asked at once."""
NAMES: Final = row_schema().names

Row = dict[str, Any]


def find(context: Context, job: FindJob) -> tuple[list[Row], bool, dict[str, int]]:
    """Returns the records, newest first, whether there are no older ones, and what was searched.

    Within a partition the order is that of the offsets. Records of several partitions are merged by their times.
    """
    unfiltered = 0
    found: list[list[Row]] = []
    complete = True
    for extent in job.extents.extents:
        search = _Search(context, job, extent)
        rows = [{**row, "partition": extent.partition} for row in search.newest(job.limit + 1)]
        complete = complete and len(rows) <= job.limit
        unfiltered += search.without_filter
        found.append(rows)
    merged = list(heapq.merge(*found, key=lambda row: row["timestamp"], reverse=True))
    complete = complete and len(merged) <= job.limit
    searched = {"partitions": len(found), "files_without_filter": unfiltered}
    return merged[: job.limit], complete, searched


class _Search:
    def __init__(self, context: Context, job: FindJob, extent: Extent) -> None:
        self._context = context
        self._job = job
        self._extent = extent
        self.without_filter = 0

    def newest(self, limit: int) -> list[Row]:
        extent, files = self._extent, self._context.files
        if extent.end_offset <= extent.start_offset:
            return []
        manifest = files.start(files.manifest(extent)).result()
        end = extent.start_offset if manifest is None else border(extent, manifest.snapshot)
        rows = self._hot(end, limit)
        if manifest is None or len(rows) == limit:
            return rows
        segments = files.start(files.segments(manifest, extent.start_offset, end)).result()
        wanted = [each for each in reversed(segments) if self._in_time(each.min_timestamp_ms, each.max_timestamp_ms)]
        self._context.scanned.files_skipped += len(segments) - len(wanted)
        for segment, reader, numbers in ahead(wanted, self._ask, WINDOW):
            self._context.check()
            self._context.scanned.files += bool(numbers)
            self._context.scanned.files_skipped += not numbers
            for number in sorted(numbers, reverse=True):
                rows += self._in_group(segment, reader, number, end, limit - len(rows))
                if len(rows) == limit:
                    return rows
        return rows

    def _ask(self, segment: SegmentEntry) -> "Future[tuple[SegmentEntry, SegmentReader, list[int]]]":
        return self._context.files.start(self._may_hold(segment))

    async def _may_hold(self, segment: SegmentEntry) -> tuple[SegmentEntry, SegmentReader, list[int]]:
        files = self._context.files
        reader = await files.open(self._extent, segment)
        groups = reader.index.row_groups
        found = await files.key_groups(self._extent, segment, reader, self._job.key)
        if found is None:
            self.without_filter += 1
        numbers = range(len(groups)) if found is None else found
        in_time = [n for n in numbers if self._in_time(groups[n].min_timestamp_ms, groups[n].max_timestamp_ms)]
        return segment, reader, in_time

    def _in_group(self, segment: SegmentEntry, reader: SegmentReader, number: int, end: int, limit: int) -> list[Row]:
        keys = self._read(segment, reader, number, ["offset", "timestamp", "key"])
        self._context.scanned.archived_rows += keys.num_rows
        places = self._matching(keys, self._extent.start_offset, end)[-limit:]
        if not len(places):
            return []
        whole = self._read(segment, reader, number, NAMES)
        return _rows(whole.take(pa.array(places)))

    def _read(self, segment: SegmentEntry, reader: SegmentReader, number: int, names: list[str]) -> pa.Table:
        files = self._context.files
        parts = files.start(files.read(self._extent, segment, reader, number, names)).result()
        return decode_columns(reader, number, names, parts)

    def _hot(self, start: int, limit: int) -> list[Row]:
        rows: list[Row] = []
        for table in self._hot_tables(start):
            self._context.check()
            self._context.scanned.hot_rows += table.num_rows
            places = self._matching(table, start, self._extent.end_offset)
            if len(places):
                rows = [*_rows(table.take(pa.array(places[-limit:]))), *rows][:limit]
        return rows

    def _hot_tables(self, start: int) -> Iterator[pa.Table]:
        end = self._extent.end_offset
        return self._context.hot(self._extent, start, end) if start < end else iter(())

    def _matching(self, table: pa.Table, start: int, end: int) -> Any:
        offsets = table.column("offset").to_numpy()
        stamps = table.column("timestamp").cast(pa.int64()).to_numpy()
        same: Any = pc.equal(table.column("key"), pa.scalar(self._job.key, pa.binary()))
        wanted = same.fill_null(False).to_numpy() & (offsets >= start) & (offsets < end)
        if self._job.from_ms is not None:
            wanted &= stamps >= self._job.from_ms * 1000
        if self._job.to_ms is not None:
            wanted &= stamps < self._job.to_ms * 1000
        return np.flatnonzero(wanted)

    def _in_time(self, least_ms: int, most_ms: int) -> bool:
        after = self._job.from_ms is None or most_ms >= self._job.from_ms
        return after and (self._job.to_ms is None or least_ms < self._job.to_ms)


def _rows(table: pa.Table) -> list[Row]:
    """Returns the rows, newest first."""
    stamps: list[Any] = table.column("timestamp").cast(pa.int64()).to_pylist()
    rows = table.drop_columns(["timestamp"]).to_pylist()
    return [{**row, "timestamp": stamp // 1000} for row, stamp in zip(reversed(rows), reversed(stamps), strict=True)]

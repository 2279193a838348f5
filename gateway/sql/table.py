"""A topic as a table of DuckDB: it asks with columns and a filter, and gets record batches in the order of offsets.

The filter is applied here to every row, since DuckDB relies on it. Parts that it excludes are not read: pages and
segments of the manifest, row groups, and blocks of offsets of the hot part. Bytes are fetched and decoded ahead in a
few threads, while DuckDB works on what came before.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from cold_tier.format.columns import decode_columns
from cold_tier.format.read import SegmentReader
from cold_tier.manifest.model import Part, SegmentEntry
from gateway.sql.archive_files import ArchiveFiles
from gateway.sql.extents import Extent, TopicExtents, border
from gateway.sql.prune import Known, always_true, columns_of, key_asked_for, survivors, table_schema

T = TypeVar("T")
R = TypeVar("R")

HOT_BLOCK: Final = 100_000
"""The hot part is pruned in steps of so many offsets."""
WINDOW: Final = 32
"""So many files are opened at once."""

_Opened = tuple[SegmentEntry, SegmentReader | None, list[int]]
"""A file, its reader (None if its rows are only counted), and the row groups that may hold the key asked for."""
HotTables = Callable[[Extent, int, int], Iterator[pa.Table]]
"""Yields the records of a partition between two offsets, from its leader, with the columns of the archive."""


@dataclass(slots=True)
class Scanned:
    files: int = 0
    files_skipped: int = 0
    archived_rows: int = 0
    hot_rows: int = 0
    not_text: int = 0
    """Keys and values that are not UTF-8, in tables that show them as text."""


class Cancelled(Exception):
    """The job is to end."""


@dataclass(slots=True)
class Context:
    """What the scans of one job share."""

    files: ArchiveFiles
    hot: HotTables
    threads: ThreadPoolExecutor
    ahead: int
    scanned: Scanned = field(default_factory=Scanned)
    cancelled: Callable[[], bool] = lambda: False
    failure: BaseException | None = None
    """What ended a scan. DuckDB keeps only its text."""

    def check(self) -> None:
        if self.cancelled():
            raise Cancelled


class Plan(NamedTuple):
    """What a scan would read of one partition."""

    extent: Extent
    segments: list[SegmentEntry]
    hot: tuple[int, int] | None
    border: int
    skipped: int
    """Files that the filter excludes."""


class _Group(NamedTuple):
    segment: SegmentEntry
    reader: SegmentReader
    number: int
    known: Known


class _Counted(NamedTuple):
    """Rows of whole segments that are counted, and nothing of them is read."""

    rows: int


_Dataset: Any = ds.InMemoryDataset


class TopicTable(_Dataset):  # type: ignore[misc]
    """A dataset by name only: DuckDB asks for `scanner`, and nothing else of a dataset is used."""

    def __init__(self, extents: TopicExtents, context: Context, *, raw: bool) -> None:
        self._columns = table_schema(raw=raw)
        super().__init__(self._columns.empty_table(), self._columns)
        self.topic = extents
        self._context = context
        self._raw = raw
        self.plans: list[Plan] | None = None
        """Set instead of reading, if `dry`."""
        self.dry = False

    def scanner(self, columns: Any = None, filter: Any = None, **_: Any) -> "Scan":  # noqa: A002
        names = self._columns.names if columns is None else list(columns)
        schema = pa.schema([self._columns.field(name) for name in names])
        plans = plan(self._context, self.topic, filter, self._columns)
        if self.dry:
            self.plans = [*(self.plans or ()), *plans]
            return Scan(schema, iter(()))
        return Scan(schema, self._batches(plans, schema, filter))

    def _batches(
        self, plans: list[Plan], schema: pa.Schema, condition: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        needed = {*schema.names, *columns_of(condition, self._columns)}
        try:
            for each in plans:
                for table in self._tables(each, needed, condition):
                    self._context.check()
                    yield from table.select(schema.names).to_batches()
        except Exception as error:
            self._context.failure = self._context.failure or error
            raise

    def _tables(self, part: Plan, needed: set[str], condition: pc.Expression | None) -> Iterator[pa.Table]:
        context, extent = self._context, part.extent
        names = [name for name in self._columns.names if name in needed]

        def decode(group: _Group | _Counted) -> pa.Table:
            if isinstance(group, _Counted):
                return _counted(extent, group.rows)
            inside = extent.start_offset <= group.known.base_offset and group.known.end_offset <= part.border
            read = [name for name in names if name != "partition"]
            rows = group.reader.index.row_groups[group.number].rows
            if not read and inside and always_true(group.known, condition, self._columns):
                return _counted(extent, rows)
            if not read or (not inside and "offset" not in read):
                read = ["offset", *read]
            fetched = context.files.start(
                context.files.read(extent, group.segment, group.reader, group.number, read)
            ).result()
            table = decode_columns(group.reader, group.number, read, fetched)
            if not inside:
                offset = pc.field("offset")
                table = table.filter((offset >= extent.start_offset) & (offset < part.border))
            return self._finish(table, extent, names, condition)

        groups = self._groups(part, needed, condition)
        for table in ahead(groups, lambda group: context.threads.submit(decode, group), context.ahead):
            context.scanned.archived_rows += table.num_rows
            yield table
        if part.hot is not None:
            for table in context.hot(extent, *part.hot):
                context.scanned.hot_rows += table.num_rows
                yield self._finish(table, extent, names, condition)

    def _finish(self, table: pa.Table, extent: Extent, names: list[str], condition: pc.Expression | None) -> pa.Table:
        arrays: list[Any] = []
        for name in names:
            if name == "partition":
                arrays.append(pa.array(np.full(table.num_rows, extent.partition, np.int32)))
            elif name in ("key", "value") and not self._raw:
                arrays.append(self._text(table.column(name)))
            else:
                arrays.append(table.column(name).cast(self._columns.field(name).type))
        made = pa.table(arrays, schema=pa.schema([self._columns.field(name) for name in names]))
        return made if condition is None else made.filter(condition)

    def _text(self, column: Any) -> Any:
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            pass
        texts = [_decoded(each) for each in column.to_pylist()]
        made = pa.chunked_array([pa.array(texts, pa.string())])
        self._context.scanned.not_text += made.null_count - column.null_count
        return made

    def _groups(self, part: Plan, needed: set[str], condition: pc.Expression | None) -> Iterator[_Group | _Counted]:
        context, extent = self._context, part.extent
        key = key_asked_for(condition, self._columns)
        counted = needed == {"partition"}
        windows = (part.segments[start : start + WINDOW] for start in range(0, len(part.segments), WINDOW))

        def open_(segments: list[SegmentEntry]) -> "Future[list[_Opened]]":
            countable = [
                counted
                and extent.start_offset <= each.base_offset
                and each.end_offset <= part.border
                and always_true(_known(extent, each), condition, self._columns)
                for each in segments
            ]
            return context.files.start(_open(context.files, extent, segments, countable, key))

        for window in ahead(windows, open_, 2):
            counted_rows = [segment.rows for segment, reader, _ in window if reader is None]
            if counted_rows:
                context.scanned.files += len(counted_rows)
                yield _Counted(sum(counted_rows))
            for segment, reader, numbers in window:
                if reader is None:
                    continue
                known = _row_groups(extent, reader)
                if len(numbers) > 1:  # What is known of a single one is known of the file.
                    alive = survivors([known[number] for number in numbers], condition, self._columns)
                    numbers = [numbers[position] for position in alive]
                context.scanned.files += bool(numbers)
                context.scanned.files_skipped += not numbers
                yield from (_Group(segment, reader, number, known[number]) for number in numbers)


class Scan:
    """What DuckDB takes for a scanner."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.projected_schema = schema
        self._batches = batches

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches)


def plan(context: Context, topic: TopicExtents, condition: pc.Expression | None, schema: pa.Schema) -> list[Plan]:
    extents = [each for each in topic.extents if each.start_offset < each.end_offset]
    whole = [Known(each.partition, each.start_offset, each.end_offset) for each in extents]
    plans = [_plan(context, extents[number], condition, schema) for number in survivors(whole, condition, schema)]
    context.scanned.files_skipped += sum(each.skipped for each in plans)
    return plans


def _plan(context: Context, extent: Extent, condition: pc.Expression | None, schema: pa.Schema) -> Plan:
    files = context.files
    manifest = files.start(files.manifest(extent)).result()
    start = end = extent.start_offset
    segments: list[SegmentEntry] = []
    skipped = 0
    if manifest is not None:
        end = border(extent, manifest.snapshot)
        parts = [each for each in manifest.snapshot.parts if each.base_offset < end and start < each.end_offset]
        for number in survivors([_known(extent, each) for each in parts], condition, schema):
            part = parts[number]
            if isinstance(part, SegmentEntry):  # It is in the snapshot: a turn of the loop for each would take 50 µs.
                segments += [part] if part.rows else []
            else:
                low, high = max(part.base_offset, start), min(part.end_offset, end)
                segments += files.start(files.segments(manifest, low, high)).result()
        segments = [segments[n] for n in survivors([_known(extent, each) for each in segments], condition, schema)]
        skipped = manifest.snapshot.segments - len(segments)
    return Plan(extent, segments, _hot_range(extent, end, condition, schema), end, skipped)


def _hot_range(
    extent: Extent, start: int, condition: pc.Expression | None, schema: pa.Schema
) -> tuple[int, int] | None:
    if start >= extent.end_offset:
        return None
    step = max(HOT_BLOCK, (extent.end_offset - start) // 1_000)
    blocks = [
        Known(extent.partition, first, min(first + step, extent.end_offset))
        for first in range(start, extent.end_offset, step)
    ]
    alive = survivors(blocks, condition, schema)
    return (blocks[alive[0]].base_offset, blocks[alive[-1]].end_offset) if alive else None


def _known(extent: Extent, part: Part) -> Known:
    if not part.rows:
        return Known(extent.partition, part.base_offset, part.end_offset)
    return Known(extent.partition, part.base_offset, part.end_offset, part.min_timestamp_ms, part.max_timestamp_ms)


def _row_groups(extent: Extent, reader: SegmentReader) -> list[Known]:
    return [
        Known(extent.partition, group.first_offset, group.end_offset, group.min_timestamp_ms, group.max_timestamp_ms)
        for group in reader.index.row_groups
    ]


def _counted(extent: Extent, rows: int) -> pa.Table:
    return pa.table({"partition": pa.array(np.full(rows, extent.partition, np.int32))})


async def _open(
    files: ArchiveFiles, extent: Extent, segments: list[SegmentEntry], countable: list[bool], key: bytes | None
) -> list[_Opened]:
    async def open_one(segment: SegmentEntry) -> _Opened:
        reader = await files.open(extent, segment)
        numbers = None if key is None else await files.key_groups(extent, segment, reader, key)
        return segment, reader, list(range(len(reader.index.row_groups))) if numbers is None else numbers

    async def count(segment: SegmentEntry) -> _Opened:
        return segment, None, []

    chosen = zip(segments, countable, strict=True)
    return await asyncio.gather(*(count(each) if only else open_one(each) for each, only in chosen))


def _decoded(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def ahead(items: Iterable[T], start: "Callable[[T], Future[R]]", window: int) -> Iterator[R]:
    """Yields what each started work returns, in order, with up to `window` of them begun."""
    begun: deque[Future[R]] = deque()
    try:
        for item in items:
            begun.append(start(item))
            if len(begun) >= window:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        for each in begun:
            each.cancel()

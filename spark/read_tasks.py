"""Reads one task of the Python source: archived segments, checked against their indexes, or a range of the hot tail.

Both give Arrow batches with the columns of Spark's Kafka source. Bytes are compared with the checksums in the manifest
and the index, so damage is an error that names the object, never a wrong row.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cold_tier.errors import CorruptObject, ObjectMissing
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import SegmentEntry
from cold_tier.objects.open import StoreSettings, open_store
from spark.gateway import Gateway, hot_batches
from spark.options import ReadOptions
from spark.plan import Plan

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

SCHEMA: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", ArrayType(_HEADER)),
    ]
)
"""The columns of Spark's Kafka source with includeHeaders."""

TASK_BYTES: Final = 64 << 20
"""The compressed bytes of archived rows in one task, as far as segments can be grouped."""


def schema_of(options: ReadOptions) -> StructType:
    return SCHEMA if options.include_headers else StructType(SCHEMA.fields[:-1])


@dataclass(frozen=True, slots=True)
class ArchivedPiece:
    layout: PartitionLayout
    segment: SegmentEntry
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class HotPiece:
    gateway: Gateway
    topic: str
    partition: int
    start: int
    end: int


class Task(InputPartition):
    def __init__(self, pieces: Sequence[ArchivedPiece | HotPiece]) -> None:
        super().__init__(None)
        self.pieces = tuple(pieces)


def tasks(plan: Plan, options: ReadOptions) -> list[Task]:
    archived = [
        ArchivedPiece(each.layout, segment, each.start, min(each.end, each.archived_end))
        for each in plan.ranges
        if each.layout is not None
        for segment in each.segments
    ]
    total = sum(piece.segment.rows_bytes for piece in archived)
    most = min(TASK_BYTES, max(1, total // options.min_partitions)) if options.min_partitions else TASK_BYTES
    made: list[Task] = []
    group: list[ArchivedPiece] = []
    size = 0
    for piece in archived:
        if group and size + piece.segment.rows_bytes > most:
            made.append(Task(group))
            group, size = [], 0
        group.append(piece)
        size += piece.segment.rows_bytes
    if group:
        made.append(Task(group))
    for each in plan.hot:
        assert options.gateway is not None
        start = max(each.start, each.archived_end)
        made.append(Task([HotPiece(options.gateway, each.topic, each.partition, start, each.end)]))
    return made


def read_task(task: Task, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    wanted = to_arrow_schema(schema_of(options), timezone="UTC")
    for piece in task.pieces:
        if isinstance(piece, HotPiece):
            found: Iterator[pa.RecordBatch] = hot_batches(
                piece.gateway, piece.topic, piece.partition, piece.start, piece.end
            )
            topic, partition = piece.topic, piece.partition
        else:
            found = _archived_batches(options.store, piece, options.from_ms, options.to_ms)
            topic, partition = piece.layout.topic, piece.layout.partition
        for batch in found:
            cut = _within(batch, piece.start, piece.end, options.from_ms, options.to_ms)
            if cut.num_rows:
                yield _shaped(cut, topic, partition, wanted)


def _archived_batches(
    settings: StoreSettings, piece: ArchivedPiece, from_ms: int | None, to_ms: int | None
) -> Iterator[pa.RecordBatch]:
    """Yields the row groups that may hold wanted rows, with one request for each."""
    from cold_tier.format.open import open_segment
    from cold_tier.format.write import to_arrow

    store = open_store(settings)
    with asyncio.Runner() as runner:
        reader = runner.run(open_segment(store, piece.layout, piece.segment))
        rows = piece.layout.rows(piece.segment.name)
        for number, group in enumerate(reader.index.row_groups):
            if (
                group.end_offset <= piece.start
                or group.first_offset >= piece.end
                or (from_ms is not None and group.max_timestamp_ms < from_ms)
                or (to_ms is not None and group.min_timestamp_ms >= to_ms)
            ):
                continue
            try:
                data = runner.run(store.get(rows, group.start, group.length))
            except ObjectMissing as error:
                raise CorruptObject(
                    "the manifest names this object, but it is not there",
                    where=reader.where,
                    hint="a read that outlives the grace period needs a pin: tierlog archive pin",
                ) from error
            yield to_arrow(reader.decode(number, data))
        runner.run(store.close())


def _within(batch: pa.RecordBatch, start: int, end: int, from_ms: int | None, to_ms: int | None) -> pa.RecordBatch:
    offsets, stamps = batch.column("offset"), batch.column("timestamp")
    keep = []
    if offsets[0].as_py() < start:
        keep.append(pc.greater_equal(offsets, pa.scalar(start)))
    if offsets[-1].as_py() >= end:
        keep.append(pc.less(offsets, pa.scalar(end)))
    if from_ms is not None:
        keep.append(pc.greater_equal(stamps, _stamp(from_ms, stamps.type)))
    if to_ms is not None:
        keep.append(pc.less(stamps, _stamp(to_ms, stamps.type)))
    for mask in keep[1:]:
        keep[0] = pc.and_(keep[0], mask)
    return batch.filter(keep[0]) if keep else batch


def _stamp(milliseconds: int, kind: Any) -> Any:
    return pa.scalar(milliseconds * 1000, pa.int64()).cast(kind)


def _shaped(batch: pa.RecordBatch, topic: str, partition: int, wanted: pa.Schema) -> pa.RecordBatch:
    constant = {"topic": topic, "partition": partition}
    columns = [
        pa.repeat(pa.scalar(constant[field.name], field.type), batch.num_rows)
        if field.name in constant
        else batch.column(field.name).cast(field.type)
        for field in wanted
    ]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)

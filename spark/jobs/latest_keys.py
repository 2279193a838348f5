"""Finds the latest record of each key of a partition with Spark, over the whole archived history: compaction by key.

Spark groups keys from the columns `key` and `offset` alone; it reads `value` only if delete markers may go. The result
is the offsets that stay, by segment: 8 bytes a record, sent to the task that rewrites their segments. Records without a
key do not stay, as in the log's own compaction.
"""

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from hot_tier.record.column_decoder import Int64s
from spark.jobs.compaction_plan import PartitionWork
from spark.source import tierlog_read

_NUMBERED: Final = "segment int, offset long"
_MADE: Final = "number int, made binary"


class LatestKeys:
    """The offsets that stay. Segments are numbered in order over all partitions of the topic."""

    def __init__(
        self,
        spark: SparkSession,
        bucket: str,
        work: Sequence[PartitionWork],
        expired_markers: Sequence[bool],
        **options: Any,
    ) -> None:
        """`expired_markers` says for each segment whether its delete markers may go."""
        self._spark = spark
        topic = work[0].layout.topic
        read = tierlog_read(
            spark,
            bucket,
            topic,
            startingOffsets={topic: {str(each.layout.partition): _start(each) for each in work}},
            endingOffsets={topic: {str(each.layout.partition): each.segments[-1].end_offset for each in work}},
            **options,
        )
        wanted = read.where(F.col("partition").isin([int(each.layout.partition) for each in work]))
        # Offset and marker in one number: Spark aggregates numbers in place, but sorts for anything else.
        marker = F.col("value").isNull().cast("long") if any(expired_markers) else F.lit(0)
        latest = (
            wanted.where("key is not null")
            .groupBy("partition", "key")
            .agg(F.max(F.col("offset") * 2 + marker).alias("latest"))
        )
        numbered = _numbering(work, expired_markers)
        self._offsets: DataFrame = latest.select("partition", "latest").mapInArrow(numbered, _NUMBERED)
        self._offsets = self._offsets.persist(StorageLevel.MEMORY_AND_DISK)

    def counts(self) -> dict[int, int]:
        """Returns the number of rows that stay, by segment."""
        return {row["segment"]: row["count"] for row in self._offsets.groupBy("segment").count().collect()}

    def map_groups(self, group_of: Mapping[int, int], work: Callable[[int, Int64s], Any]) -> list[Any]:
        """Calls `work` with each group's number and its sorted offsets, each in its own task. Returns the results."""
        numbers = sorted(set(group_of.values()))
        if not numbers:
            return []
        places = np.full(max(group_of) + 1, -1, np.int32)
        places[list(group_of)] = list(group_of.values())

        def to_groups(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                segments = batch.column(0).to_numpy()
                inside = segments < len(places)
                found = np.where(inside, places[np.where(inside, segments, 0)], -1)
                chosen = found >= 0
                yield pa.RecordBatch.from_arrays(
                    [pa.array(found[chosen]), batch.column(1).filter(pa.array(chosen))], names=["number", "offset"]
                )

        def carry_out(table: pa.Table) -> pa.Table:
            number = table.column("number")[0].as_py()
            offsets = np.sort(table.column("offset").to_numpy())
            made = work(number, offsets[offsets >= 0])
            return pa.table({"number": pa.array([number], pa.int32()), "made": pa.array([pickle.dumps(made)])})

        # A group that keeps no rows needs a task too.
        all_groups = self._spark.createDataFrame([(number, -1) for number in numbers], "number int, offset long")
        grouped = self._offsets.mapInArrow(to_groups, "number int, offset long").union(all_groups)
        # Spark keeps an explicit number of tasks. By size it would put all groups into one task.
        spread = grouped.repartition(len(numbers), "number").groupBy("number").applyInArrow(carry_out, _MADE)
        return [pickle.loads(row["made"]) for row in spread.collect()]

    def close(self) -> None:
        self._offsets.unpersist()


def _start(work: PartitionWork) -> int:
    return max(work.log_start_offset, work.segments[0].base_offset)


def _numbering(
    work: Sequence[PartitionWork], expired_markers: Sequence[bool]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Converts (partition, 2 × offset + marker) to (segment number, offset), without the markers that may go."""
    first = 0
    places: dict[int, tuple[int, Int64s]] = {}
    for each in work:
        places[int(each.layout.partition)] = first, np.array([s.base_offset for s in each.segments], np.int64)
        first += len(each.segments)
    expired = np.array(expired_markers, bool)

    def numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            partitions, latest = batch.column(0).to_numpy(), batch.column(1).to_numpy()
            offsets = latest >> 1
            segments = np.zeros(len(offsets), np.int32)
            for partition in np.unique(partitions):
                here = partitions == partition
                start, bases = places[int(partition)]
                segments[here] = start + np.searchsorted(bases, offsets[here], side="right") - 1
            stays = ~((latest & 1).astype(bool) & expired[segments])
            yield pa.RecordBatch.from_arrays(
                [pa.array(segments[stays]), pa.array(offsets[stays])], names=["segment", "offset"]
            )

    return numbered

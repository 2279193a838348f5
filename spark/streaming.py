"""An archived topic as a stream, with its hot tail on request.

An offset of the stream is the position of each partition, such as `{"orders": {"0": 120, "1": 97}}`, as in Spark's
Kafka source. Spark writes it to the checkpoint before a micro-batch runs. A micro-batch is the rows between two such
offsets, from the tier that has them then. So a batch that is run again gives the same rows, and with a sink that knows
its batches each row arrives once.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from hot_tier.errors import OffsetOutOfRange
from spark.options import EARLIEST, LATEST, ReadOptions
from spark.plan import Place, plan_ranges, read_bounds
from spark.read_tasks import Task, read_task, tasks

Offsets = dict[str, dict[str, int]]


class TierlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._last: dict[Place, int] | None = None
        """Where the query ends, if it was started to read what is available now."""

    def initialOffset(self) -> Offsets:
        bounds = read_bounds(self._options)
        begin = {}
        for place, known in bounds.items():
            asked = self._options.starting.of(*place)
            begin[place] = {EARLIEST: known.start, LATEST: known.end}.get(asked, asked)
        return to_json(begin)

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = {place: known.end for place, known in read_bounds(self._options).items()}

    def latestOffset(self, start: Any, limit: ReadLimit) -> Offsets:
        begin = from_json(start)
        bounds = read_bounds(self._options)
        ends = {place: known.end for place, known in bounds.items()} if self._last is None else dict(self._last)
        for place, end in begin.items():
            if ends.get(place, 0) < end:
                if self._last is None and self._options.fail_on_data_loss:
                    raise OffsetOutOfRange(
                        f"the stream has read up to offset {end}, but the log ends at {ends.get(place, 0)}",
                        where=f"{place[0]}-{place[1]}",
                        hint="check whether topic and bucket are the same as before; failOnDataLoss=false waits for it",
                    )
                ends[place] = end
        for place in ends:
            if place not in begin and place in bounds:
                begin[place] = bounds[place].start
        if isinstance(limit, ReadMaxRows):
            ends = bounded(begin, ends, limit.max_rows)
        return to_json(ends)

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        begin, ends = from_json(start), from_json(end)
        ranges = {place: (begin.get(place, EARLIEST), last) for place, last in ends.items()}
        ranges = {place: (first, last) for place, (first, last) in ranges.items() if first != last}
        if not ranges:
            return []
        return list(tasks(plan_ranges(self._options, ranges), self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        return read_task(partition, self._options)


def bounded(begin: Mapping[Place, int], ends: Mapping[Place, int], most: int) -> dict[Place, int]:
    """Returns ends that are at most `most` offsets away in total, shared in proportion to what each partition has."""
    left = {place: end - begin.get(place, 0) for place, end in ends.items()}
    total = sum(left.values())
    if total <= most:
        return dict(ends)
    shares = {place: size * most // total for place, size in left.items()}
    rest = most - sum(shares.values())
    for place in sorted(left, key=lambda place: shares[place] - left[place])[:rest]:
        shares[place] += 1
    return {place: begin.get(place, 0) + share for place, share in shares.items()}


def to_json(offsets: Mapping[Place, int]) -> Offsets:
    """Returns the offsets always in the same order, because Spark compares the text."""
    found: Offsets = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(offsets: Offsets) -> dict[Place, int]:
    return {(topic, int(number)): offset for topic, numbers in offsets.items() for number, offset in numbers.items()}

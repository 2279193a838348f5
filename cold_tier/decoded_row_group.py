"""A row group as a consumer gets it: record batches in offset order, ready to be sliced and sent.

A run covers its offsets without a hole. Where records were left out at its end (control batches, compacted keys), a
batch without records covers their offsets. A consumer then continues after that batch and does not ask for the same
offset again.

A run for readers of uncommitted records has the batches aside too, as they were in the log, each in its place.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cold_tier.objects.store import Buffer
from hot_tier.ids import LeaderEpoch, Offset
from hot_tier.record.batch import iter_headers, write_batch
from hot_tier.record.columns import RecordColumns, decode_batches, encode_batches

_MAX_DELTA = 2**31 - 1


class TimedOffset(NamedTuple):
    offset: Offset
    timestamp_ms: int
    leader_epoch: LeaderEpoch


class RunSlice(NamedTuple):
    data: memoryview
    """A view, which keeps the whole run in memory. It is copied before it goes to a client."""
    end_offset: Offset
    """The offset after the last batch. If the slice is empty: the offset that was asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    data: memoryview
    end_offset: Offset
    last_offsets: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    """Where each batch ends in `data`."""

    def __len__(self) -> int:
        return len(self.data)

    def slice(self, offset: Offset, max_bytes: int, min_one: bool = True) -> RunSlice:
        """Returns whole batches from the one that holds `offset`: as many as fit, and with `min_one` at least one."""
        first = int(np.searchsorted(self.last_offsets, offset))
        start = int(self.ends[first - 1]) if first else 0
        last = int(np.searchsorted(self.ends, start + max_bytes, "right")) - 1
        if last < first and not min_one:
            return RunSlice(self.data[:0], offset)
        last = max(last, first)
        return RunSlice(self.data[start : int(self.ends[last])], Offset(int(self.last_offsets[last]) + 1))

    def first_at_or_after(self, timestamp_ms: int, start: Offset, end: Offset) -> TimedOffset | None:
        """Returns the earliest record of [start, end) that is not older than `timestamp_ms`. Decodes no batch that is
        older."""
        for position, header in iter_headers(self.data):
            if header.max_timestamp < timestamp_ms or header.last_offset < start or not header.record_count:
                continue
            if header.base_offset >= end:
                return None
            batch = self.data[position : position + header.size]
            columns = decode_batches(batch, from_offset=start, end_offset=end)
            found = np.flatnonzero(columns.timestamps >= timestamp_ms)
            if len(found):
                row = found[0]
                return TimedOffset(
                    Offset(int(columns.offsets[row])), int(columns.timestamps[row]), LeaderEpoch(header.leader_epoch)
                )
        return None

    def greatest_timestamp(self, start: Offset, end: Offset) -> int | None:
        """Returns the greatest timestamp of the records in [start, end), or None if there are none."""
        stamps = decode_batches(self.data, from_offset=start, end_offset=end).timestamps
        return int(stamps.max()) if len(stamps) else None


def make_run(
    columns: RecordColumns | None,
    first_offset: Offset,
    end_offset: Offset,
    epoch: LeaderEpoch,
    aside: Buffer = b"",
) -> Run:
    """Returns the run of [first_offset, end_offset). `columns` is None if there are no rows; `aside` has the batches
    aside. Both may reach beyond the run. `epoch` is that of the last offset, for batches without records."""
    others = [
        _Batch(header.base_offset, header.end_offset, memoryview(aside)[at : at + header.size])
        for at, header in iter_headers(aside)
        if first_offset <= header.base_offset < end_offset
    ]
    parts: list[Buffer] = []
    covered: int = first_offset
    if columns is not None:
        low, high = np.searchsorted(columns.offsets, (first_offset, end_offset))
        if low < high:
            columns = columns.slice(int(low), int(high))
            parts = [encode_batches(columns, cut_at=[each.base_offset for each in others])]
            covered = int(columns.offsets[-1]) + 1
    if others:
        parts = _in_order(parts, others)
        covered = max(covered, others[-1].end_offset)
    while covered < end_offset:
        delta = min(end_offset - covered - 1, _MAX_DELTA)
        parts.append(
            write_batch(
                b"",
                codec=0,
                record_count=0,
                last_offset_delta=delta,
                base_timestamp=-1,
                max_timestamp=-1,
                base_offset=covered,
                leader_epoch=epoch,
            )
        )
        covered += delta + 1
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    if isinstance(data, memoryview) and _held_bytes(data) > len(data) * 9 // 8:
        # The encoder reserves the most that records can take. Without this copy a cache would hold more than it counts.
        data = bytes(data)
    found = list(iter_headers(data))
    return Run(
        memoryview(data).toreadonly(),
        end_offset,
        np.array([header.last_offset for _, header in found], np.int64),
        np.array([position + header.size for position, header in found], np.int64),
    )


class _Batch(NamedTuple):
    base_offset: int
    end_offset: int
    data: memoryview


def _in_order(rows: list[Buffer], others: list[_Batch]) -> list[Buffer]:
    found = [
        _Batch(header.base_offset, header.end_offset, memoryview(data)[at : at + header.size])
        for data in rows
        for at, header in iter_headers(data)
    ]
    return [batch.data for batch in sorted([*found, *others], key=lambda batch: batch.base_offset)]


def _held_bytes(view: memoryview) -> int:
    return memoryview(view.obj).nbytes

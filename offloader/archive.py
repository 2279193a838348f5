"""One sealed segment to Parquet and into the bucket. Runs in the worker process.

prove and convert -> rows -> index -> read back and verify [cold_tier.upload] -> manifest -> metadata -> local delete
                                                                       [offloader.partition_archive]
"""

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from cold_tier.format.write import COMPLETE, ROW_GROUP_BYTES, write_segment
from cold_tier.layout import PartitionLayout, SegmentName
from cold_tier.manifest.model import EpochStart, Segment
from cold_tier.objects.retrying import RetryingStore
from cold_tier.upload import upload_segment
from hot_tier.errors import CorruptBatch, CorruptLog
from hot_tier.ids import Offset
from hot_tier.log.index import Contents
from hot_tier.record.batch import BatchHeader
from hot_tier.record.columns import RecordColumns, columns_of
from offloader import failpoints
from offloader.source import proven_batches


@dataclass(frozen=True, slots=True)
class ArchiveJob:
    layout: PartitionLayout
    name: SegmentName
    log_path: str
    contents: Contents
    """What the local segment must hold."""
    base_offset: Offset
    """Where the archive goes on: inside the segment where a part of it is archived already."""
    epochs: tuple[EpochStart, ...]
    producers: bytes
    now_ms: int
    bytes_per_second: int
    """Of the local segment; 0: as fast as it goes."""
    zstd_level: int

    @property
    def end_offset(self) -> Offset:
        return Offset(self.contents.end_offset)


async def archive_segment(store: RetryingStore, job: ArchiveJob, scratch: str) -> Segment:
    """Upload the segment and return its manifest entry, verified. CorruptLog, and nothing uploaded, where the local
    segment is not what its seal says."""
    path = os.path.join(scratch, f"{job.name.stem}.parquet")
    layout = job.layout
    try:
        described = {
            "topic": layout.topic,
            "topic_id": str(layout.topic_id),
            "partition": str(layout.partition),
            "base_offset": str(job.base_offset),
            "end_offset": str(job.end_offset),
            COMPLETE: "true",
        }
        source = _Source(job)
        written = write_segment(
            path,
            _paced(source.rows(), job.contents.log_bytes, job.bytes_per_second),
            job.base_offset,
            job.end_offset,
            job.epochs,
            job.producers,
            described,
            zstd_level=job.zstd_level,
        )
        source.check_written(written.rows)
        failpoints.reach("archive.converted")
        return await upload_segment(
            store,
            layout,
            job.name,
            path,
            written,
            log_bytes=job.contents.log_bytes,
            archived_ms=job.now_ms,
            reached=lambda step: failpoints.reach(f"archive.{step}"),
        )
    finally:
        if os.path.exists(path):
            os.unlink(path)


class _Source:
    """The rows of a segment's proven batches, counted against them."""

    def __init__(self, job: ArchiveJob) -> None:
        self._job = job
        self._proven = 0
        """Records in the batches, by their headers."""
        self._archived = 0
        """Rows below the base offset: the archive has them."""

    def rows(self) -> Iterator[RecordColumns]:
        """Offsets grow and lie inside the segment, leader epochs are those the log knows: the last look before they
        become history."""
        job, last = self._job, self._job.contents.base_offset - 1
        starts = [epoch.start_offset for epoch in job.epochs]
        epochs = np.array([epoch.leader_epoch for epoch in job.epochs], np.int32)
        for columns in self._columns():
            offsets = columns.offsets
            if offsets[0] <= last or offsets[-1] >= job.end_offset or (offsets[1:] <= offsets[:-1]).any():
                raise self._mismatch(f"offsets {offsets[0]} to {offsets[-1]} after {last}, below {job.end_offset}")
            last = int(offsets[-1])
            skipped = int(np.searchsorted(offsets, job.base_offset))
            self._archived += skipped
            if skipped:
                columns = columns.slice(skipped, len(columns))
            known = np.searchsorted(starts, columns.offsets, "right")
            wrong = (known > 0) & (epochs[known - 1] != columns.leader_epochs) if starts else ()
            if np.any(wrong):
                at = int(np.argmax(wrong))
                raise self._mismatch(
                    f"offset {columns.offsets[at]} in leader epoch {columns.leader_epochs[at]}, the log knows "
                    f"{epochs[known[at] - 1]}"
                )
            yield columns

    def check_written(self, rows: int) -> None:
        if rows + self._archived != self._proven:
            raise self._mismatch(f"{rows} rows and {self._archived} archived before, of {self._proven} records")

    def _columns(self) -> Iterator[RecordColumns]:
        try:
            yield from columns_of(self._counted(), chunk_bytes=ROW_GROUP_BYTES)
        except CorruptBatch as error:
            raise self._mismatch(f"{error.where}: {error.what}") from error

    def _counted(self) -> Iterator[tuple[memoryview, int, BatchHeader]]:
        for data, at, header in proven_batches(self._job.log_path, self._job.contents):
            if not header.is_control:
                self._proven += header.record_count
            yield data, at, header

    def _mismatch(self, what: str) -> CorruptLog:
        return CorruptLog(
            what,
            where=self._job.log_path,
            hint="the segment is not archived and not deleted; keep it and report this",
        )


def _paced(chunks: Iterable[RecordColumns], log_bytes: int, bytes_per_second: int) -> Iterator[RecordColumns]:
    """Hold the conversion to a rate, so that it takes no more of the disk and the network than it may."""
    started = time.monotonic()
    for number, chunk in enumerate(chunks):
        if bytes_per_second:
            due = started + min(number * ROW_GROUP_BYTES, log_bytes) / bytes_per_second
            time.sleep(max(0.0, due - time.monotonic()))
        yield chunk

"""Converts one sealed segment to Parquet and uploads it. Runs in the worker process.

prove and convert -> rows -> index -> aside -> read back and verify -> manifest -> metadata -> local delete
                     [cold_tier.upload]                                [offloader.partition_archive]

Records of committed transactions, and those without a transaction, become rows. Aborted batches and markers go aside
(`cold_tier.format.aside`). All records of the segment are in one of both, or were archived before.
"""

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from cold_tier.format.aside import AsideWriter
from cold_tier.format.encryption import Writing
from cold_tier.format.write import COMPLETE, ROW_GROUP_BYTES, write_segment
from cold_tier.layout import PartitionLayout, SegmentName
from cold_tier.manifest.model import EpochStart, SegmentEntry
from cold_tier.objects.bucket import Bucket
from cold_tier.upload import upload_segment
from hot_tier.clock import steady_s
from hot_tier.errors import CorruptBatch, CorruptLog
from hot_tier.ids import Offset
from hot_tier.log.index import Contents
from hot_tier.log.transactions import Aborted
from hot_tier.record.batch import BatchHeader
from hot_tier.record.columns import RecordColumns, columns_of
from hot_tier.record.control import read_marker
from offloader import failpoints
from offloader.outcomes import Outcomes
from offloader.source import proven_batches

Batch = tuple[memoryview, int, BatchHeader]


@dataclass(frozen=True, slots=True)
class ArchiveJob:
    layout: PartitionLayout
    name: SegmentName
    log_path: str
    contents: Contents
    """What the local segment must hold."""
    base_offset: Offset
    """Where the archive continues. It lies inside the segment if a part of the segment is already archived."""
    epochs: tuple[EpochStart, ...]
    producers: bytes
    now_ms: int
    bytes_per_second: int
    """The limit, in bytes of the local segment. 0 means no limit."""
    zstd_level: int
    master_key: str = ""
    """The master key that encrypts it; empty: it is not encrypted."""
    aborted: tuple[Aborted, ...] = ()
    """The aborted transactions with batches in it. All its transactions are decided."""

    @property
    def end_offset(self) -> Offset:
        return Offset(self.contents.end_offset)


async def archive_segment(store: Bucket, job: ArchiveJob, scratch: str) -> SegmentEntry:
    """Uploads the segment and returns its verified manifest entry. Raises CorruptLog, and uploads nothing, if the local
    segment is not what its seal says."""
    path = os.path.join(scratch, f"{job.name.stem}.parquet")
    layout = job.layout
    aside = AsideWriter(
        os.path.join(scratch, f"{job.name.stem}.aside"),
        job.base_offset,
        job.end_offset,
        layout.aside(job.name),
        store.keys,
        job.master_key,
    )
    try:
        described = {
            "topic": layout.topic,
            "topic_id": str(layout.topic_id),
            "partition": str(layout.partition),
            "base_offset": str(job.base_offset),
            "end_offset": str(job.end_offset),
            COMPLETE: "true",
        }
        source = _Source(job, aside)
        written = write_segment(
            path,
            source.rows(),
            job.base_offset,
            job.end_offset,
            job.epochs,
            job.producers,
            described,
            zstd_level=job.zstd_level,
            encryption=Writing(store.keys, job.master_key, layout.rows(job.name)) if job.master_key else None,
        )
        source.check_written(written.rows)
        written = replace(written, index=replace(written.index, aside=aside.finish()))
        failpoints.reach("archive.converted")
        return await upload_segment(
            store,
            layout,
            job.name,
            path,
            written,
            aside_path=aside.path,
            log_bytes=job.contents.log_bytes,
            archived_ms=job.now_ms,
            reached=lambda step: failpoints.reach(f"archive.{step}"),
        )
    finally:
        aside.close()
        for each in (path, aside.path):
            if os.path.exists(each):
                os.unlink(each)


class _Source:
    """The rows of a segment's proven batches; it puts the other batches aside. It counts all of them, so that they can
    be compared."""

    def __init__(self, job: ArchiveJob, aside: AsideWriter) -> None:
        self._job = job
        self._aside = aside
        self._outcomes = Outcomes(job.aborted, compare=job.contents.dense)
        self._proven = 0
        """The number of records in the batches, from their headers."""
        self._archived = 0
        """The number of records below the base offset, which the archive already has."""

    def rows(self) -> Iterator[RecordColumns]:
        """Yields the rows. Checks for the last time that offsets rise and lie inside the segment, and that leader
        epochs are those that the log knows."""
        job, last = self._job, self._job.contents.base_offset - 1
        starts = [epoch.start_offset for epoch in job.epochs]
        epochs = np.array([epoch.leader_epoch for epoch in job.epochs], np.int32)
        for columns in self._columns():
            offsets = columns.offsets
            if offsets[0] <= last or offsets[-1] >= job.end_offset or (offsets[1:] <= offsets[:-1]).any():
                raise self._mismatch(
                    f"offsets {offsets[0]} to {offsets[-1]} do not rise from {last} to {job.end_offset}"
                )
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
                    f"offset {columns.offsets[at]} has leader epoch {columns.leader_epochs[at]}, but in the log it "
                    f"has {epochs[known[at] - 1]}"
                )
            yield columns

    def check_written(self, rows: int) -> None:
        aside = self._aside.records
        if rows + aside + self._archived != self._proven:
            raise self._mismatch(
                f"{rows} rows, {aside} records aside and {self._archived} archived before are not all of its "
                f"{self._proven} records"
            )

    def _columns(self) -> Iterator[RecordColumns]:
        try:
            yield from columns_of(self._row_batches(), chunk_bytes=ROW_GROUP_BYTES)
        except CorruptBatch as error:
            raise self._mismatch(f"{error.where}: {error.what}") from error

    def _row_batches(self) -> Iterator[Batch]:
        job = self._job
        for data, at, header in _paced(proven_batches(job.log_path, job.contents), job.bytes_per_second):
            self._proven += header.record_count
            if not self._is_aside(data, at, header):
                yield data, at, header
            elif header.end_offset <= job.base_offset:
                self._archived += header.record_count
            elif header.base_offset < job.base_offset:
                raise self._mismatch(f"the archive ends in the middle of the batch at offset {header.base_offset}")
            else:
                self._aside.add(data[at : at + header.size], header)

    def _is_aside(self, data: memoryview, at: int, header: BatchHeader) -> bool:
        if not header.record_count:  # Compaction left it as the trace of a producer.
            return False
        try:
            if not header.is_control:
                return self._outcomes.is_aborted(header)
            self._outcomes.ended(header, read_marker(data, header, at).kind)
        except ValueError as error:
            raise self._mismatch(str(error)) from error
        return True

    def _mismatch(self, what: str) -> CorruptLog:
        return CorruptLog(
            what,
            where=self._job.log_path,
            hint="the segment is not archived and not deleted; keep it and report this",
        )


def _paced(batches: Iterable[Batch], bytes_per_second: int) -> Iterator[Batch]:
    """Slows the conversion to a rate, so that it takes no more of the disk and the network than it may."""
    started = steady_s()
    done = pause_at = 0
    for batch in batches:
        if bytes_per_second and done >= pause_at:
            time.sleep(max(0.0, started + done / bytes_per_second - steady_s()))
            pause_at = done + ROW_GROUP_BYTES
        yield batch
        done += batch[2].size

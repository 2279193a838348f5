"""One sealed segment to Parquet and into the bucket. Runs in the worker process.

convert -> rows -> index -> read back and verify [cold_tier.upload] -> manifest -> metadata -> local delete
                                                                       [offloader.partition_archive]
"""

import mmap
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cold_tier.format.write import ROW_GROUP_BYTES, write_segment
from cold_tier.layout import PartitionLayout, SegmentName
from cold_tier.manifest.model import EpochStart, Segment
from cold_tier.objects.retrying import RetryingStore
from cold_tier.upload import upload_segment
from hot_tier.errors import CorruptLog
from hot_tier.ids import Offset
from hot_tier.record.columns import RecordColumns, iter_columns
from offloader import failpoints


@dataclass(frozen=True, slots=True)
class ArchiveJob:
    layout: PartitionLayout
    name: SegmentName
    log_path: str
    base_offset: Offset
    end_offset: Offset
    epochs: tuple[EpochStart, ...]
    producers: bytes
    now_ms: int
    bytes_per_second: int
    """Of the local segment; 0: as fast as it goes."""
    zstd_level: int


async def archive_segment(store: RetryingStore, job: ArchiveJob, scratch: str) -> Segment:
    """Upload the segment and return its manifest entry, verified."""
    path = os.path.join(scratch, f"{job.name.stem}.parquet")
    layout = job.layout
    try:
        log_bytes = os.path.getsize(job.log_path)
        described = {
            "topic": layout.topic,
            "topic_id": str(layout.topic_id),
            "partition": str(layout.partition),
            "base_offset": str(job.base_offset),
            "end_offset": str(job.end_offset),
        }
        chunks = iter_columns(
            _mapped(job.log_path),
            from_offset=job.base_offset,
            end_offset=job.end_offset,
            chunk_bytes=ROW_GROUP_BYTES,
        )
        written = write_segment(
            path,
            _checked(_paced(chunks, log_bytes, job.bytes_per_second), job),
            job.base_offset,
            job.end_offset,
            job.epochs,
            job.producers,
            described,
            zstd_level=job.zstd_level,
        )
        failpoints.reach("archive.converted")
        return await upload_segment(
            store,
            layout,
            job.name,
            path,
            written,
            log_bytes=log_bytes,
            archived_ms=job.now_ms,
            reached=lambda step: failpoints.reach(f"archive.{step}"),
        )
    finally:
        if os.path.exists(path):
            os.unlink(path)


def _mapped(path: str) -> memoryview:
    """A file's bytes without reading it; the mapping lasts as long as someone looks at it."""
    with open(path, "rb") as file:
        # Compaction may have left nothing of a segment but its offsets.
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _paced(chunks: Iterator[RecordColumns], log_bytes: int, bytes_per_second: int) -> Iterator[RecordColumns]:
    """Hold the conversion to a rate, so that it takes no more of the disk and the network than it may."""
    started = time.monotonic()
    for number, chunk in enumerate(chunks):
        if bytes_per_second:
            due = started + min(number * ROW_GROUP_BYTES, log_bytes) / bytes_per_second
            time.sleep(max(0.0, due - time.monotonic()))
        yield chunk


def _checked(chunks: Iterable[RecordColumns], job: ArchiveJob) -> Iterator[RecordColumns]:
    """Rows lie inside the segment's range and their offsets grow: the last look before they become history."""
    last = job.base_offset - 1
    for chunk in chunks:
        offsets = chunk.offsets
        if len(offsets):
            if offsets[0] <= last or offsets[-1] >= job.end_offset or (offsets[1:] <= offsets[:-1]).any():
                raise CorruptLog(
                    f"offsets {offsets[0]} to {offsets[-1]} do not follow {last} below {job.end_offset}",
                    where=job.log_path,
                    hint="the segment is not archived and not deleted; keep it and report this",
                )
            last = Offset(int(offsets[-1]))
        yield chunk

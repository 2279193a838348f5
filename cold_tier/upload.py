"""Uploads a converted segment: rows, index, batches aside, then reads all back. The first half of the safe order.

Until a manifest names them, the objects are orphans that no reader follows. A crash anywhere here leaves at most
such orphans. Others publish them: `offloader.partition_archive` for the leader, `cold_tier.proposals` for everyone
else.
"""

from collections.abc import Callable
from typing import Final

from cold_tier.errors import CorruptObject
from cold_tier.format.index import write_index
from cold_tier.format.write import WrittenSegment
from cold_tier.layout import PartitionLayout, SegmentName
from cold_tier.manifest.model import SegmentEntry
from cold_tier.objects.bucket import Bucket
from hot_tier.record.crc import crc32c

READ_BACK_BYTES: Final = 8 << 20


async def upload_segment(
    store: Bucket,
    layout: PartitionLayout,
    name: SegmentName,
    path: str,
    written: WrittenSegment,
    *,
    aside_path: str = "",
    log_bytes: int,
    archived_ms: int,
    reached: Callable[[str], None] = lambda step: None,
) -> SegmentEntry:
    """Uploads the file `path`, its index, and the batches aside under `name`. Returns the verified manifest entry.

    `aside_path` is the file of batches aside, if the index names any. `reached` is called after each step.
    """
    index = written.index
    await store.put_file(layout.rows(name), path)
    reached("rows_uploaded")
    data = write_index(index)
    await store.put(layout.index(name), data)
    reached("index_uploaded")
    if index.aside is not None:
        await store.put_file(layout.aside(name), aside_path)
        reached("aside_uploaded")
    segment = SegmentEntry(
        name=name,
        end_offset=index.end_offset,
        rows=written.rows,
        min_timestamp_ms=written.min_timestamp_ms,
        max_timestamp_ms=written.max_timestamp_ms,
        rows_bytes=index.rows_bytes,
        rows_crc32c=written.rows_crc32c,
        index_bytes=len(data),
        index_crc32c=crc32c(data),
        log_bytes=log_bytes,
        archived_ms=archived_ms,
        epochs=index.epochs,
        master_key=written.master_key,
        aside=None if index.aside is None else index.aside.entry,
    )
    await verify_segment(store, layout, segment)
    reached("verified")
    return segment


async def verify_segment(store: Bucket, layout: PartitionLayout, segment: SegmentEntry) -> None:
    """Reads all objects of the segment completely and compares size and checksum with the manifest entry.

    Raises CorruptObject for the first object that differs.
    """
    checksums = {
        layout.rows(segment.name): segment.rows_crc32c,
        layout.index(segment.name): segment.index_crc32c,
    }
    if segment.aside is not None:
        checksums[layout.aside(segment.name)] = segment.aside.crc32c
    for key, size in segment.objects(layout).items():
        expected = checksums[key]
        found, checksum = 0, 0
        # The range is one byte longer than the object should be, so that a longer object is found.
        while data := await store.get(key, found, min(READ_BACK_BYTES, size + 1 - found)):
            checksum = crc32c(data, checksum)
            found += len(data)
            if found > size:
                break
        if (found, checksum) != (size, expected):
            raise CorruptObject(
                f"{found} bytes with checksum {checksum:08x}, expected {size} with {expected:08x}",
                where=f"{store.url}{key}",
                hint="what was stored is not what was sent; the segment is archived again under a new name",
            )

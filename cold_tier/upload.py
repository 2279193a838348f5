"""A converted segment into the bucket: rows, then index, then both read back. The first half of the safe order.

Until a manifest names them, the two objects are orphans that no reader follows; a crash anywhere here leaves at most
that. Who may publish them is another matter: `offloader.partition_archive` for the leader, `cold_tier.proposals` for
everyone else.
"""

from collections.abc import Callable
from typing import Final

from cold_tier.errors import CorruptObject
from cold_tier.format.index import write_index
from cold_tier.format.write import WrittenSegment
from cold_tier.layout import PartitionLayout, SegmentName
from cold_tier.manifest.model import Segment
from cold_tier.objects.retrying import RetryingStore
from hot_tier.record.crc import crc32c

READ_BACK_BYTES: Final = 8 << 20


async def upload_segment(
    store: RetryingStore,
    layout: PartitionLayout,
    name: SegmentName,
    path: str,
    written: WrittenSegment,
    *,
    log_bytes: int,
    archived_ms: int,
    reached: Callable[[str], None] = lambda step: None,
) -> Segment:
    """Upload the file `path` and its index under `name` and return the manifest entry, verified.

    `reached` is told of each step that is done.
    """
    index = written.index
    await store.put_file(layout.rows(name), path, index.rows_bytes)
    reached("rows_uploaded")
    data = write_index(index)
    await store.put(layout.index(name), data)
    reached("index_uploaded")
    segment = Segment(
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
    )
    await verify_segment(store, layout, segment)
    reached("verified")
    return segment


async def verify_segment(store: RetryingStore, layout: PartitionLayout, segment: Segment) -> None:
    """Read both objects whole and compare size and checksum with the manifest entry; CorruptObject names the first."""
    for key, size, expected in (
        (layout.rows(segment.name), segment.rows_bytes, segment.rows_crc32c),
        (layout.index(segment.name), segment.index_bytes, segment.index_crc32c),
    ):
        found, checksum = 0, 0
        # One byte past the end is asked for too: an object that is longer than it should be is not the one.
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

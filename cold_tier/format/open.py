"""A segment's index from the bucket, checked against the manifest."""

import asyncio

from cold_tier.errors import CorruptObject, ObjectMissing
from cold_tier.format.index import read_index
from cold_tier.format.read import SegmentReader
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import Segment
from cold_tier.objects.retrying import RetryingStore
from hot_tier.record.crc import crc32c


async def open_segment(store: RetryingStore, layout: PartitionLayout, segment: Segment) -> SegmentReader:
    """Returns what decodes the segment's rows. CorruptObject where its index is not the one that the manifest names."""
    where = f"{store.url}{layout.index(segment.name)}"
    try:
        data = await store.get(layout.index(segment.name))
    except ObjectMissing as error:
        raise CorruptObject("the manifest names this index, but it is not there", where=where) from error
    if len(data) != segment.index_bytes or crc32c(data) != segment.index_crc32c:
        raise CorruptObject("the index is not the one that the manifest names", where=where)
    index = read_index(data, where)
    return await asyncio.to_thread(SegmentReader.open, index, f"{store.url}{layout.rows(segment.name)}")

"""What the bucket still holds, asked right before local copies go. All was there when it was published, but a rule of
the bucket or a person may have deleted objects since.

Two HEAD requests for each archived segment whose local copy goes.
"""

import asyncio

from cold_tier.manifest.reader import Manifest
from cold_tier.objects.retrying import RetryingStore
from hot_tier.ids import Offset


async def stored_until(store: RetryingStore, manifest: Manifest, start: Offset, end: Offset) -> tuple[Offset, str]:
    """Up to where the bucket has every object that holds [start, end), at its size; and what is wrong there."""
    layout = manifest.snapshot.layout
    if start >= end:
        return end, ""
    async for segment in manifest.segments(start, end):
        wanted = {layout.rows(segment.name): segment.rows_bytes, layout.index(segment.name): segment.index_bytes}
        for (key, size), info in zip(wanted.items(), await asyncio.gather(*map(store.head, wanted)), strict=True):
            if info is None:
                return segment.base_offset, f"{store.url}{key}: this archived object is gone from the bucket"
            if info.size != size:
                return segment.base_offset, f"{store.url}{key}: it has {info.size} bytes, and {size} were archived"
    return end, ""

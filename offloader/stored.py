"""Checks that the bucket still holds archived objects, right before local copies are deleted.

Everything was there when it was published, but a rule of the bucket or a person may have deleted objects since. The
check costs a HEAD request for each object of the archived segments whose local copy is to be deleted.
"""

import asyncio

from cold_tier.manifest.reader import Manifest
from cold_tier.objects.bucket import Bucket
from hot_tier.ids import Offset


async def stored_until(store: Bucket, manifest: Manifest, start: Offset, end: Offset) -> tuple[Offset, str]:
    """Returns up to where the bucket has every object of [start, end) with the right size, and what is wrong there."""
    layout = manifest.snapshot.layout
    if start >= end:
        return end, ""
    async for segment in manifest.segments(start, end):
        wanted = segment.objects(layout)
        for (key, size), info in zip(wanted.items(), await asyncio.gather(*map(store.head, wanted)), strict=True):
            if info is None:
                return segment.base_offset, f"{store.url}{key}: this archived object is gone from the bucket"
            if info.size != size:
                return segment.base_offset, f"{store.url}{key}: it has {info.size} bytes, and {size} were archived"
    return end, ""

"""Mends damaged segments: a whole file lies in the place of the damaged one, or is put there.

A file counts only if it is proven to hold what the segment held when it was sealed (`proof`). Then the segment is taken
up as after a start: nothing that was known of the damaged file is true of the new one.
"""

import asyncio
import os

from hot_tier.errors import CorruptLog
from hot_tier.log.files import sync_directory
from hot_tier.log.partition_log import PartitionLog
from hot_tier.log.proof import prove_segment
from hot_tier.log.segment_info import SegmentInfo


async def proved_again(log: PartitionLog, info: SegmentInfo) -> bool:
    """Returns whether the segment's own file is whole: somebody replaced it, or the fault was not in the file."""
    try:
        await asyncio.to_thread(prove_segment, info.path, info.contents)
    except CorruptLog:
        return False
    return log.renew(info)


async def replace(log: PartitionLog, info: SegmentInfo, copy: str) -> bool:
    """Replaces a segment's own file. Returns False if the segment has changed meanwhile. Raises CorruptLog if the new
    file is not whole."""
    await asyncio.to_thread(prove_segment, copy, info.contents)
    if not log.renew(info, copy):
        return False
    await asyncio.to_thread(sync_directory, os.path.dirname(info.path))
    return True

"""Damaged segments that come right again: a whole file lies in the damaged one's place, or is put there.

A file counts only if it is proven to hold what the segment held when it was sealed (`proof`). Then the segment is taken
up anew, as after a start: nothing that was known of the damaged file is true of this one.
"""

import asyncio
import os

from hot_tier.errors import CorruptLog
from hot_tier.log.files import sync_directory
from hot_tier.log.proof import prove_segment
from hot_tier.log.segment_info import SegmentInfo
from hot_tier.log.stored_log import StoredLog


async def proved_again(log: StoredLog, info: SegmentInfo) -> bool:
    """Whether the segment's own file is whole: somebody replaced it, or it was never the file that was wrong."""
    try:
        await asyncio.to_thread(prove_segment, info.path, info.contents)
    except CorruptLog:
        return False
    return log.renew(info)


async def replace(log: StoredLog, info: SegmentInfo, copy: str) -> bool:
    """Puts a file into the place of a segment's own, which is let go. False if the segment is not there any more as it
    was; CorruptLog if the file is not whole."""
    await asyncio.to_thread(prove_segment, copy, info.contents)
    if not log.renew(info, copy):
        return False
    await asyncio.to_thread(sync_directory, os.path.dirname(info.path))
    return True

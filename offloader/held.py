"""A segment that is not archived because it is not proven whole, until it is.

It stays on the local disk, and so does everything behind it: manifests have no holes. It is proven anew when its file
has changed, since somebody may have put a whole copy in its place, and now and then in any case, since what was wrong
may have been the memory and not the disk.
"""

from dataclasses import dataclass
from typing import Final

from cold_tier.reports import HeldSegment
from hot_tier.log.files import Signature, signature
from hot_tier.log.segment_info import SegmentInfo

AGAIN_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class Held:
    info: SegmentInfo
    why: str
    since_ms: int
    proven_ms: int
    """When its proof last failed."""
    file: Signature
    """What the file looked like before that."""

    def report(self) -> HeldSegment:
        info = self.info
        return HeldSegment(info.path, info.base_offset, info.end_offset, self.why, self.since_ms)

    def is_due(self, now_ms: int) -> bool:
        """Whether it is to be proven again. A clock that went back is no reason to wait."""
        return signature(self.info.path) != self.file or not 0 <= now_ms - self.proven_ms < AGAIN_MS

"""One segment as a value, for those who decide about it."""

from typing import NamedTuple

from hot_tier.ids import Offset
from hot_tier.log.index import UNKNOWN, Contents


class SegmentInfo(NamedTuple):
    base_offset: Offset
    end_offset: Offset
    size: int
    max_timestamp: int
    path: str
    sealed: bool
    """Closed and synced, with its index files and the producer state at its end."""
    cleaned_ms: int
    """When compaction first wrote it, -1 for never."""
    dense: bool
    batches: int = UNKNOWN
    header_digest: int = 0
    damage: str = ""
    """What is known to be wrong with it; empty for nothing."""
    renewals: int = 0
    """How often its file was taken up anew, because it was mended or replaced."""

    @property
    def contents(self) -> Contents:
        """Returns what its file must hold (`proof.prove_segment`)."""
        return Contents(self.base_offset, self.end_offset, self.size, self.dense, self.batches, self.header_digest)

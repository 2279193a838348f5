"""What a query reads of a topic: for each partition the range of offsets, and up to where the archive has it.

A range is fixed when the query begins. Its rows below `border` come from the bucket, by the snapshot of the manifest,
and all others from the partition's leader, which reads both tiers. So a segment that moves meanwhile is neither missed
nor read twice.
"""

from dataclasses import dataclass

from cold_tier.format.encryption import Demand
from cold_tier.layout import PartitionLayout
from cold_tier.manifest.model import Snapshot


@dataclass(frozen=True, slots=True)
class Extent:
    layout: PartitionLayout
    start_offset: int
    end_offset: int
    """The last stable offset when the query began."""
    snapshot: Snapshot | None
    """None: this broker does not keep the partition's manifest; the worker loads it."""
    demand: Demand | None
    owner: str
    """The cluster whose manifests count where the worker loads one."""
    compacted: bool
    """The leader may have compacted what the archive still holds, and consumers get the leader's copy. So only what the
    leader has dropped comes from the archive."""
    local_start_offset: int | None
    """Where the leader's local log begins, if it is this broker."""
    leader_epoch: int

    @property
    def partition(self) -> int:
        return self.layout.partition


@dataclass(frozen=True, slots=True)
class TopicExtents:
    topic: str
    extents: tuple[Extent, ...]


def border(extent: Extent, snapshot: Snapshot | None) -> int:
    """Returns the offset up to which rows come from the archive."""
    start, end = extent.start_offset, extent.end_offset
    if snapshot is None or not snapshot.segments or not snapshot.start_offset <= start < snapshot.end_offset:
        return start
    most = min(end, snapshot.end_offset)
    if extent.compacted:
        most = min(most, start if extent.local_start_offset is None else extent.local_start_offset)
    return max(start, most)


def counts(extent: Extent, snapshot: Snapshot) -> bool:
    """Returns whether a manifest that was found in the bucket is this cluster's own, and not of the future."""
    own = snapshot.owner is None or not extent.owner or snapshot.owner.cluster == extent.owner
    return own and snapshot.version.leader_epoch <= extent.leader_epoch

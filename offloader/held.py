"""What holds the archive of a partition up: a segment that is not proven to be undamaged, or an open transaction.

A damaged segment stays on the local disk, and so does everything after it, because manifests have no holes. It is
proven again when its file has changed, since somebody may have put an undamaged copy in its place. It is also proven
again from time to time, since the memory may have been at fault and not the disk.

A segment with an open transaction waits until the transaction is decided. For most that is within a second, so the log
tells of it only after a while.
"""

from dataclasses import dataclass
from typing import Final

import structlog

from cold_tier.reports import HeldSegment, HoldingTransaction
from hot_tier.ids import Offset, TopicPartition
from hot_tier.log.files import Signature, signature
from hot_tier.log.segment_info import SegmentInfo
from hot_tier.replication.led_partition import LedPartition

AGAIN_MS: Final = 600_000
LONG_MS: Final = 60_000
"""How long a transaction is open before the log says that the archive waits for it."""

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Held:
    info: SegmentInfo
    why: str
    since_ms: int
    proven_ms: int
    """When its proof last failed."""
    file: Signature
    """What the file looked like before that proof."""

    def report(self) -> HeldSegment:
        info = self.info
        return HeldSegment(info.path, info.base_offset, info.end_offset, self.why, self.since_ms)

    def is_due(self, now_ms: int) -> bool:
        """Returns whether it should be proven again. If the clock went back, it is due."""
        return signature(self.info.path) != self.file or not 0 <= now_ms - self.proven_ms < AGAIN_MS


def holding_transaction(partition: LedPartition, archived_end: Offset) -> HoldingTransaction | None:
    """Returns the open transaction that the next sealed segment waits for, if one does."""
    if not partition.log.config.remote_storage_enable:
        return None
    following = next((info for info in partition.log.sealed_segments() if info.end_offset > archived_end), None)
    if following is None or following.end_offset <= partition.last_stable_offset:
        return None
    holder = partition.held_by
    if holder is None or holder.first_offset >= following.end_offset:
        return None
    return HoldingTransaction(holder.transactional_id, holder.producer_id, int(holder.first_offset), holder.started_ms)


class HoldingLog:
    """Writes each transaction that holds an archive up for long to the log, once."""

    def __init__(self) -> None:
        self._told: dict[TopicPartition, HoldingTransaction] = {}

    def note(self, partition: LedPartition, archived_end: Offset, now_ms: int) -> None:
        holding = holding_transaction(partition, archived_end)
        if holding is None:
            self._told.pop(partition.tp, None)
            return
        if now_ms - holding.since_ms < LONG_MS or self._told.get(partition.tp) == holding:
            return
        self._told[partition.tp] = holding
        _log.warning(
            "the archive waits for an open transaction",
            partition=str(partition.tp),
            held_by=str(holding),
            open_for_seconds=(now_ms - holding.since_ms) // 1000,
            hint=holding.hint,
        )

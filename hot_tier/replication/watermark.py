"""Decides where the high watermark stands, purely from what the replicas hold.

A record is committed when every in-sync replica holds it durably. "Holds durably" is each replica's own
business: with `flush=commit` its log as far as it was synced, with `flush=os` all of its log.
"""

from collections.abc import Collection, Mapping

from hot_tier.ids import NodeId, Offset


def high_watermark(current: Offset, durable_ends: Mapping[NodeId, Offset], in_sync: Collection[NodeId]) -> Offset:
    """Returns the next high watermark: the smallest durable end among the in-sync replicas, never below `current`.

    A member that has not reported in this leader epoch holds it where it is: what it has is not known. So does
    an empty in-sync set, which says that nobody may commit anything.
    """
    if not in_sync:
        return current
    lowest = min([durable_ends.get(node, current) for node in in_sync])
    return max(current, lowest)


def last_stable_offset(high_watermark: Offset, first_unstable: int, log_start: Offset) -> Offset:
    """Returns the end of what read_committed may see: committed, and before the first transaction that is not decided.
    If records of that transaction were deleted, it stands where the log starts."""
    return min(high_watermark, max(log_start, Offset(first_unstable)))

"""Where the high watermark stands: a pure decision over what the replicas hold.

A record is committed when every in-sync replica holds it durably. "Holds durably" is each replica's own
business: with `flush=commit` its log as far as it was synced, with `flush=os` all of its log.
"""

from collections.abc import Collection, Mapping

from hot_tier.ids import NodeId, Offset


def high_watermark(current: Offset, durable_ends: Mapping[NodeId, Offset], in_sync: Collection[NodeId]) -> Offset:
    """The next high watermark: the smallest durable end among the in-sync replicas, never below `current`.

    A member that has not reported in this leader epoch holds it where it is: what it has is not known. So does
    an empty in-sync set, which says that nobody may commit anything.
    """
    if not in_sync:
        return current
    lowest = min(durable_ends.get(node, current) for node in in_sync)
    return max(current, lowest)


def last_stable_offset(high_watermark: Offset, first_unstable: Offset | None) -> Offset:
    """What read_committed may see: below the first open transaction, and committed."""
    return high_watermark if first_unstable is None else min(high_watermark, first_unstable)

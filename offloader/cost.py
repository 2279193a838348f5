"""Estimates what a topic costs per month in the bucket, line by line, compared with the same history on local disks.

It is pure arithmetic over what manifests say. These are its assumptions, which are shown with the figures:

- A month has 730 hours. The topic grows as fast as its archived records did, and keeps them for its retention.
- For each archived segment the service makes one PUT for each part of the rows (one part up to `PART_BYTES`), one for
  the index, one for the manifest, and reads both objects back. For each expired segment it writes a manifest and
  deletes objects, which is free. Before each publish and each deletion, also of local segments, it LISTs the manifests:
  five times in a segment's life. Before a deletion it reads the newest manifest.
- For each partition it LISTs six folders every time it looks for garbage, two of them twice.
- A replay reads each segment's index and each row group once. Reading inside the region costs no transfer.
- On local disks the same log bytes are kept `replication` times, on disks that are full. With the archive, local disks
  keep `local.retention` of them.
"""

from typing import Final

from cold_tier.format.write import ROW_GROUP_BYTES
from cold_tier.objects.bucket import StoreCounters
from cold_tier.reports import Estimate, Line, TopicFacts
from cold_tier.upload import READ_BACK_BYTES
from offloader.prices import CostSettings

MONTH_MS: Final = 730 * 3_600_000
DAY_MS: Final = 24 * 3_600_000
GB: Final = 10**9
PART_BYTES: Final = 16 << 20
"""A larger upload is split into parts of this size (`cold_tier.objects.s3`)."""
LISTS: Final = 8
PUBLISHES_AND_DELETIONS: Final = 5
"""How often this happens to a segment: it is archived, dropped locally, expired, deleted, forgotten."""
DELETIONS: Final = 2


def estimate(
    facts: TopicFacts,
    prices: CostSettings,
    *,
    retention_ms: int | None = None,
    replays: float = 1,
    garbage_check_ms: int = 3_600_000,
) -> Estimate:
    """With `retention_ms`, estimates the steady state under that retention; without it, what is archived now."""
    per_month = facts.log_bytes * MONTH_MS / facts.span_ms if facts.span_ms else 0.0
    planned = retention_ms is not None and retention_ms >= 0
    kept_ms = retention_ms if retention_ms is not None else facts.retention_ms
    held = per_month * kept_ms / MONTH_MS if planned else float(facts.log_bytes)
    scale = held / facts.log_bytes if facts.log_bytes else 0.0
    stored = (facts.rows_bytes + facts.index_bytes) * scale
    segment_bytes = facts.log_bytes / facts.segments if facts.segments else 0.0
    rows_per_segment = facts.rows_bytes / facts.segments if facts.segments else 0.0
    archived = per_month / segment_bytes if segment_bytes else 0.0
    held_segments = facts.segments * scale

    parts = max(1.0, -(-rows_per_segment // PART_BYTES)) if archived else 0.0
    # An upload in parts needs two more requests: one to begin it and one to complete it.
    puts = archived * (parts + (2 if parts > 1 else 0) + 2) + archived
    read_back = archived * (rows_per_segment // READ_BACK_BYTES + 1 + 2 + DELETIONS)
    row_groups = held / ROW_GROUP_BYTES
    lists = facts.partitions * LISTS * MONTH_MS / garbage_check_ms + archived * PUBLISHES_AND_DELETIONS
    bucket = (
        Line("stored rows and indexes", stored / GB, "GB", prices.storage_gb_month),
        Line("PUT: rows, index, manifest; manifest at expiry", puts / 1000, "1,000", prices.put_per_1000),
        Line("GET: each segment read back, manifests", read_back / 1000, "1,000", prices.get_per_1000),
        Line(
            f"GET: {replays:g} replays of all of it",
            replays * (held_segments + max(row_groups, held_segments)) / 1000,
            "1,000",
            prices.get_per_1000,
        ),
        Line("LIST: looking for garbage, publishing, deleting", lists / 1000, "1,000", prices.list_per_1000),
    )
    local_bytes = _local_bytes(facts, per_month, held)
    copies = prices.replication
    return Estimate(
        retention_ms=kept_ms,
        log_bytes_per_month=per_month,
        held_log_bytes=held,
        bucket=bucket,
        local=(
            Line(f"local.retention on NVMe, {copies} copies", local_bytes * copies / GB, "GB", prices.nvme_gb_month),
        ),
        disks=(Line(f"all of it on NVMe, {copies} copies", held * copies / GB, "GB", prices.nvme_gb_month),),
    )


def _local_bytes(facts: TopicFacts, per_month: float, held: float) -> float:
    if facts.local_retention_ms < 0:
        return held
    return min(held, per_month * facts.local_retention_ms / MONTH_MS)


def storage_cost_per_day(stored_bytes: int, prices: CostSettings) -> float:
    return stored_bytes / GB * prices.storage_gb_month * DAY_MS / MONTH_MS


def requests_cost(counted: StoreCounters, prices: CostSettings) -> float:
    """A HEAD costs as much as a GET. Deletions are free."""
    gets = counted.gets + counted.heads
    thousands = counted.puts * prices.put_per_1000 + gets * prices.get_per_1000 + counted.lists * prices.list_per_1000
    return thousands / 1000

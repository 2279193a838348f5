"""What a topic costs per month in the bucket, line by line, beside the same history on replicated local disks.

Pure arithmetic over what manifests say. What it takes to be true, and says with the figures:

- A month has 730 hours. The topic goes on as fast as its archived records did, and holds its retention of them.
- Per archived segment the service makes one PUT per part of the rows (one up to `PART_BYTES`), one of the index, one of
  the manifest, and reads both back; per expired segment a manifest and deletions, which are free. Before each publish
  and each deletion, local ones too, it LISTs the manifests: five times in a segment's life. Before a deletion it reads
  the newest.
- Per partition it LISTs five folders every time it looks for garbage, two of them twice.
- A replay reads each segment's index and each row group once. Reading inside the region costs no transfer.
- On local disks the same log bytes are kept `replication` times, on disks that are full; with the archive, local disks
  keep `local.retention` of them.
"""

from dataclasses import dataclass
from typing import Final

from cold_tier.format.write import ROW_GROUP_BYTES
from cold_tier.upload import READ_BACK_BYTES
from offloader.prices import CostSettings

MONTH_MS: Final = 730 * 3_600_000
GB: Final = 10**9
PART_BYTES: Final = 16 << 20
"""An upload of more goes in parts of this (`cold_tier.objects.s3`)."""
LISTS: Final = 7
PUBLISHES_AND_DELETIONS: Final = 5
"""Of a segment: archived, dropped locally, expired, deleted, forgotten."""
DELETIONS: Final = 2


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What the manifests of a topic's partitions say together."""

    partitions: int
    segments: int
    rows_bytes: int
    index_bytes: int
    log_bytes: int
    span_ms: int
    """From the oldest archived record to the newest."""
    retention_ms: int
    """-1: for ever."""
    local_retention_ms: int
    """-1: for ever; -2: as retention."""


@dataclass(frozen=True, slots=True)
class Line:
    what: str
    amount: float
    unit: str
    price: float
    """Per unit."""

    @property
    def cost(self) -> float:
        return self.amount * self.price


@dataclass(frozen=True, slots=True)
class Estimate:
    retention_ms: int
    log_bytes_per_month: float
    held_log_bytes: float
    bucket: tuple[Line, ...]
    local: tuple[Line, ...]
    """What the topic has on local disks beside the archive."""
    disks: tuple[Line, ...]
    """The same retention on local disks alone."""

    @property
    def with_archive(self) -> float:
        return sum(line.cost for line in (*self.bucket, *self.local))

    @property
    def without_archive(self) -> float:
        return sum(line.cost for line in self.disks)


def estimate(
    facts: TopicFacts,
    prices: CostSettings,
    *,
    retention_ms: int | None = None,
    replays: float = 1,
    garbage_check_ms: int = 3_600_000,
) -> Estimate:
    """With `retention_ms`, the steady state under a planned retention; without, of what is archived now."""
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
    # An object in parts takes two more requests, to begin and to complete it.
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

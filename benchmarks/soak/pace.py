"""How fast things come and go in a run of so many minutes.

A log keeps records for days, groups for a week. Here a period, a sixtieth of the run, stands for a day's worth of all
that: whatever is kept for a while is made and removed again many times before the run ends.
"""

from dataclasses import dataclass

PARTITIONS = 4
RECORD_BYTES = 1000
KEYS = 5_000
MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Pace:
    minutes: float
    rate: int
    """Records per second to the topic that is archived; a quarter as many go to the compacted one."""

    @property
    def seconds(self) -> float:
        return self.minutes * 60

    @property
    def period_s(self) -> float:
        return self.seconds / 60

    @property
    def retention_ms(self) -> int:
        return int(10_000 * self.period_s)

    @property
    def sample_s(self) -> float:
        return max(0.2, self.period_s / 6)

    @property
    def segment_bytes(self) -> int:
        """Four segments of each partition in a period."""
        return max(64 << 10, int(self.rate * RECORD_BYTES / PARTITIONS * self.period_s / 4))

    def settings(self) -> dict[str, int]:
        period_ms = int(1000 * self.period_s)
        often_ms = max(100, period_ms // 12)
        return {
            "archive.check_ms": often_ms,
            "log.retention_check_ms": often_ms,
            "log.compaction_check_ms": often_ms,
            "archive.delete_grace_ms": period_ms,
            "archive.manifest_history_ms": 5 * period_ms,
            "archive.orphan_age_ms": 5 * period_ms,
            "archive.garbage_check_ms": period_ms,
            "log.producer_id_expiration_ms": 5 * period_ms,
            "groups.offsets_topic_partitions": 4,
            "groups.offsets_topic_segment_bytes": MB // 4,
            "groups.offsets_retention_minutes": 1,
            "groups.offsets_retention_check_interval_ms": period_ms,
            "topic.file.delete.delay.ms": period_ms,
            # Full well before the warm-up ends.
            "cache.memory_bytes": 32 * MB,
            "cache.disk_bytes": 64 * MB,
        }

    def archived_topic(self) -> dict[str, str]:
        return {
            "remote.storage.enable": "true",
            "segment.bytes": str(self.segment_bytes),
            "retention.ms": str(self.retention_ms),
            "local.retention.ms": str(int(1000 * self.period_s)),
        }

    def compacted_topic(self) -> dict[str, str]:
        return {"cleanup.policy": "compact", "segment.bytes": str(self.segment_bytes)}

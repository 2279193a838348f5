"""Counts records that are already too old for their topic's retention when they arrive, and logs it from time to time.

They are stored, as in Apache Kafka, and the next round of retention deletes them, although their sender was told that
they are stored.
"""

from typing import Final

import structlog

from hot_tier.log.config import TopicConfig
from hot_tier.record.batch import BatchHeader

TELL_AGAIN_MS: Final = 600_000
FOR_EVER_MS: Final = 1 << 62

_log = structlog.get_logger()


def keeps_ms(config: TopicConfig) -> int:
    """Returns how long records are kept by their own time."""
    by_time = "delete" in config.cleanup_policy and config.retention_ms >= 0 and not config.log_append_time
    return config.retention_ms if by_time else FOR_EVER_MS


class TooOld:
    def __init__(self) -> None:
        self.records: dict[str, int] = {}
        self._told: dict[str, tuple[int, int]] = {}
        """Topic → when, and how many had come by then."""

    def came(self, topic: str, header: BatchHeader, retention_ms: int, now_ms: int) -> None:
        count = self.records[topic] = self.records.get(topic, 0) + header.record_count
        told_ms, before = self._told.get(topic, (now_ms - TELL_AGAIN_MS, 0))
        if now_ms - told_ms >= TELL_AGAIN_MS:
            self._told[topic] = now_ms, count
            _log.warning(
                "records came that are older than their topic keeps them: they are deleted soon",
                topic=topic,
                records=count - before,
                newest_timestamp=header.max_timestamp,
                retention_ms=retention_ms,
                hint="to keep them, set a greater retention.ms, or -1, before old records are sent",
            )

    def forget(self, topic: str) -> None:
        self.records.pop(topic, None)
        self._told.pop(topic, None)
